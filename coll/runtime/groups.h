// GroupTable: the communicators of a process, and the caches that communicators of the same ranks
// share. This class is independent of how ranks agree on a new communicator (coll/api/split.cc).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "coll/runtime/group_state.h"
#include "coll/runtime/lock.h"

namespace weft {

class GroupTable {
 public:
  explicit GroupTable(Core& core) : core_(core) {}

  // Makes a communicator of these world ranks, without a board. number, whole: see GroupState.
  // If one of the ranks has failed, the communicator is over from the start.
  std::unique_ptr<GroupState> make(std::uint32_t id, std::uint64_t number, std::vector<Rank> ranks,
                                   const GroupState* whole = nullptr) WEFT_REQUIRES(core_held);
  // Makes a companion of these world ranks, which fails with `whole`. which: its number among the
  // companions of `whole`, below 1 << kLaneBits, not 0.
  std::unique_ptr<GroupState> make_companion(const GroupState& whole, std::uint32_t which,
                                             std::vector<Rank> ranks) WEFT_REQUIRES(core_held);
  // The fixed communicator `id`, made on the first call; it lives as long as the core.
  GroupState& fixed(std::uint32_t id, std::vector<Rank> ranks) WEFT_REQUIRES(core_held);
  // Whether a communicator gets a board.
  bool wants_board(const GroupState& g) const;
  // Drops the communicator's board, messages and id.
  void forget(GroupState& g) WEFT_REQUIRES(core_held);
  // Drops unexpected messages.
  void forget_messages(std::uint32_t id) WEFT_REQUIRES(core_held);
  // Clears the ranked algorithms after costs or times have changed. It clears those of all
  // communicators, because ranks differ in which communicators are still in use.
  void forget_candidates() WEFT_REQUIRES(core_held);

  // Live communicators by id; null: the id is reserved for a communicator under construction.
  std::map<std::uint32_t, GroupState*> all WEFT_GUARDED_BY(core_held);
  // Communicators whose last user was a GPU lane.
  std::vector<std::unique_ptr<GroupState>> orphans WEFT_GUARDED_BY(core_held);
  // Only grows; its lower id_bits are the next id to try.
  std::uint64_t next_id_epoch WEFT_GUARDED_BY(core_held) = kFixedGroups;
  int id_bits = 24;  // bits of a communicator's id, without kLaneBits

 private:
  Core& core_;
  std::vector<std::unique_ptr<GroupState>> fixed_ WEFT_GUARDED_BY(core_held);
  std::map<std::vector<Rank>, std::weak_ptr<GroupCache>> caches_ WEFT_GUARDED_BY(core_held);
};

}  // namespace weft
