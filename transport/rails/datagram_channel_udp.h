// DatagramChannel over UDP: one socket for each rail, bound to the rail's own address.
#pragma once

#include <memory>
#include <string>

#include "topo/topology.h"
#include "transport/datagram_channel.h"
#include "transport/job/bootstrap.h"

namespace weft {

// Makes the channel; collective over the job (one all_gather). Keys for each direction of each
// pair, derived from the job's secret, sign the datagrams: sender, receiver, rail, a number that
// grows, and the bytes. Datagrams from other sockets than the peer's, repeated datagrams, and those
// overtaken by a later one of the rail are dropped. receive() reads a bounded number of datagrams,
// even during a flood from outside. Returns nullptr on every rank, with the reason in `why`, if any
// rail of any rank has no address or its socket cannot be bound.
std::unique_ptr<DatagramChannel> make_udp_paths(Job& job, const Topology& topology,
                                                std::string& why);

}  // namespace weft
