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
// fails on one rank, every rank throws an Error with the rank, the device and the reason.
//
// In addition to the contract of Transport:
// - A send completes when the kernel has all of its bytes. No later call is needed to send them,
//   except to retransmit a lost datagram, which before_pause() and the next calls do.
// - Messages of up to 512 bytes are sent as UDP datagrams if each end has received a datagram of
//   the other, and if each rank has its own core (WEFT_TCP_DATAGRAMS: 0 never, 1 also on shared
//   cores).
// - The sender sends messages of up to 64 KiB immediately (eager); the receiver buffers unexpected
//   messages. Longer messages are sent when their receive is posted, directly into the receive's
//   memory.
// - The first post of either direction connects to the peer. From then on, if the peer dies, all
//   transfers with that peer complete with kPeerFailed, including receives (kTransport if this host
//   cannot open a socket to the peer); messages that had arrived completely can still be received.
//   The job's control plane, not this transport, detects a peer that is stopped or unreachable
//   without an error.
// - The listener rejects unknown processes: both ends of a connection prove that they have the
//   job's secret. Each datagram has a MAC and a sequence number, and must come from the peer's
//   address. Data is not encrypted, and the bytes of a connection have no MAC.
// - The connection to a peer that violates the protocol is closed; cause() contains the peer.
// - The destructor waits until the peers' kernels have the sent bytes, for one second at most; it
//   never waits for a dead peer.
// - `data` must be host memory.
std::unique_ptr<Transport> make_tcp_transport(Job& job, const Topology& topology, const Nic& rail);

}  // namespace weft
