// DatagramChannel by letters of the job (transport/job/mailbox.h), for RDMA rails without an IP
// address: InfiniBand without IPoIB.
#pragma once

#include <memory>
#include <string>

#include "topo/topology.h"
#include "transport/datagram_channel.h"
#include "transport/job/bootstrap.h"

namespace weft {

// Makes the channel. Letters go over the job's own network, not along a rail: an answer says that
// the peer polls, and nothing of the rail. A rail that is dead shows by its link, or by the retries
// of its queue pairs. Returns nullptr, on every rank, where a rail is no RDMA device, or where the
// job has no letters.
std::unique_ptr<DatagramChannel> make_letter_paths(Job& job, const Topology& topology);

// True unless the kernel says that no port of the RDMA device is active; `root` is "/sys".
bool rdma_link_up(const std::string& root, const std::string& device);

}  // namespace weft
