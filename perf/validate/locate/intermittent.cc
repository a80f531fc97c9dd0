// Samples, subjects, and the sequential test of each subject.
#include "perf/validate/locate/intermittent.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "perf/validate/locate/ways.h"
#include "perf/validate/probes/statistics.h"

namespace weft::fabric {
namespace {

constexpr double kBadLevel = 0.11;       // log of the fraction of the rate: a sample of 90 % is bad
constexpr double kBadSigmas = 5;         // in addition, beyond the noise of this run
constexpr double kHealthyBad = 3e-3;     // fraction of bad samples in a healthy fleet, at least
constexpr double kHealthyHard = 3e-4;    // likewise, of samples that stall or lose packets
constexpr double kFalseName = 1e-3;      // probability per run, over all places
constexpr double kSteady = 0.25;         // fraction of good samples below which a fault is steady
constexpr std::size_t kSteadyLooks = 3;  // minimum number of samples of a path or an end
constexpr int kTogether = 3;             // flows of a rail; if bad at once, for a common reason
constexpr double kCommon = 0.5;          // fraction of bad flows from which a shared kernel stalled

struct TimedLook {
  int from = 0, to = 0;                           // ports
  bool bad = false, still = false, hard = false;  // hard: stalled or lost packets
  bool loses = false;                             // more than at full speed alone
  double level = 0, gbps = 0, lost = 0, at_s = 0;
  int round = 0;
  const Flow* flow = nullptr;
};

struct Subject {
  CausePlace place;
  int port, peer;
  std::vector<int> looks;
};

struct Decision {
  enum { kNone, kOpen, kNamed } state = kNone;
  double llr = 0;
  Intermittent told;
};

class Watcher {
 public:
  Watcher(const std::vector<FleetHost>& hosts, const Samples& samples, const Thresholds& thresholds,
          const Ignored& ignored)
      : shape_(shape_of(hosts)), thresholds_(thresholds) {
    look(hosts, samples, ignored);
    drop_common(hosts);
    drop_steady();
    background();
  }

  std::vector<Intermittent> run();

 private:
  void look(const std::vector<FleetHost>& hosts, const Samples& samples, const Ignored& ignored);
  void drop_common(const std::vector<FleetHost>& hosts);
  void drop_steady();
  void background();
  std::vector<Subject> subjects() const;
  Decision judge(const Subject& subject, const std::vector<char>& covered) const;
  void tell(const Subject& subject, const std::vector<int>& looks, Intermittent& told) const;
  bool is_apart(const std::vector<int>& looks) const;
  bool may_be_intermittent(const Subject& subject, const std::vector<int>& looks) const;
  const TimedLook& at(int l) const { return looks_[static_cast<std::size_t>(l)]; }

