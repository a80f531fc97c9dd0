// Extracts each quantity from samples, and computes the baseline of each rail.
#include "perf/validate/locate/observations.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "perf/validate/locate/company.h"
#include "perf/validate/locate/noise.h"
#include "perf/validate/probes/statistics.h"

namespace weft::fabric {
namespace {

constexpr double kStill_s = 0.06;    // a flow is stalled if it transfers little for this long
constexpr double kNothing_s = 0.02;  // likewise, almost nothing: waits for a timer
constexpr double kNothing = 0.05;    // of the best window
// Fraction of the expected rate below which a flow is treated as dead.
constexpr double kLeastShare = 1e-3;
constexpr double kReceiverSlow = 0.5;   // fraction of time without room in the receiver's buffer
constexpr double kReceiverFull = 0.01;  // likewise; less does not affect the rate noticeably
constexpr std::size_t kWindows = 4;     // fewer have no upper quartile

// Same-rail samples of `probe` that are not ignored.
template <typename Visit>
void each(const Samples& samples, Probe probe, const Ignored& ignored, const Visit& visit) {
  for (const FlowSample& sample : samples.flows) {
    if (samples.probe_of(sample) != probe) continue;
    const Flow& flow = sample.flow;
    if (flow.from.rail != flow.to.rail || ignored(flow.from, flow.to)) continue;
    visit(sample);
  }
}

Observation observation_of(const Shape& shape, const FlowSample& sample, double value,
                           double trials = 1) {
  return {shape.index(sample.flow.from), shape.index(sample.flow.to), value, trials};
}

// Windows with at most `share` of the best window.
int slow_windows(const FlowSample& sample, double share) {
  const std::vector<double>& windows = sample.window_gbps;
  const double most = windows.empty() ? 0 : std::ranges::max(windows);
  return static_cast<int>(
      std::ranges::count_if(windows, [&](double g) { return g <= share * most; }));
}

double still_s(const FlowSample& sample) {
  if (sample.window_gbps.size() < 3) return 0;
  return slow_windows(sample, 0.1) * sample.window_s;
}

// Returns Gb/s; for a TCP flow with a starved end, from its better windows. Not for RDMA: a window
// has few whole messages, and the NIC continues without the core.
double rate_of(const FlowSample& sample) {
  const bool smooth = sample.receiver_limited && sample.window_gbps.size() >= kWindows;
  if (!starved(sample) || !smooth) return sample.gbps();
  std::vector<double> windows = sample.window_gbps;
  return quantile(windows, 0.75);
}

// Returns the standard error of a flow's average, from its windows; doubled, because neighbors are
// correlated.
double window_error(const FlowSample& sample) {
  if (sample.window_gbps.size() < 3 || sample.gbps() <= 0) return 0;
  double squares = 0;
  const double average = sample.gbps();
  for (const double g : sample.window_gbps) squares += (g / average - 1) * (g / average - 1);
  const auto k = static_cast<double>(sample.window_gbps.size());
  return 2 * std::sqrt(squares / (k - 1) / k);
}

// Returns whether waits hide the rate. Cores limit software RDMA without declared rates.
bool says_little(const FlowSample& sample, bool declared) {
  return declared || sample.receiver_limited ? held_up(sample) : starved(sample);
}

// Returns the level beyond which noise alone makes no flow slow. Uses the faster half, since
// collisions only slow flows, or the faster quarter if most flows collided.
double beyond_noise_of_all(const std::vector<Observation>& observations) {
  constexpr double kSigmas = 3, kLeastSigma = 0.01;
  constexpr double kShared = 0.4;    // two flows on a link get half each: log 2, with noise
  constexpr double kTenth = 1.2816;  // of normal values: sigmas from the median to the best tenth
  std::vector<double> values;
  for (const Observation& s : observations) values.push_back(s.value);
  if (values.empty()) return 0;
  constexpr double kQuarter = 0.6745, kTwentieth = 1.6449;  // likewise, to other quantiles
  const double median = quantile(values, 0.5), fast = quantile(values, 0.25);
  const double sigma = (fast - quantile(values, 0.05)) / (kTwentieth - kQuarter);
  const double of_fast = fast + (kQuarter + kSigmas) * std::max(sigma, kLeastSigma);
  if (median > of_fast && median - fast > kShared) return of_fast;
  return median + kSigmas * (median - quantile(values, 0.1)) / kTenth;
}

// Sets the chances. Slow flows that may have collided are not noise: if there are many, computes
// noise and baseline from the other flows.
void tell_company(const Shape& shape, const Samples& samples, double slow, const LeastNoise& floor,
                  Graded& graded) {
  slow = std::max(slow, beyond_noise_of_all(graded.observations));
  graded.chances = chances_of(shape, samples, graded.observations, slow);
  if (std::ranges::none_of(graded.chances, [](const Chance& c) { return c.beside_others > 0; }))
    return;
  const Company company(samples);
  Graded rest;
  for (Observation& s : graded.observations) {
    const Chance& chance = graded.chances[static_cast<std::size_t>(shape.port(s.from).rail)];
    const bool alone = company.alone(samples.flows[static_cast<std::size_t>(s.flow)]);
    s.chance = alone ? chance.alone : chance.beside_others;
    if (s.chance <= 0 || alone || s.value < slow) rest.observations.push_back(s);
  }
  settle(shape, rest, floor);
  for (Observation& s : graded.observations)
    s.value -= rest.baseline[static_cast<std::size_t>(shape.port(s.from).rail)];
  for (std::size_t rail = 0; rail < graded.baseline.size(); ++rail)
    graded.baseline[rail] += rest.baseline[rail];
  graded.sigma = rest.sigma;
  graded.baseline_error = rest.baseline_error;
}

}  // namespace

bool waited_for_timer(const FlowSample& sample) {
  const double waits = sample.sender_starved + sample.receiver_starved;
  return sample.window_s * (slow_windows(sample, kNothing) -
                            waits * static_cast<double>(sample.window_gbps.size())) >=
         kNothing_s;
}

bool lost_acknowledgements(const FlowSample& sample) {
  if (!sample.reached || !sample.packets || sample.retransmits.value_or(1) != 0) return false;
  // Nothing arrived in the last window although neither end waited for a core.
  const std::vector<double>& windows = sample.window_gbps;
  const bool ended_still = !windows.empty() && !starved(sample) &&
                           windows.back() <= kNothing * std::ranges::max(windows);
  return ended_still || waited_for_timer(sample);
}

bool stood_still(const FlowSample& sample) {
  return still_s(sample) >= kStill_s || waited_for_timer(sample);
}

double share_without_waits(const FlowSample& sample) {
  return std::max(1e-3, (1 - sample.sender_starved) * (1 - sample.receiver_starved));
}

bool starved(const FlowSample& sample) {
  return std::max(sample.sender_starved, sample.receiver_starved) > kStarved;
}

bool held_up(const FlowSample& sample) {
  if (sample.latency) return starved(sample);
  const bool sender = sample.sender_starved > kStarved && sample.sender_idle.value_or(1) > kStarved;
  const bool receiver =
      sample.receiver_starved > kStarved && sample.receiver_limited.value_or(1) > kReceiverFull;
  return sender || receiver;
}

Shape shape_of(const std::vector<FleetHost>& hosts) {
  Shape shape{static_cast<int>(hosts.size()), 0};
  for (const FleetHost& host : hosts)
    shape.rails = std::max(shape.rails, static_cast<int>(host.ports.size()));
  return shape;
}

double expected_gbps(const std::vector<FleetHost>& hosts, Port from, Port to, double unit) {
  const auto declared = [&](Port port) {
    const double gbps = hosts[static_cast<std::size_t>(port.host)]
                            .ports[static_cast<std::size_t>(port.rail)]
                            .expected_gbps;
    return gbps > 0 ? gbps : unit;
  };
  return std::min(declared(from), declared(to));
}

Graded rate_observations(const std::vector<FleetHost>& hosts, const Samples& samples,
                         const Thresholds& thresholds, const Ignored& ignored) {
  const Shape shape = shape_of(hosts);
  Graded graded;
  std::vector<const FlowSample*> received;
  std::vector<Observation> undeclared;
  std::vector<double> errors;
  bool known = true;  // every port's rate is declared
  each(samples, Probe::kRate, ignored, [&](const FlowSample& sample) {
    if (stood_still(sample)) return;
    received.push_back(&sample);
    // Skip windows that a wait shortened, and RDMA windows: these differ by whole messages, which
    // the next window compensates.
    const bool smooth = sample.receiver_limited.has_value();
    if (errors.size() < 1000 && smooth && !starved(sample)) errors.push_back(window_error(sample));
    if (expected_gbps(hosts, sample.flow.from, sample.flow.to, 0) > 0) return;
    known = false;
    if (sample.gbps() > 0 && !says_little(sample, false))
      undeclared.push_back(observation_of(shape, sample, -std::log(sample.gbps())));
  });
  if (!undeclared.empty()) {
    // The baseline of the fastest rail replaces a declared rate.
    double fastest = 0;
    for (int rail = 0; rail < shape.rails; ++rail) {
      std::vector<Observation> here;
      for (const Observation& s : undeclared)
        if (shape.port(s.from).rail == rail) here.push_back(s);
      if (!here.empty()) fastest = std::max(fastest, std::exp(-baseline_of(here)));
    }
    graded.unit = fastest;
  }
  for (const FlowSample* sample : received) {
    const double expected = expected_gbps(hosts, sample->flow.from, sample->flow.to, graded.unit);
    double share = sample->reached ? rate_of(*sample) / expected : 0;
    const bool declared = expected_gbps(hosts, sample->flow.from, sample->flow.to, 0) > 0;
    // If every flow waited, the rate without waits is unknown.
    if (!known && undeclared.empty() && says_little(*sample, declared)) {
      graded.silent.push_back(sample);
      continue;
    }
    if (share < thresholds.warn_rate) {
      const bool waited = says_little(*sample, declared);
      if (waited) share /= share_without_waits(*sample);
      const bool receiver_slow = sample->receiver_limited.value_or(0) > kReceiverSlow;
      if (receiver_slow || (waited && (!sample->reached || share >= thresholds.warn_rate))) {
        graded.silent.push_back(sample);
        continue;
      }
    }
    Observation& observation = graded.observations.emplace_back(
        observation_of(shape, *sample, -std::log(std::max(share, kLeastShare))));
    observation.flow = static_cast<int>(sample - samples.flows.data());
    const auto spare = [&](Port port) {
      return std::log(expected_gbps(hosts, port, port, graded.unit) / expected);
    };
    observation.from_spare = spare(sample->flow.from);
    observation.to_spare = spare(sample->flow.to);
    observation.label = sample->flow.label;
    observation.at_s = samples.rounds[static_cast<std::size_t>(sample->round)].at_s;
  }
  const double error = errors.empty() ? 0 : quantile(errors, 0.5);
  const LeastNoise floor{.least = 0.01, .of_few = 0.02, .of_windows = error};
  settle(shape, graded, floor);
  tell_company(shape, samples, -std::log(thresholds.warn_rate), floor, graded);
  return graded;
}

bool least_tells_latency(const Samples& samples) {
  int waited = 0, all = 0;
  each(samples, Probe::kLatency, none_ignored, [&](const FlowSample& sample) {
    if (!sample.reached || !sample.latency) return;
    ++all;
    waited += starved(sample);
  });
  return 2 * waited > all;
}

Graded latency_observations(const std::vector<FleetHost>& hosts, const Samples& samples, bool p99,
                            const Ignored& ignored) {
  const Shape shape = shape_of(hosts);
  Graded graded;
  const bool least = !p99 && least_tells_latency(samples);
  each(samples, Probe::kLatency, ignored, [&](const FlowSample& sample) {
    if (!sample.reached || !sample.latency || (starved(sample) && !least)) return;
    const LatencySample& l = *sample.latency;
    const double us = p99 ? l.p99_us : least ? l.min_us : l.p50_us;
    if (us > 0) graded.observations.push_back(observation_of(shape, sample, std::log(us)));
  });
  settle(shape, graded,
         {.least = least ? 0.35
                   : p99 ? 0.2
                         : 0.1,
          .of_few = least ? 0.5
                    : p99 ? 0.3
                          : 0.15});
  return graded;
}

bool outruns(const std::vector<FleetHost>& hosts, const Flow& flow) {
  const double receives = expected_gbps(hosts, flow.to, flow.to, 0);
  return receives > 0 && expected_gbps(hosts, flow.from, flow.from, 0) > receives;
}

std::vector<Observation> loss_observations(const std::vector<FleetHost>& hosts,
                                           const Samples& samples, bool loaded,
                                           const Ignored& ignored) {
  const Shape shape = shape_of(hosts);
  std::vector<Observation> observations;
  each(samples, loaded ? Probe::kRate : Probe::kLowLoad, ignored, [&](const FlowSample& sample) {
    if (!sample.packets || *sample.packets == 0 || !sample.retransmits) return;
    if (loaded && outruns(hosts, sample.flow)) return;
    observations.push_back(observation_of(shape, sample, static_cast<double>(*sample.retransmits),
                                          static_cast<double>(*sample.packets)));
    observations.back().flow = static_cast<int>(&sample - samples.flows.data());
  });
  return observations;
}

bool sends_datagrams(Probe probe) { return probe == Probe::kReach || probe == Probe::kPathMtu; }

double background_loss(const Thresholds& thresholds) { return thresholds.fail_loss / 10; }

bool clean_at_full_speed(const Shape& shape, const std::vector<Observation>& full,
                         const Thresholds& thresholds) {
  std::map<int, std::vector<double>> rails;
  for (const Observation& s : full) rails[shape.port(s.from).rail].push_back(s.value / s.trials);
  return std::ranges::any_of(rails, [&](auto& rail) {
    return quantile(rail.second, 0.25) <= background_loss(thresholds);
  });
}

std::set<std::pair<Port, bool>> without_datagrams(const Samples& samples, const Ignored& ignored) {
  std::set<std::pair<Port, bool>> streams, datagrams;
  for (const Probe probe : {Probe::kReach, Probe::kPathMtu, Probe::kLatency, Probe::kRate})
    each(samples, probe, ignored, [&](const FlowSample& sample) {
      if (!sample.reached) return;
      auto& passed = sends_datagrams(probe) ? datagrams : streams;
      passed.insert({sample.flow.from, true});
      passed.insert({sample.flow.to, false});
    });
  std::set<std::pair<Port, bool>> filtered;
  std::ranges::set_difference(streams, datagrams, std::inserter(filtered, filtered.end()));
  return filtered;
}

std::vector<Observation> dead_observations(const std::vector<FleetHost>& hosts,
                                           const Samples& samples, const Ignored& ignored) {
  const Shape shape = shape_of(hosts);
  std::vector<Observation> observations;
  std::set<std::pair<int, int>> alive;  // pairs that small packets cross
  const auto filtered = without_datagrams(samples, ignored);
  for (const Probe probe : {Probe::kReach, Probe::kLatency})
    each(samples, probe, ignored, [&](const FlowSample& sample) {
      const bool blocked =
          filtered.contains({sample.flow.from, true}) || filtered.contains({sample.flow.to, false});
      if (probe == Probe::kReach && !sample.reached && blocked) return;
      observations.push_back(observation_of(shape, sample, sample.reached ? 0 : 1));
      if (sample.reached)
        alive.insert(std::minmax({observations.back().from, observations.back().to}));
    });
  each(samples, Probe::kRate, ignored, [&](const FlowSample& sample) {
    const Observation observation = observation_of(shape, sample, sample.reached ? 0 : 1);
    if (sample.reached || !alive.contains(std::minmax(observation.from, observation.to)))
      observations.push_back(observation);
  });
  return observations;
}

int fleet_mtu(const std::vector<FleetHost>& hosts, const Samples& samples, int rail) {
  std::map<int, int> votes;
  for (const FleetHost& host : hosts)
    if (rail < static_cast<int>(host.ports.size()))
      ++votes[host.ports[static_cast<std::size_t>(rail)].mtu];
  votes.erase(0);
  if (votes.empty())
    for (const FlowSample& sample : samples.flows)
      if (sample.flow.from.rail == rail && sample.passed_mtu) ++votes[*sample.passed_mtu];
  int mtu = 0, most = 0;
  for (const auto& [bytes, count] : votes)
    if (count >= most) {  // of equally frequent MTUs, the larger
      mtu = bytes;
      most = count;
    }
  return mtu;
}

std::vector<Observation> mtu_observations(const std::vector<FleetHost>& hosts,
                                          const Samples& samples, const Ignored& ignored) {
  const Shape shape = shape_of(hosts);
  std::vector<int> mtu;
  for (int rail = 0; rail < shape.rails; ++rail) mtu.push_back(fleet_mtu(hosts, samples, rail));
  std::vector<Observation> observations;
  each(samples, Probe::kPathMtu, ignored, [&](const FlowSample& sample) {
    const int expected = mtu[static_cast<std::size_t>(sample.flow.from.rail)];
    if (!sample.passed_mtu && !sample.failed_mtu) return;
    const bool small =
        sample.passed_mtu ? *sample.passed_mtu < expected : *sample.failed_mtu <= expected;
    observations.push_back(observation_of(shape, sample, small ? 1 : 0));
  });
  return observations;
}

std::vector<Observation> stray_observations(const std::vector<FleetHost>& hosts,
                                            const Samples& samples, const Ignored& ignored) {
  const Shape shape = shape_of(hosts);
  std::vector<Observation> observations;
  each(samples, Probe::kReach, ignored, [&](const FlowSample& sample) {
    if (sample.reached && sample.arrived_at)
      observations.push_back(
          observation_of(shape, sample, *sample.arrived_at == sample.flow.to ? 0 : 1));
  });
  return observations;
}

}  // namespace weft::fabric
