// Stages of rounds, in the order of their information per second. First fits as many rounds as
// possible at their shortest useful length, then lengthens all of them within the budget.
#include "perf/validate/probes/plan.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <set>
#include <tuple>

#include "perf/validate/probes/matchings.h"
#include "perf/validate/probes/statistics.h"

namespace weft::fabric {
namespace {

constexpr double kRoundOverhead_s = 0.03;  // time to start a round and gather its samples
constexpr int kRandomMatchings = 5;        // after the XOR cover
constexpr int kIncastSenders = 8;
constexpr int kAllToAllPeers = 8;    // flows per port; more flows add no information
constexpr int kReachAll = 32;        // up to this many hosts, kReach tries every path
constexpr int kReachAllByTurns = 6;  // likewise if flows cannot run concurrently
constexpr int kLabels = 8;
// Rate samples of each port and direction, spread over the run to catch intermittent faults: 29
// samples hit a fault that is active 10 % of the time with a probability of 95 % (0.9^29 = 0.047).
constexpr int kLooks = 29;
constexpr double kLooksShare = 0.17;  // maximum fraction of the budget
constexpr int kMostLooks = 60'000;    // over all ports: rank 0 evaluates them after every round

// Rounds that belong together, such as both directions of a matching.
using Piece = std::vector<Round>;

struct Stage {
  Probe probe;
  double least_s, most_s;  // minimum and maximum duration of a round
  std::vector<Piece> pieces;
  int least_pieces = 1;  // fewer are meaningless
  bool spread = false;   // over the whole run, between the pieces of other stages
};

class Planner {
 public:
  Planner(const std::vector<FleetHost>& hosts, int most_flows, const PlanOptions& options)
      : hosts_(hosts), n_(static_cast<int>(hosts.size())), most_(most_flows), options_(options) {
    for (const FleetHost& host : hosts)
      rails_ = std::max(rails_, static_cast<int>(host.ports.size()));
    random_.seed(options.seed);
    // A ping uses a core at each end: if hosts share cores, too many pings would wait for a core.
    for (const FleetHost& host : hosts)
      if (host.emulated) most_pings_ = std::max(1, host.cores / 2);
  }

  std::vector<Stage> stages();
  Piece soak_rounds();

 private:
  bool has(int host, int rail) const {
    const std::vector<PortInfo>& ports = hosts_[static_cast<std::size_t>(host)].ports;
    return rail < static_cast<int>(ports.size()) && ports[static_cast<std::size_t>(rail)].usable;
  }
  bool fits(std::size_t flows) const {
    return most_ <= 0 || flows <= static_cast<std::size_t>(most_);
  }
  void add(std::vector<Flow>& flows, Port from, Port to, double pace = 1) const {
    if (has(from.host, from.rail) && has(to.host, to.rail)) flows.push_back({from, to, pace});
  }
  // Appends the flows in rounds of at most most_flows.
  void append(Piece& piece, Probe probe, const std::vector<Flow>& flows) const {
    const int limit = probe == Probe::kLatency && most_pings_ > 0 ? most_pings_ : most_;
    const std::size_t most = limit > 0 ? static_cast<std::size_t>(limit) : flows.size();
    for (std::size_t at = 0; at < flows.size(); at += most) {
      const auto first = flows.begin() + static_cast<std::ptrdiff_t>(at);
      const auto end = first + static_cast<std::ptrdiff_t>(std::min(most, flows.size() - at));
      piece.push_back({probe, {first, end}});
    }
  }
  Piece matched(Probe probe, const Matching& matching, bool both_ways, double pace = 1) const {
    Piece piece;
    for (int way = 0; way < (both_ways ? 2 : 1); ++way) {
      std::vector<Flow> flows;
      for (const auto& [a, b] : matching)
        for (int rail = 0; rail < rails_; ++rail)
          way == 0 ? add(flows, {a, rail}, {b, rail}, pace)
                   : add(flows, {b, rail}, {a, rail}, pace);
      append(piece, probe, flows);
    }
    return piece;
  }
  Matching one_matching() {
    const std::vector<Matching> one = random_matchings(n_, 1, random_);
    return one.empty() ? Matching{} : one.front();
  }
  std::vector<int> shuffled() {
    std::vector<int> order(static_cast<std::size_t>(n_));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    return order;
  }
  // Adds many-to-one flows over the hosts order[first...], at most `senders` per target.
  void add_incasts(std::vector<Flow>& flows, const std::vector<int>& order, std::size_t first,
                   int senders, int rail) const {
    const std::size_t group = static_cast<std::size_t>(senders) + 1;
    for (std::size_t at = first; at + 2 < order.size(); at += group)
      for (std::size_t i = at + 1; i < std::min(at + group, order.size()); ++i)
        add(flows, {order[i], rail}, {order[at], rail});
  }

