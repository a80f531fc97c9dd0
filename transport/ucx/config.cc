// Sets weft's defaults for UCX, each with its reason. This file is independent of ranks and
// messages.
#include "transport/ucx/config.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "topo/base/log.h"
#include "topo/sysfs.h"
#include "transport/loaded/loaded.h"

namespace weft {
namespace {

struct Setting {
  const char* name;  // argument of ucp_config_modify; the environment variable is UCX_ + name
  const char* value;
};

constexpr Setting kAlways[] = {
    // weft reports a peer's death through Status, with rank and host; otherwise UCX would first
    // print error messages about sockets to stderr.
    {"LOG_LEVEL", "fatal"},
    // Interval of probes to peers on a device without its own keepalive (UD).
    {"KEEPALIVE_INTERVAL", "5s"},
};

constexpr Setting kTcp[] = {
    // UCX (1.13 to 1.22) completes a zero-copy send twice if that send detects the dead connection
    // (uct_tcp_ep_sendv); an assertion then aborts the process, so one killed rank would abort its
    // peers. Copied sends do not use this code path. The copy stays in cache and costs a few
    // percent of the kernel's work on the same bytes.
    {"ZCOPY_THRESH", "inf"},
    // Copied sends use segments; with the size of the receiver's (TCP_RX_SEG_SIZE) a send takes one
    // system call per 64 KiB instead of eight.
    {"TCP_TX_SEG_SIZE", "64k"},
    // A send completes when UCX has copied it; later calls of progress send the rest. A rank may
    // not call progress while it computes on its result, although its peers wait for the end of a
    // message. With several rails, messages of 8 KiB and more are acknowledged
    // (RailsOptions::copied_bytes); all others must fit into the socket buffer. (A new socket has
    // 16 KiB; the kernel permits up to wmem_max. A flush is no solution: UCX needs a response of
    // the peer, which may not be calling progress.)
    {"TCP_SNDBUF", "4m"},
    // Slices of a collective are expected, so a rendezvous would only add a round trip. It starts
    // at the size at which unexpected messages would use too much memory. (UCX derives its default
    // from the link rate, which is fictitious on virtual devices.)
    {"RNDV_THRESH", "2m"},
    // A dead host sends no FIN. Idle connections are probed after 3 s and fail after 3 s more (the
    // defaults add up to half a minute).
    {"TCP_KEEPIDLE", "3s"},
    {"TCP_KEEPINTVL", "1s"},
    {"TCP_KEEPCNT", "3"},
    // post() creates endpoints and must not block on an unresponsive host.
    {"TCP_CONN_NB", "y"},
    // One socket event at a time. UCX reads several with one epoll_wait; if the first ends the
    // connection of the second, as when a peer ends while two ranks connect to each other, a UCX
    // assertion aborts the process (uct_tcp_iface_handle_events, 1.13 to 1.22).
    {"TCP_MAX_POLL", "1"},
    // If the number of endpoints exceeds this setting, UCX rejects TCP, the only transport here.
    {"TCP_MAX_NUM_EPS", "inf"},
    // Sockets need no registered memory, and the registration cache would patch the process's mmap
    // and munmap.
    {"RCACHE_ENABLE", "n"},
};

// Returns the name of a TCP setting for ucp_config_modify: before UCX 1.17 without prefix
// (uct_config_modify). ucp_config_modify silently ignores unknown names.
const char* modifiable(const char* name) {
  constexpr std::string_view kPrefix = "TCP_";
  unsigned major = 0, minor = 0, release = 0;
  ucp_get_version(&major, &minor, &release);
  const bool bare = std::pair(major, minor) < std::pair(1u, 17u);
  return bare && std::string_view(name).starts_with(kPrefix) ? name + kPrefix.size() : name;
}

void set(ucp_config_t* config, const Nic& rail, const char* name, const std::string& value) {
  const std::string variable = std::string("UCX_") + name;
  if (const char* user = std::getenv(variable.c_str())) {
    log().debug("ucx: rail {}: {}={} from the environment", rail.name, variable, user);
    return;
  }
  const ucs_status_t status = ucp_config_modify(config, modifiable(name), value.c_str());
  if (status != UCS_OK) {
    throw Error(fmt::format("ucx: rail {}: UCX refuses {}={} ({}); set {} to a value it takes",
                            rail.name, name, value, ucs_status_string(status), variable));
  }
}

}  // namespace

std::string ucx_device(const Nic& rail, const std::string& sysfs_root) {
  if (const char* user = std::getenv("UCX_NET_DEVICES")) return user;
  if (!rail.rdma) return rail.netdev.empty() ? rail.name : rail.netdev;
  if (rail.name.find(':') != std::string::npos) return rail.name;
  const std::string ports = sysfs_root + "/class/infiniband/" + rail.name + "/ports/";
  std::string active;
  for (const std::string& port : sysfs::list(ports)) {
    if (!sysfs::read_line(ports + port + "/state").starts_with("4:")) continue;
    active += fmt::format("{}{}:{}", active.empty() ? "" : ",", rail.name, port);
  }
  return active.empty() ? rail.name + ":1" : active;
}

UcpConfig ucx_config(const Nic& rail) {
  if (!ucx_library())
    throw Error(fmt::format("ucx: rail {}: {}; install UCX (Debian: libucx0)", rail.name,
                            ucx_library().why_not()));
  ucp_config_t* raw = nullptr;
  const ucs_status_t status = ucp_config_read(nullptr, nullptr, &raw);
  if (status != UCS_OK) {
    throw Error(
        fmt::format("ucx: rail {}: cannot read UCX's configuration ({}); check the UCX_* "
                    "variables of the environment",
                    rail.name, ucs_status_string(status)));
  }
  UcpConfig config(raw);
  set(raw, rail, "NET_DEVICES", ucx_device(rail));
  // Enables all of the device's transports and access to GPU memory, but no shared memory: ranks
  // that share memory use the shm transport, and emulated hosts must not share memory.
  set(raw, rail, "TLS", "^sm,self,cuda_ipc");
  for (const Setting& s : kAlways) set(raw, rail, s.name, s.value);
  if (!rail.rdma) {
    for (const Setting& s : kTcp) set(raw, rail, s.name, s.value);
    // Selects the address family that the hosts share; by default UCX uses the first one of this
    // host.
    if (rail.address.find(':') != std::string::npos) set(raw, rail, "TCP_AF_PRIO", "inet6");
  }
  return config;
}

}  // namespace weft
