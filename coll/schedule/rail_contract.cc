// Finds steps between hosts that leave their rail, and words them for an error message.
// Knows no algorithm by name.
#include "coll/schedule/rail_contract.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft {

std::optional<RailBreach> find_breach(const Schedule& schedule, const Shape& shape) {
  if (shape.rail.empty() || shape.hosts.size() < 2) return {};
  const auto rail = [&](Rank r) { return shape.rail.at(static_cast<std::size_t>(r)); };
  const auto host = [&](Rank r) {
    for (std::size_t h = 0; h < shape.hosts.size(); ++h)
      if (std::ranges::find(shape.hosts[h], r) != shape.hosts[h].end()) return static_cast<int>(h);
    return -1;
  };
  const Rank me = schedule.rank;
  const int my_host = host(me);
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& s = schedule.steps[i];
    // What it receives is somebody's send.
    if (s.op != Op::kSend || rail(s.peer) == rail(me)) continue;
    const int their_host = host(s.peer);
    if (their_host == my_host) continue;
    RailBreach b{me, s.peer, rail(me), rail(s.peer), my_host, their_host, i, s.at, s.channel};
    for (const Rank r : shape.hosts[static_cast<std::size_t>(my_host)])
      if (rail(r) == b.to_rail) {
        b.by_way_of = r;
        break;
      }
    return b;
  }
  return {};
}

std::optional<RailBreach> find_breach(const Algorithm& algorithm, const Shape& any) {
  if (any.rail.empty() || any.hosts.size() < 2 || !algorithm.applies(any)) return {};
  Shape shape = any;
  for (shape.rank = 0; shape.rank < shape.nranks; ++shape.rank)
    if (auto breach = find_breach(algorithm.build(shape), shape)) return breach;
  return {};
}

std::string to_string(const RailBreach& b) {
  std::string text = fmt::format(
      "rank {} (host {}, rail {}) -> rank {} (host {}, rail {}): step {} sends chunks "
      "[{},{}) on channel {}",
      b.from, b.from_host, b.from_rail, b.to, b.to_host, b.to_rail, b.step, b.at.first, b.at.end(),
      b.channel);
  if (b.by_way_of != kNoRank)
    text += fmt::format("; on its rail it would go {} -> {} (inside host {}) -> {} (along rail {})",
                        b.from, b.by_way_of, b.from_host, b.to, b.to_rail);
  return text;
}

}  // namespace weft
