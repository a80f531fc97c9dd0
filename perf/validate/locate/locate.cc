// Locates causes kind by kind, the most severe first, so that a broken place does not distort later
// kinds.
#include "perf/validate/locate/locate.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include "perf/validate/locate/causes.h"
#include "perf/validate/locate/intermittent.h"
#include "perf/validate/locate/observations.h"
#include "perf/validate/locate/ways.h"
#include "perf/validate/probes/statistics.h"

namespace weft::fabric {
namespace {

// Fraction of healthy flows that fail completely.
constexpr double kNever = 1e-9;
constexpr double kTransientOnOneMachine = 0.5;  // see Scale::transient
constexpr double kLossyFlows = 1e-2;            // losses per packet that slow some flows as well
constexpr int kTailFlows = 3;                   // fewer have no 99th percentile

bool alike_always(double, double) { return true; }
bool alike_losses(double one, double other) {
  return std::max(one, other) <= 3 * std::min(one, other);
}
bool alike_levels(double one, double other) {
  return std::abs(one - other) <= std::max(0.1, 0.25 * std::max(one, other));
}

class Locator {
 public:
  Locator(const std::vector<FleetHost>& hosts, const Samples& samples, const Thresholds& thresholds)
      : hosts_(hosts), samples_(samples), thresholds_(thresholds), shape_(shape_of(hosts)) {
    std::map<std::string, std::vector<Port>> addresses;
    for (int h = 0; h < shape_.hosts; ++h)
      for (int r = 0; r < static_cast<int>(hosts[static_cast<std::size_t>(h)].ports.size()); ++r)
        addresses[info({h, r}).address].push_back({h, r});
    addresses.erase("");
    for (const auto& [address, ports] : addresses)
      if (ports.size() > 1) broken_.insert(broken_.end(), ports.begin(), ports.end());
  }

  std::vector<Cause> run() {
    swapped();
    unstable();
    unreachable();
    mtu();
    losses();
    latencies(false);
    latencies(true);
    rates();
    drop_consequences(hosts_, samples_, causes_);
    std::ranges::stable_sort(
        causes_, [](const Cause& a, const Cause& b) { return a.confidence > b.confidence; });
    return std::move(causes_);
  }

 private:
  const PortInfo& info(Port port) const {
    return hosts_[static_cast<std::size_t>(port.host)].ports[static_cast<std::size_t>(port.rail)];
  }
  // Returns a predicate for flows to ignore: flows at a broken port, or at the place of a cause of
  // one of these kinds. A cause that affects only some flows has kind kUnstable here.
  Ignored ignoring(std::vector<CauseKind> kinds) const {
    return [this, kinds = std::move(kinds)](Port from, Port to) {
      for (const Port port : broken_)
        if (port == from || port == to) return true;
      for (const Cause& cause : causes_)
        if (std::ranges::count(kinds, cause.of_flows ? CauseKind::kUnstable : cause.kind) > 0 &&
            passes(cause, from, to))
          return true;
      return false;
    };
  }
  double transient() const {
    return std::ranges::any_of(hosts_, &FleetHost::emulated) ? kTransientOnOneMachine
                                                             : Scale{}.transient;
  }
  std::vector<Place> counted(const std::vector<Observation>& observations, Scale scale,
                             Alike alike) const {
    scale.counted = true;
    scale.confidence = thresholds_.confidence;
    std::vector<Place> places = attribute(shape_, observations, scale);
    if (alike == alike_losses) unite_paths(places);
    return merge(hosts_, places, alike);
  }
  static Cause cause(CauseKind kind, const Place& place) {
    Cause cause{kind, place.place, place.port, place.peer, place.ports};
    cause.confidence = place.confidence;
    cause.samples = place.flows;
    return cause;
  }

  void swapped();
  void unreachable();
  void mtu();
  void losses();
  void add_loss(const Place& place, const std::vector<Observation>& paced, double baseline);
  void latencies(bool p99);
  void rates();
  void unstable();
  std::vector<Place> slow_rails(const Graded& graded, double reference, double threshold) const;
  void add_rate(const Place& place, const Graded& graded, bool absolute);