  Stage rate();
  Stage looks(std::size_t others);
  Stage incast();
  Stage victim();
  Stage across_rails(Probe probe);
  Stage bisection();
  Stage all_to_all();
  Stage entropy();

  const std::vector<FleetHost>& hosts_;
  int n_, rails_ = 0, most_, most_pings_ = 0;  // 0: no limit
  const PlanOptions& options_;
  std::mt19937_64 random_;
};

Stage Planner::rate() {
  Stage stage{Probe::kRate, 0.1, 0.2, {}};
  std::vector<Matching> cover = xor_cover(n_);
  const int every = all_pairs_rounds(n_), flows = std::max(1, n_ / 2 * rails_);
  const double rounds = 2.0 * every * (most_ > 0 ? (flows + most_ - 1) / most_ : 1);
  const bool few = every <= static_cast<int>(cover.size()) + kRandomMatchings &&
                   rounds * (stage.least_s + kRoundOverhead_s) <= 0.6 * options_.budget_s;
  if (options_.all_pairs || few) {
    cover = all_pairs(n_);
  } else {
    for (Matching& matching : random_matchings(n_, kRandomMatchings, random_))
      cover.push_back(std::move(matching));
  }
  for (const Matching& matching : cover)
    stage.pieces.push_back(matched(Probe::kRate, matching, true));
  return stage;
}

// Returns rate rounds in addition to the `others`, cycling through all pairs.
Stage Planner::looks(std::size_t others) {
  Stage stage{Probe::kRate, 0.1, 0.2, {}, 1, true};
  double left_s = kLooksShare * options_.budget_s;
  const auto most =
      static_cast<std::size_t>(std::min(kLooks, kMostLooks / std::max(1, n_ * rails_)));
  while (n_ > 1) {
    for (const Matching& matching : random_matchings(n_, kLooks, random_)) {
      Piece piece = matched(Probe::kRate, matching, true);
      left_s -= static_cast<double>(piece.size()) * (stage.least_s + kRoundOverhead_s);
      if (stage.pieces.size() + others >= most || left_s < 0 || piece.empty()) return stage;
      stage.pieces.push_back(std::move(piece));
    }
  }
  return stage;
}

// Divides the hosts into groups; every host of a group is the target in turn.
Stage Planner::incast() {
  Stage stage{Probe::kIncast, 0.15, 0.3, {}};
  const int senders = std::min(kIncastSenders, most_ > 0 ? std::min(most_, n_ - 1) : n_ - 1);
  if (senders < 2) return stage;
  const std::vector<int> order = shuffled();
  const int groups = std::max(1, std::min((n_ + senders) / (senders + 1), n_ / 3));
  const int turns = (n_ + groups - 1) / groups;
  for (int turn = 0; turn < turns; ++turn) {
    Piece piece{{Probe::kIncast, {}}};
    for (int g = 0; g < groups; ++g)
      for (int rail = 0; rail < rails_; ++rail) {
        std::vector<Flow> flows;
        const int first = g * n_ / groups, size = (g + 1) * n_ / groups - first;
        for (int i = 1; i <= std::min(senders, size - 1); ++i)
          add(flows, {order[static_cast<std::size_t>(first + (turn + i) % size)], rail},
              {order[static_cast<std::size_t>(first + turn % size)], rail});
        if (!fits(piece.back().flows.size() + flows.size())) piece.push_back({Probe::kIncast, {}});
        std::vector<Flow>& into = piece.back().flows;
        into.insert(into.end(), flows.begin(), flows.end());
      }
    stage.pieces.push_back(std::move(piece));
  }
  return stage;
}

Stage Planner::victim() {
  Stage stage{Probe::kVictim, 0.15, 0.3, {}};
  const int room = most_ > 0 ? most_ - 1 : n_ - 3;  // for senders in addition to the victim
  const int senders = std::min({kIncastSenders, room, n_ - 3});
  if (senders < 2) return stage;
  const std::size_t victims = most_ > 0 ? 1 : static_cast<std::size_t>(std::max(1, n_ / 8));
  for (int i = 0; i < 2; ++i) {
    std::vector<Flow> flows;
    for (int rail = 0; rail < (most_ > 0 ? 1 : rails_); ++rail) {
      std::vector<int> order = shuffled();
      for (std::size_t v = 0; v < victims; ++v) {
        add(flows, {order[2 * v], rail}, {order[2 * v + 1], rail});
        if (!flows.empty()) flows.back().victim = true;
      }
      if (most_ > 0) order.resize(2 * victims + static_cast<std::size_t>(senders) + 1);
      add_incasts(flows, order, 2 * victims, senders, rail);
    }
    stage.pieces.push_back({{Probe::kVictim, flows}});
  }
  return stage;
}

Stage Planner::across_rails(Probe probe) {
  Stage stage{probe, 0.1, 0.2, {}};
  if (rails_ < 2) return stage;
  std::vector<Flow> flows;
  if (probe == Probe::kCrossRail) {
    for (const auto& [a, b] : one_matching())
      for (int rail = 0; rail < rails_; ++rail) add(flows, {a, rail}, {b, (rail + 1) % rails_});
  } else {
    for (int host = 0; host < n_; ++host)
      for (int rail = 0; rail < rails_; ++rail)
        add(flows, {host, rail}, {host, (rail + 1) % rails_});
  }
  Piece piece;
  append(piece, probe, flows);
  if (!piece.empty()) stage.pieces.push_back(std::move(piece));
  return stage;
}

Stage Planner::bisection() {
  Stage stage{Probe::kBisection, 0.15, 0.3, {}, 2};
  for (int way = 0; way < 2; ++way) {
    std::vector<Flow> flows;
    for (int i = 0; i < n_ / 2; ++i)
      for (int rail = 0; rail < rails_; ++rail) {
        const Port low{i, rail}, high{i + (n_ + 1) / 2, rail};
        way == 0 ? add(flows, low, high) : add(flows, high, low);
      }
    if (!flows.empty() && fits(flows.size())) stage.pieces.push_back({{Probe::kBisection, flows}});
  }
  return stage;
}

Stage Planner::all_to_all() {
  Stage stage{Probe::kAllToAll, 0.15, 0.3, {}};
  std::vector<int> shifts(static_cast<std::size_t>(std::max(0, n_ - 1)));
  std::iota(shifts.begin(), shifts.end(), 1);
  std::shuffle(shifts.begin(), shifts.end(), random_);
  if (shifts.size() > kAllToAllPeers) shifts.resize(kAllToAllPeers);
  std::vector<Flow> flows;
  for (const int shift : shifts)
    for (int host = 0; host < n_; ++host)
      for (int rail = 0; rail < rails_; ++rail)
        add(flows, {host, rail}, {(host + shift) % n_, rail});
  if (!flows.empty() && fits(flows.size())) stage.pieces.push_back({{Probe::kAllToAll, flows}});
  return stage;
}

Stage Planner::entropy() {
  Stage stage{Probe::kEntropy, 0.05, 0.1, {}, kLabels};
  Matching matching = one_matching();
  if (most_ > 0 && !matching.empty()) matching.resize(1);
  for (int label = 1; label <= kLabels; ++label) {
    Piece piece = matched(Probe::kEntropy, matching, false);
    for (Round& round : piece)
      for (Flow& flow : round.flows) flow.label = label;
    if (!piece.empty()) stage.pieces.push_back(std::move(piece));
  }
  return stage;
}

std::vector<Stage> Planner::stages() {
  Stage reach{Probe::kReach, 0.02, 0.02, {}}, latency{Probe::kLatency, 0.03, 0.06, {}};
  Stage mtu{Probe::kPathMtu, 0.02, 0.02, {}}, low{Probe::kLowLoad, 0.2, 0.3, {}};
  std::vector<Matching> idle = xor_cover(n_);
  for (Matching& matching : random_matchings(n_, 2, random_)) idle.push_back(std::move(matching));
  if (all_pairs_rounds(n_) <= static_cast<int>(idle.size())) idle = all_pairs(n_);
  const int reached = n_ <= (most_ > 0 ? kReachAllByTurns : kReachAll) ? n_ : 3;
  for (const Matching& m : random_matchings(n_, reached, random_))
    reach.pieces.push_back(matched(reach.probe, m, true));
  for (const Matching& m : idle) latency.pieces.push_back(matched(latency.probe, m, false));
  for (const Matching& m : random_matchings(n_, 3, random_))
    mtu.pieces.push_back(matched(mtu.probe, m, true));
  for (const Matching& m : random_matchings(n_, 3, random_))
    low.pieces.push_back(matched(low.probe, m, true, kLowPace));
  const Stage rates = rate();
  return {reach,
          latency,
          rates,
          mtu,
          low,
          incast(),
          victim(),
          across_rails(Probe::kCrossRail),
          across_rails(Probe::kLoopback),
          bisection(),
          all_to_all(),
          entropy(),
          looks(rates.pieces.size())};
}

Piece Planner::soak_rounds() {
  Piece rounds;
  double seconds = 0;
  while (n_ > 1 && seconds < options_.soak_s) {
    for (Round& round : matched(Probe::kRate, one_matching(), true)) {
      round.seconds = std::min(1.0, options_.soak_s);
      seconds += round.seconds + kRoundOverhead_s;
      rounds.push_back(std::move(round));
    }
  }
  return rounds;
}

double shortest(const Stage& stage, const Piece& piece) {
  return static_cast<double>(piece.size()) * (stage.least_s + kRoundOverhead_s);
}

// Drops pieces that exceed the budget, last stages first; returns the remaining time.
double fit_in(std::vector<Stage>& stages, double budget_s, Plan& plan) {
  double left = budget_s;
  for (Stage& stage : stages) {
    std::erase_if(stage.pieces, [](const Piece& piece) {
      return piece.empty() ||
             std::ranges::all_of(piece, [](const Round& r) { return r.flows.empty(); });
    });
    if (stage.pieces.empty() && !stage.spread) plan.not_here.push_back(stage.probe);
    const bool planned = !stage.pieces.empty();
    std::size_t kept = 0;
    double used = 0;
    while (kept < stage.pieces.size() && used + shortest(stage, stage.pieces[kept]) <= left)
      used += shortest(stage, stage.pieces[kept++]);
    if (kept < std::max<std::size_t>(1, static_cast<std::size_t>(stage.least_pieces))) kept = 0;
    if (planned && kept == 0 && !stage.spread) plan.left_out.push_back(stage.probe);
    stage.pieces.resize(kept);
    if (kept > 0) left -= used;
  }
  return left;
}

// Orders the pieces by stage. Distributes the pieces of `spread` stages evenly, but after the
// probes that need an idle network.
std::vector<Piece> in_order(std::vector<Stage>& stages) {
  std::vector<Piece> all, pieces, spread;
  for (Stage& stage : stages) {
    const bool idle = stage.probe == Probe::kReach || stage.probe == Probe::kLatency;
    std::ranges::move(stage.pieces, std::back_inserter(stage.spread ? spread
                                                       : idle       ? all
                                                                    : pieces));
  }
  std::size_t next = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    all.push_back(std::move(pieces[i]));
    for (; next < spread.size() * (i + 1) / pieces.size(); ++next)
      all.push_back(std::move(spread[next]));
  }
  std::move(spread.begin() + static_cast<std::ptrdiff_t>(next), spread.end(),
            std::back_inserter(all));
  return all;
}

// Counts the directed pairs of hosts that the rounds measure, by rail.
void count_paths(Plan& plan, const std::vector<FleetHost>& hosts) {
  std::set<std::tuple<int, int, int>> paths;
  std::size_t rails = 0;
  for (const FleetHost& host : hosts) rails = std::max(rails, host.ports.size());
  for (const Round& round : plan.rounds)
    for (const Flow& flow : round.flows)
      if (round.probe == Probe::kRate) paths.insert({flow.from.rail, flow.from.host, flow.to.host});
  plan.measured_paths.assign(rails, 0);
  for (const auto& [rail, from, to] : paths) ++plan.measured_paths[static_cast<std::size_t>(rail)];
}

}  // namespace

