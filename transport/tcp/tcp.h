// Messages between hosts over TCP sockets of weft's own: where a rail is a plain NIC.
// One transport is one rail: a listener and at most one connection to each peer, on its device.
#pragma once

#include <memory>

#include "topo/topology.h"
#include "transport/job/bootstrap.h"
#include "transport/transport.h"

namespace weft {

// Collective over the job: every rank calls it for the same rail at the same time (one
// job.all_gather). `rail` is this host's device; the peers may call theirs by another name.
// Throws Error naming the rank, the device and why; it does so on every rank, also when set-up
// fails on one of them only.
//
// The contract of Transport, and on top of it:
// - A send is over when the kernel has all of its bytes: nothing of it waits for a later call, but
//   for a datagram that was lost, which leave() and the next calls repeat.
// - Messages of up to 512 bytes go as UDP datagrams where both ends have heard each other's, and
//   where ranks have a core each (WEFT_TCP_DATAGRAMS=0 and 1). tcp/datagrams.cc tells how.
// - Messages of up to 64 KiB go at once, and wait at the receiver where nobody asked for them so
//   far. Longer ones go when their receive is posted, straight into its memory.
// - A peer is connected to by the first post of either direction. From then on its death completes
//   the transfers with it, receives included, with kPeerFailed (kTransport where this host has no
//   socket to reach it); what had come whole before can still be received. A peer that is stopped
//   or cut off without a word is noticed by the job's control plane, not here.
// - Strangers on the port are turned away: who connects must know a key that ranks exchange at
//   set-up. Bytes are not encrypted.
// - Destruction waits until the peers' kernels have what was sent, for a second at most; it never
//   waits for a dead peer.
// Memory of the host only.
std::unique_ptr<Transport> make_tcp_transport(Job& job, const Topology& topology, const Nic& rail);

}  // namespace weft