  const std::vector<FleetHost>& hosts_;
  const Samples& samples_;
  const Thresholds& thresholds_;
  Shape shape_;
  std::vector<Port> broken_;  // ports with a duplicate address or swapped cables
  std::vector<Cause> causes_;
};

// Finds swapped cables and duplicate addresses: packets that arrived at a wrong port.
void Locator::swapped() {
  const std::vector<Place> places = counted(stray_observations(hosts_, samples_, ignoring({})),
                                            {.background = kNever}, alike_always);
  for (const Place& place : places) {
    if (place.place == CausePlace::kRail || place.place == CausePlace::kFleet) continue;
    Cause found = cause(CauseKind::kSwapped, place);
    const bool path = place.place == CausePlace::kPath || place.place == CausePlace::kPair;
    found.port = path ? place.peer : place.port;
    std::vector<Port> ports{found.port};
    if (place.place == CausePlace::kGroup) ports = place.ports;
    found.ports.clear();
    if (place.place == CausePlace::kHost) {
      ports.clear();
      for (int r = 0;
           r < static_cast<int>(hosts_[static_cast<std::size_t>(place.port.host)].ports.size());
           ++r)
        ports.push_back({place.port.host, r});
    }
    for (const Port port : ports) {
      // Swapped cables affect flows in both directions: packets to the port identify the other
      // port, packets from the port only its rail.
      std::map<Port, int> votes;
      for (const FlowSample& sample : samples_.flows) {
        if (!sample.arrived_at || *sample.arrived_at == sample.flow.to) continue;
        if (sample.flow.to == port) votes[*sample.arrived_at] += 2;
        if (sample.flow.from == port) votes[{port.host, sample.arrived_at->rail}] += 1;
      }
      if (votes.empty()) continue;
      found.port = port;
      found.peer =
          std::ranges::max_element(votes, {}, [](const auto& v) { return v.second; })->first;
      found.place = CausePlace::kPort;
      const bool known = std::ranges::any_of(
          causes_, [&](const Cause& c) { return c.port == found.peer && c.peer == found.port; });
      if (!known) causes_.push_back(found);
    }
  }
  for (const Cause& found : causes_) broken_.insert(broken_.end(), {found.port, found.peer});
}

void Locator::unreachable() {
  const std::vector<Observation> observations =
      dead_observations(hosts_, samples_, ignoring({CauseKind::kUnstable}));
  for (const Place& place :
       counted(observations, {.directed = false, .background = kNever}, alike_always))
    causes_.push_back(cause(CauseKind::kUnreachable, place));
}

void Locator::mtu() {
  const Ignored ignored = ignoring({CauseKind::kUnreachable, CauseKind::kUnstable});
  for (const Place& place :
       counted(mtu_observations(hosts_, samples_, ignored), {.background = kNever}, alike_always)) {
    Cause found = cause(CauseKind::kMtu, place);
    found.expected = fleet_mtu(hosts_, samples_, found.port.rail);
    for (const FlowSample& sample : samples_.flows)
      if (sample.passed_mtu && *sample.passed_mtu < found.expected &&
          passes(found, sample.flow.from, sample.flow.to))
        found.value = std::max(found.value, static_cast<double>(*sample.passed_mtu));
    found.low = found.high = found.value;
    causes_.push_back(found);
  }
}

// If full speed alone loses no packets, paced and unpaced flows are evaluated together. Flows at
// full speed are also evaluated alone, but only far above the baseline: TCP loses packets at full
// speed by design. Packets that are too large for a place are not losses.
void Locator::losses() {
  // kLoss: causes that unstable() has named.
  const Ignored ignored =
      ignoring({CauseKind::kUnreachable, CauseKind::kMtu, CauseKind::kUnstable, CauseKind::kLoss});
  const std::vector<Observation> paced = loss_observations(hosts_, samples_, false, ignored);
  std::vector<Observation> full = loss_observations(hosts_, samples_, true, ignored);
  drop_met(hosts_, samples_, thresholds_, full);
  const bool clean = clean_at_full_speed(shape_, full, thresholds_);
  std::vector<Observation> together = paced;
  if (clean) together.insert(together.end(), full.begin(), full.end());
  const Scale scale{.threshold = thresholds_.fail_loss, .background = background_loss(thresholds_)};
  for (const Place& place : counted(together, scale, alike_losses)) add_loss(place, paced, 0);
  std::vector<double> shares;
  for (const Observation& s : full) shares.push_back(s.value / s.trials);
  const double baseline = clean || shares.empty() ? 0 : quantile(shares, 0.75);
  const Scale loaded{.threshold = std::max(5 * baseline, 10 * thresholds_.fail_loss),
                     .background = std::max(3 * baseline, thresholds_.fail_loss)};
  const Ignored known = ignoring({CauseKind::kLoss});
  std::vector<Observation> rest = full;
  std::erase_if(
      rest, [&](const Observation& s) { return known(shape_.port(s.from), shape_.port(s.to)); });
  for (const Place& place : counted(rest, loaded, alike_losses)) add_loss(place, paced, baseline);
}

void Locator::add_loss(const Place& place, const std::vector<Observation>& paced, double baseline) {
  Cause found = cause(CauseKind::kLoss, place);
  found.value = place.level;
  found.low = place.low;
  found.high = place.high;
  found.expected = baseline;
  double events = 0, trials = 0;
  for (const Observation& s : paced)
    if (passes(found, shape_.port(s.from), shape_.port(s.to))) {
      events += s.value;
      trials += s.trials;
    }
  const double expected_events = trials * found.value;
  found.loaded_only = expected_events >= 5 && events < 0.2 * expected_events;
  found.load_unclear = events == 0 && expected_events >= 1 && expected_events < 5;
  causes_.push_back(found);
}

// Rails whose baseline is worse than the reference by more than one-sided noise explains. If most
// flows waited for cores, the other flows lacked cores, too.
std::vector<Place> Locator::slow_rails(const Graded& graded, double reference,
                                       double threshold) const {
  std::vector<Place> places;
  if (graded.silent.size() > graded.observations.size()) return places;
  for (int rail = 0; rail < shape_.rails; ++rail) {
    const auto r = static_cast<std::size_t>(rail);
    const double level = graded.baseline[r] - reference;
    if (graded.flows[r] == 0 || level < std::max(threshold, 2 * graded.sigma)) continue;
    const double error = graded.sigma * 1.2533 / std::sqrt(graded.flows[r]);
    const double half = error * normal_quantile(0.5 + thresholds_.confidence / 2);
    Place place{CausePlace::kRail, {0, rail}, {}, {}, level, level - half, level + half};
    place.flows = graded.flows[r];
    place.confidence =
        (1 - shape_.rails * normal_tail(level / error)) * (1 - std::pow(0.3, place.flows));
    if (shape_.hosts == 2) {  // the rail is one pair of ports
      place.place = CausePlace::kPair;
      place.peer = {1, rail};
    }
    places.push_back(place);
  }
  return places;
}

void Locator::latencies(bool p99) {
  const Graded graded = latency_observations(
      hosts_, samples_, p99,
      ignoring({CauseKind::kUnreachable, CauseKind::kUnstable, CauseKind::kLatency}));
  if (graded.observations.empty()) return;
  const double threshold = std::log(p99 ? thresholds_.fail_latency : thresholds_.warn_latency);
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t r = 0; r < graded.baseline.size(); ++r)
    if (graded.flows[r] > 0) best = std::min(best, graded.baseline[r]);
  const Scale scale{.directed = false,
                    .sigma = graded.sigma,
                    .baseline_error = graded.baseline_error,
                    .threshold = threshold,
                    .confidence = thresholds_.confidence,
                    .transient = transient()};
  std::vector<Place> places =
      merge(hosts_, attribute(shape_, graded.observations, scale), alike_levels);
  const auto add = [&](const Place& place, double expected) {
    if (p99 && place.flows < kTailFlows) return;
    Cause found = cause(CauseKind::kLatency, place);
    found.expected = std::exp(expected);
    found.value = std::exp(expected + place.level);
    found.low = std::exp(expected + place.low);
    found.high = std::exp(expected + place.high);
    causes_.push_back(found);
  };
  for (const Place& place : places)
    add(place, graded.baseline[static_cast<std::size_t>(place.port.rail)]);
  for (const Place& rail : slow_rails(graded, best, threshold)) add(rail, best);
}

void Locator::add_rate(const Place& place, const Graded& graded, bool absolute) {
  const Port peer = place.place == CausePlace::kPath || place.place == CausePlace::kPair
                        ? place.peer
                        : place.port;
  const double declared = expected_gbps(hosts_, place.port, peer, graded.unit);
  const double baseline = absolute ? 0 : graded.baseline[static_cast<std::size_t>(place.port.rail)];
  Cause found = cause(CauseKind::kRate, place);
  found.expected = declared * std::exp(-baseline);
  found.value = found.expected * std::exp(-place.level);
  found.low = found.expected * std::exp(-place.high);
  found.high = found.expected * std::exp(-place.low);
  causes_.push_back(found);
}

void Locator::rates() {
  const Graded graded =
      rate_observations(hosts_, samples_, thresholds_,
                        ignoring({CauseKind::kUnreachable, CauseKind::kMtu, CauseKind::kUnstable}));
  if (graded.observations.empty()) return;
  const double threshold = -std::log(thresholds_.warn_rate);
  const Scale scale{.sigma = graded.sigma,
                    .baseline_error = graded.baseline_error,
                    .threshold = threshold,
                    .confidence = thresholds_.confidence,
                    .transient = transient()};
  for (const Place& place :
       merge(hosts_, attribute(shape_, graded.observations, scale), alike_levels))
    add_rate(place, graded, false);
  std::vector<Place> rails = slow_rails(graded, 0, threshold);
  const auto measured = std::ranges::count_if(graded.flows, [](int flows) { return flows > 0; });
  const bool all = static_cast<long>(rails.size()) == measured && !rails.empty();
  if (all &&
      std::ranges::all_of(
          rails, [&](const Place& p) { return alike_levels(p.level, rails.front().level); }) &&
      (shape_.hosts > 2 || rails.size() > 1)) {
    Place fleet = rails.front();
    fleet.place = CausePlace::kFleet;
    for (std::size_t i = 1; i < rails.size(); ++i) fleet.flows += rails[i].flows;
    rails = {fleet};
  }
  for (const Place& rail : rails) add_rate(rail, graded, true);
}

void Locator::unstable() {
  std::ranges::move(causes_of_ways(hosts_, samples_, thresholds_), std::back_inserter(causes_));
  std::vector<Intermittent> found = find_intermittent(
      hosts_, samples_, thresholds_, ignoring({CauseKind::kSwapped, CauseKind::kUnstable}));
  std::erase_if(found, [](const Intermittent& one) { return !one.named; });
  std::vector<Place> places;
  for (const Intermittent& one : found) {
    Place& place = places.emplace_back();
    place.place = one.place;
    place.port = one.port;
    place.peer = one.peer;
    place.level = one.share;
    place.confidence = 1 - one.chance;
    place.flows = one.bad;
  }
  for (const Place& place : merge(hosts_, places, alike_always)) {
    Cause cause = this->cause(CauseKind::kUnstable, place);
    const Intermittent* most = nullptr;  // the worst part of a merged place
    for (const Intermittent& one : found) {
      const bool part = one.place == CausePlace::kPath
                            ? passes(cause, one.port, one.peer)
                            : passes(cause, one.port, {-1, one.port.rail}) ||
                                  passes(cause, {-1, one.port.rail}, one.port);
      if (part && (!most || one.share > most->share)) most = &one;
    }
    if (!most) continue;
    cause.value = most->bad_gbps;
    cause.expected = most->baseline_gbps;
    cause.low = cause.high = cause.value;
    cause.share = most->share;
    cause.share_low = most->low;
    cause.share_high = most->high;
    cause.of_flows = bound_of(*most) == Bound::kFlows;
    if (cause.of_flows && most->lost >= kLossyFlows) {
      cause.kind = CauseKind::kLoss;
      cause.expected = 0;
      cause.value = most->lost;
      cause.low = most->least_lost;
      cause.high = most->most_lost;
    } else if (!cause.of_flows) {
      cause.spell_s = most->spell_s;
      cause.period_s = most->period_s;
    }
    for (const auto& [flow, bad] : most->flows)
      if (cause.of_flows && bad && !std::ranges::count(cause.labels, flow.label))
        cause.labels.push_back(flow.label);
    causes_.push_back(cause);
  }
}

}  // namespace

std::vector<Cause> locate(const std::vector<FleetHost>& hosts, const Samples& samples,
                          const Thresholds& thresholds) {
  std::vector<Cause> causes = Locator(hosts, samples, thresholds).run();
  const std::vector<Spread> spreads = find_spreads(hosts, samples, causes, thresholds);
  if (spreads.empty()) return causes;
  return Locator(hosts, without_victims(hosts, samples, spreads, thresholds), thresholds).run();
}

}  // namespace weft::fabric
