// Gathers rail outages from all ranks. Does not cause, repair or judge them.
#include "perf/validate/rail_outages.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "coll/api/metrics.h"
#include "coll/runtime/internals.h"

namespace weft::fabric {

std::vector<RailOutage> outages_from(const Topology& topology, Rank from, const std::string& text,
                                     std::vector<FalseReport>& false_reports) {
  const std::string& host = topology.host_name(topology.host(from));
  std::vector<RailOutage> outages;
  try {
    for (const auto& o : nlohmann::json::parse(text)) {
      const Rank peer = o.at("peer").get<Rank>();
      if (peer < 0 || peer >= topology.nranks()) throw Error(fmt::format("no rank {}", peer));
      outages.push_back({o.at("rail").get<int>(), host, topology.host_name(topology.host(peer)),
                         o.at("back").get<bool>(), o.at("cause").get<std::string>()});
    }
  } catch (const std::exception& e) {
    false_reports.push_back({host, -1, "outages", std::string(e.what()).substr(0, 200)});
    outages.clear();
  }
  return outages;
}

std::vector<RailOutage> rail_outages(World& world, std::vector<FalseReport>& false_reports) {
  nlohmann::json mine = nlohmann::json::array();
  const Metrics metrics = world.metrics();
  for (const Metrics::Outage& o : metrics.outages)
    mine.push_back({{"rail", world.topology().slot(o.rail)},
                    {"peer", o.peer},
                    {"back", o.back},
                    {"cause", o.cause}});
  for (const Rank peer : metrics.unheard)
    mine.push_back({{"rail", kNoRail}, {"peer", peer}, {"back", false}, {"cause", ""}});
  constexpr auto kReplace = nlohmann::json::error_handler_t::replace;
  const auto all = job_of(world).gather(mine.dump(-1, ' ', false, kReplace));
  std::vector<RailOutage> outages;
  for (std::size_t r = 0; r < all.size(); ++r)
    std::ranges::move(outages_from(world.topology(), static_cast<Rank>(r), all[r], false_reports),
                      std::back_inserter(outages));
  return outages;
}

}  // namespace weft::fabric
