// Finds places that look bad but have too few flows to be named or ruled out.
#include "perf/validate/locate/suspects.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "perf/validate/locate/attribution.h"
#include "perf/validate/locate/causes.h"
#include "perf/validate/locate/company.h"
#include "perf/validate/locate/observations.h"
#include "perf/validate/locate/power.h"
#include "perf/validate/probes/statistics.h"

namespace weft::fabric {
namespace {

constexpr double kLossToSee = 5;        // times fail_loss: a loss that must not be missed
constexpr double kUnseenCut = 0.03;     // fraction of the rate, in addition to a warning's cut
constexpr double kEndLooksSlow = 2;     // standard errors of the median of its flows
constexpr double kPathLooksSlow = 3;    // larger, because there are more paths than ends
constexpr std::size_t kMostFlows = 12;  // maximum flows of a place with an unclear rate

// Ignores flows at places of causes that explain the suspicion.
Ignored explained_by(const std::vector<Cause>& causes, CauseKind kind) {
  return [&causes, kind](Port from, Port to) {
    return std::ranges::any_of(causes, [&](const Cause& cause) {
      return (cause.kind == kind || cause.kind == CauseKind::kUnreachable ||
              cause.kind == CauseKind::kUnstable) &&
             passes(cause, from, to);
    });
  };
}

Cause suspect_at(CauseKind kind, CausePlace place, Port port, double value) {
  Cause suspect;
  suspect.kind = kind;
  suspect.place = place;
  suspect.port = port;
  suspect.value = value;
  return suspect;
}

constexpr int kMostRuns = 3;  // maximum runs of the same flows

// Totals of a round's flows: at one target of an incast, or of the whole round.
struct LoadSum {
  Probe probe = Probe::kIncast;
  double gbps = 0;
  std::set<Port> senders, receivers;
  std::vector<Flow> flows;
  bool tcp = false, starved = false, slow_ping = false;
};

bool is_low(const LoadSum& sum, const std::map<std::pair<Port, bool>, double>& baseline,
            const Thresholds& limits) {
  if (sum.starved) return false;
  if (sum.probe == Probe::kVictim) return sum.slow_ping;
  double sent = 0, received = 0;
  const auto add = [&](double& to, Port port, bool sends) {
    if (const auto it = baseline.find({port, sends}); it != baseline.end()) to += it->second;
  };
  for (const Port port : sum.senders) add(sent, port, true);
  for (const Port port : sum.receivers) add(received, port, false);
  const double limit = sum.probe == Probe::kIncast ? limits.incast_share : limits.bisection_share;
  return sum.gbps < (limit - (sum.tcp ? kTcpAllowance : 0)) * std::min(sent, received);
}

}  // namespace

std::vector<Cause> suspects_of_rate(const std::vector<FleetHost>& hosts, const Samples& samples,
                                    const std::vector<Cause>& causes,
                                    const Thresholds& thresholds) {
  const Shape shape = shape_of(hosts);
  const Graded graded =
      rate_observations(hosts, samples, thresholds, explained_by(causes, CauseKind::kRate));
  const double threshold = -std::log(thresholds.warn_rate);
  std::map<std::pair<int, bool>, std::vector<double>> ends;  // port; true: sends
  std::map<std::pair<int, int>, std::vector<double>> paths;
  for (const Observation& s : graded.observations) {
    ends[{s.from, true}].push_back(s.value);
    ends[{s.to, false}].push_back(s.value);
    paths[{s.from, s.to}].push_back(s.value);
  }
  // The level of flows that are slower than chance explains and may be as slow as a fault; or 0.
  const auto level_of = [&](std::vector<double>& flows, double standard_errors,
                            std::size_t most_flows = kMostFlows) {
    const double level = quantile(flows, 0.5);
    const double error = median_error(graded.sigma, flows.size(), graded.baseline_error);
    const bool slow = level >= std::max(threshold / 2, standard_errors * error);
    const double most = level + error * normal_quantile(0.5 + thresholds.confidence / 2);
    return slow && most >= threshold && flows.size() < most_flows ? level : 0;
  };
  std::vector<Cause> suspects;
  for (auto& [end, flows] : ends)
    if (const double level = level_of(flows, kEndLooksSlow); level > 0)
      suspects.push_back(suspect_at(CauseKind::kRate,
                                    end.second ? CausePlace::kTransmit : CausePlace::kReceive,
                                    shape.port(end.first), level));
  const auto at_an_end = [&](Port from, Port to) {
    return std::ranges::any_of(suspects, [&](const Cause& c) { return passes(c, from, to); });
  };
  std::vector<Cause> slow_paths;
  for (auto& [path, flows] : paths) {
    const Port from = shape.port(path.first), to = shape.port(path.second);
    const bool often = graded.chances[static_cast<std::size_t>(from.rail)].alone > 0;
    const bool dismissed = often && quantile(flows, 0) < threshold;
    const double level =
        dismissed ? 0 : level_of(flows, kPathLooksSlow, often ? 2 * kMostFlows : kMostFlows);
    if (level <= 0 || at_an_end(from, to)) continue;
    slow_paths.push_back(suspect_at(CauseKind::kRate, CausePlace::kPath, from, level));
    slow_paths.back().peer = to;
  }
  suspects.insert(suspects.end(), slow_paths.begin(), slow_paths.end());
  std::ranges::stable_sort(suspects, std::greater{}, &Cause::value);
  return suspects;
}

double smallest_rate_cut(const std::vector<FleetHost>& hosts, const Samples& samples,
                         const Thresholds& thresholds) {
  const Graded rates = rate_observations(hosts, samples, thresholds);
  if (rates.observations.size() <= rates.silent.size()) return 0;
  std::map<std::pair<int, bool>, std::size_t> flows;  // number of flows by end; true: the end sends
  for (const Observation& s : rates.observations) {
    ++flows[{s.from, true}];
    ++flows[{s.to, false}];
  }
  std::size_t fewest = rates.observations.size();
  for (const auto& [end, count] : flows) fewest = std::min(fewest, count);
  const Scale scale{.sigma = rates.sigma,
                    .baseline_error = rates.baseline_error,
                    .threshold = -std::log(thresholds.warn_rate),
                    .confidence = thresholds.confidence};
  return 1 - std::exp(-least_level(shape_of(hosts), rates.observations.size(), fewest, scale));
}

double rate_cut_to_see(const Thresholds& thresholds) {
  return 1 - thresholds.warn_rate + kUnseenCut;
}

std::vector<Cause> suspects_of_loss(const std::vector<FleetHost>& hosts, const Samples& samples,
                                    const std::vector<Cause>& causes, bool clean,
                                    const Thresholds& thresholds) {
  const Shape shape = shape_of(hosts);
  const Ignored explained = explained_by(causes, CauseKind::kLoss);
  std::vector<Observation> observations = loss_observations(hosts, samples, false, explained);
  if (clean) {
    std::vector<Observation> full = loss_observations(hosts, samples, true, explained);
    drop_met(hosts, samples, thresholds, full);
    observations.insert(observations.end(), full.begin(), full.end());
  }
  std::map<std::pair<int, bool>, Observation> directions;  // port; true: sends
  for (const Observation& s : observations)
    for (const bool sends : {true, false}) {
      const std::pair key(sends ? s.from : s.to, sends);
      Observation& sum =
          directions.try_emplace(key, Observation{.value = 0, .trials = 0}).first->second;
      sum.value += s.value;
      sum.trials += s.trials;
    }
  std::vector<Cause> suspects;
  for (const auto& [direction, sum] : directions) {
    if (sum.value <= 0) continue;
    const Interval interval = wilson(sum.value, sum.trials, thresholds.confidence);
    if (interval.high < kLossToSee * thresholds.fail_loss) continue;
    suspects.push_back(suspect_at(CauseKind::kLoss,
                                  direction.second ? CausePlace::kTransmit : CausePlace::kReceive,
                                  shape.port(direction.first), sum.value / sum.trials));
  }
  std::ranges::stable_sort(suspects, std::greater{}, &Cause::value);
  return suspects;
}

std::map<std::pair<Port, bool>, double> baseline_of_ports(const Samples& samples) {
  std::map<std::pair<Port, bool>, std::vector<double>> rates;
  for (const FlowSample& sample : samples.flows) {
    if (samples.probe_of(sample) != Probe::kRate) continue;
    if (!sample.reached || starved(sample)) continue;
    rates[{sample.flow.from, true}].push_back(sample.gbps());
    rates[{sample.flow.to, false}].push_back(sample.gbps());
  }
  std::map<std::pair<Port, bool>, double> baseline;
  for (auto& [port, all] : rates) baseline[port] = median_of(std::move(all));
  return baseline;
}

std::vector<OddIncast> odd_incasts(const Samples& samples, double confidence) {
  constexpr double kTimesBaseline = 10, kLeastLoss = 1e-3;
  constexpr std::size_t kLeastTargets = 4;  // fewer give no baseline
  struct Tally {
    double lost = 0, packets = 0;
  };
  std::map<Port, std::map<int, Tally>> targets;  // by round
  for (const FlowSample& sample : samples.flows) {
    if (samples.probe_of(sample) != Probe::kIncast) continue;
    if (!sample.packets || !sample.retransmits) continue;
    Tally& tally = targets[sample.flow.to][sample.round];
    tally.lost += static_cast<double>(*sample.retransmits);
    tally.packets += static_cast<double>(*sample.packets);
  }
  std::vector<double> shares;
  for (const auto& [port, rounds] : targets) {
    const Tally& first = rounds.begin()->second;
    shares.push_back(first.packets > 0 ? first.lost / first.packets : 0);
  }
  std::vector<OddIncast> odd;
  if (shares.size() < kLeastTargets) return odd;
  const double baseline = quantile(shares, 0.5);
  for (const auto& [port, rounds] : targets) {
    OddIncast one{port, rounds.begin()->first, static_cast<int>(rounds.size()), 0, 0, baseline};
    bool always = true;
    for (const auto& [round, tally] : rounds) {
      const double low = wilson(tally.lost, tally.packets, confidence).low;
      always =
          always && tally.packets > 0 && low >= kTimesBaseline * std::max(baseline, kLeastLoss);
      one.lost += tally.lost;
      one.packets += tally.packets;
    }
    if (always) odd.push_back(one);
  }
  return odd;
}

IdleLatencies::IdleLatencies(const Samples& samples) {
  std::vector<double> all;
  for (const FlowSample& sample : samples.flows) {
    const Round& round = samples.rounds[static_cast<std::size_t>(sample.round)];
    if (round.probe != Probe::kLatency || !sample.latency) continue;
    all.push_back(sample.latency->p99_us);
    of_path_[{sample.flow.from, sample.flow.to}] = sample.latency->p99_us;
  }
  median_ = median_of(std::move(all));
}

double IdleLatencies::p99_us(Port from, Port to) const {
  const auto own = of_path_.find({from, to});
  return own != of_path_.end() && own->second > 0 ? own->second : median_;
}

std::optional<Round> loads_again(const std::vector<FleetHost>& hosts, const Samples& samples,
                                 const Thresholds& thresholds) {
  if (std::ranges::any_of(hosts, &FleetHost::emulated)) return {};
  std::map<std::pair<int, Port>, LoadSum> sums;  // by round and target
  const IdleLatencies idle(samples);
  for (const FlowSample& sample : samples.flows) {
    const auto probe = samples.probe_of(sample);
    const bool incast = probe == Probe::kIncast, ping = probe == Probe::kVictim;
    if (!incast && !ping && probe != Probe::kBisection && probe != Probe::kAllToAll) continue;
    LoadSum& sum = sums[{sample.round, incast ? sample.flow.to : Port{}}];
    sum.probe = *probe;
    sum.flows.push_back(sample.flow);
    if (!sample.reached || (ping && !sample.flow.victim)) continue;
    sum.gbps += sample.gbps();
    sum.senders.insert(sample.flow.from);
    sum.receivers.insert(sample.flow.to);
    sum.starved = sum.starved || starved(sample);
    sum.tcp = sum.tcp || sample.min_rtt_us || sample.receiver_limited || sample.sender_limited;
    if (!ping || !sample.latency) continue;
    const double idle_us = idle.p99_us(sample.flow.from, sample.flow.to);
    sum.slow_ping = sum.slow_ping ||
                    (idle_us > 0 && sample.latency->p99_us > thresholds.victim_ratio * idle_us);
  }
  const auto baseline = baseline_of_ports(samples);
  struct Runs {
    int all = 0;
    bool sound = false;
    const LoadSum* first = nullptr;
    double seconds = 0;
  };
  std::map<std::tuple<Probe, Port, Port>, Runs> runs;
  for (const auto& [key, sum] : sums) {
    Runs& run = runs[{sum.probe, sum.flows.front().from, sum.flows.front().to}];
    ++run.all;
    run.sound = run.sound || !is_low(sum, baseline, thresholds);
    run.first = &sum;
    run.seconds = samples.rounds[static_cast<std::size_t>(key.first)].seconds;
  }
  for (const auto& [key, run] : runs) {
    if (run.sound || run.all >= kMostRuns) continue;
    return Round{run.first->probe, run.first->flows,
                 std::max(run.seconds, run.all > 1 ? kApart_s : 0)};
  }
  return {};
}

}  // namespace weft::fabric
