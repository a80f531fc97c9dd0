// Fits the level of a place to continuous observations (rates, latencies) and to event counts
// (losses).
#include "perf/validate/locate/fit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "perf/validate/locate/power.h"
#include "perf/validate/probes/statistics.h"

namespace weft::fabric {
namespace {

constexpr double kAgreeGraded = 0.75;  // fraction of a place's flows that must be bad
constexpr double kAgreeCounted = 0.6;
// Fraction for a rail or the fleet: two bad ports of five are no bad rail.
constexpr double kAgreeWide = 0.9;
constexpr double kHuber = 2;  // number of sigmas beyond which evidence grows linearly
// Paths of a place that are needed to judge the place without its worst path.
constexpr std::size_t kLeastPaths = 4;
constexpr double kTelling = 3;  // expected events above which a flow shows a fault

constexpr double kMostFast = 0.05;  // fast flows of a bad end, at most, on rails with collisions
constexpr double kOneOfMany = 0.1;  // least probability that a hash picks a given link of a path

double huber(double z) {
  const double a = std::abs(z);
  return a <= kHuber ? a * a / 2 : kHuber * (a - kHuber / 2);
}

}  // namespace

// Returns whether chance explains the place's flows, given the number of places. One fast flow
// clears a path: collisions slowed its other flows. An end is bad if few of its flows are fast, and
// more are slow than chance explains (Chernoff).
bool Fitter::by_chance(const std::vector<int>& observations, CausePlace place) const {
  std::map<int, double> labels;  // repeats of a flow take the same link, so each label counts once
  double share = 0, chance = 0;  // fraction of bad flows, observed and expected by chance
  double fast = 0;
  for (const int s : observations) {
    if (observation(s).chance <= 0) return false;
    double& least = labels.try_emplace(observation(s).label, 1).first->second;
    least = std::min(least, std::max(kOneOfMany, observation(s).chance));
    share += bad(observation(s)) / static_cast<double>(observations.size());
    fast +=
        (observation(s).value < scale_.threshold / 2) / static_cast<double>(observations.size());
    chance += observation(s).chance / static_cast<double>(observations.size());
  }
  const auto places = static_cast<double>(observations_.size());
  double all = 1;
  for (const auto& [label, least] : labels) all *= least;
  if (place == CausePlace::kPath) return share < 1 || places * all > kFalseAlarm;
  if (share <= chance || fast > kMostFast) return true;
  const double divergence = share * std::log(share / chance) +
                            (share < 1 ? (1 - share) * std::log((1 - share) / (1 - chance)) : 0);
  return places * std::exp(-divergence * static_cast<double>(observations.size())) > kFalseAlarm;
}

// Level: the median; for an even count, the better of the two middle values.
Fit Fitter::fit_graded(const std::vector<int>& observations, CausePlace place) const {
  Fit fit;
  if (place != CausePlace::kGroup && !observations.empty() && by_chance(observations, place))
    return fit;
  // log(expected rate of this end / expected rate of the flow).
  const auto spare = [&](int s) {
    if (place == CausePlace::kTransmit) return observation(s).from_spare;
    return place == CausePlace::kReceive ? observation(s).to_spare : 0.0;
  };
  std::vector<double> values;
  for (const int s : observations) {
    if (bad(observation(s)))
      values.push_back(observation(s).value + spare(s));
    else if (place != CausePlace::kGroup && spare(s) <= 0)
      values.push_back(observation(s).value);
  }
  if (values.empty()) return fit;
  const auto k = static_cast<double>(values.size());
  fit.flows = static_cast<int>(values.size());
  fit.level = quantile(values, 0.5);
  const double error = median_error(scale_.sigma, values.size(), scale_.baseline_error);
  int agree = 0;
  for (const double value : values) agree += value > fit.level / 2;
  for (const int s : observations) {
    const double predicted = std::max(0.0, fit.level - spare(s));
    fit.gain += huber(observation(s).value / scale_.sigma) -
                huber((observation(s).value - predicted) / scale_.sigma);
  }
  const double agreeing = agree / k, z = fit.level / error;
  const double noise = std::min(1.0, places_ * normal_tail(z));
  fit.valid = fit.level >= scale_.threshold && noise <= kFalseAlarm && agreeing >= kAgreeGraded;
  const double half = error * normal_quantile(0.5 + scale_.confidence / 2);
  fit.low = fit.level - half;
  fit.high = fit.level + half;
  fit.confidence = agreeing * (1 - noise) * (1 - std::pow(scale_.transient, k));
  return fit;
}

// Level: events per trial.
Fit Fitter::fit_counted(const std::vector<int>& observations, CausePlace place) const {
  Fit fit;
  std::vector<int> flows = observations;
  double events = 0, trials = 0;
  const auto count = [&] {
    events = trials = 0;
    for (const int s : flows) {
      events += observation(s).value;
      trials += observation(s).trials;
    }
    fit.level = trials > 0 ? events / trials : 0;
  };
  count();
  if (events <= 0) return fit;
  const bool many =
      std::ranges::all_of(observations, [&](int s) { return observation(s).trials > 1; });
  double together = many ? dispersion(observations_, flows, fit.level) : 1;
  std::map<std::pair<int, int>, double> excess;  // by path
  for (const int s : observations)
    excess[{observation(s).from, observation(s).to}] +=
        observation(s).value - fit.level * observation(s).trials;
  if (together > 1 && excess.size() >= kLeastPaths) {
    // Test the place also without its worst path, which may have a fault of its own.
    const auto worst =
        std::ranges::max_element(excess, {}, [](const auto& path) { return path.second; })->first;
    std::erase_if(
        flows, [&](int s) { return std::pair(observation(s).from, observation(s).to) == worst; });
    count();
    if (events <= 0) return fit;
    together = dispersion(observations_, flows, fit.level);
  }
  events /= together;
  trials /= together;
  const double mean = trials * scale_.background;
  if (events <= mean) return fit;
  fit.gain = poisson_gain(events, mean);
  int telling = 0, agree = 0, with_events = 0;
  for (const int s : observations) {
    with_events += observation(s).value > 0;
    if (observation(s).trials > 1 && fit.level * observation(s).trials < kTelling) continue;
    ++telling;
    agree += observation(s).value > 0;
  }
  const bool unanimous = telling == 0 || place == CausePlace::kGroup;
  const bool wide = place == CausePlace::kRail || place == CausePlace::kFleet;
  const double agreeing = unanimous ? 1 : static_cast<double>(agree) / telling;
  const double noise = std::min(1.0, places_ * std::exp(-fit.gain));
  const Interval interval = wilson(events, trials, scale_.confidence);
  fit.flows = std::max(with_events, telling);
  fit.low = interval.low;
  fit.high = interval.high;
  const bool sure = noise <= kFalseAlarm && fit.low > scale_.threshold;
  fit.valid = (unsure_ ? noise < 1 : sure) && agreeing >= (wide ? kAgreeWide : kAgreeCounted);
  fit.confidence = agreeing * (1 - noise) * (1 - std::pow(scale_.transient, fit.flows));
  return fit;
}

// An end with a single partner cannot be distinguished from the path.
Fit Fitter::fit(CausePlace place, int port, const std::vector<int>& observations) const {
  if (observations.empty()) return {};
  const bool end = place == CausePlace::kTransmit || place == CausePlace::kReceive ||
                   place == CausePlace::kPort || place == CausePlace::kHost;
  const auto partner = [&](int s) {
    const int from = shape_.port(observation(s).from).host,
              to = shape_.port(observation(s).to).host;
    return from == shape_.port(port).host ? to : from;
  };
  if (end && std::ranges::all_of(observations,
                                 [&](int s) { return partner(s) == partner(observations[0]); }))
    return {};
  return scale_.counted ? fit_counted(observations, place) : fit_graded(observations, place);
}

}  // namespace weft::fabric
