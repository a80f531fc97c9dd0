// split(), duplicate() and subset(): how ranks agree on the members, the id and the board of new
// communicators. This file does not depend on the contents of a communicator
// (coll/runtime/groups.h).
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coll/runtime/core.h"

namespace weft {
namespace {

enum class Kind : std::int64_t { kSplit, kDuplicate, kSubset };
constexpr const char* kKindName[] = {"split", "duplicate", "subset"};

// The proposal of a rank, exchanged when communicators are made.
struct Wish {
  std::int64_t kind, color, key;
  std::int64_t list = 0;   // subset: a digest of the list
  std::int64_t id = 0;     // this rank's next free id, not yet truncated to id_bits
  std::int64_t board = 0;  // this rank's part of a board
};
constexpr std::int64_t kWrong = -2;  // a color: the rank's arguments are invalid
constexpr std::size_t kWords = sizeof(Wish) / sizeof(std::int64_t);

// Threads that make communicators of two parents concurrently may propose the same id; they retry
// with different offsets.
constexpr int kAttempts = 100;

// One attempt to make communicators of a parent.
class Making {
 public:
  Making(Communicator parent, const std::shared_ptr<Core>& core, const GroupState& group, Wish mine)
      : parent_(std::move(parent)),
        core_(core),
        parent_id_(group.id),
        parent_ranks_(group.ranks),
        me_(static_cast<std::size_t>(group.me)),
        mine_(mine) {}

  ~Making() {
    const CoreLock lock(core_->mutex);
    if (reserved_) core_->groups.all.erase(id_);
    if (Boards* const boards = core_->links.boards(); mine_.board && boards)
      boards->withdraw(static_cast<std::uint64_t>(mine_.board));
  }

  // False: an id was in use; the caller tries again.
  bool agree(int attempt) {
    {
      const CoreLock lock(core_->mutex);
      mine_.id = static_cast<std::int64_t>(core_->groups.next_id_epoch++);
      if (Boards* const boards = core_->links.boards(); boards && mine_.color >= 0)
        mine_.board = static_cast<std::int64_t>(boards->offer());
    }
    const std::size_t n = parent_ranks_.size();
    wishes_.resize(n);
    parent_.all_gather(&mine_, wishes_.data(), kWords, DType::kInt64).check();
    for (std::size_t r = 0; r < n; ++r) {
      const Wish& w = wishes_[r];
      if (w.kind < 0 || w.kind > static_cast<std::int64_t>(Kind::kSubset))
        throw Error(
            fmt::format("rank {} did not call {} but something else", r, kKindName[mine_.kind]));
      if (w.kind != mine_.kind)
        throw Error(fmt::format("rank {} called {} where rank {} called {}", r, kKindName[w.kind],
                                me_, kKindName[mine_.kind]));
      if (w.color == kWrong && mine_.color != kWrong)
        throw Error(fmt::format("{}: rank {} passed wrong arguments and got an error",
                                kKindName[w.kind], r));
      if (w.color == mine_.color) members_.push_back(r);
    }
    if (mine_.color == kWrong) return true;  // the caller throws its own error
    std::stable_sort(members_.begin(), members_.end(),
                     [&](std::size_t a, std::size_t b) { return wishes_[a].key < wishes_[b].key; });
    std::int32_t free = mine_.color < 0 || reserve(attempt), all = 0;
    parent_.all_reduce(&free, &all, 1, DType::kInt32, RedOp::kMin).check();
    return all != 0;
  }

  // Valid after agree(): the members, as ranks of the parent.
  const std::vector<std::size_t>& members() const { return members_; }

  // A member that passed another list; kNoRank: none.
  Rank other_list() const {
    const auto it = std::ranges::find_if(
        members_, [&](std::size_t r) { return wishes_[r].list != mine_.list; });
    return it == members_.end() ? kNoRank : static_cast<Rank>(*it);
  }

  std::shared_ptr<GroupState> make() {
    std::vector<Rank> ranks;
    std::vector<std::uint64_t> parts;
    for (const std::size_t r : members_) {
      ranks.push_back(parent_ranks_[r]);
      parts.push_back(static_cast<std::uint64_t>(wishes_[r].board));
    }
    const CoreLock lock(core_->mutex);
    auto group = core_->groups.make(id_, number_, std::move(ranks));
    if (group->broken) throw Error(group->failure.to_string());
    if (Boards* const boards = core_->links.boards(); boards && core_->groups.wants_board(*group)) {
      group->board = boards->make(group->ranks, parts);
      mine_.board = 0;  // owned by the group now
    }
    core_->groups.all[id_] = group.get();
    reserved_ = false;
    return {group.release(), [core = core_](GroupState* g) {
              if (core->forked()) return;
              if (lane_thread) {
                const CoreLock guard(core->mutex);
                core->groups.orphans.emplace_back(g);
                return;
              }
              std::shared_ptr<DeviceLanes> lanes;
              {
                const CoreLock guard(core->mutex);
                lanes = std::move(g->device);
              }
              lanes.reset();  // their running calls still need the id
              {
                const CoreLock guard(core->mutex);
                core->groups.forget(*g);
              }
              delete g;
            }};
  }

