// Describes hosts, compares them, and judges each. Does not measure.
#include "perf/validate/validate_host.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "coll/runtime/internals.h"
#include "topo/sysfs.h"

namespace weft {
namespace {

std::string plural(int n, std::string_view thing) {
  return fmt::format("{} {}{}", n, thing, n == 1 ? "" : "s");
}

// "mtu" and "subnet" of each interface, and "arp_for_all": whether it answers ARP for the addresses
// of the others, too.
void add_networks(nlohmann::ordered_json& host) {
  for (auto& nic : host["nics"])
    if (const auto mtu =
            sysfs::read_integer("/sys/class/net/" + nic["name"].get<std::string>() + "/mtu", 0);
        mtu > 0)
      nic["mtu"] = mtu;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  const auto number = [](const sockaddr* a) {
    return ntohl(reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr);
  };
  const auto ignore = [](const std::string& device) {
    return sysfs::read_integer("/proc/sys/net/ipv4/conf/" + device + "/arp_ignore", 1);
  };
  for (const ifaddrs* it = first; it != nullptr; it = it->ifa_next) {
    if (!it->ifa_addr || it->ifa_addr->sa_family != AF_INET || !it->ifa_netmask) continue;
    const std::string name = it->ifa_name;  // with a label, as eth0:1, it is none of the devices
    const std::uint32_t mask = number(it->ifa_netmask), net = number(it->ifa_addr) & mask;
    for (auto& nic : host["nics"]) {
      if (nic["name"] != name || nic.contains("subnet")) continue;
      nic["subnet"] = fmt::format("{}.{}.{}.{}/{}", net >> 24, net >> 16 & 255, net >> 8 & 255,
                                  net & 255, std::popcount(mask));
      nic["arp_for_all"] = std::max(ignore("all"), ignore(name)) == 0;
    }
  }
}

}  // namespace

nlohmann::ordered_json describe_host(const HostDescription& host) {
  std::uint64_t memory = 0;
  for (const NumaNode& node : host.numa) memory += node.memory_bytes;
  nlohmann::ordered_json json = {{"hostname", host.hostname},
                                 {"cpu", host.cpu_model},
                                 // Of the machine: this rank may be bound to its share of them.
                                 {"cores", sysconf(_SC_NPROCESSORS_ONLN)},
                                 {"numa_nodes", host.numa.size()},
                                 {"memory_bytes", memory},
                                 {"gpus", host.gpus.size()},
                                 {"nics", nlohmann::ordered_json::array()}};
  for (const Nic& nic : host.nics)
    json["nics"].push_back({{"name", nic.name},
                            {"rdma", nic.rdma},
                            {"up", nic.up},
                            {"rate_gbps", nic.rate_gbps},
                            {"numa_node", nic.numa_node},
                            {"pci", nic.pci}});
  return json;
}

bool oversubscribed(const nlohmann::ordered_json& host, int ranks) {
  return ranks > host["cores"].get<int>();
}

std::vector<Item> judge_host(const nlohmann::ordered_json& host, const std::vector<Nic>& rails,
                             int ranks) {
  const std::string hostname = host["hostname"];
  const int cores = host["cores"];
  int rdma = 0;
  for (const auto& nic : host["nics"]) rdma += nic["rdma"].get<bool>();
  std::vector<Item> items;
  const auto memory = host["memory_bytes"].get<std::uint64_t>() >> 30;
  items.push_back({"host", hostname, Verdict::kPass,
                   fmt::format("{}, {}, {} GiB, {}, {}, {}", plural(cores, "core"),
                               plural(host["numa_nodes"], "NUMA node"), memory,
                               plural(static_cast<int>(host["nics"].size()), "NIC"),
                               plural(rdma, "RDMA device"), plural(host["gpus"], "GPU")),
                   "", ""});
  std::string names;
  std::map<std::string, std::vector<std::string>> subnets;  // and their rails
  for (const Nic& rail : rails) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", rail.name);
    if (rail.rate_gbps > 0) names += fmt::format(" ({:g} Gb/s)", rail.rate_gbps);
    const auto& nics = host["nics"];  // an emulated rail is none of them
    const auto nic = std::find_if(nics.begin(), nics.end(),
                                  [&](const auto& n) { return n["name"] == rail.name; });
    const auto device = std::find_if(nics.begin(), nics.end(),
                                     [&](const auto& n) { return n["name"] == rail.netdev; });
    if (device != nics.end() && rail.name != "lo" && device->value("arp_for_all", false))
      subnets[(*device)["subnet"]].push_back(rail.name);
    if (nic != nics.end() && !(*nic)["up"].get<bool>() && rail.name != "lo")
      items.push_back({"host", fmt::format("{} {}", hostname, rail.name), Verdict::kFail,
                       "this rail is down", "rail-down",
                       fmt::format("check the cable and `ip link show {}`, or leave it out with "
                                   "WEFT_RAILS",
                                   rail.netdev.empty() ? rail.name : rail.netdev)});
  }
  for (const auto& [subnet, of] : subnets)
    if (of.size() > 1)
      items.push_back({"host", fmt::format("{} {}", hostname, fmt::join(of, ", ")), Verdict::kWarn,
                       fmt::format("are in one subnet, {}, and each answers ARP for the addresses "
                                   "of all: what is for one rail arrives on another",
                                   subnet),
                       "rails-one-subnet",
                       "give each rail a subnet of its own, or set net.ipv4.conf.all.arp_ignore=1 "
                       "and arp_announce=2 (sysctl) on all hosts"});
  if (!rails.empty())
    items.push_back({"host", hostname, Verdict::kPass, "rails: " + names, "", ""});
  if (rdma == 0)
    items.push_back({"host", hostname, Verdict::kSkip,
                     "missing capability: RDMA devices; the rails carry TCP", "", ""});
  if (oversubscribed(host, ranks))
    items.push_back({"host", hostname, Verdict::kSkip,
                     fmt::format("missing capability: a core per rank ({} ranks, {}); times are "
                                 "judged leniently",
                                 ranks, plural(cores, "core")),
                     "", ""});
  return items;
}

