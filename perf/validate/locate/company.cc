// Counts the flows of rounds, and bad samples of healthy places.
#include "perf/validate/locate/company.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "perf/validate/locate/observations.h"
#include "perf/validate/probes/statistics.h"

namespace weft::fabric {
namespace {

constexpr double kOften = 0.02;          // fraction of bad samples from which a rail is not quiet
constexpr double kMeet = 0.05;           // fraction of bad samples, without fleet-wide slowdowns,
                                         // from which flows of the rail collide on uplinks
constexpr double kAltogetherBad = 0.75;  // fraction of bad samples from which an end itself is bad
constexpr int kFullRound = 4;            // flows of a rail needed to show a common slowdown
constexpr double kMoreMoments = 1.5;     // factor for slowdowns of only a part of the fleet

struct Count {
  int bad = 0, all = 0;
  double share() const { return all > 0 ? static_cast<double>(bad) / all : 0; }
};

}  // namespace

Company::Company(const Samples& samples) {
  for (const FlowSample& sample : samples.flows)
    for (const int rail : std::set{sample.flow.from.rail, sample.flow.to.rail})
      ++flows_[{sample.round, rail}];
}

bool Company::alone(const FlowSample& sample) const {
  return std::ranges::all_of(std::set{sample.flow.from.rail, sample.flow.to.rail}, [&](int rail) {
    const auto flows = flows_.find({sample.round, rail});
    return flows == flows_.end() || flows->second == 1;
  });
}

std::vector<Chance> chances_of(const Shape& shape, const Samples& samples,
                               const std::vector<Observation>& observations, double bad_level) {
  const Company company(samples);
  std::vector<Count> ends(static_cast<std::size_t>(2 * shape.ports()));
  std::vector<char> beside(observations.size(), 0);
  const auto ends_of = [&](const Observation& s) {
    return std::pair(static_cast<std::size_t>(s.from),
                     static_cast<std::size_t>(shape.ports() + s.to));
  };
  const auto tally = [&](std::vector<Count>& counts, const Observation& s) {
    for (const std::size_t end : {ends_of(s).first, ends_of(s).second}) {
      counts[end].bad += s.value >= bad_level;
      ++counts[end].all;
    }
  };
  for (std::size_t i = 0; i < observations.size(); ++i) {
    beside[i] = !company.alone(samples.flows[static_cast<std::size_t>(observations[i].flow)]);
    if (beside[i]) tally(ends, observations[i]);
  }
  // Ignore ends that are bad by themselves.
  std::vector<Count> healthy(ends.size());
  std::map<std::pair<int, int>, std::vector<double>> rounds;  // values of flows, by rail and round
  for (std::size_t i = 0; i < observations.size(); ++i) {
    const auto [from, to] = ends_of(observations[i]);
    if (!beside[i] || ends[from].share() >= kAltogetherBad || ends[to].share() >= kAltogetherBad)
      continue;
    tally(healthy, observations[i]);
    rounds[{shape.port(observations[i].from).rail,
            samples.flows[static_cast<std::size_t>(observations[i].flow)].round}]
        .push_back(observations[i].value);
  }
  std::vector<std::vector<double>> shares(static_cast<std::size_t>(shape.rails));
  for (std::size_t end = 0; end < healthy.size(); ++end)
    if (healthy[end].all > 0)
      shares[end % static_cast<std::size_t>(shape.ports()) % static_cast<std::size_t>(shape.rails)]
          .push_back(healthy[end].share());
  std::vector<Count> moments(static_cast<std::size_t>(shape.rails));
  for (auto& [round, values] : rounds) {
    if (values.size() < kFullRound) continue;
    Count& moment = moments[static_cast<std::size_t>(round.first)];
    ++moment.all;
    moment.bad += *std::ranges::min_element(values) >= bad_level;
  }
  std::vector<Chance> chances(static_cast<std::size_t>(shape.rails));
  for (std::size_t rail = 0; rail < chances.size(); ++rail) {
    if (shares[rail].empty()) continue;
    const double share = quantile(shares[rail], 0.5);
    if (share < kOften) continue;
    chances[rail].beside_others = share;
    chances[rail].alone = kLeastChance + kMoreMoments * moments[rail].share();
    chances[rail].meet = share >= kMeet + 2 * moments[rail].share();
  }
  return chances;
}

std::set<const FlowSample*> met_others(const std::vector<FleetHost>& hosts, const Samples& samples,
                                       const Thresholds& thresholds) {
  std::set<const FlowSample*> met;
  const Graded graded = rate_observations(hosts, samples, thresholds);
  if (std::ranges::none_of(graded.chances, &Chance::meet)) return met;
  const Company company(samples);
  std::vector<char> fast(samples.flows.size(), 0);
  for (const Observation& s : graded.observations)
    fast[static_cast<std::size_t>(s.flow)] = s.value < -std::log(thresholds.warn_rate);
  for (std::size_t f = 0; f < samples.flows.size(); ++f) {
    const FlowSample& sample = samples.flows[f];
    const auto rail = static_cast<std::size_t>(sample.flow.from.rail);
    if (samples.probe_of(sample) == Probe::kRate && sample.flow.from.rail == sample.flow.to.rail &&
        graded.chances[rail].meet && !fast[f] && !company.alone(sample))
      met.insert(&sample);
  }
  return met;
}

void drop_met(const std::vector<FleetHost>& hosts, const Samples& samples,
              const Thresholds& thresholds, std::vector<Observation>& losses) {
  const std::set<const FlowSample*> met = met_others(hosts, samples, thresholds);
  std::erase_if(losses, [&](const Observation& s) {
    return met.contains(&samples.flows[static_cast<std::size_t>(s.flow)]);
  });
}

double chance_of_all(std::vector<std::pair<double, double>> looks) {
  std::ranges::sort(looks);
  double chance = 1, least = 1, begun_s = 0;  // `least`: of the samples of one slowdown
  for (const auto& [at_s, of_look] : looks) {
    if (least < 1 && at_s - begun_s < kApart_s) {
      least = std::min(least, of_look);
      continue;
    }
    chance *= least;
    least = of_look;
    begun_s = at_s;
  }
  return chance * least;
}

}  // namespace weft::fabric
