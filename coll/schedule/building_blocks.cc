// Builds the groups of a rank (Layout) and cuts chunks for the algorithm files.
// Knows no algorithm.
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

}  // namespace weft
