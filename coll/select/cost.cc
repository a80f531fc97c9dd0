// Simulates schedules on the links of a cost model to predict their time. slicing.cc cuts the call
// into rounds, and cost_pick.cc selects the algorithm of `auto`.
#include "coll/select/cost.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>

#include "coll/engine/plan.h"
#include "coll/schedule/building_blocks.h"
#include "coll/select/play.h"
#include "coll/select/slicing.h"

namespace weft {
namespace {

// Maximum number of steps in total for which all ranks are simulated; above it, the ranks of one
// host, or of the first and the last host, or one rank of each of these two, are simulated. All
// ranks of a broadcast are simulated (up to 100,000 ranks), since they differ and have few steps
// each. An all_to_all of many ranks exceeds the limit, but its ranks are alike.
constexpr std::size_t kAllRanksSteps = 8192;
constexpr std::size_t kBroadcastSteps = 200'000;
constexpr std::size_t kRootedSteps = 32768;  // of a rooted collective over more than kFewHosts
constexpr int kSomeRanks = 16;
constexpr std::size_t kFewHosts = 8;  // see predict_by_fewer()
constexpr std::size_t kMostSlow = 4;  // maximum number of hosts with slow ports that are simulated
// Maximum of steps of one round times simulated rounds.
constexpr double kPlayedSteps = 16384;
// Up to this many steps, more rounds are simulated than the estimate needs.
constexpr double kCheapSteps = 4096;
// kPlayedSteps above kManyRanks, when one rank of the first and of the last host is simulated.
constexpr double kPlayedStepsOfMany = 4096;

// Bytes of a round within a host, if the model does not set them.
constexpr std::size_t kHostRound = std::size_t{4} << 20;

int useful_rounds(std::size_t bytes, std::size_t element_size, int nchunks, int rounds) {
  const double elements = static_cast<double>(bytes) / static_cast<double>(element_size);
  const double most = std::max(1.0, std::ceil(elements / nchunks));
  return static_cast<int>(std::clamp<double>(rounds, 1.0, most));
}

// Time for which a round occupies the busiest port or rank.
double stage_of(const Play& play) { return std::max(play.rail_us(), play.host_us()); }

// The prediction for `rounds` rounds that follow each other as fast as ports and ranks permit.
Prediction time_of(const Play& play, const Shape& shape, double rounds, const CostModel& model) {
  Prediction p;
  p.alpha_us = play.end().alpha_us;
  p.rail_us = rounds * play.rail_us();
  p.host_us = rounds * play.host_us();
  p.work_us = rounds * play.work_us();
  double first = play.end_us(0), stage = stage_of(play);
  if (model.oversubscription > 1) {
    // The cores share the work outside the longest chain (Graham's bound for list scheduling) while
    // bytes are in flight.
    const double cores = shape.nranks / model.oversubscription;
    first = std::max(first, p.alpha_us + (play.work_us() - p.alpha_us) / cores);
    stage = std::max(stage, play.work_us() / cores);
  }
  p.time_us = std::max(first, stage) + (rounds - 1) * stage;
  p.limiting = "latency";
  if (std::max(p.rail_us, p.host_us) > p.alpha_us)
    p.limiting = p.rail_us > p.host_us ? "rail" : "host";
  return p;
}

}  // namespace

CostModel costs_of(const Machine& m) {
  const auto us_per_byte = [](double gbps) { return 8 / (gbps * 1e3); };
  const auto of_core = [](double GBps) { return GBps > 0 ? 1e-3 / GBps : 0; };
  CostModel c;
  c.host = {m.host.us, us_per_byte(m.host.gbps), 0};
  c.rail = {m.rail.us, us_per_byte(m.rail.gbps * m.payload_share), m.rail_core_us};
  c.step_us = m.core_us;
  c.reduce_us_per_byte = of_core(m.reduce_GBps);
  c.host_ports = m.host_ports;
  if (!m.host_ports) return c;  // cores move all bytes, and no spine is modeled
  c.spine = {m.spine.us, us_per_byte(m.spine_gbps() * m.payload_share), 0};
  c.host_copy_us_per_byte = of_core(m.copy_GBps);
  c.rail_copy_us_per_byte = m.rail_copies ? c.host_copy_us_per_byte : 0;
  c.fan_in_penalty = 0;
  return c;
}

Prediction predict(std::span<const Schedule> some, const Shape& shape, std::size_t bytes,
                   std::size_t element_size, int rounds, const CostModel& model) {
  const int k = useful_rounds(bytes, element_size, some[0].nchunks, rounds);
  Play play(some, shape, static_cast<double>(bytes) / k, model, Order::kOfList);
  play.run();
  return time_of(play, shape, k, model);
}

Prediction predict(const Schedule& own, const Shape& shape, std::size_t bytes,
                   std::size_t element_size, int rounds, const CostModel& model) {
  return predict(std::span(&own, 1), shape, bytes, element_size, rounds, model);
}

namespace {

// Predicts the rounds of a message in the order of the engine: simulates the first rounds and
// extrapolates the others at the rate of the last simulated ones. `chained`: a rank is busy with a
// round for the whole duration of the round. The time is 0 if the simulated ranks deadlock because
// they also wait for ranks that are not simulated.
Prediction predict_as_engine(std::span<const Schedule> some, const Shape& shape, double bytes,
                             const Rounds& rounds, bool chained, const CostModel& model) {
  const int lanes =
      static_cast<int>(std::min<double>(rounds.rounds, rounds.slicing.rounds_in_flight));
  Play play(some, shape, bytes / rounds.rounds, model, Order::kAsEngine);
  const double most_steps = shape.nranks > kManyRanks ? kPlayedStepsOfMany : kPlayedSteps;
  const double room = std::max(1.0, std::floor(most_steps / std::max(1, play.steps())));
  // If rounds follow each other in lanes, and the step limit permits fewer than two rounds per
  // lane, fewer lanes are simulated.
  const bool all = rounds.rounds <= lanes || 2.0 * lanes + 1 <= room;
  const int few = all ? lanes : std::min(lanes, std::max(1, static_cast<int>(room - 1) / 2));
  const double enough = !all && room < 3 ? 1.0 : 2.0 * few + 1;
  const int played = static_cast<int>(
      std::min({rounds.rounds, room, std::max(enough, kCheapSteps / std::max(1, play.steps()))}));
  const double copy_us_per_byte =
      model.host_ports ? model.host_copy_us_per_byte : model.host.us_per_byte;
  play.run(played, few, rounds.copied_first * copy_us_per_byte,
           rounds.copied_last * copy_us_per_byte);
  if (play.stuck()) return {};
  Prediction p = time_of(play, shape, rounds.rounds, model);
  const double stage = stage_of(play);
  double pace = stage;
  // The less rounds delay each other, the more rounds are in flight.
  const auto held_up = [&](double us) {
    pace = std::cbrt(std::pow(stage, 3) + std::pow(us / lanes, 3));
  };
  if (played > few) {
    const int cycle = std::min(few, played - few);
    pace = std::max(pace, (play.end_us(played - 1) - play.end_us(played - 1 - cycle)) / cycle);
    if (few < lanes) held_up(few * std::cbrt(std::pow(pace, 3) - std::pow(stage, 3)));
  } else if (lanes > 0) {
    held_up(chained ? play.end_us(0) : 2 * model.rail.alpha_us + pace);
  }
  const int begun = few < lanes ? 1 : played;  // with more lanes, later rounds end earlier
  p.time_us = std::max(play.end_us(begun - 1), begun * stage) + (rounds.rounds - begun) * pace;
  return p;
}

// The first `count` hosts, starting with the root's.
Shape fewer_hosts(const Shape& shape, int count) {
  Shape few = shape;
  few.hosts.clear();
  few.leaf.clear();
  few.rail.clear();
  few.rank = 0;
  few.nranks = 0;
  const auto home = std::ranges::find_if(
      shape.hosts, [&](const auto& ranks) { return std::ranges::count(ranks, shape.root) > 0; });
  for (int h = 0; h < count; ++h) {
    const auto from = static_cast<std::size_t>(home - shape.hosts.begin() + h);
    auto& here = few.hosts.emplace_back();
    if (!shape.leaf.empty()) few.leaf.push_back(shape.leaf[from % shape.hosts.size()]);
    for (const Rank r : shape.hosts[from % shape.hosts.size()]) {
      if (r == shape.root) few.root = few.nranks;
      if (!shape.rail.empty()) few.rail.push_back(shape.rail[as_index(r)]);
      here.push_back(few.nranks++);
    }
  }
  return few;
}

// Whether the first rank of the first host and that of the last host have different numbers of
// partners.
bool hosts_differ(const Algorithm& algorithm, const Shape& any) {
  Shape shape = any;
  const auto partners = [&](const std::vector<Rank>& host) {
    shape.rank = host[0];
    std::set<Rank> all;
    for (const Step& s : algorithm.build(shape).steps) all.insert(s.peer);
    return all.size();
  };
  return partners(any.hosts.front()) != partners(any.hosts.back());
}

// If ranks have different roles, as in rooted collectives, all ranks must be simulated. With many
// hosts, the time is extrapolated from simulations of 2, 4 and 8 hosts: the time of a chain grows
// by a constant per host, that of a tree by a constant per doubling, and the growth decreases to 0
// if only bytes limit the time.
Prediction predict_by_fewer(const Algorithm& algorithm, const Shape& shape, std::size_t bytes,
                            std::size_t element_size, const CostModel& model) {
  Prediction p;
  double us[3];
  for (int i = 0; i < 3; ++i) {
    p = predict(algorithm, fewer_hosts(shape, 2 << i), bytes, element_size, model);
    us[i] = p.time_us;
  }
  const double before = us[1] - us[0];
  double more = us[2] - us[1];
  if (more <= 0 || before <= 0) return p;
  double growth = more < 0.7 * before ? 0.5 : more < 1.42 * before ? 1 : 2;
  // Slices change with the number of hosts; if the schedule declares its hops, that change is not
  // counted as growth.
  if (const int hops = algorithm.build(shape).rail_hops; hops > 0)
    growth = std::min(growth, hops > 1 ? 1.0 : 0.5);
  for (double hosts = kFewHosts; hosts < static_cast<double>(shape.hosts.size()); hosts *= 2) {
    more *= growth;
    p.time_us += more * std::min(1.0, static_cast<double>(shape.hosts.size()) / hosts - 1);
  }
  // A root that exchanges a message with every rank is limited by the number of messages, which
  // grows faster.
  p.time_us = std::max(p.time_us, floor_us(algorithm, shape, bytes, model));
  return p;
}

}  // namespace

namespace {

// Prediction with slow ports for schedules that send less through them: simulates the slow hosts,
// and the first and the last of the other hosts. The time is 0 if there are too many slow hosts.
Prediction play_slow_ports(const Algorithm& algorithm, Shape shape, std::size_t bytes,
                           const CostModel& model) {
  shape.rank = 0;
  const Cutting cut = cutting_of(algorithm, algorithm.build(shape), shape, bytes, model);
  const std::vector<int> slow = slow_hosts(shape);
  if (slow.empty() || slow.size() > kMostSlow) return {};
  std::set<int> hosts(slow.begin(), slow.end());
  const auto fast = [&](int h) { return std::ranges::count(slow, h) == 0; };
  int first = 0, last = static_cast<int>(shape.hosts.size()) - 1;
  while (!fast(first)) ++first;
  while (!fast(last)) --last;
  hosts.insert({first, last});
  std::vector<Schedule> some;
  for (const int host : hosts)
    for (const Rank r : shape.hosts[as_index(host)]) {
      shape.rank = r;
      some.push_back(algorithm.build(shape));
    }
  return predict_as_engine(some, shape, static_cast<double>(bytes), cut.rounds, true, model);
}

// Prediction with slow ports: by simulation, or from the time with equal ports. In the latter, the
// time of the busiest rail is multiplied by the factor of the slowest port or, if the algorithm
// sends less through slow ports, by the factor of the bound.
Prediction predict_slow_ports(const Algorithm& algorithm, const Shape& shape, std::size_t bytes,
                              std::size_t element_size, const CostModel& model) {
  Shape equal = shape;
  equal.slow_ports.clear();
  equal.rank = 0;
  Shape slow = shape;
  slow.rank = 0;
  const auto bound_us = [&](const Shape& of) {
    return lower_bound_us(algorithm.collective, of, bytes, model);
  };
  const bool less = hash(algorithm.build(slow)) != hash(algorithm.build(equal));
  if (less && as_engine(slow, model))
    if (Prediction p = play_slow_ports(algorithm, slow, bytes, model); p.time_us > 0) {
      p.time_us = std::max(p.time_us, bound_us(slow));
      return p;
    }
  Prediction p = predict(algorithm, equal, bytes, element_size, model);
  double longer = less ? bound_us(slow) / bound_us(equal) : 1;
  if (!less)  // another port carries a dead port's messages as well
    for (const SlowPort& port : shape.slow_ports)
      longer = std::max(longer, port.rate > 0 ? 1 / port.rate : 2);
  p.time_us += (longer - 1) * p.rail_us;
  p.rail_us *= longer;
  return p;
}

// The schedules of all ranks, in messages of one chunk if `split`; none if they have more than
// `most` steps.
std::vector<Schedule> all_schedules(const Algorithm& algorithm, Shape shape, bool split,
                                    std::size_t most) {
  std::vector<Schedule> all;
  std::size_t steps = 0;
  for (shape.rank = 0; shape.rank < shape.nranks; ++shape.rank) {
    std::vector<std::size_t> ends;
    all.push_back(algorithm.build(shape));
    if (split) all.back() = split_chunks(all.back(), ends);
    steps += all.back().steps.size();
    if (steps > most) return {};
  }
  return all;
}

// Simulates all ranks; the time is 0 if they have too many steps.
Prediction play_all(const Algorithm& algorithm, Shape shape, std::size_t bytes,
                    const CostModel& model) {
  const bool tree = rooted(algorithm.collective);  // the ranks of a tree have few steps
  if (shape.nranks > (tree ? 2 * kManyRanks : kManyRanks) || !as_engine(shape, model)) return {};
  shape.rank = outlined_rank(algorithm.collective, shape);
  const Cutting cut = cutting_of(algorithm, algorithm.build(shape), shape, bytes, model);
  const std::vector<Schedule> all =
      all_schedules(algorithm, shape, cut.split, tree ? kRootedSteps : kAllRanksSteps);
  if (all.empty()) return {};
  if (algorithm.collective == Collective::kAllToAll)  // every rank has blocks of its own
    bytes *= static_cast<std::size_t>(shape.nranks);
  return predict_as_engine(all, shape, static_cast<double>(bytes), cut.rounds, !tree, model);
}

Prediction predict_equal_ports(const Algorithm& algorithm, const Shape& any, std::size_t bytes,
                               std::size_t element_size, CostModel model) {
  if (const Prediction p = play_all(algorithm, any, bytes, model); p.time_us > 0) return p;
  if (any.hosts.size() > kFewHosts &&
      (rooted(algorithm.collective) || hosts_differ(algorithm, any)))
    return predict_by_fewer(algorithm, any, bytes, element_size, model);
  Shape shape = any;
  const bool in_rounds = as_engine(shape, model);
  const std::size_t message = bytes;
  if (algorithm.collective == Collective::kAllToAll)  // every rank has blocks of its own
    bytes *= static_cast<std::size_t>(shape.nranks);
  shape.rank = outlined_rank(algorithm.collective, shape);
  Cutting cut;
  if (in_rounds) cut = cutting_of(algorithm, algorithm.build(shape), shape, message, model);
  std::vector<Schedule> some;
  const auto build = [&](Rank r) -> const Schedule& {
    shape.rank = r;
    std::vector<std::size_t> ends;
    some.push_back(algorithm.build(shape));
    if (cut.split) some.back() = split_chunks(some.back(), ends);
    return some.back();
  };
  // The ranks of the first host, or of the root's host, may do more work than the others, which are
  // alike. Data may arrive in the order of its use on the first host, but in a different order on
  // the last.
  const bool broadcast = rooted(algorithm.collective);
  shape.rank = broadcast ? shape.root : 0;
  const Layout layout(shape);
  const Group first = layout.host();
  const auto steps_of = [&] {
    std::size_t steps = 0;
    for (const Schedule& s : some) steps += s.steps.size();
    return steps;
  };
  int each = 1;
  const std::size_t steps = build(first.at(layout.my_local())).steps.size();
  if (first.size() > 1 &&
      (shape.nranks <= kManyRanks || build(first.at(layout.my_local() - 1)).steps.size() != steps))
    each = std::min(first.size(), kSomeRanks);
  some.resize(1);
  for (int i = 1; i < each; ++i) build(first.at(layout.my_local() + i));
  const std::size_t of_all =
      steps_of() / static_cast<std::size_t>(each) * static_cast<std::size_t>(shape.nranks);
  if (of_all <= (broadcast ? kBroadcastSteps : kAllRanksSteps)) {
    some.clear();
    for (Rank r = 0; r < shape.nranks; ++r) build(r);
  } else if (in_rounds && layout.nhosts() > 1) {
    if (2 * steps_of() > kAllRanksSteps) {
      some.resize(1);
      each = 1;
    }
    const auto& last = layout.hosts().back();
    for (int i = 0; i < std::min(static_cast<int>(last.size()), each); ++i)
      build(last[static_cast<std::size_t>(i)]);
  }
  model.uplink_us_per_byte *= uplinks_by_played(algorithm, any, some, model);
  if (in_rounds) {
    const auto play = [&] {
      return predict_as_engine(some, shape, static_cast<double>(bytes), cut.rounds, !broadcast,
                               model);
    };
    Prediction p = play();
    if (p.time_us > 0 || shape.nranks == static_cast<int>(some.size())) return p;
    if (any.hosts.size() > kFewHosts)
      return predict_by_fewer(algorithm, any, message, element_size, model);
    if (of_all > kBroadcastSteps) return p;
    some.clear();
    for (Rank r = 0; r < shape.nranks; ++r) build(r);
    return play();
  }
  const std::size_t round = model.round_bytes ? model.round_bytes : kHostRound;
  const int rounds =
      static_cast<int>(std::min<std::size_t>((message + round - 1) / round, 1 << 20));
  return predict(some, shape, bytes, element_size, rounds, model);
}

}  // namespace

Prediction predict(const Algorithm& algorithm, const Shape& shape, std::size_t bytes,
                   std::size_t element_size, const CostModel& model) {
  if (!shape.slow_ports.empty() && shape.hosts.size() > 1)
    return predict_slow_ports(algorithm, shape, bytes, element_size, model);
  Prediction p = predict_equal_ports(algorithm, shape, bytes, element_size, model);
  wait_for_uplinks(p, algorithm, shape, bytes, model);
  return p;
}

}  // namespace weft
