// How UCX is configured for one rail. Knows nothing about ranks or messages.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>

#include "topo/topology.h"

namespace weft {

struct UcpConfigRelease {
  void operator()(ucp_config_t* config) const noexcept { ucp_config_release(config); }
};
using UcpConfig = std::unique_ptr<ucp_config_t, UcpConfigRelease>;

// The device as UCX calls it: "eth0", "mlx5_0:1"; what UCX_NET_DEVICES says where it is set.
std::string ucx_device(const Nic& rail);

// weft's defaults for this rail, each overridden by its UCX_* environment variable when that is
// set. Throws Error when UCX refuses a setting.
UcpConfig ucx_config(const Nic& rail);

}  // namespace weft
