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
// fails on one rank, every rank throws an Error with the rank, the device and UCX's error.
//
// In addition to the contract of Transport:
// - Transfer::tag uses at most 48 bits, and a job has at most 65536 ranks: UCP matches by one tag
//   of 64 bits, whose upper 16 bits contain the source rank. A wider tag completes with
//   kInvalidArgument.
// - weft passes `data` to UCX, and copies only short messages with a head and messages that
//   unexpected() has received. (On TCP, UCX copies through its segments for the reason in
//   ucx/config.cc.) `data` may be GPU memory if UCX was built with CUDA (caps().cuda), then at both
//   ends; such a message has no head, and cannot have `sums`.
// - The first post of either direction connects to the peer. From then on, if the peer dies, all
//   transfers with that peer complete with kPeerFailed, including receives. The job's control
//   plane, not this transport, detects a peer that is stopped or unreachable without an error.
// - cancel() withdraws receives for which no message has arrived. If a message is partly sent or
//   received, cancel() closes the whole rail, which is the only way to make UCX release `data`: all
//   other transfers complete with kAborted, and the peers see this rank as failed.
// - The destructor flushes sent messages for one second at most, and never waits for a dead peer.
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
