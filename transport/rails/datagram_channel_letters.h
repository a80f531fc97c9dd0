// DatagramChannel over letters of the job (transport/job/mailbox.h), for RDMA rails without an IP
// address: InfiniBand without IPoIB.
#pragma once

#include <memory>
#include <string>

#include "topo/topology.h"
#include "transport/datagram_channel.h"
#include "transport/job/bootstrap.h"

namespace weft {

// Makes the channel. Letters use the job's own network, not a rail: an answer only shows that the
// peer polls. A dead rail is detected by its link, or by the retries of its queue pairs. Returns
// nullptr, on every rank, if a rail is not an RDMA device, or if the job has no letters.
std::unique_ptr<DatagramChannel> make_letter_paths(Job& job, const Topology& topology);

// False if the kernel reports that no port of the RDMA device is active; `root` is "/sys".
bool rdma_link_up(const std::string& root, const std::string& device);

}  // namespace weft
