// DatagramChannel over UDP: one socket for each rail, bound to the rail's own address.
#pragma once

#include <memory>
#include <string>

#include "topo/topology.h"
#include "transport/datagram_channel.h"
#include "transport/job/bootstrap.h"

namespace weft {

// Makes the channel; collective over the job (two all_gather). A key that rank 0 draws for the job
// signs the datagrams. Returns nullptr on every rank, and the reason in `why`, where some rail of
// some rank has no address or its socket cannot be bound.
std::unique_ptr<DatagramChannel> make_udp_paths(Job& job, const Topology& topology,
                                                std::string& why);

}  // namespace weft
