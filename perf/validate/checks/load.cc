// How the network behaves when many flows meet: incast, a victim beside the load, halves of the
// fleet, everyone to everyone; and paths that only some flows take.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "perf/validate/checks/check.h"
#include "perf/validate/locate/causes.h"
#include "perf/validate/locate/sights.h"
#include "perf/validate/probes/statistics.h"

namespace weft::fabric {
namespace {

// TCP shares a full queue unevenly, and loses packets to find its rate: it is granted as much more.
constexpr double kTcpAllowance = 0.20;

bool is_emulated(const Observed& observed) {
  return std::ranges::any_of(observed.hosts, &FleetHost::emulated);
}

std::vector<const FlowSample*> flows_of(const Observed& observed, Probe probe) {
  std::vector<const FlowSample*> flows;
  for (const FlowSample& sample : observed.samples.flows) {
    const auto round = static_cast<std::size_t>(sample.round);
    const auto& rounds = observed.samples.rounds;
    if (sample.round >= 0 && round < rounds.size() && rounds[round].probe == probe)
      flows.push_back(&sample);
  }
  return flows;
}

// The same, of flows that were repeated only the best one: a moment of noise slows one look, and a
// bad way slows all.
std::vector<const FlowSample*> best_flows_of(const Observed& observed, Probe probe) {
  std::map<std::tuple<Port, Port, int>, const FlowSample*> best;
  for (const FlowSample* sample : flows_of(observed, probe)) {
    const FlowSample*& one = best[{sample->flow.from, sample->flow.to, sample->flow.label}];
    if (!one || (sample->reached && !starved(*sample) &&
                 (!one->reached || starved(*one) || sample->gbps() > one->gbps())))
      one = sample;
  }
  std::vector<const FlowSample*> flows;
  for (const auto& [identity, sample] : best) flows.push_back(sample);
  return flows;
}

// A share of the usual rate above which one flow may be slow by the noise of this run alone.
double beyond_noise(const Observed& observed) {
  constexpr double kSigmas = 4;  // of many flows none is so slow by chance
  const Graded graded = rate_sights(observed.hosts, observed.samples, observed.policy.thresholds,
                                    [](Port, Port) { return false; });
  return std::exp(-kSigmas * graded.sigma);
}

// What each port reaches in flows that have their ports to themselves.
class Alone {
 public:
  explicit Alone(const Observed& observed) : observed_(observed) {
    std::map<std::pair<Port, bool>, std::vector<double>> rates;
    for (const FlowSample* sample : flows_of(observed, Probe::kRate)) {
      if (!sample->reached || starved(*sample)) continue;
      rates[{sample->flow.from, true}].push_back(sample->gbps());
      rates[{sample->flow.to, false}].push_back(sample->gbps());
    }
    for (auto& [port, all] : rates) median_[port] = median_of(std::move(all));
  }
  // Gb/s that a port can send or receive; 0: not known.
  double gbps(Port port, bool sends) const {
    const auto it = median_.find({port, sends});
    return it == median_.end() ? expected_gbps(observed_, port) : it->second;
  }

