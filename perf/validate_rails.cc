#include "perf/validate_rails.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "coll/metrics.h"

namespace weft {

std::vector<RailOutage> rail_outages(World& world) {
  nlohmann::json mine = nlohmann::json::array();
  for (const Metrics::Outage& o : world.metrics().outages)
    mine.push_back({{"rail", o.rail}, {"peer", o.peer}, {"back", o.back}, {"cause", o.cause}});
  constexpr auto kReplace = nlohmann::json::error_handler_t::replace;
  const auto all = world.job().all_gather(mine.dump(-1, ' ', false, kReplace));
  const Topology& t = world.topology();
  std::vector<RailOutage> outages;
  for (Rank r = 0; r < world.size(); ++r)
    for (const auto& o : nlohmann::json::parse(all[static_cast<std::size_t>(r)]))
      outages.push_back({o["rail"], t.host_name(t.host(r)), t.host_name(t.host(o["peer"])),
                         o["back"], o["cause"]});
  return outages;
}

std::vector<Item> judge_outages(const std::vector<RailOutage>& outages) {
  std::map<int, std::vector<RailOutage>> rails;
  for (const RailOutage& o : outages) rails[o.rail].push_back(o);
  std::vector<Item> items;
  for (const auto& [rail, all] : rails) {
    std::set<std::string> hosts, common = {all[0].host, all[0].other};
    bool back = true;
    for (const RailOutage& o : all) {
      hosts.insert({o.host, o.other});
      std::erase_if(common, [&](const std::string& h) { return h != o.host && h != o.other; });
      back = back && o.back;
    }
    std::string subject = fmt::format("rail {}", rail);
    if (common.size() == 1) subject += " host " + *common.begin();
    items.push_back(
        {"rails", subject, back ? Verdict::kWarn : Verdict::kFail,
         fmt::format("failed between hosts {}: {}; the other rails carried its messages{}",
                     fmt::join(hosts, ", "), all[0].cause, back ? ", and it came back" : ""),
         "rail-out",
         "look at the cable, the port and its switch: `ip link`, what the port counted above, and "
         "a ping from address to address of this rail"});
  }
  return items;
}

}  // namespace weft
