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
// grows, and the bytes. What comes from another socket than the peer's, or a second time, is
// dropped; so is what another datagram of the rail has overtaken. receive() reads a bounded number
// of datagrams, whatever a stranger sends. Returns nullptr on every rank, and the reason in `why`,
// where some rail of some rank has no address or its socket cannot be bound.
std::unique_ptr<DatagramChannel> make_udp_paths(Job& job, const Topology& topology,
                                                std::string& why);

}  // namespace weft
