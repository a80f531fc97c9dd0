// The greedy cover: candidates, and the loop that takes the best one.
#include "perf/validate/locate/attribution.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <queue>

#include "perf/validate/locate/fit.h"
#include "perf/validate/locate/power.h"

namespace weft::fabric {
namespace {

struct Candidate {
  CausePlace place;
  int port, peer;
  std::vector<int> observations;
  std::vector<Port> group;
};

// Places and their log likelihood ratio to no fault: the sum of their gains, each minus the log of
// the number of tested places.
struct Explanation {
  std::vector<Place> places;
  double score = 0;
};

class Attribution {
 public:
  Attribution(const Shape& shape, std::span<const Observation> observations, const Scale& scale)
      : shape_(shape),
        observations_(observations),
        scale_(scale),
        covered_(observations.size(), 0),
        fitter_(shape, observations, scale, kJudged) {
    add_ends();
    add_paths();
    // A port's events are few per direction; both directions together are more significant.
    if (scale.counted && scale.directed) add_wholes(CausePlace::kPort);
  }
  void add_hosts() { add_wholes(CausePlace::kHost); }
  void set_places(double places) { fitter_.set_places(places); }  // number tested in total
  double places() const { return fitter_.places(); }
  Explanation explain(bool groups);
  double score_if_unsure();  // also counts places that are likely but not certain
  Explanation explain_as_one(CausePlace place, int rail);  // a rail or the fleet

 private:
  const Observation& observation(int s) const { return fitter_.observation(s); }
  bool bad(const Observation& s) const { return fitter_.bad(s); }
  Fit fit(const Candidate& candidate) const {
    return fitter_.fit(candidate.place, candidate.port, open(candidate));
  }
  void add_ends();
  void add_paths();
  void add_wholes(CausePlace place);
  void take_groups(Explanation& told);
  void take_greedily(Explanation& told);
  std::vector<int> open(const Candidate& candidate) const;
  void take(const Candidate& candidate, const Fit& fit, Explanation& told);

