// Messages between hosts over TCP sockets, for rails that are plain NICs. One transport is one
// rail: a listener and at most one connection to each peer, on its device.
#pragma once

#include <memory>

#include "topo/topology.h"
#include "transport/job/bootstrap.h"
#include "transport/transport.h"

namespace weft {

// Collective over the job: all ranks call this function for the same rail at the same time (one
// job.all_gather). `rail` is this host's device; the peers' devices may have other names. If setup
// fails on one rank, every rank throws an Error that names the rank, the device and the reason.
//
// The contract of Transport, and on top of it:
// - A send is over when the kernel has all of its bytes: no later call is needed to send them,
//   except for a lost datagram, which before_pause() and the next calls repeat.
// - Messages of up to 512 bytes go as UDP datagrams if both ends have received one of the
//   other, and if each rank has a core of its own (WEFT_TCP_DATAGRAMS: 0 never, 1 on shared cores
//   too).
// - The sender sends messages of up to 64 KiB at once (eager); the receiver keeps unexpected ones.
//   Longer messages are sent when their receive is posted, straight into the receive's memory.
// - The first post of either direction connects to the peer. From then on the peer's death
// completes
//   the transfers with that peer, receives too, with kPeerFailed (kTransport if this host has no
//   socket to reach the peer); messages that had arrived whole can still be received. The job's
//   control plane, not this transport, notices a peer that is stopped or cut off silently.
// - The listener turns strangers away: both ends of a connection prove that they know the job's
//   secret. Each datagram has a MAC and a sequence number, and must come from the peer's address.
//   Nothing is encrypted, and the bytes of a connection have no MAC.
// - A peer that violates the protocol loses its connection; cause() names it.
// - Destruction waits until the peers' kernels have the sent bytes, for one second at most; it
//   never waits for a dead peer.
// - `data` must be host memory.
std::unique_ptr<Transport> make_tcp_transport(Job& job, const Topology& topology, const Nic& rail);

}  // namespace weft
