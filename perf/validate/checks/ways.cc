// Paths of only some flows: source ports and labels of a pair, other rails, loopback; and flows
// that collide.
#include "perf/validate/locate/ways.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "perf/validate/checks/check.h"
#include "perf/validate/locate/causes.h"
#include "perf/validate/locate/company.h"
#include "perf/validate/locate/suspects.h"
#include "perf/validate/probes/statistics.h"

namespace weft::fabric {
namespace {

// Like flows_of(), but only the best sample of repeated flows: noise slows one sample, a bad path
// slows all.
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

// Finds ways that are slow by themselves, not due to a collision on an uplink or a slowdown of the
// fleet. On a rail where these are common, a way counts as slow only if it has more slow samples,
// taken alone, than a healthy way has by chance.
class SlowByItself {
 public:
  SlowByItself(const Observed& observed, Probe probe) : chances_(rates_of(observed).chances) {
    for (const Way& way :
         slow_ways(observed.hosts, observed.samples, observed.policy.thresholds, probe))
      if (way.sure) sure_.insert({way.flow.from, way.flow.to, way.flow.label});
  }
  bool operator()(const Flow& flow) const {
    const auto rail = static_cast<std::size_t>(flow.from.rail);
    const bool quiet = rail >= chances_.size() || chances_[rail].alone <= 0;
    return quiet || sure_.contains({flow.from, flow.to, flow.label});
  }

 private:
  std::vector<Chance> chances_;
  std::set<std::tuple<Port, Port, int>> sure_;  // both ends and the label
};

// Returns the fraction of the baseline rate above which noise alone may explain a slow flow.
double beyond_noise(const Observed& observed) {
  constexpr double kSigmas = 4;  // noise makes no flow this slow, even among many
  return std::exp(-kSigmas * rates_of(observed).sigma);
}

Judged cross_rail(const Check& check, const Observed& observed) {
  const Alone alone(observed);
  const std::vector<const FlowSample*> flows = best_flows_of(observed, Probe::kCrossRail);
  // Rails without a common spine do not reach each other, by design.
  const bool apart =
      std::ranges::none_of(flows, [](const FlowSample* one) { return one->reached; });
  Judged all;
  const Thresholds& limits = observed.policy.thresholds;
  const double least = std::min(limits.warn_rate, beyond_noise(observed));
  const SlowByItself slow(observed, Probe::kCrossRail);
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
    if (sample->reached && !slow(flow)) continue;
    Finding& finding =
        all.findings.emplace_back(make_finding(check, at_path(observed, flow.from, flow.to)));
    set_number(finding, Unit::kGbps, sample->reached ? sample->gbps() : 0, most);
    if (sample->reached && sample->gbps() >= limits.fail_rate * most)
      finding.severity = Severity::kInfo;
    add_number(finding, "to_rail", flow.to.rail, Unit::kCount, 0);
    if (!sample->error.empty()) add_text(finding, "error", sample->error);
  }
  return all;
}

Judged loopback(const Check& check, const Observed& observed) {
  const std::vector<const FlowSample*> flows = best_flows_of(observed, Probe::kLoopback);
  const SlowByItself slow(observed, Probe::kLoopback);
  // The declared rate; undeclared ports are expected to be alike.
  const auto owed_to = [&](const FlowSample& sample) {
    const double expected = expected_gbps(observed, sample.flow);
    return expected > 0 ? expected : 1;
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
    if (sample->gbps() >= kLeastLoopback * most || !slow(sample->flow)) continue;
    Finding& finding =
        all.findings.emplace_back(make_finding(check, at_port(observed, sample->flow.from)));
    set_number(finding, Unit::kGbps, sample->gbps(), most);
    add_number(finding, "to_rail", sample->flow.to.rail, Unit::kCount, 0);
  }
  return all;
}

// Uses the median window of each label: a bad path is slow all the time, a machine that stops for a
// moment is not.
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
  const SlowByItself slow(observed, Probe::kEntropy);
  for (const auto& [path, labels] : paths) {
    ++all.total;
    constexpr std::size_t kLeastLabels = 4;  // fewer give no meaningful median
    if (labels.size() < kLeastLabels) continue;
    ++all.judged;
    std::vector<double> rates;
    for (const auto& [label, rate] : labels) rates.push_back(rate);
    const double baseline = median_of(rates);
    Finding finding = make_finding(check, at_path(observed, path.first, path.second));
    set_number(finding, Unit::kGbps, baseline, baseline);
    for (const auto& [label, rate] : labels) {
      if (rate >= least * baseline || !slow({path.first, path.second, 1, label})) continue;
      finding.value = std::min(finding.value, rate);
      add_number(finding, fmt::format("label_{}", label), rate, Unit::kGbps, baseline);
    }
    if (!finding.evidence.empty()) all.findings.push_back(std::move(finding));
  }
  return all;
}

