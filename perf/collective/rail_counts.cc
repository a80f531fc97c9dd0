// Gathers port counters from all hosts and computes changes. Does not read devices.
#include "perf/collective/rail_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "coll/runtime/internals.h"

namespace weft {

std::vector<RailCount> count_rails(World& world, const std::vector<CounterSnapshot>& before) {
  const Topology& t = world.topology();
  const std::vector<CounterSnapshot> now = world.rail_counters();
  nlohmann::json mine = nlohmann::json::array();
  for (std::size_t r = 0; r < std::min(before.size(), now.size()); ++r) {
    nlohmann::json changes = nlohmann::json::object();
    for (const CounterDelta& d : difference(before[r], now[r])) changes[d.name] = d.change;
    mine.push_back(std::move(changes));
  }
  std::map<std::pair<int, int>, std::map<std::string, std::int64_t>> by_port;  // rail, host
  const std::vector<std::string> all = job_of(world).all_gather(mine.dump());
  for (Rank rank = 0; rank < world.size(); ++rank) {
    const auto theirs = nlohmann::json::parse(all[static_cast<std::size_t>(rank)], nullptr, false);
    if (!theirs.is_array()) continue;
    for (std::size_t r = 0; r < theirs.size(); ++r) {
      auto& port = by_port[{static_cast<int>(r), t.host(rank)}];
      for (const auto& [name, change] : theirs[r].items()) {
        const auto value = change.get<std::int64_t>();
        std::int64_t& sum = port[name];
        sum = name.starts_with("tcp.") ? sum + value : std::max(sum, value);
      }
    }
  }
  std::vector<RailCount> counts;
  for (const auto& [where, changes] : by_port) {
    RailCount& c = counts.emplace_back();
    c.rail = where.first;
    c.host = t.host_name(where.second);
    for (const auto& [name, change] : changes) c.changes.push_back({name, change});
  }
  return counts;
}

nlohmann::ordered_json to_json(const std::vector<RailCount>& counts) {
  auto json = nlohmann::ordered_json::array();
  for (const RailCount& c : counts) {
    nlohmann::ordered_json one = {
        {"rail", c.rail}, {"host", c.host}, {"counters", nlohmann::ordered_json::object()}};
    for (const CounterDelta& d : c.changes) one["counters"][d.name] = d.change;
    if (const auto bad = signs_of_trouble(c.changes); !bad.empty()) one["trouble"] = to_string(bad);
    json.push_back(std::move(one));
  }
  return json;
}

std::vector<std::string> trouble(const std::vector<RailCount>& counts) {
  std::vector<std::string> lines;
  for (const RailCount& c : counts)
    if (std::string line = evidence(c.rail, c.host, signs_of_trouble(c.changes)); !line.empty())
      lines.push_back(std::move(line));
  return lines;
}

}  // namespace weft
