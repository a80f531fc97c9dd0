// Configures UCX for one rail. Does not know ranks or messages.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>

#include "topo/topology.h"

namespace weft {

struct UcpConfigRelease {
  void operator()(ucp_config_t* config) const noexcept { ucp_config_release(config); }
};
using UcpConfig = std::unique_ptr<ucp_config_t, UcpConfigRelease>;

// Returns UCX's names of the rail's device ("eth0"; "mlx5_0:1,mlx5_0:2", the active ports of an
// RDMA device of this host, as sysfs has them), or UCX_NET_DEVICES if that is set.
std::string ucx_device(const Nic& rail, const std::string& sysfs_root = "/sys");

// Returns weft's settings for this rail; a UCX_* environment variable overrides its setting. Throws
// Error when UCX refuses a setting.
UcpConfig ucx_config(const Nic& rail);

}  // namespace weft
