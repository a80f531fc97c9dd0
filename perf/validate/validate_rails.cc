// Gathers outages of rails from all ranks, and judges them. Does not cause or mend them.
#include "perf/validate/validate_rails.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "coll/api/metrics.h"
#include "coll/runtime/internals.h"

namespace weft {

std::vector<RailOutage> rail_outages(World& world) {
  nlohmann::json mine = nlohmann::json::array();
  const Metrics metrics = world.metrics();
  for (const Metrics::Outage& o : metrics.outages)
    mine.push_back({{"rail", o.rail}, {"peer", o.peer}, {"back", o.back}, {"cause", o.cause}});
  for (const Rank peer : metrics.unheard)
    mine.push_back({{"rail", kNoRail}, {"peer", peer}, {"back", false}, {"cause", ""}});
  constexpr auto kReplace = nlohmann::json::error_handler_t::replace;
  const auto all = job_of(world).all_gather(mine.dump(-1, ' ', false, kReplace));
  const Topology& t = world.topology();
  std::vector<RailOutage> outages;
  for (Rank r = 0; r < world.size(); ++r)
    for (const auto& o : nlohmann::json::parse(all[static_cast<std::size_t>(r)]))
      outages.push_back({o["rail"], t.host_name(t.host(r)), t.host_name(t.host(o["peer"])),
                         o["back"], o["cause"]});
  return outages;
}

namespace {

bool between(const RailOutage& o, const std::string& host) {
  return o.host == host || o.other == host;
}

// Who took part in all of them, taking out first whoever took part in most. Empty where that leaves
// pairs of which either may be at fault, or names half of the hosts: then it is the rail.
std::vector<std::string> hosts_at_fault(const std::vector<RailOutage>& outages) {
  std::set<std::string> hosts;
  for (const RailOutage& o : outages) hosts.insert({o.host, o.other});
  std::vector<RailOutage> left = outages;
  std::vector<std::string> fault;
  while (!left.empty()) {
    std::map<std::string, std::set<std::string>> others;
    for (const RailOutage& o : left) {
      others[o.host].insert(o.other);
      others[o.other].insert(o.host);
    }
    const auto most =
        std::ranges::max_element(others, {}, [](const auto& entry) { return entry.second.size(); });
    if (most->second.size() < 2) return {};
    fault.push_back(most->first);
    std::erase_if(left, [&](const RailOutage& o) { return between(o, fault.back()); });
  }
  std::ranges::sort(fault);
  return 2 * fault.size() <= hosts.size() ? fault : std::vector<std::string>();
}

Item unheard_item(const std::vector<std::string>& fault, const std::vector<RailOutage>& all) {
  std::set<std::string> hosts;
  for (const RailOutage& o : all) hosts.insert({o.host, o.other});
  return {"rails",
          fault.empty() ? "all rails" : fmt::format("host {}", fmt::join(fault, ", ")),
          Verdict::kWarn,
          fmt::format("messages pass between hosts {}, and datagrams (UDP) do not: a rail that "
                      "fails there would fail the job, as no other one can stand in for it",
                      fmt::join(hosts, ", ")),
          "no-failover",
          "let UDP pass between the addresses of the rails: look at the firewall and the routes"};
}

Item outage_item(int rail, const std::string& host, const std::vector<RailOutage>& all) {
  std::set<std::string> hosts;
  bool back = true;
  for (const RailOutage& o : all) {
    hosts.insert({o.host, o.other});
    back = back && o.back;
  }
  // What a host sees of its own device says more than what the others do not hear.
  const auto own = std::ranges::find(all, "its link is down", &RailOutage::cause);
  return {"rails",
          fmt::format("rail {}{}{}", rail, host.empty() ? "" : " host ", host),
          back ? Verdict::kWarn : Verdict::kFail,
          fmt::format("failed between hosts {}: {}; the other rails carried its messages{}",
                      fmt::join(hosts, ", "), own == all.end() ? all[0].cause : own->cause,
                      back ? ", and it came back" : ""),
          "rail-out",
          "look at the cable, the port and its switch: `ip link`, what the port counted above, and "
          "a ping from address to address of this rail"};
}

}  // namespace

std::vector<Item> judge_outages(const std::vector<RailOutage>& outages) {
  std::map<int, std::vector<RailOutage>> rails;
  for (const RailOutage& o : outages) rails[o.rail].push_back(o);
  std::vector<Item> items;
  for (const auto& [rail, all] : rails) {
    const std::vector<std::string> fault = hosts_at_fault(all);
    if (rail == kNoRail) {
      items.push_back(unheard_item(fault, all));
      continue;
    }
    if (fault.empty()) items.push_back(outage_item(rail, "", all));
    for (const std::string& host : fault) {
      std::vector<RailOutage> its;
      std::ranges::copy_if(all, std::back_inserter(its),
                           [&](const RailOutage& o) { return between(o, host); });
      // Of two at fault, what they have to say of each other may be about either.
      const auto of_two = std::stable_partition(its.begin(), its.end(), [&](const RailOutage& o) {
        return std::ranges::none_of(
            fault, [&](const std::string& other) { return other != host && between(o, other); });
      });
      if (of_two != its.begin()) its.erase(of_two, its.end());
      items.push_back(outage_item(rail, host, its));
    }
  }
  return items;
}

}  // namespace weft
