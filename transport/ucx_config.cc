// weft's settings of UCX, each with its reason.
#include "transport/ucx_config.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <string>

namespace weft {
namespace {

struct Setting {
  const char* name;  // as ucp_config_modify takes it; the environment variable is UCX_ + name
  const char* value;
};

constexpr Setting kAlways[] = {
    // A peer's death is reported through Status by us, naming rank and host; UCX's own lines on
    // stderr would come first and name sockets.
    {"LOG_LEVEL", "fatal"},
    // Peers behind a device without a keepalive of its own (UD) are probed this often.
    {"KEEPALIVE_INTERVAL", "5s"},
};

constexpr Setting kTcp[] = {
    // A dead host sends no FIN. Idle connections are probed after 3 s, and given up after 3 more
    // (the defaults add up to half a minute).
    {"TCP_KEEPIDLE", "3s"},
    {"TCP_KEEPINTVL", "1s"},
    {"TCP_KEEPCNT", "3"},
    // Endpoints are made by post(), which must not wait for a host that does not answer.
    {"TCP_CONN_NB", "y"},
    // Above this count UCX deems TCP unfit; it is the only way there is.
    {"TCP_MAX_NUM_EPS", "inf"},
    // Sockets need no registered memory, and the cache of registrations would patch the
    // process's mmap and munmap.
    {"RCACHE_ENABLE", "n"},
};

void set(ucp_config_t* config, const Nic& rail, const char* name, const std::string& value) {
  const std::string variable = std::string("UCX_") + name;
  if (const char* user = std::getenv(variable.c_str())) {
    spdlog::debug("ucx: rail {}: {}={} from the environment", rail.name, variable, user);
    return;
  }
  const ucs_status_t status = ucp_config_modify(config, name, value.c_str());
  if (status != UCS_OK) {
    throw Error(fmt::format("ucx: rail {}: UCX refuses {}={} ({}); set {} to a value it takes",
                            rail.name, name, value, ucs_status_string(status), variable));
  }
}

}  // namespace

std::string ucx_device(const Nic& rail) {
  if (rail.rdma) return rail.name.find(':') == std::string::npos ? rail.name + ":1" : rail.name;
  return rail.netdev.empty() ? rail.name : rail.netdev;
}

UcpConfig ucx_config(const Nic& rail) {
  ucp_config_t* raw = nullptr;
  const ucs_status_t status = ucp_config_read(nullptr, nullptr, &raw);
  if (status != UCS_OK) {
    throw Error(fmt::format("ucx: rail {}: cannot read UCX's configuration ({}); check the UCX_* "
                            "variables of the environment",
                            rail.name, ucs_status_string(status)));
  }
  UcpConfig config(raw);
  set(raw, rail, "NET_DEVICES", ucx_device(rail));
  // Network transports only: ranks that share memory have the shm transport, and emulated hosts
  // must not meet through memory.
  set(raw, rail, "TLS", rail.rdma ? "ib" : "tcp");
  for (const Setting& s : kAlways) set(raw, rail, s.name, s.value);
  if (!rail.rdma) {
    for (const Setting& s : kTcp) set(raw, rail, s.name, s.value);
  }
  return config;
}

}  // namespace weft
