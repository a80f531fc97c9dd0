// Chooses the rails of this host (WEFT_RAILS or its devices) and describes this process (Place).
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <string>
#include <string_view>

#include "topo/base/environment.h"
#include "topo/discover.h"
#include "topo/near.h"
#include "topo/sysfs.h"

namespace weft {

namespace {

std::string present(const std::vector<Nic>& nics) {
  std::vector<std::string> names;
  for (const Nic& nic : nics) names.push_back(nic.name);
  return names.empty() ? "this host has none" : fmt::format("present: {}", fmt::join(names, ", "));
}

const Nic* find(const std::vector<Nic>& nics, std::string_view name) {
  const auto it =
      std::find_if(nics.begin(), nics.end(), [name](const Nic& nic) { return nic.name == name; });
  return it == nics.end() ? nullptr : &*it;
}

double parse_rate(std::string_view entry, std::string_view text, bool rdma) {
  // UCX and NCCL users write mlx5_0:1 for port 1; this must not be parsed as 1 Gb/s.
  if (rdma && text.size() == 1) {
    throw Error(fmt::format(
        "WEFT_RAILS: '{}' names a port, but what follows ':' is the rate in Gb/s; write '{}', or "
        "'{}.0' if the link does run at {} Gb/s",
        entry, entry.substr(0, entry.find(':')), entry, text));
  }
  double gbps = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), gbps);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(gbps) ||
      gbps <= 0) {
    throw Error(fmt::format(
        "WEFT_RAILS: the rate '{}' in '{}' is not a number of Gb/s above 0, as in rail0:0.4", text,
        entry));
  }
  return gbps;
}

std::vector<Nic> rails_by_name(const std::vector<Nic>& nics, std::string_view list) {
  std::vector<Nic> rails;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t comma = std::min(list.find(',', at), list.size());
    std::string_view entry = list.substr(at, comma - at);
    at = comma + 1;
    entry.remove_prefix(std::min(entry.find_first_not_of(" \t"), entry.size()));
    entry = entry.substr(0, entry.find_last_not_of(" \t") + 1);
    if (entry.empty()) {
      throw Error(
          fmt::format("WEFT_RAILS='{}' has an empty name; it is a list such as mlx5_0,mlx5_1 ({})",
                      list, present(nics)));
    }
    const auto colon = entry.find(':');
    const std::string_view name = entry.substr(0, colon);
    const Nic* nic = find(nics, name);
    if (nic == nullptr) {
      throw Error(fmt::format("WEFT_RAILS names '{}', which this host does not have; {}", name,
                              present(nics)));
    }
    if (find(rails, name) != nullptr) {
      throw Error(fmt::format("WEFT_RAILS='{}' names '{}' twice; each rail is a separate device",
                              list, name));
    }
    rails.push_back(*nic);
    rails.back().aside.clear();
    if (colon != std::string_view::npos) {
      rails.back().rate_gbps = parse_rate(entry, entry.substr(colon + 1), nic->rdma);
    }
  }
  return rails;
}

// Equal for two processes iff they share the kernel, the pid namespace and the user.
std::string machine_identity(const std::string& boot_id, const std::string& hostname) {
  struct stat pid_namespace {};
  if (stat("/proc/self/ns/pid", &pid_namespace) != 0) pid_namespace.st_ino = 0;
  return fmt::format("{}:{}:{}", boot_id.empty() ? hostname : boot_id,
                     static_cast<std::uint64_t>(pid_namespace.st_ino), geteuid());
}

}  // namespace

std::vector<Nic> choose_rails(const HostDescription& host) {
  if (const std::string list = environment("WEFT_RAILS"); !list.empty())
    return rails_by_name(host.nics, list);
  return choose_ports(host).rails;
}

Place discover_place() {
  // Every rank calls this function, so avoid hwloc, which is slow.
  HostDescription host;
  host.nics = sysfs::discover_nics("/sys", true);
  host.gpus = sysfs::discover_gpus("/sys", "/proc");
  const std::vector<NumaNode> numa = sysfs::discover_numa("/sys");
  std::array<char, 256> hostname{};
  gethostname(hostname.data(), hostname.size() - 1);
  const std::string boot_id = sysfs::read_line("/proc/sys/kernel/random/boot_id");

  Place place;
  if (const std::string id = environment("WEFT_HOST_ID"); !id.empty()) {
    place.host = id;
    const auto control = std::find_if(place.host.begin(), place.host.end(),
                                      [](unsigned char c) { return std::iscntrl(c) != 0; });
    if (control != place.host.end()) {
      throw Error(fmt::format(
          "WEFT_HOST_ID holds the control character {:#04x} after '{}'; use a plain "
          "name such as host0",
          static_cast<unsigned char>(*control), std::string(place.host.begin(), control)));
    }
  } else {
    // 12 digits distinguish hosts with the same name and keep errors readable.
    place.host = fmt::format("{}#{}", hostname.data(), boot_id.substr(0, 13));
  }
  place.leaf = environment("WEFT_LEAF");
  place.machine = machine_identity(boot_id, hostname.data());
  std::map<std::string, std::string> closed;  // reason by device
  for (const Nic& nic : host.nics) {
    if (nic.closed) closed[nic.name] = sysfs::why_not_opened("/sys", "/dev", nic.name);
  }
  place.rails = choose_rails(host);
  constexpr std::size_t kMostOthers = 64;
  for (const Nic& nic : choose_ports(host).others)
    if (!nic.cable.empty() && place.others.size() < kMostOthers) place.others.push_back(nic);
  // Devices that WEFT_RAILS excludes need not be reported.
  for (const Nic& nic : is_set("WEFT_RAILS") ? place.rails : host.nics)
    if (const auto why = closed.find(nic.name); why != closed.end() && place.no_rdma.empty())
      place.no_rdma = fmt::format("{}: {}", nic.name, why->second);
  place.numa_node =
      sysfs::numa_node_of(numa, sysfs::read_field("/proc/self/status", "Cpus_allowed_list:"));
  // A rank that sees a single GPU uses it.
  if (is_set("CUDA_VISIBLE_DEVICES")) {
    const std::vector<Gpu> gpus =
        visible_gpus(host.gpus, environment("CUDA_VISIBLE_DEVICES").c_str());
    if (gpus.size() == 1) set_gpu(place, gpus[0].pci);
  }
  return place;
}

}  // namespace weft
