// Creates and parses unique ids, and stores the sockets of unused ids.
#include "transport/job/unique_id.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "topo/base/mutex.h"
#include "transport/control/hmac.h"
#include "transport/control/socket.h"
#include "transport/job/job_environment.h"

namespace weft {
namespace {

constexpr std::string_view kMark = "weft-id-1 ";

// Sockets of the unused ids of this process, by id.
struct Unused {
  Mutex mutex;
  std::map<std::string, int, std::less<>> sockets WEFT_GUARDED_BY(mutex);
};
Unused& unused() {
  static auto* const all = new Unused;  // never destroyed: the kernel closes the unused sockets
  return *all;
}

}  // namespace

std::string own_addresses() {
  std::vector<std::string> four, six;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) == 0) {
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
    for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
      if (i->ifa_addr == nullptr || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK))
        continue;
      char text[INET6_ADDRSTRLEN] = "";
      if (i->ifa_addr->sa_family == AF_INET) {
        const auto* a = reinterpret_cast<const sockaddr_in*>(i->ifa_addr);
        if (inet_ntop(AF_INET, &a->sin_addr, text, sizeof text)) four.push_back(text);
      } else if (i->ifa_addr->sa_family == AF_INET6) {
        const auto* a = reinterpret_cast<const sockaddr_in6*>(i->ifa_addr);
        // A link-local address is unusable without its interface.
        if (IN6_IS_ADDR_LINKLOCAL(&a->sin6_addr)) continue;
        if (inet_ntop(AF_INET6, &a->sin6_addr, text, sizeof text)) six.push_back(text);
      }
    }
  }
  std::string all;
  for (const auto& addresses : {four, six}) {
    for (const std::string& a : addresses) all += a + ",";
  }
  char name[256] = "";
  if (gethostname(name, sizeof name - 1) == 0 && *name != '\0') all += std::string(name) + ",";
  return all + "127.0.0.1";
}

Rendezvous open_rendezvous(const std::string& addresses) {
  const std::vector<std::uint16_t> any{0};
  const Fd listener = listen_on(addresses, any);
  Rendezvous r;
  r.text =
      fmt::format("{} {} {}", hex(random_bytes(kMacBytes)), port_of(listener.get()), addresses);
  // JobSpec is a plain struct, so it contains a raw descriptor; connect() takes ownership.
  r.listen_fd = fcntl(listener.get(), F_DUPFD_CLOEXEC, 0);
  if (r.listen_fd < 0) throw Error(fmt::format("cannot keep a socket: {}", std::strerror(errno)));
  return r;
}

void read_rendezvous(std::string_view text, JobSpec& spec) {
  const std::size_t first = text.find(' '), second = text.find(' ', first + 1);
  if (first == std::string_view::npos || second == std::string_view::npos || first == 0)
    throw Error(fmt::format("\"{}\" is not a valid rendezvous text", text));
  spec.secret = text.substr(0, first);
  spec.ports = {static_cast<std::uint16_t>(parse_number(
      "rank 0's port", std::string(text.substr(first + 1, second - first - 1)), 1, 65535))};
  spec.address = text.substr(second + 1);
}

std::string make_unique_id() {
  std::string addresses = own_addresses();
  // If there are too many addresses, keep the last ones: the host name and loopback.
  while (addresses.size() > kMostUniqueId - 128) addresses.erase(0, addresses.find(',') + 1);
  Rendezvous r = open_rendezvous(addresses);
  std::string id = std::string(kMark) + r.text;
  Unused& all = unused();
  const MutexLock lock(all.mutex);
  all.sockets[id] = r.listen_fd;
  return id;
}

JobSpec job_from_unique_id(std::string_view id, Rank rank, int size) {
  if (!id.starts_with(kMark))
    throw Error(
        "the unique id is not one of this version of weft: pass the bytes that rank 0 made, "
        "unchanged, and use the same libweft on every rank");
  JobSpec spec;
  spec.launcher = "id";
  spec.rank = rank;
  spec.size = size;
  read_rendezvous(id.substr(kMark.size()), spec);
  if (rank != 0) return spec;
  Unused& all = unused();
  const MutexLock lock(all.mutex);
  const auto found = all.sockets.find(id);
  if (found == all.sockets.end())
    throw Error(
        "this process did not make the unique id, or has used it: make the id on rank 0, and a new "
        "one for every job");
  if (size > 1)
    spec.listen_fd = found->second;
  else
    ::close(found->second);
  all.sockets.erase(found);
  return spec;
}

}  // namespace weft
