// Sets weft's defaults of UCX, each with its reason. Does not know ranks or messages.
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
    // UCX (1.13 to 1.22) completes a zero-copy send twice when it is the one to find the
    // connection dead (uct_tcp_ep_sendv), and that assertion ends the process: one killed rank
    // would take its neighbours along. Copied sends have no such path. The copy stays in cache
    // and costs a few percent of what the kernel does with the same bytes.
    {"ZCOPY_THRESH", "inf"},
    // The copy goes out by segments: as large as the receiver takes (TCP_RX_SEG_SIZE), for one
    // system call per 64 KiB in place of eight.
    {"TCP_TX_SEG_SIZE", "64k"},
    // A send is over when UCX has copied it, and what the socket did not take goes out at a later
    // call. There may be none: a rank that has its result computes, and its peers wait for the end
    // of a message. With several rails those of 8 KiB and more have a receipt
    // (RailsOptions::copied_bytes); for all others there is room. (A new socket takes 16 KiB. The
    // kernel gives what wmem_max allows. A flush is no way out: UCX asks the peer for an answer,
    // who
    // may be away.)
    {"TCP_SNDBUF", "4m"},
    // Slices of a collective are expected, so the round trip of a rendezvous buys nothing. It
    // begins where an unexpected message would fill memory. (UCX's own choice follows the link
    // rate it reads, which a virtual device makes up.)
    {"RNDV_THRESH", "2m"},
    // A dead host sends no FIN. Idle connections are probed after 3 s, and given up after 3 more
    // (the defaults add up to half a minute).
    {"TCP_KEEPIDLE", "3s"},
    {"TCP_KEEPINTVL", "1s"},
    {"TCP_KEEPCNT", "3"},
    // Endpoints are made by post(), which must not wait for a host that does not answer.
    {"TCP_CONN_NB", "y"},
    // One event of a socket at a time. UCX reads several with one epoll_wait, and where the first
    // ends the connection of the second, as with a peer that goes while two ranks connect to each
    // other, an assertion of its own ends the process (uct_tcp_iface_handle_events, 1.13 to 1.22).
    {"TCP_MAX_POLL", "1"},
    // Above this count UCX deems TCP unfit; it is the only way there is.
    {"TCP_MAX_NUM_EPS", "inf"},
    // Sockets need no registered memory, and the cache of registrations would patch the
    // process's mmap and munmap.
    {"RCACHE_ENABLE", "n"},
};

// The name that ucp_config_modify knows a setting of TCP by: without the prefix before UCX 1.17
// (uct_config_modify). An unknown name is no error to it.
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
  // What the device has, and what reads GPU memory; but nothing through shared memory: ranks that
  // share memory have the shm transport, and emulated hosts must not meet through memory.
  set(raw, rail, "TLS", "^sm,self,cuda_ipc");
  for (const Setting& s : kAlways) set(raw, rail, s.name, s.value);
  if (!rail.rdma) {
    for (const Setting& s : kTcp) set(raw, rail, s.name, s.value);
    // The family that the hosts share; UCX would take the first one of this host.
    if (rail.address.find(':') != std::string::npos) set(raw, rail, "TCP_AF_PRIO", "inet6");
  }
  return config;
}

}  // namespace weft
