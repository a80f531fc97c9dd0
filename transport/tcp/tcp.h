// Messages between hosts over TCP sockets, for rails that are plain NICs. One transport is one
// rail: a listener and at most one connection to each peer, on its device.
#pragma once

#include <memory>

#include "topo/topology.h"
#include "transport/job/bootstrap.h"
#include "transport/transport.h"

namespace weft {

// Collective over the job: all ranks call this function for the same rail at the same time (one
// job.all_gather). `rail` is this host's device; the peers' devices may have other names. If set-up
// fails on one rank, every rank throws an Error that names the rank, the device and the reason.
//
// In addition to the contract of Transport:
// - A send completes when the kernel has all of its bytes: no later call is needed to send them,
//   except for a lost datagram, which leave() and later calls repeat.
// - Messages of up to 512 bytes are sent as UDP datagrams if both ends have received one from each
//   other and each rank has its own core (WEFT_TCP_DATAGRAMS: 0 never, 1 on shared cores too).
// - Messages of up to 64 KiB are eager; the receiver buffers unexpected ones. Longer messages are
//   sent when their receive is posted, directly into the receive's memory.
// - The first post in either direction connects to the peer. From then on the peer's death
//   completes all transfers with that peer, receives too, with kPeerFailed (kTransport if this host
//   has no socket to reach the peer); messages that have arrived completely can still be received.
//   Detecting a stopped or unreachable peer is left to the job's control plane.
// - The listener rejects strangers: both ends of a connection prove that they know the job's
//   secret. Each datagram has a MAC and a sequence number, and must come from the peer's address.
//   Nothing is encrypted, and the bytes of a connection have no MAC.
// - A peer that violates the protocol loses its connection; cause() names it.
// - Destruction waits until the peers' kernels have the sent bytes, for one second at most; it
//   never waits for a dead peer.
// - `data` must be host memory.
std::unique_ptr<Transport> make_tcp_transport(Job& job, const Topology& topology, const Nic& rail);

}  // namespace weft
