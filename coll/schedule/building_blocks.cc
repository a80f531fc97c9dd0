// Builds the groups of a rank (Layout) and cuts ranges of chunks, independently of any algorithm.
#include "coll/schedule/building_blocks.h"

#include <algorithm>
#include <numeric>

namespace weft {

Layout::Layout(const Shape& shape) : rank_(shape.rank), hosts_(&shape.hosts) {
  world_.resize(shape.nranks);
  std::iota(world_.begin(), world_.end(), 0);
  if (shape.hosts.empty()) {
    one_host_.push_back(world_);
    hosts_ = &one_host_;
  }
  host_of_.resize(shape.nranks);
  local_of_.resize(shape.nranks);
  for (int h = 0; h < nhosts(); ++h)
    for (int l = 0; l < static_cast<int>(hosts()[h].size()); ++l) {
      const Rank r = hosts()[h][l];
      if (r == rank_) by_host_index_ = static_cast<int>(by_host_.size());
      by_host_.push_back(r);
      host_of_[r] = h;
      local_of_[r] = l;
    }
  host_ = host_of_[rank_];
  local_ = local_of_[rank_];
  for (const auto& ranks : hosts())
    if (local_ < static_cast<int>(ranks.size())) rail_.push_back(ranks[local_]);
}

std::vector<Rank> Layout::heads(Rank root) const {
  const auto local = static_cast<std::size_t>(local_of(root));
  std::vector<Rank> heads;
  for (const auto& ranks : hosts()) heads.push_back(ranks[local < ranks.size() ? local : 0]);
  return heads;
}

bool any_shape(const Shape&) { return true; }

bool uniform_hosts(const Shape& shape) {
  return std::all_of(shape.hosts.begin(), shape.hosts.end(),
                     [&](const auto& h) { return h.size() == shape.hosts[0].size(); });
}

namespace {
thread_local std::uint64_t built = 0;
}

std::uint64_t schedules_built() { return built; }

Schedule empty_schedule(const Shape& shape, int nchunks) {
  ++built;
  Schedule s;
  s.rank = shape.rank;
  s.nranks = shape.nranks;
  s.nchunks = nchunks;
  return s;
}

Chunks parts(Chunks c, int a, int b, int n) {
  const int first = c.part(a, n).first;
  return {first, c.part(b - 1, n).end() - first};
}

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
  std::vector<bool> stands(static_cast<std::size_t>(shape.nranks), false);
  for (int h = 0; h < layout.nhosts(); ++h)
    for (const auto& rail : rails_) {
      served_.push_back({rail[h]});
      stands[rail[h]] = true;
    }
  std::size_t next = 0;
  for (std::size_t h = 0; h < layout.hosts().size(); ++h)
    for (const Rank r : layout.hosts()[h])
      if (!stands[r]) served_[h * rails_.size() + next++ % rails_.size()].push_back(r);
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
