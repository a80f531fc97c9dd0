// Finds sends between hosts that cross between rails, and formats them for an error message. This
// file is independent of any particular algorithm.
#include "coll/schedule/rail_contract.h"

#include <fmt/format.h>

#include <bit>
#include <set>

namespace weft {
namespace {

constexpr int kAllProved = 64;  // ranks; all hosts of a job up to this size are checked

}  // namespace

std::optional<RailBreach> find_breach(const Schedule& schedule, const Shape& shape) {
  if (shape.rail.empty() || shape.hosts.size() < 2) return {};
  const auto rail = [&](Rank r) { return shape.rail.at(static_cast<std::size_t>(r)); };
  std::vector<int> host_of(static_cast<std::size_t>(shape.nranks), -1);
  for (std::size_t h = 0; h < shape.hosts.size(); ++h)
    for (const Rank r : shape.hosts[h]) host_of[static_cast<std::size_t>(r)] = static_cast<int>(h);
  const auto host = [&](Rank r) { return host_of[static_cast<std::size_t>(r)]; };
  const Rank me = schedule.rank;
  const int my_host = host(me);
  for (std::size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& s = schedule.steps[i];
    // Every receive matches another rank's send, so checking the sends is enough.
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

namespace {

// The hosts to check: in a large job the first, the last, each power of two and its predecessor,
// and the first host with each combination of rails. Schedules depend on no other property of a
// host.
std::vector<std::size_t> looked_at(const Shape& shape) {
  std::vector<std::size_t> hosts;
  std::set<std::vector<int>> seen;
  for (std::size_t h = 0; h < shape.hosts.size(); ++h) {
    std::vector<int> rails;
    for (const Rank r : shape.hosts[h]) rails.push_back(shape.rail[static_cast<std::size_t>(r)]);
    const bool kind = seen.insert(std::move(rails)).second;
    if (kind || shape.nranks <= kAllProved || h + 1 == shape.hosts.size() ||
        std::has_single_bit(h + 1) || std::has_single_bit(h))
      hosts.push_back(h);
  }
  return hosts;
}

}  // namespace

std::optional<RailBreach> find_breach(const Algorithm& algorithm, const Shape& any) {
  if (any.rail.empty() || any.hosts.size() < 2 || !algorithm.applies(any)) return {};
  Shape shape = any;
  for (const std::size_t host : looked_at(any))
    for (const Rank r : any.hosts[host]) {
      shape.rank = r;
      if (auto breach = find_breach(algorithm.build(shape), shape)) return breach;
    }
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
