// GroupState: the state of a communicator on this rank. It uses no clock and no thread; the mutex
// of Core guards it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coll/engine/plan.h"
#include "coll/engine/signature.h"
#include "coll/observe/counters.h"
#include "coll/runtime/lock.h"
#include "coll/runtime/prepared.h"
#include "coll/schedule/algorithm.h"
#include "topo/base/status.h"
#include "transport/transport.h"

namespace weft {

class BoardTask;  // coll/tasks/board_task.h
class Compute;    // coll/engine/compute.h
struct Core;      // core.h
struct GroupState;
class ScheduleTask;  // coll/tasks/schedule_task.h
struct Task;         // task.h

// The tag of a transfer, from the top bit: the communicator's id, one bit for point to point, then
// either a counter, or the collective's number, its round and its ordinal (engine.h).
inline constexpr int kSequenceBits = 12;
inline constexpr int kMessageBit = kSequenceBits + kRoundBits + kOrdinalBits;
inline constexpr int kIdShift = kMessageBit + 1;

// Bits above a communicator's id that number its companions (gpu/lane.h, codec/coded_task.h); 0:
// the communicator itself.
inline constexpr int kLaneBits = 4;

// The ids of the communicators that every job has; groups without a common rank may share an id.
enum FixedGroup : std::uint32_t { kWorldGroup, kHostGroup, kRailGroup, kFixedGroups };

// The most ranks of a communicator with a board.
inline constexpr int kMostOnBoard = 256;

// A collective that ended recently on this rank: a message that arrives for it afterwards shows
// that ranks disagree.
struct Past {
  std::uint64_t tag = 0;
  Head head;
};

struct DeviceLanes;  // gpu/lane.h
struct CodedCalls;   // codec/coded_task.h
// Whether this thread is a communicator's GPU lane, which cannot end the communicator.
inline thread_local bool lane_thread = false;

// Starts a collective of a companion on host memory. Returns its task, or null with `status` if it
// is over already (coll/api/communicator.cc).
Task* begin_part(GroupState& companion, Collective c, Call& call, Status& status)
    WEFT_REQUIRES(core_held);

// A communicator on this rank. It lives as long as its Communicator or one of its tasks; the fixed
// ones (FixedGroup) live as long as the core.
struct GroupState {
  Core* core = nullptr;
  std::vector<Rank> ranks;  // world ranks
  Rank me = 0;              // this rank's index in `ranks`
  std::uint32_t id = 0;     // the same on every rank of the group
  // As `id`, but never reused for a group with the same first rank.
  std::uint64_t number = 0;
  // For a companion: its communicator, with which it fails; null: not a companion.
  const GroupState* whole = nullptr;
  // The communicator is over: every call returns `failure`, which sticks.
  std::atomic<bool> broken{false};
  Status failure = {};
  Shape shape;
  bool one_machine = false;      // shm connects every pair of the group
  std::unique_ptr<Board> board;  // null: the group has no board
  std::uint32_t board_round = 0;
  Counters::BoardTraffic* board_traffic = nullptr;  // null until a board carries data
  std::deque<BoardTask*> board_queue;               // the first task is published, the rest wait
  // Tasks with schedules in the order of their calls: `running` have transfers, `next` wait for the
  // window.
  std::deque<ScheduleTask*> running, next;
  std::uint64_t starts = 0;                                 // tasks with schedules so far
  std::uint64_t sequence = 0;                               // collectives so far
  std::vector<std::uint64_t> sends, recvs;                  // messages so far, by peer
  std::vector<std::uint64_t> sent_slices, received_slices;  // slices of these messages, by peer
  std::array<Past, 16> past;
  std::uint32_t next_past = 0;
  // Gives a described call its number among the communicator's collectives, from 1.
  void number_call(Call& call, const Prepared& as, std::uint64_t number) const {
    call.total_bytes = as.total_bytes;
    call.tag = tag_of(number - 1);
    call.head = as.head;
    call.head.about[1] |= number & kSignatureSequenceMask;
  }
  // Puts the description of the user's whole call into a part's head, so that a mismatch error
  // about a compressed call names that call. Parts of a GPU lane have the call's arguments already.
  void name_whole(Head& part) const;
  // The tag of collective `number`, counted from 0.
  std::uint64_t tag_of(std::uint64_t number) const {
    return static_cast<std::uint64_t>(id) << kIdShift | (number & ((1u << kSequenceBits) - 1))
                                                            << (kRoundBits + kOrdinalBits);
  }
  void remember(std::uint64_t tag, const Head& head) {
    past[next_past++ % past.size()] = {tag, head};
  }
  std::shared_ptr<GroupCache> cache;
  std::array<const Algorithm*, kCollectives> forced{};
  std::map<PickKey, const Algorithm*> picks;
  // The pick and the plan of each collective's last call, which the next call mostly needs again.
  struct Settled {
    const std::pair<const PickKey, const Algorithm*>* pick = nullptr;
    const std::pair<const PlanKey, std::unique_ptr<Plan>>* plan = nullptr;
    bool by_name = false;  // the user named the algorithm
  };
  std::array<Settled, kCollectives> settled;
  std::array<std::array<PreparedRef, kKeptRoots>, kCollectives> prepared;
  PreparedRef& prepared_for(Collective c, Rank root) {
    return prepared[static_cast<std::size_t>(c)][static_cast<unsigned>(root) % kKeptRoots];
  }
  const Algorithm* last = nullptr;
  bool last_on_board = false;
  std::shared_ptr<DeviceLanes> device;  // null until a call uses device memory or a stream
  std::shared_ptr<CodedCalls> coded;    // null until a call is compressed
  std::vector<std::unique_ptr<GroupState>> companions;  // of compressed calls
  // For a companion: the user's call that the companion's tasks are part of. record 0: none.
  struct PartOf {
    std::uint64_t record = 0, tag = 0;
    GroupState* group = nullptr;
    PreparedRef prepared;
    std::uint64_t number = 0;
    Head head = {};
  } part_of;
  // For a lane: runs the reductions of collectives that start now (engine/compute.h); null: the CPU
  // runs them.
  Compute* compute = nullptr;
};

}  // namespace weft
