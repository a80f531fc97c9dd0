// Computes the lower bound for all algorithms, and selects an algorithm by its prediction.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "coll/engine/outline.h"
#include "coll/schedule/rail_contract.h"
#include "coll/select/cost.h"
#include "coll/select/play.h"

namespace weft {
namespace {

constexpr double kAsGoodOversubscribed = 1.10;
// For messages of at least kLargeBytes, pick() prefers a rail-aware algorithm if its predicted time
// is at most kAsGoodOnRails times the shortest: other jobs share the spine.
constexpr std::size_t kLargeBytes = std::size_t{1} << 20;
constexpr double kAsGoodOnRails = 1.05;
constexpr std::size_t kElement = 4;  // element size; it does not affect the selection
// An algorithm whose floor exceeds this times the best is not simulated.
constexpr double kHopeless = 2;

}  // namespace

namespace {

// The shape in which each leaf is merged into one host.
Shape leaves_as_hosts(const Shape& shape) {
  Shape leaves = shape;
  leaves.leaf.clear();
  leaves.slow_ports.clear();
  leaves.hosts.clear();
  std::map<int, std::vector<Rank>> ranks;
  for (std::size_t h = 0; h < shape.leaf.size(); ++h)
    ranks[shape.leaf[h]].insert(ranks[shape.leaf[h]].end(), shape.hosts[h].begin(),
                                shape.hosts[h].end());
  for (auto& [leaf, here] : ranks) leaves.hosts.push_back(std::move(here));
  return leaves;
}

}  // namespace

double least_between_leaves(Collective collective, const Shape& shape, std::size_t bytes) {
  const Shape leaves = leaves_as_hosts(shape);
  if (leaves.hosts.size() < 2 || collective == Collective::kBarrier) return 0;
  double message = 0;  // in messages
  for (const auto& ranks : leaves.hosts) {
    const double here = static_cast<double>(ranks.size()) / shape.nranks;
    const bool home = std::ranges::count(ranks, shape.root) > 0;
    if (collective == Collective::kAllReduce)
      message += 2;
    else if (collective == Collective::kGather || collective == Collective::kScatter)
      message += home ? 0 : here;
    else if (collective == Collective::kAllToAll)
      message += static_cast<double>(ranks.size()) * (1 - here);
    else
      message += by_blocks(collective) ? 1 - here : home ? 0 : 1;
  }
  if (collective == Collective::kAllReduce) message -= 2;
  return message * static_cast<double>(bytes);
}

double lower_bound_us(Collective collective, const Shape& shape, std::size_t bytes,
                      const CostModel& model) {
  const int n = shape.nranks;
  if (n < 2 || collective == Collective::kBarrier) return 0;
  const auto size = static_cast<double>(bytes);
  if (shape.hosts.size() < 2) {
    // Each rank reads its own block in place, concurrently with the others.
    if (collective == Collective::kScatter)
      return size / n * std::max(model.host.us_per_byte, (n - 1) * model.memory_us_per_byte);
    const double per_byte = std::max(model.host.us_per_byte, n * model.memory_us_per_byte);
    const double share = collective == Collective::kAllReduce || by_blocks(collective)
                             ? static_cast<double>(n - 1) / n
                             : 1;
    return (collective == Collective::kAllReduce ? 2 : 1) * share * size * per_byte;
  }
  const bool one_end = collective == Collective::kGather || collective == Collective::kScatter;
  double most = 0, rails = 0;  // largest share of the message per rail; rails of all hosts
  for (std::size_t h = 0; h < shape.hosts.size(); ++h) {
    const auto& ranks = shape.hosts[h];
    const auto here = static_cast<double>(ranks.size());
    const double rail = model.rails_per_host > 0 ? model.rails_per_host : here;
    double own = rail;
    for (const SlowPort& p : shape.slow_ports)
      if (p.host == static_cast<int>(h)) own -= (1 - p.rate) * rail / here;
    double share = 1;
    if (by_blocks(collective)) share = (n - here) / n;
    // The root's host exchanges the blocks of all other hosts; every other host exchanges only its
    // own.
    if (one_end && std::ranges::count(ranks, shape.root) == 0) share = here / n;
    // Every rank of a host has its own blocks.
    if (collective == Collective::kAllToAll) share *= here;
    most = std::max(most, share / own);
    rails += own;
  }
  // No host sends or receives less than the message, and all hosts together send 2 (H - 1)
  // messages.
  if (collective == Collective::kAllReduce)
    most = std::max(most, 2.0 * static_cast<double>(shape.hosts.size() - 1) / rails);
  double us = most * size * model.rail.us_per_byte;
  if (model.uplink_us_per_byte > 0 && !shape.leaf.empty()) {
    const Shape leaves = leaves_as_hosts(shape);
    CostModel uplinks = model;
    uplinks.rail.us_per_byte = model.uplink_us_per_byte;
    if (uplinks.rails_per_host == 0)
      uplinks.rails_per_host = static_cast<int>(shape.hosts[0].size());
    if (leaves.hosts.size() > 1)
      us = std::max(us, lower_bound_us(collective, leaves, bytes, uplinks));
  }
  return us;
}

namespace {

// The minimum core time with host_ports: an average rank of a reduction reduces (n-1)/n of the
// message; it gets the rest of its result by copying within the host, over rails, or by reducing
// again. The rails may be too slow for the variant with the least core time, so the bound is the
// best mixture of the variants. `rail_us`: the minimum time of the rails. `per_rail`: number of
// ranks that share a rail.
double core_bound_us(Collective c, int n, double bytes, const CostModel& m, double per_rail,
                     double rail_us) {
  const double part = bytes * (n - 1) / n;
  const double reduced = reduces(c) ? part : 0;
  const bool of_root = c == Collective::kGather;  // otherwise the time of an average rank
  const double got = c == Collective::kReduceScatter                         ? 0
                     : c == Collective::kScatter || c == Collective::kReduce ? part / n
                                                                             : part;
  const double over_rails = rail_us > 0 ? m.rail_copy_us_per_byte : m.host_copy_us_per_byte;
  double at_home = m.host_copy_us_per_byte;
  if (reduces(c)) at_home = std::min(at_home, m.reduce_us_per_byte);
  const double base_us = reduced * m.reduce_us_per_byte;
  if (rail_us <= 0 || over_rails >= at_home) return base_us + got * at_home;
  // Bytes over rails replace results only, not the sums that a host must still compute.
  const double sums_us = c == Collective::kAllReduce ? rail_us / 2 : 0;
  const auto us = [&](double remote) {
    const double rails = sums_us + remote * (of_root ? 1 : per_rail) * m.rail.us_per_byte;
    return std::max(rails, base_us + remote * over_rails + (got - remote) * at_home);
  };
  // Limits of the bytes over rails: more bytes mean less core work and more rail time.
  double least = 0, most = got;
  constexpr int kHalvings = 50;
  for (int i = 0; i < kHalvings; ++i) {
    const double a = least + (most - least) / 3, b = most - (most - least) / 3;
    if (us(a) < us(b))
      most = b;
    else
      least = a;
  }
  return us((least + most) / 2);
}

}  // namespace

Bound bound_of(Collective collective, const Shape& shape, std::size_t bytes,
               const CostModel& model) {
  const int n = shape.nranks;
  if (n < 2) return {};
  const bool hosts = shape.hosts.size() > 1;
  // The time of one message: the work of a core at each end, and the latency.
  const auto message_us = [&](const LinkCost& link) {
    return link.alpha_us + (model.host_ports ? 2 * (model.step_us + link.step_us) : 0);
  };
  Bound bound{message_us(hosts ? model.rail : model.host), "latency"};
  if (collective == Collective::kBarrier || bytes == 0) return bound;
  const double others = static_cast<double>(n - 1) / n;
  // The bound of the rank that must receive or send the most bytes.
  const double share = collective == Collective::kAllReduce ? 2 * others
                       : by_blocks(collective)              ? others
                       : collective == Collective::kGather  ? others
                       : collective == Collective::kScatter ? (model.host_ports ? others : 1.0 / n)
                                                            : 1;
  const double own = share * static_cast<double>(bytes);
  double local = n;  // ranks on the root's host
  for (const auto& ranks : shape.hosts)
    if (hosts && std::ranges::count(ranks, shape.root) > 0)
      local = static_cast<double>(ranks.size());
  const double rails =
      model.rails_per_host > 0 ? std::min<double>(model.rails_per_host, local) : local;
  const auto rate = [](double us_per_byte) {
    return us_per_byte > 0 ? 1 / us_per_byte : std::numeric_limits<double>::infinity();
  };
  // The only rank of a host uses only its rail.
  const double near = local > 1 ? rate(model.host.us_per_byte) : 0;
  const double far = hosts ? rate(model.rail.us_per_byte) * rails / local : 0;
  const double rail_us = hosts ? lower_bound_us(collective, shape, bytes, model) : 0;
  const double host_us = own / (near + far);
  const bool one_end = collective == Collective::kGather || collective == Collective::kScatter ||
                       collective == Collective::kReduce;
  const double memory_us = own * model.memory_us_per_byte * (one_end ? 1 : local);
  const double core_us = model.host_ports ? core_bound_us(collective, n, static_cast<double>(bytes),
                                                          model, local / rails, rail_us)
                                          : 0;
  // A rank can process a message from its own host before the first message arrives along a rail.
  const double first_us = local > 1 ? std::min(bound.us, message_us(model.host)) : bound.us;
  for (const auto& [us, first, what] : {std::tuple{rail_us, bound.us, "rail"},
                                        {host_us, first_us, "host"},
                                        {core_us, first_us, "core"},
                                        {memory_us, first_us, "memory"}}) {
    if (first + us <= bound.us) continue;
    bound.us = first + us;
    bound.limiting = us > first ? what : "latency";
  }
  return bound;
}

std::vector<Rated> rate(Collective collective, const Shape& shape, std::size_t bytes,
                        const CostModel& model) {
  std::vector<Rated> all;
  // Considers only rail-aware algorithms, if there are any.
  for (const bool keeping : {true, false}) {
    for (const Algorithm& a : algorithms())
      if (a.collective == collective && a.applies(shape) && (!keeping || !find_breach(a, shape)))
        all.emplace_back(Rated{&a, {}}).prediction.time_us = floor_us(a, shape, bytes, model);
    if (!all.empty()) break;
  }
  std::vector<Rated*> by_floor;
  for (Rated& r : all) by_floor.push_back(&r);
  std::ranges::stable_sort(by_floor, {}, [](const Rated* r) { return r->prediction.time_us; });
  double best = std::numeric_limits<double>::infinity();
  for (Rated* r : by_floor) {
    const double floor = r->prediction.time_us;
    if (floor > kHopeless * best) continue;
    // Simulating long schedules is slow: with many ranks, only algorithms that can be the fastest
    // are simulated.
    if (shape.nranks > kManyRanks && floor >= best) {
      r->prediction.time_us = std::max(floor, kAsGood * best + 1e-3);
      continue;
    }
    r->prediction = predict(*r->algorithm, shape, bytes, kElement, model);
    r->prediction.time_us = std::max(r->prediction.time_us, floor);
    best = std::min(best, r->prediction.time_us);
  }
  return all;
}

namespace {

// Whether the algorithm sends between rails, according to the first and the last rank.
bool leaves_rails(const Algorithm& algorithm, const Shape& any, const CostModel& model) {
  Shape shape = any;
  if (shape.rail.empty()) {
    shape.rail.assign(static_cast<std::size_t>(shape.nranks), 0);
    for (const auto& ranks : shape.hosts) {
      const std::size_t rails =
          model.rails_per_host > 0 ? static_cast<std::size_t>(model.rails_per_host) : ranks.size();
      for (std::size_t l = 0; l < ranks.size(); ++l)
        shape.rail[static_cast<std::size_t>(ranks[l])] =
            Ports::by_index(static_cast<int>(l), static_cast<int>(ranks.size()),
                            static_cast<int>(rails), uniform_hosts(shape));
    }
  }
  for (const Rank r : {shape.hosts.front().front(), shape.hosts.back().back()}) {
    shape.rank = r;
    if (find_breach(algorithm.build(shape), shape)) return true;
  }
  return false;
}

// The fastest rail-aware algorithm whose time is at most kAsGoodOnRails times the best time;
// nullptr if there is none. Simulates the algorithms that have not been simulated yet.
const Rated* on_rails(std::vector<Rated>& all, const Shape& shape, std::size_t bytes,
                      const CostModel& model, double best_us) {
  const Rated* found = nullptr;
  for (Rated& r : all) {
    const double most = found ? found->prediction.time_us : kAsGoodOnRails * best_us;
    if (r.prediction.time_us > most || leaves_rails(*r.algorithm, shape, model)) continue;
    if (r.prediction.limiting.empty())
      r.prediction = predict(*r.algorithm, shape, bytes, kElement, model);
    if (r.prediction.time_us <= most) found = &r;
  }
  return found;
}

}  // namespace

Pick pick(std::vector<Rated> all, const Shape& any, std::size_t bytes, const CostModel& model) {
  if (all.empty()) return {};
  const Prediction best = std::ranges::min_element(all, {}, [](const Rated& r) {
                            return r.prediction.time_us;
                          })->prediction;
  const bool oversubscribed =
      model.oversubscription > 1 && best.limiting == "latency" && best.work_us > 0;
  const bool slow = !any.slow_ports.empty();
  const double good_us = best.time_us * (oversubscribed ? kAsGoodOversubscribed
                                         : slow         ? kAsGoodWithSlow
                                                        : kAsGood);
  Pick pick;
  Shape shape = any;
  const auto hops = [&shape](const Algorithm& a) {
    const auto build = [&](Rank r) {
      shape.rank = r;
      return a.build(shape);
    };
    return outline_of(a.collective, shape, false, build).rail_hops;
  };
  std::uint64_t picked = 0;
  for (const Rated& c : all) {
    if (c.prediction.time_us > good_us) continue;
    if (pick.algorithm && (oversubscribed ? c.prediction.work_us >= pick.prediction.work_us
                                          : !slow || hops(*c.algorithm) >= hops(*pick.algorithm)))
      continue;
    pick.algorithm = c.algorithm;
    pick.prediction = c.prediction;
  }
  if (bytes >= kLargeBytes && shape.hosts.size() > 1 && pick.algorithm &&
      leaves_rails(*pick.algorithm, any, model))
    if (const Rated* other = on_rails(all, any, bytes, model, best.time_us)) {
      pick.algorithm = other->algorithm;
      pick.prediction = other->prediction;
    }
  shape.rank = 0;
  if (pick.algorithm) picked = hash(pick.algorithm->build(shape));
  for (const Rated& c : all)
    if ((pick.runner_up == nullptr || c.prediction.time_us < pick.runner_up_prediction.time_us) &&
        hash(c.algorithm->build(shape)) != picked) {
      pick.runner_up = c.algorithm;
      pick.runner_up_prediction = c.prediction;
    }
  return pick;
}

}  // namespace weft