  const Shape& shape_;
  std::span<const Observation> observations_;
  const Scale& scale_;
  std::vector<char> covered_;
  std::vector<Candidate> candidates_;
  Fitter fitter_;
};

// Adds the ends with at least one bad flow.
void Attribution::add_ends() {
  const auto ports = static_cast<std::size_t>(shape_.ports());
  std::vector<std::vector<int>> ends(scale_.directed ? 2 * ports : ports);
  std::vector<char> suspect(ends.size(), 0);
  const auto slot = [&](const Observation& s, int side) {
    const auto port = static_cast<std::size_t>(side == 0 ? s.from : s.to);
    return scale_.directed && side == 1 ? ports + port : port;
  };
  for (const Observation& s : observations_)
    if (bad(s)) suspect[slot(s, 0)] = suspect[slot(s, 1)] = 1;
  for (int i = 0; i < static_cast<int>(observations_.size()); ++i)
    for (int side = 0; side < 2; ++side)
      if (suspect[slot(observation(i), side)]) ends[slot(observation(i), side)].push_back(i);
  for (std::size_t e = 0; e < ends.size(); ++e) {
    if (ends[e].empty()) continue;
    const CausePlace place = !scale_.directed ? CausePlace::kPort
                             : e < ports      ? CausePlace::kTransmit
                                              : CausePlace::kReceive;
    candidates_.push_back({place, static_cast<int>(e % ports), -1, std::move(ends[e]), {}});
  }
  set_places(places() + kJudged * static_cast<double>(ends.size()));
}

// Adds the paths with at least one bad flow, each with all its flows.
void Attribution::add_paths() {
  const auto key = [&](const Observation& s) {
    const bool keep = scale_.directed || s.from < s.to;
    return std::pair<int, int>(keep ? s.from : s.to, keep ? s.to : s.from);
  };
  std::map<std::pair<int, int>, std::vector<int>> paths;
  std::vector<char> from(static_cast<std::size_t>(shape_.ports()), 0);
  for (const Observation& s : observations_)
    if (bad(s)) {
      paths[key(s)];
      from[static_cast<std::size_t>(key(s).first)] = 1;
    }
  for (int i = 0; i < static_cast<int>(observations_.size()); ++i)
    if (from[static_cast<std::size_t>(key(observation(i)).first)])
      if (const auto found = paths.find(key(observation(i))); found != paths.end())
        found->second.push_back(i);
  for (auto& [ends, observations] : paths)
    candidates_.push_back({scale_.directed ? CausePlace::kPath : CausePlace::kPair,
                           ends.first,
                           ends.second,
                           std::move(observations),
                           {}});
  set_places(places() + kJudged * static_cast<double>(observations_.size()));
}

// Adds the ports or hosts with a bad flow, with the flows of both directions.
void Attribution::add_wholes(CausePlace place) {
  const auto whole = [&](int port) {
    return place == CausePlace::kPort ? port : shape_.index({shape_.port(port).host, 0});
  };
  std::map<int, std::vector<int>> wholes;
  for (const Observation& s : observations_)
    if (bad(s)) wholes[whole(s.from)], wholes[whole(s.to)];
  for (int i = 0; i < static_cast<int>(observations_.size()); ++i)
    for (const int end : {whole(observation(i).from), whole(observation(i).to)})
      if (const auto found = wholes.find(end); found != wholes.end()) found->second.push_back(i);
  set_places(places() + kJudged * (place == CausePlace::kPort ? shape_.ports() : shape_.hosts));
  for (auto& [end, observations] : wholes)
    candidates_.push_back({place, end, -1, std::move(observations), {}});
}

std::vector<int> Attribution::open(const Candidate& candidate) const {
  std::vector<int> observations;
  for (const int s : candidate.observations)
    if (!covered_[static_cast<std::size_t>(s)]) observations.push_back(s);
  return observations;
}

// Marks the place's flows as covered, except flows that are much worse than the place explains.
void Attribution::take(const Candidate& candidate, const Fit& fit, Explanation& told) {
  for (const int s : candidate.observations) {
    const bool worse = !scale_.counted && candidate.place != CausePlace::kGroup &&
                       observation(s).value > fit.level + std::max(0.2, 6 * scale_.sigma);
    if (!worse) covered_[static_cast<std::size_t>(s)] = 1;
  }
  Place place{candidate.place,
              shape_.port(candidate.port),
              {},
              candidate.group,
              fit.level,
              fit.low,
              fit.high,
              fit.confidence,
              fit.flows};
  if (candidate.place == CausePlace::kRail) place.port = {0, candidate.port};
  if (candidate.peer >= 0) place.peer = shape_.port(candidate.peer);
  told.places.push_back(std::move(place));
  told.score += fit.gain - std::log(places());
}

void Attribution::take_groups(Explanation& told) {
  std::vector<Look> looks(observations_.size(), Look::kGood);
  for (std::size_t s = 0; s < observations_.size(); ++s)
    if (bad(observations_[s])) looks[s] = Look::kBad;
  for (;;) {
    const Group group = find_group(shape_, observations_, looks, scale_.directed);
    if (group.score == 0) return;
    Candidate candidate{CausePlace::kGroup, group.ports.front(), -1, group.observations, {}};
    for (const int port : group.ports) candidate.group.push_back(shape_.port(port));
    for (const int s : group.observations) looks[static_cast<std::size_t>(s)] = Look::kSetAside;
    const Fit found = fit(candidate);
    if (found.valid) take(candidate, found, told);
  }
}

// Takes the candidate with the highest gain, covers its flows, and repeats with the other flows.
void Attribution::take_greedily(Explanation& told) {
  using Entry = std::pair<double, std::size_t>;  // gain, candidate
  std::priority_queue<Entry> queue;
  for (std::size_t c = 0; c < candidates_.size(); ++c)
    if (const Fit found = fit(candidates_[c]); found.valid) queue.push({found.gain, c});
  // Gains only fall as flows are covered, so a candidate that is still first after a refit is best.
  while (!queue.empty()) {
    const auto [gain, c] = queue.top();
    queue.pop();
    const Fit found = fit(candidates_[c]);
    if (!found.valid) continue;
    if (!queue.empty() && found.gain < queue.top().first)
      queue.push({found.gain, c});
    else
      take(candidates_[c], found, told);
  }
}

Explanation Attribution::explain(bool groups) {
  Explanation told;
  std::ranges::fill(covered_, 0);
  if (groups) take_groups(told);
  take_greedily(told);
  return told;
}

double Attribution::score_if_unsure() {
  fitter_.set_unsure(true);
  const double score = explain(false).score;
  fitter_.set_unsure(false);
  return score;
}

Explanation Attribution::explain_as_one(CausePlace place, int rail) {
  Candidate whole{place, rail, -1, std::vector<int>(observations_.size()), {}};
  std::iota(whole.observations.begin(), whole.observations.end(), 0);
  Explanation told;
  if (const Fit found = fitter_.fit(place, rail, whole.observations); found.valid)
    take(whole, found, told);
  return told;
}

Explanation better(Explanation one, Explanation other) {
  return other.score > one.score ? std::move(other) : std::move(one);
}

// Explains each rail by ends and paths, with groups, or as a whole; then all rails by hosts, or as
// the fleet. Because chance decides whether a flow shows an event, counts of bad flows cannot
// distinguish these. Names a whole if its parts explain less, including parts that are not yet
// certain.
std::vector<Place> explain_counts(const Shape& shape, std::span<const Observation> observations,
                                  const Scale& scale) {
  std::vector<std::vector<Observation>> rails(static_cast<std::size_t>(shape.rails));
  for (const Observation& s : observations)
    rails[static_cast<std::size_t>(shape.port(s.from).rail)].push_back(s);
  Attribution all(shape, observations, scale);
  const bool wide = shape.hosts > 2;
  if (wide && shape.rails > 1) all.add_hosts();
  Explanation told;
  double parts_score = 0;
  bool every = true;
  for (int rail = 0; rail < shape.rails; ++rail) {
    Attribution attribution(shape, rails[static_cast<std::size_t>(rail)], scale);
    attribution.set_places(all.places());
    Explanation best = better(attribution.explain(false), attribution.explain(true));
    double score = best.score;
    if (wide) {
      score = std::max(score, attribution.score_if_unsure());
      Explanation whole = attribution.explain_as_one(CausePlace::kRail, rail);
      every &= !whole.places.empty();
      if (whole.score > score) {
        score = whole.score;
        best = std::move(whole);
      }
    }
    parts_score += score;
    std::ranges::move(best.places, std::back_inserter(told.places));
  }
  if (!wide) return std::move(told.places);
  if (shape.rails > 1)
    if (Explanation hosts = all.explain(false); hosts.score > parts_score) {
      parts_score = hosts.score;
      told = std::move(hosts);
    }
  if (every)
    if (Explanation fleet = all.explain_as_one(CausePlace::kFleet, 0); fleet.score > parts_score)
      told = std::move(fleet);
  return std::move(told.places);
}

}  // namespace

std::vector<Place> attribute(const Shape& shape, std::span<const Observation> observations,
                             const Scale& scale) {
  if (scale.counted) return explain_counts(shape, observations, scale);
  // Flows across a group's border look like bad ends, and bad ends with few flows like a group.
  Attribution attribution(shape, observations, scale);
  return better(attribution.explain(true), attribution.explain(false)).places;
}

}  // namespace weft::fabric
