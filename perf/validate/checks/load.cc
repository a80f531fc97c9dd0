// Behavior under congestion: incast, a victim flow beside load, halves of the fleet, all-to-all.
#include <algorithm>
#include <map>
#include <set>

#include "perf/validate/checks/check.h"
#include "perf/validate/locate/observations.h"
#include "perf/validate/locate/suspects.h"
#include "perf/validate/probes/statistics.h"

namespace weft::fabric {
namespace {

bool is_emulated(const Observed& observed) {
  return std::ranges::any_of(observed.hosts, &FleetHost::emulated);
}

// Returns the severity of a share below its limit; nullopt above. `tcp`: the flows use TCP.
std::optional<Severity> severity_of_share(double share, double limit, bool tcp) {
  if (share >= limit) return std::nullopt;
  if (tcp && share >= limit - kTcpAllowance) return Severity::kInfo;
  return Severity::kWarn;
}

using Crowd = std::vector<const FlowSample*>;

bool any_starved(const Crowd& group) {
  return std::ranges::any_of(group, [](const FlowSample* one) { return starved(*one); });
}
bool any_tcp(const Crowd& group) {
  return std::ranges::any_of(group, [](const FlowSample* one) { return over_tcp(*one); });
}

std::map<std::pair<int, Port>, Crowd> by_round_and_target(const Observed& observed, Probe probe) {
  std::map<std::pair<int, Port>, Crowd> groups;
  for (const FlowSample* sample : flows_of(observed, probe))
    if (sample->reached) groups[{sample->round, sample->flow.to}].push_back(sample);
  return groups;
}

// Returns a finding for flows that reach `sum` of `most` Gb/s together; nullopt: no severity.
std::optional<Finding> too_little(const Check& check, const Where& where,
                                  std::optional<Severity> severity, double sum, double most,
                                  const char* name, const Crowd& group) {
  if (!severity) return std::nullopt;
  Finding finding = make_finding(check, where);
  finding.severity = *severity;
  set_number(finding, Unit::kGbps, sum, most);
  add_count(finding, name, group.size());
  return finding;
}

// Keeps the best of repeated runs: a slowdown of the fleet is not a fault of the network.
template <typename Key>
void keep_better(const Key& key, std::optional<Finding> finding,
                 std::map<Key, std::optional<Finding>>& kept) {
  const auto [it, first] = kept.try_emplace(key, finding);
  if (first || !it->second) return;
  const bool low = it->second->unit != Unit::kRatio;  // a larger value is better
  if (!finding || (finding->value > it->second->value) == low) it->second = std::move(finding);
}

template <typename Key>
void add_kept(std::map<Key, std::optional<Finding>> kept, Judged& all) {
  for (auto& [key, finding] : kept)
    if (finding) all.findings.push_back(std::move(*finding));
}

Judged incast(const Check& check, const Observed& observed) {
  const Alone alone(observed);
  Judged all;
  std::map<Port, std::optional<Finding>> targets;  // the best run of each
  for (const auto& [key, group] : by_round_and_target(observed, Probe::kIncast)) {
    const Port target = key.second;
    double sum = 0, offered = 0;
    for (const FlowSample* sample : group) {
      sum += sample->gbps();
      offered += alone.gbps(sample->flow.from, true);
    }
    const double most = std::min(alone.gbps(target, false), offered);
    if (group.size() < 2 || most <= 0) continue;
    ++all.total;
    if (any_starved(group)) continue;
    ++all.judged;
    const double limit = observed.policy.thresholds.incast_share;
    const auto severity = severity_of_share(sum / most, limit, any_tcp(group));
    const Where where = at_port(observed, target, Direction::kReceive);
    keep_better(target, too_little(check, where, severity, sum, most, "senders", group), targets);
  }
  add_kept(std::move(targets), all);
  return all;
}

Judged victim(const Check& check, const Observed& observed) {
  Judged all;
  std::map<std::pair<Port, Port>, std::optional<Finding>> paths;  // the best run of each
  const IdleLatencies idle(observed.samples);
  for (const FlowSample* sample : flows_of(observed, Probe::kVictim)) {
    if (!sample->flow.victim || !sample->latency) continue;
    ++all.total;
    const double alone_us = idle.p99_us(sample->flow.from, sample->flow.to);
    if (alone_us <= 0 || starved(*sample)) continue;
    ++all.judged;
    const double ratio = sample->latency->p99_us / alone_us;
    std::optional<Finding> finding;
    if (ratio > observed.policy.thresholds.victim_ratio) {
      finding = make_finding(check, at_path(observed, sample->flow.from, sample->flow.to));
      // If hosts share cores, any load delays all flows.
      if (is_emulated(observed)) finding->severity = Severity::kInfo;
      set_number(*finding, Unit::kRatio, ratio, observed.policy.thresholds.victim_ratio);
      add_number(*finding, "p99", sample->latency->p99_us, Unit::kMicroseconds, alone_us);
    }
    keep_better(std::pair(sample->flow.from, sample->flow.to), std::move(finding), paths);
  }
  add_kept(std::move(paths), all);
  return all;
}

// Fraction of the rate, if two stages of hashes load links unevenly.
constexpr double kLeastHashed = 0.4;

bool any_meet(const Observed& observed) {
  return std::ranges::any_of(rates_of(observed).chances, &Chance::meet);
}

// Compares the fleet's total rate when all ports send with the sum of its ports' rates alone.
template <Probe probe>
Judged judge_sums(const Check& check, const Observed& observed) {
  const Alone alone(observed);
  std::map<int, Crowd> rounds;
  for (const FlowSample* sample : flows_of(observed, probe))
    rounds[sample->round].push_back(sample);
  Judged all;
  std::map<std::pair<Port, Port>, std::optional<Finding>> runs;  // by first flow: the best run
  for (const auto& [round, group] : rounds) {
    ++all.total;
    if (any_starved(group)) continue;
    double sum = 0, sent = 0, received = 0;
    std::set<Port> senders, receivers;
    for (const FlowSample* sample : group) {
      sum += sample->gbps();
      if (senders.insert(sample->flow.from).second) sent += alone.gbps(sample->flow.from, true);
      if (receivers.insert(sample->flow.to).second) received += alone.gbps(sample->flow.to, false);
    }
    const double most = std::min(sent, received);
    if (most <= 0) continue;
    ++all.judged;
    const bool tcp = any_tcp(group) || is_emulated(observed);
    auto severity = severity_of_share(sum / most, observed.policy.thresholds.bisection_share, tcp);
    // If a hash puts flows on the same uplinks, other uplinks are empty: see flows-meet.
    if (severity && sum >= kLeastHashed * most && any_meet(observed)) severity = Severity::kInfo;
    const Flow& first = group.front()->flow;
    const bool one_rail = std::ranges::all_of(group, [&](const FlowSample* one) {
      return one->flow.from.rail == first.from.rail && one->flow.to.rail == first.from.rail;
    });
    const Where where = one_rail ? at_rail(first.from.rail) : Where{};
    keep_better(std::pair(first.from, first.to),
                too_little(check, where, severity, sum, most, "flows", group), runs);
  }
  add_kept(std::move(runs), all);
  return all;
}

constexpr Check kLoadRows[] = {
    {"incast", CheckKind::kActive, Severity::kWarn, "many senders fill one port",
     "streams of many hosts to one port at once", ">= 90 % of the port's rate alone",
     "When many hosts send to this port at once, less arrives than the port can take: the network "
     "loses or delays more than the overload needs.",
     "Look at PFC and ECN thresholds of the last switch, and at the buffers of its port; compare "
     "with the counters of both ends in this report.",
     incast},
    {"victim-flow", CheckKind::kActive, Severity::kWarn, "load leaves other flows alone",
     "p99 of a flow while other ports are loaded, against idle", "<= 2 x idle",
     "A flow that shares no port with the load still gets slow under load: congestion spreads, "
     "as with PFC pauses or a shared uplink.",
     "Look for pause frames between switches, for uplinks with too little rate, and for all "
     "traffic in one class.",
     victim},
    {"bisection", CheckKind::kActive, Severity::kWarn, "halves of the fleet reach full rate",
     "streams between halves of the fleet at once", ">= 90 % of the ports' rates alone",
     "The halves of the fleet exchange less than their ports can: links between switches are "
     "missing, slow, oversubscribed, or unevenly used.",
     "Count the uplinks of each leaf that are up, look at how flows spread over them (ECMP, "
     "adaptive routing), and compare with the plan.",
     judge_sums<Probe::kBisection>},
    {"all-to-all", CheckKind::kActive, Severity::kWarn, "everyone to everyone reaches full rate",
     "streams of every host to every host at once", ">= 90 % of the ports' rates alone",
     "With all hosts sending to all, less arrives than the ports can take. Expert-parallel jobs "
     "will see this.",
     "If bisection passes and this fails, look at congestion control and buffers; if both fail, "
     "at the uplinks.",
     judge_sums<Probe::kAllToAll>},
};

}  // namespace

std::span<const Check> load_checks() { return kLoadRows; }

}  // namespace weft::fabric
