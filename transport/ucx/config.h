// Configures UCX for one rail. This file is independent of ranks and messages.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>

#include "topo/topology.h"

namespace weft {

struct UcpConfigRelease {
  void operator()(ucp_config_t* config) const noexcept { ucp_config_release(config); }
};
using UcpConfig = std::unique_ptr<ucp_config_t, UcpConfigRelease>;

// Returns UCX_NET_DEVICES if set, otherwise UCX's names of the rail's device: "eth0", or the active
// ports of an RDMA device from sysfs, "mlx5_0:1,mlx5_0:2".
std::string ucx_device(const Nic& rail, const std::string& sysfs_root = "/sys");

// Returns weft's settings for this rail; UCX_* environment variables override them. Throws Error if
// UCX rejects a setting.
UcpConfig ucx_config(const Nic& rail);

}  // namespace weft
