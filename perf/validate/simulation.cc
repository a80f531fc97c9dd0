// Assembles a validation on the simulated fabric.
#include "perf/validate/simulation.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "perf/validate/checks/registry.h"
#include "perf/validate/sim/simulate.h"
#include "perf/validate/sim/world_fabric.h"
#include "perf/validate/soak.h"

namespace weft::fabric {
namespace {

std::string line_of(const SimFault& fault, bool named) {
  constexpr std::array kKinds = {"rate", "loss",    "latency", "jitter",   "mtu",      "black hole",
                                 "dead", "swapped", "flap",    "slow cpu", "duplicate"};
  constexpr std::array kPlaces = {"port", "host", "rail", "leaf", "path"};
  constexpr std::array kWays = {"", " transmit", " receive"};
  std::string line =
      fmt::format("{} {:g} at {} h{} rail {}{}", kKinds[static_cast<std::size_t>(fault.kind)],
                  fault.strength, kPlaces[static_cast<std::size_t>(fault.place)], fault.port.host,
                  fault.port.rail, kWays[static_cast<std::size_t>(fault.way)]);
  if (fault.place == FaultPlace::kPath || fault.kind == FaultKind::kSwapped)
    line += fmt::format(" and h{} rail {}", fault.peer.host, fault.peer.rail);
  return line + (named ? ": named" : ": NOT named");
}

// Judges the samples of a soak so far.
EachMinute minutes_of(const SimulationOptions& options, const std::vector<FleetHost>& hosts) {
  if (!options.soak_line) return {};
  return [&options, hosts, told = std::size_t{0}](const Conducted& so_far, double seconds) mutable {
    Report report;
    report.hosts = hosts;
    report.samples = so_far.samples;
    const FleetFacts facts = facts_of(hosts, 0, seconds);
    const Judgement judgement =
        judge({facts, report.hosts, report.samples, so_far.causes, options.policy});
    options.soak_line(soak_line(report, judgement.findings, told, seconds,
                                options.plan.budget_s + options.plan.soak_s));
    told = so_far.samples.flows.size();
  };
}

Simulated run_plain(const SimulationOptions& options) {
  SimulateOptions simulated;
  simulated.fabric.hosts = options.hosts;
  simulated.fabric.rails = options.rails;
  simulated.fabric.rate_gbps = options.rate_gbps;
  simulated.fabric.seed = options.plan.seed;
  simulated.random_faults = options.random_faults;
  simulated.plan = options.plan;
  simulated.thresholds = options.policy.thresholds;
  simulated.each_minute = minutes_of(options, SimFabric(simulated.fabric).hosts());
  return simulate_fleet(simulated);
}

Simulated run_world(const SimulationOptions& options, const SimWorld& world) {
  WorldFabric fabric(world);
  Simulated run;
  const Streams streams = calibrate(fabric);
  SimulationOptions left = options;
  left.plan.budget_s -= fabric.now_s();
  run.conducted =
      conduct(fabric, left.plan, options.policy.thresholds, minutes_of(left, fabric.hosts()));
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

Simulation simulate(const SimulationOptions& options) {
  std::optional<SimWorld> world;
  if (!options.world.empty())
    world = make_world(options.world, options.hosts, options.rails, options.rate_gbps,
                       options.plan.seed);
  Simulated run = world ? run_world(options, *world) : run_plain(options);

  Simulation result;
  Report& report = result.report;
  report.version = WEFT_VERSION;
  report.simulated = true;
  report.transport = "simulated";
  report.rails = options.rails;
  report.ranks = options.hosts;
  report.budget_s = options.plan.budget_s;
  report.seconds = run.virtual_s;
  report.streams = run.streams;
  report.policy = options.policy;
  report.hosts = std::move(run.hosts);
  for (FleetHost& host : report.hosts)
    for (std::size_t r = 0; r < host.ports.size(); ++r)
      if (const auto declared = options.policy.declared_gbps(static_cast<int>(r)))
        host.ports[r].expected_gbps = *declared;
  report.facts = std::move(run.facts);
  report.plan = std::move(run.conducted.plan);
  report.samples = std::move(run.conducted.samples);
  report.causes = std::move(run.conducted.causes);
  Policy policy = report.policy;
  policy.skipped_checks.emplace_back("declared");  // simulated ports have no settings
  report.judgement = judge({report.facts,
                            report.hosts,
                            report.samples,
                            report.causes,
                            policy,
                            {},
                            {},
                            report.plan.left_out});
  report.verdict = verdict_of(report.judgement.findings);
  for (std::size_t i = 0; i < run.faults.size(); ++i)
    result.injected.push_back(line_of(run.faults[i], run.named[i]));
  if (!world) return result;
  result.score = score(*world, report);
  for (std::size_t e = 0; e < world->effects.size(); ++e) {
    const auto [found, placed] = result.score->faults[e];
    result.injected.push_back(fmt::format("{}: {}", line_of(world->effects[e]),
                                          placed  ? "named"
                                          : found ? "found, and NOT named"
                                                  : "NOT found"));
  }
  return result;
}

}  // namespace weft::fabric