namespace {

// What most hosts have; of equally many the larger.
template <typename Value>
std::pair<Value, int> most_have(const std::vector<Value>& values) {
  std::map<Value, int> hosts;
  for (const Value& value : values) ++hosts[value];
  std::pair<Value, int> most{};
  for (const auto& [value, count] : hosts)
    if (count >= most.second) most = {value, count};
  return most;
}

std::string named(const std::vector<Nic>& rails) {
  std::vector<std::string> names;
  for (const Nic& rail : rails) names.push_back(rail.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

std::vector<Item> compare_hosts(const Topology& topology) {
  std::vector<Item> items;
  const int n = topology.nhosts();
  const auto rails = [&](int h) -> const std::vector<Nic>& {
    return topology.place(topology.ranks_of(h)[0]).rails;
  };
  std::vector<std::size_t> counts;
  for (int h = 0; h < n; ++h) counts.push_back(rails(h).size());
  const auto [usual, hosts] = most_have(counts);
  int like = 0;
  while (counts[static_cast<std::size_t>(like)] != usual) ++like;
  for (int h = 0; h < n; ++h)
    if (rails(h).size() != usual)
      items.push_back(
          {"host", topology.host_name(h), Verdict::kWarn,
           fmt::format("{} ({}), but {} of {} hosts have {} ({}); {} of them can be used",
                       plural(static_cast<int>(rails(h).size()), "rail"), named(rails(h)), hosts, n,
                       usual, named(rails(like)), topology.nrails()),
           "rails-differ", "bring the missing rail up, or set WEFT_RAILS alike on all hosts"});
  std::map<std::string, std::pair<int, std::string>> owners;  // of an address: host, rail
  for (int h = 0; h < n; ++h)
    for (const Nic& rail : rails(h)) {
      if (rail.address.empty() || rail.address.starts_with("127.") || rail.address == "::1")
        continue;
      const auto [owner, first] = owners.try_emplace(rail.address, h, rail.name);
      const auto machine = [&](int of) { return topology.place(topology.ranks_of(of)[0]).machine; };
      // Emulated hosts have the very same device.
      if (first || owner->second.first == h || machine(owner->second.first) == machine(h)) continue;
      items.push_back({"host", fmt::format("{} {}", topology.host_name(h), rail.name),
                       Verdict::kFail,
                       fmt::format("has the address {}, and so has {} on {}", rail.address,
                                   owner->second.second, topology.host_name(owner->second.first)),
                       "address-twice",
                       "give each host an address of its own on this rail (`ip address`); a device "
                       "that is no way to other hosts is left out with WEFT_RAILS"});
    }
  for (int r = 0; r < topology.nrails(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    std::vector<double> rates;
    for (int h = 0; h < n; ++h)
      if (i < rails(h).size() && rails(h)[i].rate_gbps > 0) rates.push_back(rails(h)[i].rate_gbps);
    const auto [rate, with] = most_have(rates);
    for (int h = 0; h < n; ++h) {
      if (i >= rails(h).size()) continue;
      const Nic& rail = rails(h)[i];
      if (rail.rate_gbps <= 0 || rail.rate_gbps == rate) continue;
      items.push_back({"host", fmt::format("{} {}", topology.host_name(h), rail.name),
                       Verdict::kWarn,
                       fmt::format("rail {} runs at {:g} Gb/s, but {} of {} hosts have {:g} Gb/s",
                                   r, rail.rate_gbps, with, n, rate),
                       "rates-differ",
                       "look at the cable and at what both ends of the link offer (`ethtool`, "
                       "`ibstatus`): a link that trained badly takes a lower rate"});
    }
  }
  return items;
}

std::vector<Item> compare_mtus(int rail, const std::vector<RailMtu>& hosts) {
  std::vector<std::int64_t> mtus;
  for (const RailMtu& host : hosts) mtus.push_back(host.mtu);
  const auto [usual, with] = most_have(mtus);
  std::vector<Item> items;
  for (const RailMtu& host : hosts)
    if (host.mtu != usual)
      items.push_back(
          {"host", fmt::format("{} {}", host.host, host.device), Verdict::kWarn,
           fmt::format("has an MTU of {}, but {} of {} hosts have {} on rail {}", host.mtu, with,
                       hosts.size(), usual, rail),
           "mtu-differs",
           fmt::format("`ip link set {} mtu {}`: longer packets of the others may be lost on their "
                       "way to it, and its own are shorter than they need to be",
                       host.device, usual)});
  return items;
}

HostReport validate_hosts(World& world) {
  const Topology& topology = world.topology();
  const Rank me = world.rank();
  std::map<std::string, std::vector<Rank>> machines;
  for (Rank r = 0; r < topology.nranks(); ++r) machines[topology.place(r).machine].push_back(r);
  const bool speaks = machines[topology.place(me).machine].front() == me;
  nlohmann::ordered_json mine;
  if (speaks) {
    mine = describe_host(discover_host());
    add_networks(mine);
  }
  const auto all = job_of(world).all_gather(speaks ? mine.dump() : "");
  HostReport report;
  std::map<int, std::vector<RailMtu>> mtus;  // by rail
  report.hosts = nlohmann::ordered_json::array();
  for (Rank r = 0; r < topology.nranks(); ++r) {
    if (all[r].empty()) continue;
    auto host = nlohmann::ordered_json::parse(all[r]);
    const auto& place = topology.place(r);
    int ranks = 0;  // also those in other containers of this kernel
    for (Rank other = 0; other < topology.nranks(); ++other)
      ranks += topology.same_kernel(r, other);
    const auto items = judge_host(host, place.rails, ranks);
    report.oversubscribed = report.oversubscribed || oversubscribed(host, ranks);
    report.items.insert(report.items.end(), items.begin(), items.end());
    for (int rail = 0; rail < topology.nrails(); ++rail) {
      if (static_cast<std::size_t>(rail) >= place.rails.size()) continue;
      const std::string& device = place.rails[static_cast<std::size_t>(rail)].netdev;
      for (const auto& nic : host["nics"])
        if (nic["name"] == device && nic.contains("mtu") && device != "lo")
          mtus[rail].push_back({topology.host_name(topology.host(r)), device, nic["mtu"]});
    }
    report.hosts.push_back(std::move(host));
  }
  for (const auto& [rail, hosts] : mtus)
    for (Item& item : compare_mtus(rail, hosts)) report.items.push_back(std::move(item));
  for (Item& item : compare_hosts(topology)) report.items.push_back(std::move(item));
  return report;
}

}  // namespace weft