// Reports once per rail that a hash puts flows of different ports on the same link while other
// links are empty. ECMP works like that: no place is at fault.
Judged flows_meet(const Check& check, const Observed& observed) {
  const Graded graded = rates_of(observed);
  const Company company(observed.samples);
  struct Again {
    int all = 0, fast = 0;
  };
  std::map<int, Again> rails;  // flows alone
  const double slow = -std::log(observed.policy.thresholds.warn_rate);
  for (const Observation& s : graded.observations) {
    const FlowSample& sample = observed.samples.flows[static_cast<std::size_t>(s.flow)];
    if (!company.alone(sample)) continue;
    Again& again = rails[sample.flow.from.rail];
    ++again.all;
    again.fast += s.value < slow;
  }
  Judged all;
  for (int rail = 0; rail < static_cast<int>(graded.chances.size()); ++rail) {
    ++all.total;
    ++all.judged;
    const Chance& chance = graded.chances[static_cast<std::size_t>(rail)];
    if (!chance.meet) continue;
    Finding& finding = all.findings.emplace_back(make_finding(check, at_rail(rail)));
    set_number(finding, Unit::kShare, chance.beside_others, 0);
    add_count(finding, "flows_alone", rails[rail].all);
    add_count(finding, "fast_alone", rails[rail].fast);
  }
  return all;
}

constexpr Check kWayRows[] = {
    {"cross-rail", CheckKind::kActive, Severity::kWarn, "rails reach each other at full rate",
     "streams from one rail to another", ">= 93 % of the ports' rates alone",
     "Traffic between rails is slow, or reaches only some of the hosts.",
     "Look at the spine between the rails, and at its routes. If rails are apart by design, let "
     "the policy skip this check.",
     cross_rail},
    {"loopback", CheckKind::kActive, Severity::kFail, "ports of one host reach each other",
     "streams between ports of one host", ">= 60 % of the best one",
     "Traffic that does not leave the host, or only crosses its leaf, is slow already: the host's "
     "PCIe, memory or cards are at fault, not the fabric.",
     "Look at the PCIe link of the named port, at NUMA, the IOMMU and ACS of the host.", loopback},
    {"ecmp-entropy", CheckKind::kActive, Severity::kWarn, "all paths of a pair are equally fast",
     "one pair, many source ports or flow labels", ">= 87 % of the median label",
     "Some source ports or flow labels of this pair are slow, and others are fast: one of several "
     "equal paths is bad or overloaded.",
     "Map the slow labels to switch paths (`traceroute` with the source port that `streams` of the "
     "flow has in `--json`) and look at the links that only these use.",
     entropy},
    {"flows-meet", CheckKind::kActive, Severity::kInfo, "flows have links to themselves",
     "flows at full speed beside others, and the slow ones again alone", "for information",
     "Flows of different ports are slow beside each other and fast alone: a hash (ECMP) sends them "
     "over the same uplink while others are empty. No port, path or host is at fault.",
     "Jobs of few large flows lose as much. More flows or queue pairs a port, adaptive routing, or "
     "packet spraying use the uplinks evenly.",
     flows_meet},
};

}  // namespace

std::span<const Check> way_checks() { return kWayRows; }

}  // namespace weft::fabric