Plan plan_rounds(const std::vector<FleetHost>& hosts, int most_flows, const PlanOptions& options) {
  Planner planner(hosts, most_flows, options);
  std::vector<Stage> stages = planner.stages();
  if (!options.only.empty())
    std::erase_if(stages, [&](const Stage& stage) {
      return std::ranges::find(options.only, stage.probe) == options.only.end();
    });
  Plan plan;
  const double spare = fit_in(stages, options.budget_s, plan);
  double wanted = 0;  // to make every round as long as useful
  for (const Stage& stage : stages)
    for (const Piece& piece : stage.pieces)
      wanted += static_cast<double>(piece.size()) * (stage.most_s - stage.least_s);
  const double stretch = wanted > 0 ? std::clamp(spare / wanted, 0.0, 1.0) : 0;
  for (Stage& stage : stages)
    for (Piece& piece : stage.pieces)
      for (Round& round : piece)
        round.seconds = stage.least_s + stretch * (stage.most_s - stage.least_s);
  std::vector<Piece> pieces = in_order(stages);
  pieces.push_back(planner.soak_rounds());
  for (Piece& piece : pieces)
    for (Round& round : piece) {
      plan.seconds += round.seconds + kRoundOverhead_s;
      plan.rounds.push_back(std::move(round));
    }
  count_paths(plan, hosts);
  return plan;
}

}  // namespace weft::fabric