  Shape shape_;
  const Thresholds& thresholds_;
  std::vector<TimedLook> looks_;
  std::vector<Chance> chances_;  // by rail
  double bad_level_ = kBadLevel;
  double places_ = 1, healthy_bad_ = kHealthyBad, healthy_hard_ = kHealthyHard;
};

void Watcher::look(const std::vector<FleetHost>& hosts, const Samples& samples,
                   const Ignored& ignored) {
  const Graded graded = rate_observations(hosts, samples, thresholds_, ignored);
  bad_level_ = std::max(kBadLevel, kBadSigmas * graded.sigma);
  chances_ = graded.chances;
  const double full_speed = loss_of_full_speed(hosts, samples);
  const double lossy = lossy_share(full_speed, thresholds_);
  std::vector<const Observation*> by_flow(samples.flows.size(), nullptr);
  for (const Observation& s : graded.observations) by_flow[static_cast<std::size_t>(s.flow)] = &s;
  for (std::size_t f = 0; f < samples.flows.size(); ++f) {
    const FlowSample& sample = samples.flows[f];
    const Round& round = samples.rounds[static_cast<std::size_t>(sample.round)];
    const Flow& flow = sample.flow;
    if (round.probe != Probe::kRate || flow.from.rail != flow.to.rail) continue;
    if (ignored(flow.from, flow.to)) continue;
    TimedLook look{shape_.index(flow.from), shape_.index(flow.to)};
    look.still =
        sample.reached && (starved(sample) ? waited_for_timer(sample) : stood_still(sample));
    look.lost = outruns(hosts, flow) ? 0 : share_lost(sample);
    look.loses = look.lost > full_speed;
    look.hard = look.still || look.lost >= lossy;
    if (!by_flow[f] && !look.hard) continue;
    look.level = by_flow[f] ? by_flow[f]->value : look.still ? bad_level_ : 0;
    look.bad = look.hard || look.level >= bad_level_;
    // Waits for a core may explain a slow flow.
    if (look.bad && !look.hard && look.level + std::log(share_without_waits(sample)) < bad_level_)
      continue;
    if (look.bad && lost_acknowledgements(sample)) std::swap(look.from, look.to);
    look.gbps = sample.reached ? sample.gbps() : 0;
    if (look.still) look.gbps = sample.lowest_gbps();
    look.at_s = round.at_s;
    look.round = sample.round;
    look.flow = &sample.flow;
    looks_.push_back(look);
  }
}

// Drops flows that are bad at once: the reason is common, such as a shared uplink, and not at their
// ends. Hosts with a common kernel stall together, which the tester's threads may not notice.
void Watcher::drop_common(const std::vector<FleetHost>& hosts) {
  const bool one_kernel = std::ranges::any_of(hosts, &FleetHost::emulated);
  struct Count {
    int bad = 0, all = 0;
  };
  std::map<int, Count> rounds;
  struct Together {
    int bad = 0, most = 0;  // bad samples in total, and at one port
    std::map<int, int> ports;
    void add(int port) { most = std::max(most, ++ports[port]); }
  };
  std::map<std::pair<int, int>, Together> rails;  // by round and rail
  const auto rail = [&](const TimedLook& look) {
    return std::pair(look.round, shape_.port(look.from).rail);
  };
  for (const TimedLook& look : looks_) {
    rounds[look.round].bad += look.bad;
    ++rounds[look.round].all;
    if (!look.bad) continue;
    Together& together = rails[rail(look)];
    ++together.bad;
    together.add(look.from);
    together.add(look.to);
  }
  std::erase_if(looks_, [&](const TimedLook& look) {
    const Count& count = rounds[look.round];
    const bool stalled = one_kernel && count.all > 2 && count.bad > kCommon * count.all;
    if (stalled || !look.bad) return stalled;
    // On rails with collisions, slow_ways() finds the cause instead.
    const auto r = static_cast<std::size_t>(shape_.port(look.from).rail);
    if (r < chances_.size() && chances_[r].meet) return true;
    const Together& together = rails[rail(look)];
    return together.bad - together.most + 1 >= kTogether;
  });
}

// Drops places that are slow or lose packets in nearly every sample: these are not intermittent,
// nor evidence against their partners. Repeats of a labeled flow are correlated; the first counts.
void Watcher::drop_steady() {
  const double slow = -std::log(thresholds_.warn_rate) / 2;
  struct Looks {
    std::vector<double> levels;
    std::size_t lose = 0;
  };
  std::unordered_map<std::uint64_t, Looks> all;  // by path, and by end
  const auto places = [](const TimedLook& look) {
    const auto from = static_cast<std::uint64_t>(look.from + 1) << 32;
    const auto to = static_cast<std::uint64_t>(look.to + 1);
    return std::array{from | to, from, to};
  };
  std::set<std::tuple<Port, Port, int>> seen;
  for (const TimedLook& look : looks_) {
    const Flow& flow = *look.flow;
    if (flow.label > 0 && !seen.insert({flow.from, flow.to, flow.label}).second) continue;
    for (const std::uint64_t place : places(look)) {
      all[place].levels.push_back(look.still ? 0 : look.level);
      all[place].lose += look.loses;
    }
  }
  std::unordered_set<std::uint64_t> steady;
  for (auto& [place, looks] : all) {
    const auto count = static_cast<double>(looks.levels.size());
    if (looks.levels.size() >= kSteadyLooks &&
        (quantile(looks.levels, kSteady) >= slow ||
         static_cast<double>(looks.lose) >= (1 - kSteady) * count))
      steady.insert(place);
  }
  if (steady.empty()) return;
  std::erase_if(looks_, [&](const TimedLook& look) {
    return std::ranges::any_of(places(look), [&](std::uint64_t p) { return steady.contains(p); });
  });
}

// Estimates how often healthy samples are bad, from ends outside the worst quarter. Doubles it,
// because the worst quarter also contains unlucky healthy ends.
void Watcher::background() {
  std::map<int, std::pair<double, double>> ends;  // bad, all
  const auto receiver = [&](const TimedLook& look) { return shape_.ports() + look.to; };
  for (const TimedLook& look : looks_)
    for (const int end : {look.from, receiver(look)}) {
      ends[end].first += look.bad;
      ends[end].second += 1;
    }
  places_ = std::max<double>(1, static_cast<double>(ends.size()));
  std::vector<std::pair<double, int>> shares;
  for (const auto& [end, counts] : ends) shares.emplace_back(counts.first / counts.second, end);
  std::ranges::sort(shares, std::greater{});
  std::set<int> worst;
  for (std::size_t i = 0; i < (shares.size() + 3) / 4; ++i) worst.insert(shares[i].second);
  double bad = 0, hard = 0, all = 0;
  for (const TimedLook& look : looks_) {
    if (worst.contains(look.from) || worst.contains(receiver(look))) continue;
    bad += look.bad;
    hard += look.hard;
    ++all;
  }
  if (all <= 0) return;
  healthy_bad_ = std::max(kHealthyBad, 2 * bad / all);
  for (const Chance& chance : chances_) healthy_bad_ = std::max(healthy_bad_, chance.alone);
  healthy_hard_ = std::max(kHealthyHard, 2 * hard / all);
}

std::vector<Subject> Watcher::subjects() const {
  std::map<std::tuple<CausePlace, int, int>, std::vector<int>> all;
  const auto places_of = [&](const TimedLook& look) {
    std::vector<std::tuple<CausePlace, int, int>> places{{CausePlace::kPath, look.from, look.to}};
    if (shape_.hosts > 2)
      places.insert(places.end(), {{CausePlace::kTransmit, look.from, -1},
                                   {CausePlace::kReceive, look.to, -1},
                                   {CausePlace::kPort, look.from, -1},
                                   {CausePlace::kPort, look.to, -1}});
    return places;
  };
  for (const TimedLook& look : looks_)
    if (look.bad)
      for (const auto& place : places_of(look)) all[place];
  if (all.empty()) return {};
  std::vector<char> hit(static_cast<std::size_t>(shape_.ports()), 0);
  for (const TimedLook& look : looks_)
    if (look.bad)
      hit[static_cast<std::size_t>(look.from)] = hit[static_cast<std::size_t>(look.to)] = 1;
  for (int l = 0; l < static_cast<int>(looks_.size()); ++l) {
    const auto from = static_cast<std::size_t>(at(l).from), to = static_cast<std::size_t>(at(l).to);
    if (!hit[from] && !hit[to]) continue;
    for (const auto& place : places_of(at(l)))
      if (const auto found = all.find(place); found != all.end()) found->second.push_back(l);
  }
  std::vector<Subject> subjects;
  for (auto& [place, looks] : all)
    subjects.push_back({std::get<0>(place), std::get<1>(place), std::get<2>(place), looks});
  return subjects;
}

// Returns whether bad and good samples differ clearly, or are two halves of one distribution.
bool Watcher::is_apart(const std::vector<int>& looks) const {
  std::vector<double> bad, good;
  for (const int l : looks) {
    if (at(l).hard) return true;
    (at(l).bad ? bad : good).push_back(at(l).level);
  }
  return good.empty() || quantile(bad, 0.5) - quantile(good, 0.5) >= bad_level_;
}

// An end must be bad with several partners, on paths that were good at other times. A port must
// also be bad more than once in each direction.
bool Watcher::may_be_intermittent(const Subject& subject, const std::vector<int>& looks) const {
  std::map<std::pair<int, int>, std::pair<int, int>> paths;  // bad, good
  int sent = 0, received = 0;                                // bad
  for (const int l : looks) {
    (at(l).from == subject.port ? sent : received) += at(l).bad;
    auto& [bad_looks, good_looks] = paths[{at(l).from, at(l).to}];
    bad_looks += at(l).bad;
    good_looks += !at(l).bad || at(l).still;
  }
  const auto hit = [](const auto& p) { return p.second.first > 0; };
  const auto mixed = [](const auto& p) { return p.second.first > 0 && p.second.second > 0; };
  if (subject.place == CausePlace::kPath) return std::ranges::any_of(paths, mixed);
  if (subject.place == CausePlace::kPort && std::min(sent, received) < 2) return false;
  return std::ranges::count_if(paths, hit) >= 2 && std::ranges::count_if(paths, mixed) >= 2;
}

Decision Watcher::judge(const Subject& subject, const std::vector<char>& covered) const {
  const double name_at = std::log((1 - kMissed) * places_ / kFalseName);
  const double clear_at = std::log(kMissed);
  Decision decision;
  bool selected = false, reached = false;
  bool before[2] = {false, false};  // of a port, by direction
  std::vector<int> looks;
  for (const int l : subject.looks) {
    const TimedLook& look = at(l);
    if (covered[static_cast<std::size_t>(l)]) continue;
    looks.push_back(l);
    const bool again = std::exchange(before[look.from == subject.port], look.bad) && !look.still;
    if (!selected) {
      selected = look.bad;
      decision.llr = 0;
      continue;
    }
    const double healthy = look.hard ? healthy_hard_ : healthy_bad_;
    const double share = std::max(kShareToSee, 4 * healthy);
    if (!look.bad)
      decision.llr += std::log((1 - share) / (1 - healthy_bad_));
    else if (!again)
      decision.llr += std::log(share / healthy);
    reached = reached || decision.llr >= name_at;
    if (!reached && decision.llr <= clear_at) selected = false;  // until the next bad sample
  }
  if (!selected || !is_apart(looks)) return decision;
  const bool named = reached && may_be_intermittent(subject, looks);
  decision.state = named ? Decision::kNamed : Decision::kOpen;
  tell(subject, looks, decision.told);
  decision.told.named = named;
  decision.told.chance = std::min(1.0, places_ * std::exp(-decision.llr));
  return decision;
}

void Watcher::tell(const Subject& subject, const std::vector<int>& looks,
                   Intermittent& told) const {
  told.place = subject.place;
  told.port = shape_.port(subject.port);
  if (subject.peer >= 0) told.peer = shape_.port(subject.peer);
  std::vector<double> baseline, bad, lost;
  int runs = 0, all_runs = 0;
  bool selected = false, before = false;
  for (const int l : looks) {
    const TimedLook& look = at(l);
    (look.bad ? bad : baseline).push_back(look.gbps);
    if (look.bad) lost.push_back(look.lost);
    told.flows.emplace_back(*look.flow, look.bad);
    all_runs += look.bad && !before;
    if (selected) {
      ++told.looks;
      told.bad += look.bad;
      runs += look.bad && !before;
    }
    before = look.bad;
    selected = selected || look.bad;
  }
  // Samples of one spell are correlated, so each spell counts once.
  const double run = runs > 0 ? std::max(1.0, static_cast<double>(told.bad) / runs) : 1;
  const Interval interval = wilson(told.bad / run, told.looks / run, thresholds_.confidence);
  told.share = told.looks > 0 ? static_cast<double>(told.bad) / told.looks : 0;
  told.low = interval.low;
  told.high = interval.high;
  if (!baseline.empty()) told.baseline_gbps = quantile(baseline, 0.5);
  if (!bad.empty()) {
    told.bad_gbps = quantile(bad, 0.5);
    told.lost = quantile(lost, 0.5);
    told.least_lost = std::ranges::min(lost);
    told.most_lost = std::ranges::max(lost);
  }
  const double span_s = at(looks.back()).at_s - at(looks.front()).at_s;
  if (all_runs >= 3 && span_s > 0) {
    told.period_s = span_s / all_runs;
    told.spell_s = told.share * told.period_s;
  }
}

std::vector<Intermittent> Watcher::run() {
  const std::vector<Subject> all = subjects();
  std::vector<char> covered(looks_.size(), 0);
  std::vector<Intermittent> named, open;
  for (;;) {
    open.clear();
    double most = 0;
    const Subject* best = nullptr;
    Intermittent told;
    for (const Subject& subject : all) {
      const Decision decision = judge(subject, covered);
      if (decision.state == Decision::kOpen) open.push_back(decision.told);
      if (decision.state != Decision::kNamed || decision.llr <= most) continue;
      most = decision.llr;
      best = &subject;
      told = decision.told;
    }
    if (!best) break;
    named.push_back(std::move(told));
    for (const int l : best->looks) covered[static_cast<std::size_t>(l)] = 1;
  }
  std::ranges::stable_sort(open, {}, &Intermittent::chance);
  std::ranges::move(open, std::back_inserter(named));
  return named;
}

}  // namespace

std::vector<Intermittent> find_intermittent(const std::vector<FleetHost>& hosts,
                                            const Samples& samples, const Thresholds& thresholds,
                                            const Ignored& ignored) {
  return Watcher(hosts, samples, thresholds, ignored).run();
}

}  // namespace weft::fabric
