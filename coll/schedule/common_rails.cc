// Finds the rails that all hosts have, and adds what happens inside a host to a schedule.
#include "coll/schedule/common_rails.h"

#include <algorithm>

namespace weft {

CommonRails::CommonRails(const Shape& shape, const Layout& layout) {
  std::size_t least = layout.hosts()[0].size();
  for (const auto& ranks : layout.hosts()) least = std::min(least, ranks.size());
  const bool by_index = shape.rail.empty() || uniform_hosts(shape);
  for (std::size_t l = 0; l < layout.hosts()[0].size(); ++l) {
    std::vector<Rank> rail;
    const Rank first = layout.hosts()[0][l];
    for (const auto& ranks : layout.hosts()) {
      if (by_index) {
        if (l < least) rail.push_back(ranks[l]);
        continue;
      }
      const auto on_it =
          std::ranges::find(ranks, shape.rail.at(first), [&](Rank r) { return shape.rail.at(r); });
      if (on_it != ranks.end() && taken_.insert(*on_it).second) rail.push_back(*on_it);
    }
    if (static_cast<int>(rail.size()) == layout.nhosts()) rails_.push_back(std::move(rail));
  }
  if (rails_.empty()) {
    rails_.emplace_back();
    for (const auto& ranks : layout.hosts()) rails_[0].push_back(ranks[0]);
  }
  for (const auto& rail : rails_) here_.push_back(rail[layout.my_host()]);
  for (const Rank r : layout.host().ranks)
    if (std::ranges::find(here_, r) == here_.end()) others_.push_back(r);
}
std::vector<Rank> CommonRails::host() const {
  std::vector<Rank> all = here_;
  all.insert(all.end(), others_.begin(), others_.end());
  return all;
}

Schedule parts_by_rail(const Shape& shape, int rails, int pieces) {
  Schedule s = empty_schedule(shape, rails * pieces);
  const auto& speed = shape.rail_weight;
  if (static_cast<int>(speed.size()) == rails &&
      std::any_of(speed.begin(), speed.end(), [&](double w) { return w != speed[0]; }))
    for (int c = 0; c < s.nchunks; ++c) s.weight.push_back(speed[c / pieces]);
  return s;
}

void reduce_to_owners(Schedule& s, Group g, int owners) {
  const Chunks c = s.all();
  for (int i = 1; i < g.size(); ++i)
    if (const int to = (g.me + i) % g.size(); to < owners)
      s.send(g.at(to), c.part(to, owners), kHostChannel);
  if (g.me >= owners) return;
  for (int i = 1; i < g.size(); ++i)
    s.recv_reduce(g.at(g.me - i), c.part(g.me, owners), kHostChannel);
}
void gather_from_owners(Schedule& s, Group g, int owners) {
  const Chunks c = s.all();
  for (int i = 1; i < g.size() && g.me < owners; ++i)
    s.send(g.at(g.me + i), c.part(g.me, owners), kHostChannel);
  for (int i = 1; i < g.size(); ++i)
    if (const int from = (g.me - i + g.size()) % g.size(); from < owners)
      s.recv(g.at(from), c.part(from, owners), kHostChannel);
}

}  // namespace weft
