#include "coll/runtime/groups.h"

#include <map>
#include <utility>

#include "coll/runtime/core.h"
#include "coll/runtime/selector.h"

namespace weft {

void GroupState::name_whole(Head& part) const {
  const Head& whole = part_of.head;
  part.about[1] = whole.about[1];
  if (!(whole.about[2] & kCodecBits)) return;
  part.about[0] = whole.about[0];
  part.about[2] = (part.about[2] & kAlgorithmBits) | (whole.about[2] & ~kAlgorithmBits);
}

std::unique_ptr<GroupState> GroupTable::make(std::uint32_t id, std::uint64_t number,
                                             std::vector<Rank> ranks, const GroupState* whole) {
  const Topology& topology = *core_.topology;
  auto g = std::make_unique<GroupState>();
  g->core = &core_;
  g->id = id;
  g->number = number;
  g->whole = whole;
  g->ranks = std::move(ranks);
  const int n = static_cast<int>(g->ranks.size());
  g->sends.assign(g->ranks.size(), 0);
  g->recvs.assign(g->ranks.size(), 0);
  g->sent_slices.assign(g->ranks.size(), 0);
  g->received_slices.assign(g->ranks.size(), 0);
  std::map<int, std::vector<Rank>> hosts;
  g->one_machine = true;
  for (Rank r = 0; r < n; ++r) {
    const Rank world = g->ranks[static_cast<std::size_t>(r)];
    if (world == core_.job->rank()) g->me = r;
    hosts[topology.host(world)].push_back(r);
    g->one_machine = g->one_machine && core_.links.shm_peer[static_cast<std::size_t>(world)];
  }
  g->shape.rank = g->me;
  g->shape.deterministic = core_.options.deterministic;
  g->shape.nranks = n;
  const std::vector<int> leaves = topology.leaves();
  for (auto& [host, members] : hosts) {
    g->shape.hosts.push_back(std::move(members));
    if (!leaves.empty()) g->shape.leaf.push_back(leaves[static_cast<std::size_t>(host)]);
  }
  if (topology.nrails() > 1 && core_.options.cross_rail != "allow")
    for (const Rank r : g->ranks) g->shape.rail.push_back(topology.rail(r));
  shape_ports(*g);

  std::weak_ptr<GroupCache>& cache = caches_[g->ranks];
  g->cache = cache.lock();
  if (!g->cache) cache = g->cache = std::make_shared<GroupCache>();
  prove_rails(*g);
  if (core_.options.algorithm != "auto")
    for (std::size_t c = 0; c < kCollectives; ++c) {
      const Algorithm* a = find_algorithm(static_cast<Collective>(c), core_.options.algorithm);
      if (a && a->applies(g->shape) && check_rails(*g, *a, 0, true).ok()) g->forced[c] = a;
    }
  g->failure = core_.failures.of_new(*g);
  g->broken = !g->failure.ok();
  return g;
}

std::unique_ptr<GroupState> GroupTable::make_companion(const GroupState& whole, std::uint32_t which,
                                                       std::vector<Rank> ranks) {
  auto g = make(whole.id | which << id_bits, whole.number, std::move(ranks), &whole);
  all[g->id] = g.get();
  return g;
}

void GroupTable::forget_messages(std::uint32_t id) {
  core_.links.forget(static_cast<std::uint64_t>(id) << kIdShift, ~std::uint64_t{0} << kIdShift);
}

void GroupTable::forget(GroupState& g) {
  for (const auto& companion : g.companions) forget(*companion);
  g.board.reset();
  forget_messages(g.id);
  all.erase(g.id);
  if (g.cache.use_count() == 1) caches_.erase(g.ranks);
}

void GroupTable::forget_candidates() {
  for (const auto& [ranks, cache] : caches_)
    if (const auto kept = cache.lock()) kept->candidates.clear();
}

bool GroupTable::wants_board(const GroupState& g) const {
  return core_.links.shm_link >= 0 && g.one_machine && g.ranks.size() > 1 &&
         g.ranks.size() <= static_cast<std::size_t>(kMostOnBoard);
}

GroupState& GroupTable::fixed(std::uint32_t id, std::vector<Rank> ranks) {
  fixed_.resize(kFixedGroups);
  std::unique_ptr<GroupState>& g = fixed_[id];
  if (!g) {
    g = make(id, id, std::move(ranks));
    all[id] = g.get();
    Boards* const boards = core_.links.boards();
    if (boards && wants_board(*g)) g->board = boards->fixed(g->ranks, id);
  }
  return *g;
}

}  // namespace weft
