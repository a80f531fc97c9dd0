// Validates facts from other machines. Does not judge whether they are healthy.
#include "perf/validate/fleet_facts.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace weft::fabric {
namespace {

constexpr std::size_t kMostWords = 200;  // characters of an error in a report

// Drops numbers that are impossible for a port.
void check_numbers(const std::string& host, PortFacts& port,
                   std::vector<FalseReport>& false_reports) {
  const auto check = [&](const char* name, auto& value) {
    if (!value || (*value >= 0 && *value < 1e9)) return;
    false_reports.push_back({host, port.rail, "facts", fmt::format("{} {}", name, *value)});
    value.reset();
  };
  check("rate_gbps", port.rate_gbps);
  check("most_rate_gbps", port.most_rate_gbps);
  check("mtu", port.mtu);
  check("active_mtu", port.active_mtu);
  check("pcie_width", port.pcie_width);
}

}  // namespace

HostFacts facts_of_host(const Topology& topology, int host, const std::string& text,
                        std::vector<FalseReport>& false_reports) {
  const std::string& name = topology.host_name(host);
  const auto note = [&](const std::string& what) {
    false_reports.push_back({name, -1, "facts", what.substr(0, kMostWords)});
  };
  HostFacts facts;
  try {
    facts = host_facts_from_json(nlohmann::ordered_json::parse(text));
  } catch (const std::exception& e) {
    facts = {};
    note(e.what());
  }
  const std::vector<Rank>& ranks = topology.ranks_of(host);
  const auto rails = topology.place(ranks[0]).rails.size();
  bool in_order = facts.ports.size() <= rails;
  for (std::size_t i = 0; i < facts.ports.size(); ++i)
    in_order = in_order && facts.ports[i].rail == static_cast<int>(i);
  if (!facts.host.empty() && facts.host != name) note("the name of another host: " + facts.host);
  if (!in_order) {
    note(fmt::format("{} ports that are not rails 0 to {} in order", facts.ports.size(),
                     static_cast<int>(rails) - 1));
    facts.ports.clear();
  }
  facts.host = name;
  facts.first_rank = ranks[0];
  facts.ranks = static_cast<int>(ranks.size());
  for (PortFacts& port : facts.ports) check_numbers(name, port, false_reports);
  return facts;
}

void keep_first_readings(const HostFacts& first, HostFacts& now,
                         std::vector<FalseReport>& false_reports) {
  for (std::size_t i = 0; i < std::min(first.ports.size(), now.ports.size()); ++i) {
    if (first.ports[i].before == now.ports[i].before) continue;
    false_reports.push_back(
        {first.host, now.ports[i].rail, "facts", "readings before the run that were others then"});
    now.ports[i].before = first.ports[i].before;
  }
}

}  // namespace weft::fabric