 private:
  const Observed& observed_;
  std::map<std::pair<Port, bool>, double> median_;
};

// The severity of a share below its limit; nothing above. `tcp`: the flows share by TCP.
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

Judged incast(const Check& check, const Observed& observed) {
  const Alone alone(observed);
  Judged all;
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
    if (!severity) continue;
    Finding& finding = all.findings.emplace_back(
        make_finding(check, at_port(observed, target, Direction::kReceive)));
    finding.severity = *severity;
    finding.unit = Unit::kGbps;
    finding.value = sum;
    finding.expected = most;
    finding.evidence.push_back(number_evidence(
        "senders", finding.where, static_cast<double>(group.size()), kNoNumber, Unit::kCount));
  }
  return all;
}

Judged victim(const Check& check, const Observed& observed) {
  std::map<std::pair<Port, Port>, double> idle;
  std::vector<double> all_idle;
  for (const FlowSample* sample : flows_of(observed, Probe::kLatency)) {
    if (!sample->latency) continue;
    idle[{sample->flow.from, sample->flow.to}] = sample->latency->p99_us;
    all_idle.push_back(sample->latency->p99_us);
  }
  const double usual = median_of(all_idle);
  Judged all;
  for (const FlowSample* sample : flows_of(observed, Probe::kVictim)) {
    if (!sample->flow.victim || !sample->latency) continue;
    ++all.total;
    const auto it = idle.find({sample->flow.from, sample->flow.to});
    const double alone_us = it == idle.end() ? usual : it->second;
    if (alone_us <= 0 || starved(*sample)) continue;
    ++all.judged;
    const double ratio = sample->latency->p99_us / alone_us;
    if (ratio <= observed.policy.thresholds.victim_ratio) continue;
    Finding& finding = all.findings.emplace_back(
        make_finding(check, at_path(observed, sample->flow.from, sample->flow.to)));
    // Where hosts share cores, load anywhere delays everybody.
    if (is_emulated(observed)) finding.severity = Severity::kInfo;
    finding.unit = Unit::kRatio;
    finding.value = ratio;
    finding.expected = observed.policy.thresholds.victim_ratio;
    finding.evidence.push_back(number_evidence("p99", finding.where, sample->latency->p99_us,
                                               alone_us, Unit::kMicroseconds));
  }
  return all;
}

// Sums of rounds in which the fleet sends all at once, against what its ports reach alone.
Judged judge_sums(const Check& check, const Observed& observed, Probe probe) {
  const Alone alone(observed);
  std::map<int, Crowd> rounds;
  for (const FlowSample* sample : flows_of(observed, probe))
    rounds[sample->round].push_back(sample);
  Judged all;
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
    const auto severity =
        severity_of_share(sum / most, observed.policy.thresholds.bisection_share, tcp);
    if (!severity) continue;
    const int rail = group.front()->flow.from.rail;
    const bool one_rail = std::ranges::all_of(group, [&](const FlowSample* one) {
      return one->flow.from.rail == rail && one->flow.to.rail == rail;
    });
    Finding& finding =
        all.findings.emplace_back(make_finding(check, one_rail ? at_rail(rail) : Where{}));
    finding.severity = *severity;
    finding.unit = Unit::kGbps;
    finding.value = sum;
    finding.expected = most;
    finding.evidence.push_back(number_evidence(
        "flows", finding.where, static_cast<double>(group.size()), kNoNumber, Unit::kCount));
  }
  return all;
}

Judged bisection(const Check& check, const Observed& observed) {
  return judge_sums(check, observed, Probe::kBisection);
}

Judged all_to_all(const Check& check, const Observed& observed) {
  return judge_sums(check, observed, Probe::kAllToAll);
}

Judged cross_rail(const Check& check, const Observed& observed) {
  const Alone alone(observed);
  const std::vector<const FlowSample*> flows = best_flows_of(observed, Probe::kCrossRail);
  // Rails without a spine between them do not reach each other, by design.
  const bool apart =
      std::ranges::none_of(flows, [](const FlowSample* one) { return one->reached; });
  Judged all;
  const Thresholds& limits = observed.policy.thresholds;
  const double least = std::min(limits.warn_rate, beyond_noise(observed));
  const std::vector<Spread> spreads =
      find_spreads(observed.hosts, observed.samples, observed.causes, limits);
  for (const FlowSample* sample : flows) {
    ++all.total;
    if (starved(*sample) || apart) continue;
    if (std::ranges::any_of(spreads, [&](const Spread& s) { return s.may_slow(*sample); }))
      continue;
    ++all.judged;
    const Flow& flow = sample->flow;
    const double most = std::min(alone.gbps(flow.from, true), alone.gbps(flow.to, false));
    if (sample->reached && (most <= 0 || sample->gbps() >= least * most)) continue;
    Finding& finding =
        all.findings.emplace_back(make_finding(check, at_path(observed, flow.from, flow.to)));
    finding.unit = Unit::kGbps;
    finding.value = sample->reached ? sample->gbps() : 0;
    finding.expected = most;
    if (sample->reached && sample->gbps() >= limits.fail_rate * most)
      finding.severity = Severity::kInfo;
    finding.evidence.push_back(
        number_evidence("to_rail", finding.where, flow.to.rail, 0, Unit::kCount));
    if (!sample->error.empty())
      finding.evidence.push_back(text_evidence("error", finding.where, sample->error));
  }
  return all;
}

constexpr double kLeastLoopback = 0.6;  // of the best one: cards and slots turn around differently

Judged loopback(const Check& check, const Observed& observed) {
  const std::vector<const FlowSample*> flows = best_flows_of(observed, Probe::kLoopback);
  // Of what is declared; of undeclared ports all are owed the same.
  const auto owed_to = [&](const FlowSample& sample) {
    const double owed = expected_gbps(observed, sample.flow);
    return owed > 0 ? owed : 1;
  };
  double best = 0;
  for (const FlowSample* sample : flows)
    if (sample->reached && !starved(*sample))
      best = std::max(best, sample->gbps() / owed_to(*sample));
  Judged all;
  for (const FlowSample* sample : flows) {
    ++all.total;
    if (starved(*sample) || !sample->reached) continue;
    ++all.judged;
    const double most = best * owed_to(*sample);
    if (sample->gbps() >= kLeastLoopback * most) continue;
    Finding& finding =
        all.findings.emplace_back(make_finding(check, at_port(observed, sample->flow.from)));
    finding.unit = Unit::kGbps;
    finding.value = sample->gbps();
    finding.expected = most;
    finding.evidence.push_back(
        number_evidence("to_rail", finding.where, sample->flow.to.rail, 0, Unit::kCount));
  }
  return all;
}

