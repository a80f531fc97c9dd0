#include "perf/validate_host.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>

namespace weft {
namespace {

std::string plural(int n, std::string_view thing) {
  return fmt::format("{} {}{}", n, thing, n == 1 ? "" : "s");
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

bool crowded(const nlohmann::ordered_json& host, int ranks) {
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
  for (const Nic& rail : rails) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", rail.name);
    if (rail.rate_gbps > 0) names += fmt::format(" ({:g} Gb/s)", rail.rate_gbps);
    const auto& nics = host["nics"];  // an emulated rail is none of them
    const auto nic = std::find_if(nics.begin(), nics.end(),
                                  [&](const auto& n) { return n["name"] == rail.name; });
    if (nic != nics.end() && !(*nic)["up"].get<bool>() && rail.name != "lo")
      items.push_back({"host", fmt::format("{} {}", hostname, rail.name), Verdict::kFail,
                       "this rail is down", "rail-down",
                       fmt::format("check the cable and `ip link show {}`, or leave it out with "
                                   "WEFT_RAILS",
                                   rail.netdev.empty() ? rail.name : rail.netdev)});
  }
  if (!rails.empty())
    items.push_back({"host", hostname, Verdict::kPass, "rails: " + names, "", ""});
  if (rdma == 0)
    items.push_back({"host", hostname, Verdict::kSkip,
                     "missing capability: RDMA devices; the rails carry TCP", "", ""});
  if (crowded(host, ranks))
    items.push_back({"host", hostname, Verdict::kSkip,
                     fmt::format("missing capability: a core per rank ({} ranks, {}); times are "
                                 "judged leniently",
                                 ranks, plural(cores, "core")),
                     "", ""});
  return items;
}

HostReport validate_hosts(World& world) {
  const Topology& topology = world.topology();
  const Rank me = world.rank();
  std::map<std::string, std::vector<Rank>> machines;
  for (Rank r = 0; r < topology.nranks(); ++r) machines[topology.place(r).machine].push_back(r);
  const bool speaks = machines[topology.place(me).machine].front() == me;
  const auto all = world.job().all_gather(speaks ? describe_host(discover_host()).dump() : "");
  HostReport report;
  report.hosts = nlohmann::ordered_json::array();
  for (Rank r = 0; r < topology.nranks(); ++r) {
    if (all[r].empty()) continue;
    auto host = nlohmann::ordered_json::parse(all[r]);
    const auto& place = topology.place(r);
    const int ranks = static_cast<int>(machines[place.machine].size());
    const auto items = judge_host(host, place.rails, ranks);
    report.crowded = report.crowded || crowded(host, ranks);
    report.items.insert(report.items.end(), items.begin(), items.end());
    report.hosts.push_back(std::move(host));
  }
  const std::size_t expected = topology.place(0).rails.size();
  for (int h = 1; h < topology.nhosts(); ++h) {
    const auto& rails = topology.place(topology.ranks_of(h)[0]).rails;
    if (rails.size() != expected)
      report.items.push_back({"host", topology.host_name(h), Verdict::kWarn,
                              fmt::format("{} but {} has {}; the smallest number is used",
                                          plural(static_cast<int>(rails.size()), "rail"),
                                          topology.host_name(0), expected),
                              "rails-differ",
                              "bring the missing rail up, or set WEFT_RAILS alike on all hosts"});
  }
  return report;
}

}  // namespace weft
