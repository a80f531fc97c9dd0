// The bytes that a schedule sends over the uplinks of leaves. This file is independent of any
// particular algorithm.
#include <algorithm>
#include <map>
#include <tuple>

#include "coll/select/play.h"

namespace weft {
namespace {

// The share of a round's bytes that these ranks send through the busiest uplink.
double busiest_share(std::span<const Schedule> some, const Shape& shape, const Ports& ports,
                     const Layout& layout) {
  std::map<std::tuple<int, int, bool>, double> shares;  // by leaf, rail and direction
  const auto leaf = [&](Rank r) { return shape.leaf[as_index(layout.host_of(r))]; };
  for (const Schedule& s : some)
    for (const Step& step : s.steps)
      if (leaf(s.rank) != leaf(step.peer))
        shares[{leaf(s.rank), ports.rail(s.rank), step.op == Op::kSend}] +=
            static_cast<double>(step.at.count) / s.nchunks;
  double most = 0;
  for (const auto& [uplink, share] : shares) most = std::max(most, share);
  return most;
}

// The share of a round's bytes that the first ranks of all hosts send through the busiest uplink.
double busiest_share(const Algorithm& algorithm, Shape shape, const Ports& ports,
                     const Layout& layout) {
  std::vector<Schedule> first;
  for (const auto& ranks : shape.hosts) {
    shape.rank = ranks[0];
    first.push_back(algorithm.build(shape));
  }
  return busiest_share(first, shape, ports, layout);
}

bool may_be_short(const Shape& shape, const CostModel& model) {
  return model.uplink_us_per_byte > 0 && shape.leaf.size() > 1;
}

}  // namespace

double uplinks_by_played(const Algorithm& algorithm, const Shape& shape,
                         std::span<const Schedule> some, const CostModel& model) {
  if (!may_be_short(shape, model)) return 1;
  const Layout layout(shape);
  const Ports ports(shape, layout, model);
  const double played = busiest_share(some, shape, ports, layout);
  return played > 0 ? busiest_share(algorithm, shape, ports, layout) / played : 1;
}

void wait_for_uplinks(Prediction& p, const Algorithm& algorithm, const Shape& shape,
                      std::size_t bytes, const CostModel& model) {
  if (!may_be_short(shape, model)) return;
  const Layout layout(shape);
  const double all = static_cast<double>(bytes) *
                     (algorithm.collective == Collective::kAllToAll ? shape.nranks : 1);
  const double us = busiest_share(algorithm, shape, {shape, layout, model}, layout) * all *
                    model.uplink_us_per_byte;
  p.rail_us = std::max(p.rail_us, us);
  if (us > p.time_us) p.limiting = "rail";
  p.time_us = std::max(p.time_us, us);
}

}  // namespace weft