// Of a label the median window: a bad path is slow all the time, and a machine that stands still
// for a moment is not.
Judged entropy(const Check& check, const Observed& observed) {
  std::map<std::pair<Port, Port>, std::map<int, double>> paths;  // rate by label
  for (const FlowSample* sample : best_flows_of(observed, Probe::kEntropy)) {
    if (starved(*sample)) continue;
    const double rate =
        sample->window_gbps.empty() ? sample->gbps() : median_of(sample->window_gbps);
    paths[{sample->flow.from, sample->flow.to}][sample->flow.label] = sample->reached ? rate : 0;
  }
  Judged all;
  const double least = std::min(observed.policy.thresholds.fail_rate, beyond_noise(observed));
  for (const auto& [path, labels] : paths) {
    ++all.total;
    constexpr std::size_t kLeastLabels = 4;  // fewer have no median to speak of
    if (labels.size() < kLeastLabels) continue;
    ++all.judged;
    std::vector<double> rates;
    for (const auto& [label, rate] : labels) rates.push_back(rate);
    const double usual = median_of(rates);
    Finding finding = make_finding(check, at_path(observed, path.first, path.second));
    finding.unit = Unit::kGbps;
    finding.expected = usual;
    finding.value = usual;
    for (const auto& [label, rate] : labels) {
      if (rate >= least * usual) continue;
      finding.value = std::min(finding.value, rate);
      finding.evidence.push_back(
          number_evidence(fmt::format("label_{}", label), finding.where, rate, usual, Unit::kGbps));
    }
    if (!finding.evidence.empty()) all.findings.push_back(std::move(finding));
  }
  return all;
}

constexpr Check kLoadRows[] = {
    {"incast", CheckKind::kActive, Severity::kWarn, "many senders fill one port",
     "streams of many hosts to one port at once", ">= 90 % of what the port takes alone",
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
     "streams between halves of the fleet at once", ">= 90 % of what the ports reach alone",
     "The halves of the fleet exchange less than their ports can: links between switches are "
     "missing, slow, oversubscribed, or unevenly used.",
     "Count the uplinks of each leaf that are up, look at how flows spread over them (ECMP, "
     "adaptive routing), and compare with the plan.",
     bisection},
    {"all-to-all", CheckKind::kActive, Severity::kWarn, "everyone to everyone reaches full rate",
     "streams of every host to every host at once", ">= 90 % of what the ports reach alone",
     "With all hosts sending to all, less arrives than the ports can take. Expert-parallel jobs "
     "will see this.",
     "If bisection passes and this fails, look at congestion control and buffers; if both fail, "
     "at the uplinks.",
     all_to_all},
    {"cross-rail", CheckKind::kActive, Severity::kWarn, "rails reach each other at full rate",
     "streams from one rail to another", ">= 93 % of what the ports reach alone",
     "Traffic between rails is slow, or reaches only some of the hosts.",
     "Look at the spine between the rails, and at its routes. If rails are apart by design, let "
     "the policy skip this check.",
     cross_rail},
    {"loopback", CheckKind::kActive, Severity::kFail, "ports of one host reach each other",
     "streams between ports of one host", ">= 60 % of the best one",
     "Traffic that does not leave the host, or only crosses its leaf, is slow already: the host's "
     "PCIe, memory or cards are at fault, not the fabric.",
     "Look at the PCIe link of the named port, at NUMA, the IOMMU and ACS of the host.", loopback},
    {"ecmp-entropy", CheckKind::kActive, Severity::kWarn, "all paths of a pair are alike",
     "one pair, many source ports or flow labels", ">= 87 % of the median label",
     "Some source ports or flow labels of this pair are slow, and others are fast: one of several "
     "equal paths is bad or overloaded.",
     "Map the slow labels to switch paths (`traceroute` with the source port that `streams` of the "
     "flow has in `--json`) and look at the links that only these use.",
     entropy},
};

}  // namespace

std::span<const Check> load_checks() { return kLoadRows; }

}  // namespace weft::fabric