 private:
  // Reserves the id that all members compute; false if it is in use on this rank.
  bool reserve(int attempt) {
    std::int64_t epoch = 0;
    for (const std::size_t r : members_) epoch = std::max(epoch, wishes_[r].id);
    if (attempt > 0) epoch += (parent_id_ * 7 + static_cast<unsigned>(attempt)) % 64;
    const CoreLock lock(core_->mutex);
    core_->groups.next_id_epoch =
        std::max(core_->groups.next_id_epoch, static_cast<std::uint64_t>(epoch) + 1);
    number_ = static_cast<std::uint64_t>(epoch);
    id_ = static_cast<std::uint32_t>(epoch) & ((1u << core_->groups.id_bits) - 1);
    if (id_ < kFixedGroups) return false;
    reserved_ = core_->groups.all.emplace(id_, nullptr).second;
    // Ids are reused in turn: messages of the id's previous communicator have arrived by now.
    if (reserved_ && epoch >> core_->groups.id_bits != 0) core_->groups.forget_messages(id_);
    return reserved_;
  }

  Communicator parent_;
  const std::shared_ptr<Core> core_;
  const std::uint32_t parent_id_;
  const std::vector<Rank>& parent_ranks_;
  const std::size_t me_;
  Wish mine_;
  std::vector<Wish> wishes_;
  std::vector<std::size_t> members_;
  std::uint32_t id_ = 0;
  std::uint64_t number_ = 0;
  bool reserved_ = false;
};

// `problem`: the error in this rank's arguments; empty if they are valid. `wanted`: the requested
// group, as ranks of the parent; null: any group.
std::shared_ptr<GroupState> make_of(const Communicator& parent,
                                    const std::shared_ptr<GroupState>& state, Wish mine,
                                    const std::string& problem,
                                    const std::span<const Rank>* wanted) {
  if (!problem.empty()) mine.color = kWrong;
  const std::shared_ptr<Core> core = state->core->shared_from_this();
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    Making making(parent, core, *state, mine);
    if (!making.agree(attempt)) continue;
    if (!problem.empty()) throw Error(problem);
    if (mine.color < 0) return nullptr;
    const auto& got = making.members();
    if (const Rank other = making.other_list(); other != kNoRank)
      throw Error(
          fmt::format("subset: rank {} asked for ranks {}, and rank {} for others or in another "
                      "order; all of a group pass the same list",
                      state->me, fmt::join(*wanted, ", "), other));
    if (wanted && !std::equal(got.begin(), got.end(), wanted->begin(), wanted->end(),
                              [](std::size_t a, Rank b) { return static_cast<Rank>(a) == b; }))
      throw Error(
          fmt::format("subset: rank {} asked for ranks {}, but {} asked for the group that "
                      "begins with rank {}; all of a group pass the same list",
                      state->me, fmt::join(*wanted, ", "), fmt::join(got, ", "), (*wanted)[0]));
    return making.make();
  }
  const CoreLock lock(core->mutex);
  throw Error(fmt::format("{}: no free id for a communicator in {} attempts; {} of {} are in use",
                          kKindName[mine.kind], kAttempts, core->groups.all.size(),
                          1u << core->groups.id_bits));
}

}  // namespace

// For weft's own calls: they ignore the stream and the user's choice of algorithm.
Communicator Communicator::internal() const {
  Communicator plain(state_);
  plain.any_algorithm_ = true;
  return plain;
}

Communicator Communicator::split(int color, int key) {
  (void)state();
  std::string problem;
  if (color < kNoColor)
    problem = fmt::format("split: color {} is neither >= 0 nor kNoColor (-1)", color);
  return Communicator(make_of(
      internal(), state_, {static_cast<std::int64_t>(Kind::kSplit), color, key}, problem, nullptr));
}

Communicator Communicator::duplicate() {
  (void)state();
  return Communicator(make_of(internal(), state_,
                              {static_cast<std::int64_t>(Kind::kDuplicate), 0, 0}, {}, nullptr));
}

Communicator Communicator::subset(std::span<const Rank> ranks) {
  const GroupState& g = state();
  std::string problem;
  const auto me = std::find(ranks.begin(), ranks.end(), g.me);
  if (!ranks.empty() && me == ranks.end())
    problem =
        fmt::format("subset: rank {} is not in its own list {}", g.me, fmt::join(ranks, ", "));
  std::vector<Rank> sorted(ranks.begin(), ranks.end());
  std::sort(sorted.begin(), sorted.end());
  if (const auto twice = std::adjacent_find(sorted.begin(), sorted.end()); twice != sorted.end())
    problem = fmt::format("subset: rank {} is listed twice", *twice);
  for (const Rank r : sorted)
    if (r < 0 || r >= size())
      problem =
          fmt::format("subset: rank {} is not a rank of this communicator (0..{})", r, size() - 1);
  // The groups of a call are disjoint, so the first rank identifies each.
  const std::int64_t color = ranks.empty() ? kNoColor : ranks[0];
  const std::int64_t key = me - ranks.begin();
  std::int64_t list = 0;
  for (const Rank r : ranks)
    list = static_cast<std::int64_t>((static_cast<std::uint64_t>(list) + 1) * 0x9e3779b97f4a7c15u ^
                                     static_cast<std::uint64_t>(r));
  return Communicator(make_of(internal(), state_,
                              {static_cast<std::int64_t>(Kind::kSubset), color, key, list}, problem,
                              &ranks));
}

}  // namespace weft
