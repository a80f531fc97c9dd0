// Collects the samples of each way and chooses the next ones.
#include "perf/validate/locate/ways.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "perf/validate/locate/power.h"
#include "perf/validate/probes/statistics.h"

namespace weft::fabric {
namespace {

// log(expected / rate) above which a flow is slow: its rate is below 89.6 % of the expected rate.
constexpr double kSlowFlow = 0.11;
constexpr double kSlowFlowSigmas = 4;  // also, number of sigmas beyond the noise of this run
constexpr double kLossyFlow = 100;     // multiple of fail_loss above which a flow is lossy
constexpr double kTimesFullSpeed = 5;  // and multiple of the losses of flows at full speed
constexpr double kAltogetherLossy =
    0.75;                             // fraction of lossy flows from which an end itself is lossy
constexpr int kEnoughDismissed = 16;  // ways of a rail that were fast when repeated
// Starved samples of a way from which later samples are expected to be starved, too.
constexpr int kMostStarved = 4;
constexpr std::size_t kPathsOfSwitch = 5;
constexpr int kEnoughSure = 16;   // number of slow ways of a rail that show what the ways share
constexpr int kOpenForEach = 8;   // open ways of a rail for each concurrent flow
constexpr int kPortsForEach = 8;  // likewise, ports: more flows would collide too often

constexpr int kRepeats = 5;          // repeats of bad and of good flows that bound_of() needs
constexpr double kSameAgain = 0.85;  // fraction of repeats with the same result

// Returns log(baseline / rate) above which a way is slow, as in the checks.
double slow_level(Probe probe, const Thresholds& thresholds, double sigma) {
  if (probe == Probe::kRate) return std::max(kSlowFlow, kSlowFlowSigmas * sigma);
  return -std::log(probe == Probe::kLoopback ? kLeastLoopback : thresholds.fail_rate);
}

// The samples of a way, in order.
struct WayLooks {
  std::vector<std::pair<double, double>> bad;  // time and probability of each
  double best = std::numeric_limits<double>::infinity(), last_s = 0;
  double lost = 0, packets = 0;
  int alone = 0, starved = 0;
  bool dismissed = false, once_bad = false, lossy = true;
};
using LooksByWay = std::map<std::tuple<Port, Port, int>, WayLooks>;

// Returns ends (true: sends) with losses in most flows: the end is at fault, not one link of many.
std::set<std::pair<Port, bool>> lossy_ends(const Samples& samples, double lossy) {
  std::map<std::pair<Port, bool>, std::pair<std::set<int>, std::set<int>>> labels;  // lossy, all
  for (const FlowSample& sample : samples.flows) {
    if (samples.probe_of(sample) != Probe::kRate) continue;
    for (const bool sends : {true, false}) {
      auto& [bad, all] = labels[{sends ? sample.flow.from : sample.flow.to, sends}];
      all.insert(sample.flow.label);
      if (share_lost(sample) >= lossy) bad.insert(sample.flow.label);
    }
  }
  std::set<std::pair<Port, bool>> ends;
  for (const auto& [end, flows] : labels)
    if (static_cast<double>(flows.first.size()) >=
        kAltogetherLossy * static_cast<double>(flows.second.size()))
      ends.insert(end);
  return ends;
}

double round_begin_s(const Samples& samples, int round) {
  return samples.rounds[static_cast<std::size_t>(round)].at_s;
}

// The baseline rate of each way in Gb/s.
class BaselineRate {
 public:
  BaselineRate(const std::vector<FleetHost>& hosts, const Samples& samples, const Graded& graded,
               Probe probe)
      : hosts_(hosts), graded_(graded), by_rail_(probe == Probe::kRate) {
    std::map<std::tuple<Port, Port, int>, double> best;
    for (const FlowSample& sample : samples.flows) {
      if (samples.probe_of(sample) != probe) continue;
      double& share = best[{sample.flow.from, sample.flow.to, sample.flow.label}];
      share = std::max(share, sample.reached ? sample.gbps() / declared(sample.flow) : 0);
    }
    std::vector<double> shares;
    for (const auto& entry : best) shares.push_back(entry.second);
    if (!shares.empty()) of_probe_ = quantile(shares, 0.75);
  }
  double of(const Flow& flow) const {
    return declared(flow) *
           (by_rail_ ? std::exp(-graded_.baseline[static_cast<std::size_t>(flow.from.rail)])
                     : of_probe_);
  }

 private:
  double declared(const Flow& flow) const {
    return expected_gbps(hosts_, flow.from, flow.to, graded_.unit);
  }

