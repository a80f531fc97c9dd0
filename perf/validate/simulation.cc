// Assembles a validation on the simulated fabric.
#include "perf/validate/simulation.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "perf/validate/checks/registry.h"
#include "perf/validate/sim/simulate.h"
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

}  // namespace

Report report_of(const SimulationOptions& options, Simulated run) {
  Report report;
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
  return report;
}

Simulation simulate(const SimulationOptions& options) {
  SimulateOptions simulated;
  simulated.fabric.hosts = options.hosts;
  simulated.fabric.rails = options.rails;
  simulated.fabric.rate_gbps = options.rate_gbps;
  simulated.fabric.seed = options.plan.seed;
  simulated.random_faults = options.random_faults;
  simulated.plan = options.plan;
  simulated.thresholds = options.policy.thresholds;
  simulated.each_minute = minutes_of(options, SimFabric(simulated.fabric).hosts());
  Simulated run = simulate_fleet(simulated);
  Simulation result;
  for (std::size_t i = 0; i < run.faults.size(); ++i)
    result.injected.push_back(line_of(run.faults[i], run.named[i]));
  result.report = report_of(options, std::move(run));
  return result;
}

}  // namespace weft::fabric
