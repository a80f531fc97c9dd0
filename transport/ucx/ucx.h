// Messages between hosts through UCX (UCP): TCP sockets on a plain NIC, RDMA where there is one.
// One transport is one rail: its own UCP context and worker, pinned to the rail's device.
#pragma once

#include <memory>

#include "topo/topology.h"
#include "transport/job/bootstrap.h"
#include "transport/transport.h"

namespace weft {

// True when weft was built with UCX.
bool ucx_available();

// Collective over the job: every rank calls it for the same rail at the same time (one
// job.all_gather). `rail` is this host's device; the peers may call theirs by another name.
// Throws Error naming the rank, the device and what UCX said; it does so on every rank, also
// when set-up fails on one of them only.
//
// The contract of Transport, and on top of it:
// - Transfer::tag uses at most 48 bits, and a job has at most 65536 ranks: UCP matches by one
// 64-bit
//   tag that all senders share, so the source rank takes its upper 16 bits. A wider tag completes
//   with kInvalidArgument.
// - `data` is handed to UCX as it is; nothing is copied on our side. (On TCP, UCX itself copies
//   through its segments: ucx/config.cc says why.) Memory of the host only.
// - A peer is connected to by the first post of either direction. From then on its death completes
//   the transfers with it, receives included, with kPeerFailed. A peer that is stopped or cut off
//   without a word is noticed by the job's control plane, not here.
// - cancel() takes back receives that nothing has come for. Where it meets a message half sent or
//   half received, it closes the whole rail, since only so UCX is certain to let go of `data`:
//   every other transfer completes with kAborted, and the peers see this rank as failed.
// - Destruction flushes what was sent, for a second at most; it never waits for a dead peer.
//
// UCX's environment wins over what weft sets (UCX_NET_DEVICES, UCX_TLS, UCX_TCP_..., and so on).
std::unique_ptr<Transport> make_ucx_transport(Job& job, const Topology& topology, const Nic& rail);

#ifndef WEFT_HAVE_UCX
inline bool ucx_available() { return false; }
inline std::unique_ptr<Transport> make_ucx_transport(Job&, const Topology&, const Nic& rail) {
  throw Error("ucx: rail " + rail.name +
              ": weft was built without UCX; install libucx-dev and build again");
}
#endif

}  // namespace weft