  const std::vector<FleetHost>& hosts_;
  const Graded& graded_;
  bool by_rail_;
  double of_probe_ = 0;  // rate of this probe as a fraction of the declared rate
};

Cause cause_of_ways(CausePlace place, const std::vector<FleetHost>& hosts, const Graded& graded,
                    const std::vector<Way>& ways) {
  Cause cause;
  const Flow& flow = ways.front().flow;
  cause.kind = CauseKind::kUnstable;
  cause.place = place;
  cause.port = place == CausePlace::kReceive ? flow.to : flow.from;
  if (place == CausePlace::kPath) cause.peer = flow.to;
  std::vector<double> levels;
  for (const Way& way : ways) {
    levels.push_back(way.level);
    cause.samples += way.alone;
    cause.labels.push_back(way.flow.label);
  }
  cause.expected = expected_gbps(hosts, flow.from, flow.to, graded.unit) *
                   std::exp(-graded.baseline[static_cast<std::size_t>(flow.from.rail)]);
  cause.value = cause.low = cause.high = cause.expected * std::exp(-quantile(levels, 0.5));
  cause.confidence = 1 - kFalseAlarm;
  cause.of_flows = true;
  return cause;
}

// Returns the smallest place that all these ways cross: a path, an end, or the side with fewer
// ends, whose switch has a bad link to the other side. If neither side is clearly smaller: all
// paths.
std::vector<Cause> shared_by(const std::vector<FleetHost>& hosts, const Graded& graded,
                             const std::vector<Way>& ways) {
  if (ways.empty()) return {};
  std::set<Port> senders, receivers;
  std::map<std::pair<Port, Port>, std::vector<Way>> paths;
  for (const Way& way : ways) {
    senders.insert(way.flow.from);
    receivers.insert(way.flow.to);
    paths[{way.flow.from, way.flow.to}].push_back(way);
  }
  if (paths.size() == 1) return {cause_of_ways(CausePlace::kPath, hosts, graded, ways)};
  if (senders.size() == 1) return {cause_of_ways(CausePlace::kTransmit, hosts, graded, ways)};
  if (receivers.size() == 1) return {cause_of_ways(CausePlace::kReceive, hosts, graded, ways)};
  const auto [few_ends, many_ends] = std::minmax({senders.size(), receivers.size()});
  if (paths.size() >= kPathsOfSwitch && 2 * many_ends >= 3 * few_ends) {
    Cause group = cause_of_ways(CausePlace::kGroup, hosts, graded, ways);
    const std::set<Port>& few = senders.size() < receivers.size() ? senders : receivers;
    group.ports.assign(few.begin(), few.end());
    group.port = group.ports.front();
    return {group};
  }
  std::vector<Cause> causes;
  for (const auto& [path, own] : paths)
    causes.push_back(cause_of_ways(CausePlace::kPath, hosts, graded, own));
  return causes;
}

// Returns whether collisions do not explain the way: slow again, slow alone, or lossy.
bool by_itself(const Way& way) { return way.alone > 0 || way.all > 1 || way.lossy; }

using Identity = std::tuple<Port, Port, int>;

// Returns samples of each labeled flow, in order; true: bad. The first classifies the flow.
std::map<Identity, std::vector<bool>> by_identity(const Intermittent& place) {
  std::map<Identity, std::vector<bool>> flows;
  for (const auto& [flow, bad] : place.flows)
    if (flow.label > 0) flows[{flow.from, flow.to, flow.label}].push_back(bad);
  return flows;
}

}  // namespace

double share_lost(const FlowSample& sample) {
  if (!sample.retransmits || sample.packets.value_or(0) == 0) return 0;
  return static_cast<double>(*sample.retransmits) / static_cast<double>(*sample.packets);
}

double loss_of_full_speed(const std::vector<FleetHost>& hosts, const Samples& samples) {
  std::vector<double> shares;
  for (const Observation& s : loss_observations(hosts, samples, true))
    shares.push_back(s.value / s.trials);
  return shares.empty() ? 0 : quantile(shares, 0.75);
}

double lossy_share(double of_full_speed, const Thresholds& thresholds) {
  return std::max(kLossyFlow * thresholds.fail_loss, kTimesFullSpeed * of_full_speed);
}

std::vector<Way> slow_ways(const std::vector<FleetHost>& hosts, const Samples& samples,
                           const Thresholds& thresholds, Probe probe) {
  const Graded graded = rate_observations(hosts, samples, thresholds);
  const BaselineRate baseline(hosts, samples, graded, probe);
  const Company company(samples);
  const double slow = slow_level(probe, thresholds, graded.sigma);
  const double lossy =
      probe == Probe::kRate ? lossy_share(loss_of_full_speed(hosts, samples), thresholds) : 2;
  const auto ends = lossy_ends(samples, lossy);
  const auto chance_of = [&](const FlowSample& sample) {
    const auto rail = static_cast<std::size_t>(sample.flow.from.rail);
    if (rail >= graded.chances.size() || graded.chances[rail].alone <= 0) return kLeastChance;
    // Labeled flows collide with the same flows again: only samples alone are evidence.
    return company.alone(sample) ? graded.chances[rail].alone : 1;
  };
  LooksByWay ways;
  for (const FlowSample& sample : samples.flows) {
    const Flow& flow = sample.flow;
    if (samples.probe_of(sample) != probe) continue;
    if (probe == Probe::kRate ? flow.label <= 0 : !sample.reached) continue;
    WayLooks& way = ways[{flow.from, flow.to, flow.label}];
    way.starved += starved(sample);
    if (starved(sample)) continue;
    const double rate = sample.reached ? sample.gbps() : 0, of = baseline.of(flow);
    const double level = of > 0 ? std::log(of / std::max(rate, 1e-3 * of)) : 0;
    way.best = std::min(way.best, level);
    way.last_s = std::max(way.last_s, round_begin_s(samples, sample.round));
    const bool loses = share_lost(sample) >= lossy && !ends.contains({flow.from, true}) &&
                       !ends.contains({flow.to, false});
    const bool bad = level >= slow || loses;
    way.dismissed = way.dismissed || !bad;
    way.once_bad = way.once_bad || bad;
    way.lossy = way.lossy && loses;
    way.lost += static_cast<double>(sample.retransmits.value_or(0));
    way.packets += static_cast<double>(sample.packets.value_or(0));
    way.alone += company.alone(sample);
    way.bad.emplace_back(round_begin_s(samples, sample.round), chance_of(sample));
  }
  const auto among = static_cast<double>(ways.size());
  struct Tested {
    int dismissed = 0, slow = 0, sure = 0;
  };
  std::map<int, Tested> rails;  // results of repeated ways, by rail
  const auto is_sure = [&](const WayLooks& looks) {
    return !looks.dismissed && among * chance_of_all(looks.bad) <= kFalseAlarm;
  };
  for (const auto& [identity, looks] : ways) {
    Tested& tested = rails[std::get<0>(identity).rail];
    tested.dismissed += looks.dismissed && looks.once_bad && looks.bad.size() > 1;
    tested.slow += !looks.dismissed && looks.alone > 0;
    tested.sure += is_sure(looks);
  }
  std::vector<Way> found;
  for (auto& [identity, looks] : ways) {
    if (looks.dismissed || looks.bad.empty()) continue;
    Way& way = found.emplace_back();
    way.probe = probe;
    way.flow = {std::get<0>(identity), std::get<1>(identity), 1, std::get<2>(identity)};
    way.level = looks.best;
    way.last_s = looks.last_s;
    const auto rail = static_cast<std::size_t>(way.flow.from.rail);
    way.quiet = rail >= graded.chances.size() || graded.chances[rail].alone <= 0;
    way.sure = is_sure(looks);
    way.lossy = looks.lossy;
    way.lost = looks.packets > 0 ? looks.lost / looks.packets : 0;
    way.all = static_cast<int>(looks.bad.size());
    way.alone = looks.alone;
    const Tested& tested = rails[way.flow.from.rail];
    way.enough = tested.sure >= kEnoughSure || looks.starved >= kMostStarved ||
                 (way.all == 1 && tested.slow == 0 && tested.dismissed >= kEnoughDismissed);
  }
  std::ranges::stable_sort(found, std::greater{},
                           [](const Way& way) { return std::pair(way.lossy, way.level); });
  return found;
}

std::optional<Round> look_alone(std::vector<Way> ways, const Samples& samples, int most_flows) {
  if (ways.empty() || samples.rounds.empty()) return {};
  const Round& last = samples.rounds.back();
  const double now_s = last.at_s + last.seconds;
  std::ranges::stable_sort(ways, std::greater{}, &Way::alone);  // most likely slow
  Round round{ways.front().probe, {}, 0};
  for (const Round& other : samples.rounds)
    if (other.probe == round.probe)
      round.seconds = std::max(round.seconds, std::min(other.seconds, kLook_s));
  std::map<int, int> open;  // ways of a rail that were not repeated
  std::set<Port> busy, ports;
  for (const Way& way : ways) {
    open[way.flow.from.rail] += !by_itself(way);
    ports.insert({way.flow.from, way.flow.to});
  }
  std::map<int, int> flows;  // by rail
  const auto take = [&](const Way& way) {
    const Flow& flow = way.flow;
    // A fast sample clears a way even next to other flows: while many ways are open, run several.
    const int most = by_itself(way)
                         ? 1
                         : std::clamp(open[flow.from.rail] / kOpenForEach, 1,
                                      std::max(1, static_cast<int>(ports.size()) / kPortsForEach));
    if (flows[flow.from.rail] >= most || flows[flow.to.rail] >= most) return;
    if (most_flows > 0 && static_cast<int>(round.flows.size()) >= most_flows) return;
    if (busy.contains(flow.from) || busy.contains(flow.to)) return;
    busy.insert({flow.from, flow.to});
    for (const int rail : std::set{flow.from.rail, flow.to.rail})
      flows[rail] = by_itself(way) ? std::numeric_limits<int>::max() : flows[rail] + 1;
    round.flows.push_back(flow);
  };
  for (const Way& way : ways)
    if (now_s - way.last_s >= kApart_s) take(way);
  if (!round.flows.empty()) return round;
  // All ways have a recent sample, and a longer sample outlasts a slowdown.
  round.seconds = kApart_s;
  std::ranges::stable_sort(ways, {}, &Way::last_s);
  for (const Way& way : ways) take(way);
  return round;
}

std::vector<Cause> causes_of_ways(const std::vector<FleetHost>& hosts, const Samples& samples,
                                  const Thresholds& thresholds) {
  std::map<int, std::vector<Way>> rails, lossy;
  for (const Probe probe : {Probe::kRate, Probe::kEntropy})
    for (const Way& way : slow_ways(hosts, samples, thresholds, probe))
      if (way.sure && !way.quiet) (way.lossy ? lossy : rails)[way.flow.from.rail].push_back(way);
  if (rails.empty() && lossy.empty()) return {};
  const Graded graded = rate_observations(hosts, samples, thresholds);
  std::set<std::pair<int, int>> fast;  // paths with a fast flow; other paths may be slow
  for (const Observation& s : graded.observations)
    if (s.value < -std::log(thresholds.warn_rate)) fast.insert({s.from, s.to});
  const Shape shape = shape_of(hosts);
  std::vector<Cause> causes;
  for (auto& [rail, ways] : rails) {
    std::erase_if(ways, [&](const Way& way) {
      return !fast.contains({shape.index(way.flow.from), shape.index(way.flow.to)});
    });
    std::ranges::move(shared_by(hosts, graded, ways), std::back_inserter(causes));
  }
  for (const auto& [rail, ways] : lossy)
    for (Cause& cause : shared_by(hosts, graded, ways)) {
      if (cause.place == CausePlace::kPath) continue;  // locate() finds this loss
      std::vector<double> shares;
      for (const Way& way : ways) shares.push_back(way.lost);
      cause.kind = CauseKind::kLoss;
      cause.expected = 0;
      cause.value = quantile(shares, 0.5);
      cause.low = std::ranges::min(shares);
      cause.high = std::ranges::max(shares);
      causes.push_back(std::move(cause));
    }
  return causes;
}

Bound bound_of(const Intermittent& place) {
  std::pair<double, double> bad, good;  // repeats that are bad, all repeats
  for (const auto& [identity, looks] : by_identity(place)) {
    auto& [again, all] = looks.front() ? bad : good;
    all += static_cast<double>(looks.size() - 1);
    again += static_cast<double>(std::count(looks.begin() + 1, looks.end(), true));
  }
  if (bad.second < kRepeats || good.second < kRepeats) return Bound::kUnknown;
  const bool same =
      bad.first >= kSameAgain * bad.second && good.first <= (1 - kSameAgain) * good.second;
  return same ? Bound::kFlows : Bound::kTime;
}

// Alternates between bad and good flows, so that a long spell is not mistaken for a bad flow.
std::vector<Flow> flows_to_repeat(const Intermittent& place) {
  if (bound_of(place) != Bound::kUnknown) return {};
  std::vector<Flow> once[2];
  std::size_t repeats[2] = {0, 0};
  for (const auto& [identity, looks] : by_identity(place)) {
    const auto& [from, to, label] = identity;
    const int sort = looks.front();
    if (looks.size() > 1)
      repeats[sort] += looks.size() - 1;
    else
      once[sort].push_back({from, to, 1, label});
  }
  const int first = repeats[1] <= repeats[0];
  std::vector<Flow> flows = once[first];
  flows.insert(flows.end(), once[1 - first].begin(), once[1 - first].end());
  return flows;
}

}  // namespace weft::fabric
