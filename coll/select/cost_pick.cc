// Computes the bound that no algorithm can beat, and picks an algorithm by its prediction.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "coll/schedule/rail_contract.h"
#include "coll/select/cost.h"

namespace weft {
namespace {

constexpr double kAsGood = 1.01;  // predictions closer than this are equal
constexpr double kAsGoodOversubscribed = 1.10;
constexpr double kHopeless = 2;  // an algorithm that takes as many times the best is not played

}  // namespace

double lower_bound_us(Collective collective, const Shape& shape, std::size_t bytes,
                      const CostModel& model) {
  const int n = shape.nranks;
  if (n < 2 || collective == Collective::kBarrier) return 0;
  const auto size = static_cast<double>(bytes);
  if (shape.hosts.size() < 2) {
    // Each rank reads its own block where that lies, all at once.
    if (collective == Collective::kScatter)
      return size / n * std::max(model.host.us_per_byte, (n - 1) * model.memory_us_per_byte);
    const double per_byte = std::max(model.host.us_per_byte, n * model.memory_us_per_byte);
    const double share = collective == Collective::kAllReduce || by_blocks(collective)
                             ? static_cast<double>(n - 1) / n
                             : 1;
    return (collective == Collective::kAllReduce ? 2 : 1) * share * size * per_byte;
  }
  const bool one_end = collective == Collective::kGather || collective == Collective::kScatter;
  double most = 0, rails = 0;  // of the message through a rail; of all hosts
  for (const auto& ranks : shape.hosts) {
    const auto here = static_cast<double>(ranks.size());
    const double own = model.rails_per_host > 0 ? model.rails_per_host : here;
    double share = 1;
    if (by_blocks(collective)) share = (n - here) / n;
    // From or to the root's host pass the blocks that are not there, at another host its own.
    if (one_end && std::ranges::count(ranks, shape.root) == 0) share = here / n;
    // A host's ranks have their own blocks.
    if (collective == Collective::kAllToAll) share *= here;
    most = std::max(most, share / own);
    rails += own;
  }
  // No host sends or receives less than the message, and all together 2 (H - 1) of them.
  if (collective == Collective::kAllReduce)
    most = std::max(most, 2.0 * static_cast<double>(shape.hosts.size() - 1) / rails);
  return most * size * model.rail.us_per_byte;
}

Bound bound_of(Collective collective, const Shape& shape, std::size_t bytes,
               const CostModel& model) {
  const int n = shape.nranks;
  if (n < 2) return {};
  const bool hosts = shape.hosts.size() > 1;
  Bound bound{(hosts ? model.rail : model.host).alpha_us, "latency"};
  if (collective == Collective::kBarrier || bytes == 0) return bound;
  const double others = static_cast<double>(n - 1) / n;
  // Of a rank that gets or sends the most that some rank must.
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
  // A rank that is alone on its host has its rail only.
  const double near = local > 1 ? rate(model.host.us_per_byte) : 0;
  const double far = hosts ? rate(model.rail.us_per_byte) * rails / local : 0;
  const double rail_us = hosts ? lower_bound_us(collective, shape, bytes, model) : 0;
  const double host_us = own / (near + far);
  const bool one_end = collective == Collective::kGather || collective == Collective::kScatter ||
                       collective == Collective::kReduce;
  const double memory_us = own * model.memory_us_per_byte * (one_end ? 1 : local);
  const double most = std::max({rail_us, host_us, memory_us});
  if (most > bound.us)
    bound.limiting = most == rail_us ? "rail" : most == host_us ? "host" : "memory";
  bound.us += most;
  return bound;
}

std::vector<Rated> rate(Collective collective, const Shape& shape, std::size_t bytes,
                        const CostModel& model) {
  constexpr std::size_t kElement = 4;  // the size of an element matters to no pick
  std::vector<Rated> all;
  // Those that keep to their rails only, where there are any.
  for (const bool keeping : {true, false}) {
    for (const Algorithm& a : algorithms())
      if (a.collective == collective && a.applies(shape) &&
          (!keeping || seems_to_keep_rails(a, shape)))
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
    // Playing long schedules takes long: of many ranks, only those that can still be the fastest.
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

Pick pick(std::vector<Rated> all, const Shape& any, const CostModel& model) {
  if (all.empty()) return {};
  const Prediction best = std::ranges::min_element(all, {}, [](const Rated& r) {
                            return r.prediction.time_us;
                          })->prediction;
  const bool oversubscribed =
      model.oversubscription > 1 && best.limiting == "latency" && best.work_us > 0;
  const double good_us = best.time_us * (oversubscribed ? kAsGoodOversubscribed : kAsGood);
  Pick pick;
  Shape shape = any;
  shape.rank = 0;
  std::uint64_t picked = 0;
  for (const Rated& c : all) {
    if (c.prediction.time_us > good_us) continue;
    if (pick.algorithm && (!oversubscribed || c.prediction.work_us >= pick.prediction.work_us))
      continue;
    pick.algorithm = c.algorithm;
    pick.prediction = c.prediction;
  }
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
