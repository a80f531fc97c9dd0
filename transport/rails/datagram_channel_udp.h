// DatagramChannel over UDP: a socket for each rail, on the rail's own address.
#pragma once

#include <memory>
#include <string>

#include "topo/topology.h"
#include "transport/datagram_channel.h"
#include "transport/job/bootstrap.h"

namespace weft {

// Datagrams are signed with a key that rank 0 draws for the job. Collective over the job (two
// all_gather). nullptr on every rank, and `why` says it, where some rail of some rank has no
// address or cannot be bound.
std::unique_ptr<DatagramChannel> make_udp_paths(Job& job, const Topology& topology,
                                                std::string& why);

}  // namespace weft
