// The plan, localization and checks of `weft validate` on a WorldFabric.
#include "perf/validate/worlds/world_run.h"

#include <fmt/format.h>

#include <utility>

#include "perf/validate/worlds/world_fabric.h"

namespace weft::fabric {
namespace {

Simulated run_on(WorldFabric& fabric, const SimulationOptions& options) {
  Simulated run;
  const Streams streams = calibrate(fabric);
  PlanOptions left = options.plan;
  left.budget_s -= fabric.now_s();
  run.conducted = conduct(fabric, left, options.policy.thresholds);
  run.conducted.samples.one_stream_gbps = streams.one_gbps;
  run.streams = streams.of_flow;
  run.virtual_s = fabric.now_s();
  run.hosts = fabric.hosts();
  run.facts = facts_of(run.hosts, 0, run.virtual_s);
  for (std::size_t h = 0; h < run.hosts.size(); ++h)
    for (PortFacts& port : run.facts.hosts[h].ports) {
      port.after = fabric.counters({static_cast<int>(h), port.rail});
      for (const auto& [name, reading] : port.after) port.before[name] = {reading.state, 0};
    }
  return run;
}

}  // namespace

WorldRun run_world(const std::string& name, const SimulationOptions& options) {
  const SimWorld world =
      make_world(name, options.hosts, options.rails, options.rate_gbps, options.plan.seed);
  WorldFabric fabric(world);
  WorldRun result;
  result.report = report_of(options, run_on(fabric, options));
  result.score = score(world, result.report);
  for (std::size_t e = 0; e < world.effects.size(); ++e) {
    const auto [found, placed] = result.score.faults[e];
    result.injected.push_back(fmt::format("{}: {}", line_of(world.effects[e]),
                                          placed  ? "named"
                                          : found ? "found, and NOT named"
                                                  : "NOT found"));
  }
  return result;
}

}  // namespace weft::fabric
