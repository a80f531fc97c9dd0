// Reads interfaces from rtnetlink or a sysfs tree: their kinds and lower devices. Does not depend
// on device names.
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <vector>

#include "topo/sysfs.h"

namespace weft::sysfs {

namespace fs = std::filesystem;

namespace {

template <typename T>
T value_of(const rtattr* attribute) {
  T value{};
  std::memcpy(&value, RTA_DATA(attribute), std::min(sizeof value, RTA_PAYLOAD(attribute)));
  return value;
}

std::string text_of(const rtattr* attribute) {
  const char* text = static_cast<const char*>(RTA_DATA(attribute));
  return {text, strnlen(text, RTA_PAYLOAD(attribute))};
}

template <typename Take>
void each_attribute(const rtattr* attribute, int bytes, Take take) {
  for (; RTA_OK(attribute, bytes); attribute = RTA_NEXT(attribute, bytes)) take(attribute);
}

void take_link(const nlmsghdr* message, std::map<std::string, Link>& links) {
  const auto* info = static_cast<const ifinfomsg*>(NLMSG_DATA(message));
  Link link;
  std::string name;
  link.index = info->ifi_index;
  link.flags = info->ifi_flags;
  each_attribute(IFLA_RTA(info), static_cast<int>(IFLA_PAYLOAD(message)), [&](const rtattr* a) {
    if (a->rta_type == IFLA_IFNAME) name = text_of(a);
    if (a->rta_type == IFLA_LINK) link.lower = value_of<int>(a);
    if (a->rta_type == IFLA_LINK_NETNSID) link.far = true;
    if (a->rta_type == IFLA_MASTER) link.master = value_of<int>(a);
    if (a->rta_type == IFLA_PHYS_PORT_NAME) link.port = text_of(a);
    if (a->rta_type == IFLA_ADDRESS)
      link.mac.assign(static_cast<const char*>(RTA_DATA(a)), RTA_PAYLOAD(a));
    if ((a->rta_type & NLA_TYPE_MASK) == IFLA_LINKINFO)
      each_attribute(static_cast<const rtattr*>(RTA_DATA(a)), static_cast<int>(RTA_PAYLOAD(a)),
                     [&](const rtattr* one) {
                       if (one->rta_type == IFLA_INFO_KIND) link.kind = text_of(one);
                     });
  });
  if (!name.empty()) links[name] = std::move(link);
}

// Returns all interfaces of this network namespace; none on failure.
std::map<std::string, Link> live_links() {
  std::map<std::string, Link> links;
  const int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd < 0) return links;
  constexpr timeval kDeadline = {.tv_sec = 1, .tv_usec = 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kDeadline, sizeof kDeadline);
  struct {
    nlmsghdr header;
    ifinfomsg info;
  } request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = RTM_GETLINK;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  bool more = send(fd, &request, sizeof request, 0) == sizeof request;
  std::vector<char> answer(1 << 16);
  while (more) {
    const ssize_t got = recv(fd, answer.data(), answer.size(), 0);
    if (got <= 0) break;
    auto bytes = static_cast<unsigned>(got);
    for (const auto* message = reinterpret_cast<const nlmsghdr*>(answer.data());
         NLMSG_OK(message, bytes); message = NLMSG_NEXT(message, bytes)) {
      more = message->nlmsg_type == RTM_NEWLINK;
      if (more) take_link(message, links);
    }
  }
  close(fd);
  return links;
}

// Returns whether the interface is a tunnel (vxlan, wireguard, tun and similar), by its type in
// linux/if_arp.h: ARPHRD_NONE, ipip, ip6tnl, sit, gre, ip6gre.
bool is_tunnel(const std::string& folder) {
  constexpr std::array<std::int64_t, 6> kTypes = {65534, 768, 769, 776, 778, 823};
  return std::ranges::count(kTypes, read_integer(folder + "/type", 0)) > 0;
}

std::string kind_in_tree(const std::string& folder, const Link& link) {
  std::error_code error;
  if (const std::string type = read_field(folder + "/uevent", "DEVTYPE="); !type.empty())
    return type == "wlan" || type == "dsa" ? "" : type;
  if (fs::exists(folder + "/bonding", error)) return "bond";
  if (fs::exists(folder + "/bridge", error)) return "bridge";
  if (is_tunnel(folder) || fs::exists(folder + "/tun_flags", error)) return "tun";
  if (fs::exists(folder + "/device", error)) return "";
  if (fs::canonical(folder, error).string().find("/virtual/") == std::string::npos) return "";
  if (link.flags & IFF_NOARP) return "dummy";
  return "veth";
}

std::map<std::string, Link> links_in_tree(const std::string& root) {
  std::map<std::string, Link> links;
  for (const std::string& name : list(root + "/class/net")) {
    const std::string folder = root + "/class/net/" + name;
    std::error_code error;
    if (!fs::is_directory(folder, error)) continue;
    Link& link = links[name];
    link.index = static_cast<int>(read_integer(folder + "/ifindex", 0));
    link.flags = static_cast<unsigned>(read_integer(folder + "/flags", 0));
    link.lower = static_cast<int>(read_integer(folder + "/iflink", 0));
    link.master = static_cast<int>(read_integer(folder + "/master/ifindex", 0));
    link.port = read_line(folder + "/phys_port_name");
    link.mac = read_line(folder + "/address");
    link.kind = link.flags & IFF_LOOPBACK ? "" : kind_in_tree(folder, link);
  }
  // Another namespace's interface index may also be in use in this namespace.
  for (auto& named : links) {
    Link& link = named.second;
    const bool here = std::ranges::any_of(
        links, [&](const auto& other) { return other.second.index == link.lower; });
    link.far = link.lower > 0 && (!here || link.kind == "veth");
  }
  return links;
}

}  // namespace

std::map<std::string, Link> links_of(const std::string& root, bool live) {
  std::map<std::string, Link> links = live ? live_links() : std::map<std::string, Link>();
  return links.empty() ? links_in_tree(root) : links;
}

}  // namespace weft::sysfs
