// Runs the steps of a validation on all ranks.
#include "perf/validate/validation.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "coll/runtime/internals.h"
#include "perf/validate/collective_checks.h"
#include "perf/validate/conduct/conduct.h"
#include "perf/validate/facts/read_facts.h"
#include "perf/validate/fleet_facts.h"
#include "perf/validate/probes/agent_fabric.h"
#include "perf/validate/rail_outages.h"
#include "perf/validate/report/baseline.h"
#include "perf/validate/slurm/drain.h"
#include "perf/validate/soak.h"
#include "perf/validate/wrong_pairs.h"
#include "topo/base/clock.h"
#include "topo/base/environment.h"
#include "transport/factory/transport_factory.h"

namespace weft::fabric {
namespace {

// The maximum share of the budget for the collectives.
constexpr double kCollectiveShare = 0.3;

}  // namespace

Validation::Validation(const ValidationOptions& options,
                       std::function<void(const std::string&)> show)
    : options_(options), show_(std::move(show)), start_s_(now_s()) {
  report_.started = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  report_.version = WEFT_VERSION;
  report_.budget_s = options.plan.budget_s;
  report_.policy = options.policy;
  report_.declared_gbps = options.declared_gbps;
}

double Validation::left_s() const { return options_.plan.budget_s - (now_s() - start_s_); }

// Reads the facts of each host on its agent, and gathers them on rank 0.
void Validation::describe(World& world) {
  phase_ = "facts";
  const Topology& topology = world.topology();
  const std::vector<Rank> agents = agents_of(topology);
  agent_ = std::ranges::find(agents, world.rank()) != agents.end();
  for (Rank r = 0; r < world.size(); ++r) host_of_.push_back(topology.host_name(topology.host(r)));
  report_.ranks = world.size();
  report_.rails = static_cast<int>(
      std::max(topology.place(0).rails.size(), std::size_t{1}));  // including missing rails
  const std::string between = transport_between_hosts(topology);
  report_.transport = options_.transport == "auto" ? between : options_.transport;
  if (report_.transport != "verbs") report_.transport = "tcp";
  const int host = topology.host(world.rank());
  if (agent_) {
    mine_ = read_host(topology.rails_by_slot(world.rank()), options_.sources);
    heartbeat_.emplace();
    mine_.stops.throttled_s = throttled_s(options_.sources);
    mine_.host = topology.host_name(host);
    mine_.first_rank = world.rank();
    mine_.ranks = static_cast<int>(topology.ranks_of(host).size());
    mine_.names_rails = is_set("WEFT_RAILS");
    for (const Rank other : agents)
      mine_.emulated |= other != world.rank() && topology.same_kernel(other, world.rank());
    for (PortFacts& port : mine_.ports) port.before = read_counters(port, options_.sources);
  }
  gather_facts(world);
  for (const HostFacts& other : report_.facts.hosts) report_.emulated |= other.emulated;
}

void Validation::gather_facts(World& world) {
  const FleetFacts first = std::exchange(report_.facts, {});
  const auto take = [&](int host, const std::string& text) {
    HostFacts facts = facts_of_host(world.topology(), host, text, false_reports_);
    if (const auto h = static_cast<std::size_t>(host); h < first.hosts.size())
      keep_first_readings(first.hosts[h], facts, false_reports_);
    report_.facts.hosts.push_back(std::move(facts));
  };
  gather_from_agents(job_of(world), world.topology(),
                     agent_ ? fabric::to_json(mine_).dump() : std::string(), take);
}

void Validation::probe(World& world) {
  phase_ = "probes";
  AgentFabric fabric(job_of(world), world.topology(), report_.facts, options_.policy,
                     options_.declared_gbps, report_.transport);
  if (world.rank() != 0) return fabric.serve();
  report_.hosts = fabric.hosts();
  show_("probes");
  const Streams streams = calibrate(fabric);
  report_.streams = streams.of_flow;
  PlanOptions plan = options_.plan;
  plan.budget_s = left_s() * (1 - kCollectiveShare);
  std::size_t told = 0;
  const EachMinute each_minute = [&](const Conducted& so_far, double seconds) {
    if (!options_.soak_line) return;
    report_.samples = so_far.samples;
    report_.causes = so_far.causes;
    options_.soak_line(
        soak_line(report_, judge(observed()).findings, told, seconds, plan.budget_s + plan.soak_s));
    told = so_far.samples.flows.size();
  };
  Conducted conducted = conduct(fabric, plan, options_.policy.thresholds, each_minute);
  report_.plan = std::move(conducted.plan);
  report_.samples = std::move(conducted.samples);
  report_.samples.one_stream_gbps = streams.one_gbps;
  report_.causes = std::move(conducted.causes);
  fabric.stop();
}

// Skips the collectives if a link passes no packets or no large packets: every collective would
// stall until the deadline.
void Validation::collectives(World& world) {
  phase_ = "collectives";
  const bool broken = std::ranges::any_of(report_.causes, [](const Cause& cause) {
    return cause.kind == CauseKind::kUnreachable || cause.kind == CauseKind::kMtu ||
           cause.kind == CauseKind::kSwapped ||
           (cause.kind == CauseKind::kRate && cause.value <= 0);
  });
  const std::string left = fmt::format("{}", broken ? -1.0 : std::max(left_s(), 1.0));
  const double budget = std::stod(told_by_root(job_of(world), left));
  if (budget < 0) return;
  Internals::measure_costs(world);
  report_.collectives = run_collectives(world, 0.7 * budget, [this](const std::string& what) {
    if (show_) show_(what);
  });
  // Only rank 0 has the findings of all ranks.
  const bool found =
      std::ranges::any_of(report_.collectives, [](const auto& c) { return c.wrong > 0; });
  if (told_by_root(job_of(world), found ? "wrong" : "") == "wrong") {
    phase_ = "messages, compared";
    const WrongHost wrong = find_wrong_host(world);
    for (CollectiveResult& result : report_.collectives) {
      if (wrong.host < 0 || result.wrong == 0) continue;
      result.wrong_host = report_.hosts.at(static_cast<std::size_t>(wrong.host)).name;
      result.wrong_sends = wrong.sends;
    }
  }
  phase_ = "all_reduce, timed";
  const CollectiveResult expected = expected_all_reduce(
      report_.hosts, report_.samples, players_of(world.topology()), Internals::costs(world));
  const std::vector<CollectiveResult> timed = time_all_reduce(world, expected, 1.0);
  report_.collectives.insert(report_.collectives.end(), timed.begin(), timed.end());
}

void Validation::count_again(World& world) {
  phase_ = "counters";
  if (agent_) {
    for (PortFacts& port : mine_.ports) port.after = read_counters(port, options_.sources);
    const double throttled_before_s = mine_.stops.throttled_s;
    mine_.stops = heartbeat_->stops();
    mine_.stops.throttled_s = std::max(0.0, throttled_s(options_.sources) - throttled_before_s);
  }
  gather_facts(world);
}

Observed Validation::observed() const {
  return {report_.facts,   report_.hosts,
          report_.samples, report_.causes,
          options_.policy, report_.collectives,
          report_.failure, report_.plan.left_out,
          outages_,        report_.baseline.empty() ? nullptr : &report_.drift};
}

Verdict Validation::run(World& world) {
  describe(world);
  const double counted_s = now_s();
  probe(world);
  collectives(world);
  count_again(world);
  outages_ = rail_outages(world, false_reports_);
  if (world.rank() == 0) {
    report_.facts.seconds = now_s() - counted_s;
    std::ranges::move(false_reports_, std::back_inserter(report_.samples.false_reports));
    bool known = false;  // the baseline was used, or cannot be used
    const auto use_baseline = [&](const auto& use) {
      if (options_.baseline.empty() || known) return;
      try {
        known = use(options_.baseline, report_);
      } catch (const Error& e) {
        baseline_error_ = e.what();
        known = true;
      }
    };
    use_baseline(compare_with_baseline);
    report_.judgement = judge(observed());
    report_.verdict = verdict_of(report_.judgement.findings);
    report_.seconds = now_s() - start_s_;
    use_baseline(store_baseline);
  }
  phase_ = "verdict";
  std::string mine = std::to_string(static_cast<int>(report_.verdict)) + "\n";
  if (world.rank() == 0 && report_.verdict == Verdict::kCritical)
    for (const Drain& drain : nodes_to_drain(fabric::to_json(report_)))
      mine += fmt::format("{} {}\n", drain.node, drain.reason);
  const std::string told = told_by_root(job_of(world), mine);
  report_.verdict = static_cast<Verdict>(std::stoi(told));
  drains_ = told.substr(told.find('\n') + 1);
  return report_.verdict;
}

void Validation::fail(const Status& failure) {
  Finding finding;
  const auto culprit = static_cast<std::size_t>(failure.rank());
  // A timeout may name the sender on a faulty link. The hosts of ranks that never joined are
  // unknown.
  const bool lost = failure.code() == Code::kPeerFailed && culprit < host_of_.size();
  // Not caused by the fabric: an invalid argument, or the way a rank was started.
  const bool not_run = failure.code() == Code::kInvalidArgument;
  finding.id = lost                               ? "rank-lost"
               : not_run                          ? "not-run"
               : failure.code() == Code::kTimeout ? "deadline-passed"
                                                  : "job-failed";
  finding.severity = Severity::kFatal;
  if (lost) {
    finding.where.kind = PlaceKind::kHost;
    finding.where.host = host_of_[culprit];
  }
  if (not_run) finding.where.kind = PlaceKind::kTester;
  finding.unit = Unit::kText;
  finding.text = not_run ? failure.message() : failure.to_string();
  finding.evidence.push_back({"phase", "", -1, 0, 0, Unit::kText, phase_});
  report_.failure = fmt::format("{} (while at {})", finding.text, phase_);
  // Earlier measurements still count.
  if (!not_run && !report_.samples.flows.empty()) report_.judgement = judge(observed());
  report_.judgement.findings.push_back(finding);
  sort_heaviest_first(report_.judgement.findings);
  report_.verdict = not_run ? Verdict::kTester : Verdict::kCritical;
  report_.seconds = now_s() - start_s_;
}

}  // namespace weft::fabric
