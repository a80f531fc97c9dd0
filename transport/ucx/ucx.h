// Messages between hosts through UCX (UCP): TCP sockets on a plain NIC, RDMA if available. One
// transport is one rail: its own UCP context and worker, pinned to the rail's device.
#pragma once

#include <memory>
#include <string>

#include "topo/topology.h"
#include "transport/job/bootstrap.h"
#include "transport/transport.h"

namespace weft {

// Returns why this process cannot use UCX (the dynamic linker's error, or a build without it);
// empty if it can. The first call loads the library. Thread-safe.
std::string why_no_ucx();
inline bool ucx_available() { return why_no_ucx().empty(); }

// Collective over the job: all ranks call this function for the same rail at the same time (one
// job.all_gather). `rail` is this host's device; the peers' devices may have other names. If setup
// fails on one rank, every rank throws an Error that names the rank, the device and UCX's error.
//
// The contract of Transport, and on top of it:
// - Transfer::tag uses at most 48 bits, and a job has at most 65536 ranks: UCP matches by one tag
// of
//   64 bits, whose upper 16 bits hold the source rank. A wider tag completes with kInvalidArgument.
// - weft hands `data` to UCX, and copies only short messages with a head and messages that
//   unexpected() has looked at. (On TCP, UCX copies through its segments: ucx/config.cc says why.)
//   `data` may be GPU memory where UCX was built with CUDA (caps().cuda), then at both ends; such a
//   message goes without a head, and not with `sums`.
// - The first post of either direction connects to the peer. From then on the peer's death
// completes
//   the transfers with that peer, receives too, with kPeerFailed. The job's control plane, not this
//   transport, notices a peer that is stopped or cut off silently.
// - cancel() withdraws receives that no message has arrived for. If a message is half sent or half
//   received, cancel() closes the whole rail, the only way to make UCX release `data`: all other
//   transfers complete with kAborted, and the peers see this rank as failed.
// - Destruction flushes sent messages for one second at most, and never waits for a dead peer.
//
// UCX's environment variables (UCX_NET_DEVICES, UCX_TLS, UCX_TCP_...) override weft's settings.
std::unique_ptr<Transport> make_ucx_transport(Job& job, const Topology& topology, const Nic& rail);

#ifndef WEFT_HAVE_UCX
inline std::string why_no_ucx() { return "weft was built without UCX"; }
inline std::unique_ptr<Transport> make_ucx_transport(Job&, const Topology&, const Nic& rail) {
  throw Error("ucx: rail " + rail.name +
              ": weft was built without UCX; install libucx-dev and build again");
}
#endif

}  // namespace weft
