// Task: a collective or message under way; GroupState: what a communicator keeps on this rank.
// These structs know no clock and no thread; the mutex of Core guards both.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "coll/api/communicator.h"
#include "coll/engine/engine.h"
#include "coll/engine/plan.h"
#include "coll/runtime/telemetry.h"
#include "coll/runtime/waiting.h"
#include "coll/schedule/algorithm.h"
#include "coll/select/choice.h"
#include "transport/transport.h"

namespace weft {

// The tag of a transfer has, from the top: the communicator's id, one bit for point to point, and
// then either a counter, or the collective's number, its round and its ordinal (engine.h).
inline constexpr int kSequenceBits = 13;
inline constexpr int kMessageBit = kSequenceBits + kRoundBits + kOrdinalBits;
inline constexpr int kIdShift = kMessageBit + 1;

// Bits above a communicator's id that name one of its companions (gpu/lane.h); 0: the communicator.
inline constexpr int kLaneBits = 2;

// The ids of the communicators that every job has; groups without a common rank share an id.
enum FixedGroup : std::uint32_t { kWorldGroup, kHostGroup, kRailGroup, kFixedGroups };

// After this long without any progress a rank looks for unexpected messages that show a mismatch,
// then again after twice that time, and so on.
inline constexpr std::chrono::milliseconds kLookAfter{20};

// So many collectives of one communicator are under way at once. More would use up the cells and
// slots that the first ones need to end, and fewer keep a link busy.
inline constexpr std::uint64_t kWindow = 8;

// A collective, or one point-to-point message, under way.
struct Task {
  enum class Kind : std::uint8_t { kFree, kPlan, kBoard, kMessage, kDevice } kind = Kind::kFree;
  Collective collective = Collective::kBarrier;
  GroupState* group = nullptr;
  std::uint32_t id = 0;        // the upper half of the ids of the task's transfers
  std::uint64_t record = 0;    // the call's number in the flight recorder
  std::uint64_t began_ns = 0;  // when the task started; 0: not timed
  int size_class = 0;
  const Algorithm* algorithm = nullptr;
  Call call;
  Rank root = 0;                    // the collective's root; kMessage: the peer's rank in `group`
  std::vector<std::size_t> blocks;  // the memory that the spans in `call` point to
  Run run;                          // kPlan
  bool sends = false;               // kMessage
  std::size_t bytes = 0;            // kMessage
  // kMessage: each slice is a transfer; slices below slices_ready may be posted.
  std::byte* data = nullptr;
  bool on_device = false;
  std::size_t slice_bytes = SIZE_MAX;
  std::uint32_t slices = 1, slices_ready = 0, slices_posted = 0, slices_left = 1;
  bool under_way = false;                             // some slice may have been posted
  std::vector<std::uint32_t>* slices_over = nullptr;  // gets the number of each slice that ends
  const Plan* plan = nullptr;                         // kPlan
  std::uint64_t start = 0;                            // kPlan: the number among the group's kPlans
  bool over = false;
  Status status;
  std::optional<std::uint64_t> receipts;  // set when these, of Rails, are all that is missing
  bool moved = false;                     // the task has moved since the last check_deadline()
  bool stirred = false;                   // kPlan: transfers have ended since the last progress()
  void complete(const Completion& transfer) {  // kPlan
    run.complete(transfer);
    stirred = true;
  }
  Stall stall;
  std::chrono::milliseconds look_after = kLookAfter;
  std::function<void(const Status&)> on_done;
  std::shared_ptr<GroupState> keep;  // set by Request::detach(): no Request holds the task
};

inline std::uint32_t slices_of(std::size_t bytes, std::size_t slice) {
  return bytes ? static_cast<std::uint32_t>((bytes - 1) / slice + 1) : 1;
}

struct PlanKey {
  const Algorithm* algorithm;
  Rank root;
  bool in_place, small, premultiplied, deterministic;
  auto operator<=>(const PlanKey&) const = default;
};

// A collective that is over on this rank, kept for a while: a message that arrives for it now shows
// that ranks disagree.
struct Past {
  std::uint64_t tag = 0;
  Head head;
};

struct PickKey {
  Collective collective;
  int size_class;
  bool deterministic;
  auto operator<=>(const PickKey&) const = default;
};

// What communicators of the same ranks, in the same order, share.
struct GroupCache {
  std::map<PlanKey, std::unique_ptr<Plan>> plans;
  // The key has the root, as the best candidate must not depend on who called first on this rank.
  std::map<std::pair<PickKey, Rank>, std::vector<Candidate>> candidates;
  // Why an algorithm leaves its rails, by root and determinism; empty where it keeps to them.
  std::map<std::tuple<const Algorithm*, Rank, bool>, std::string> breaches;
  bool proved = false;  // Core::prove_rails() has run
};

struct DeviceLanes;  // gpu/lane.h
// Whether this thread is a communicator's GPU lane, which cannot end the communicator.
inline thread_local bool lane_thread = false;

// A communicator on this rank. It lives as long as a Communicator or a task of it; the fixed ones
// (FixedGroup) live as long as the core.
struct GroupState {
  Core* core = nullptr;
  std::vector<Rank> ranks;  // world ranks
  Rank me = 0;              // this rank's index in `ranks`
  std::uint32_t id = 0;     // the same on every rank of the group
  Shape shape;
  bool one_machine = false;      // shm connects every pair of the group
  std::unique_ptr<Board> board;  // null: the group has no board
  std::uint32_t board_round = 0;
  Counters::BoardTraffic* board_traffic = nullptr;  // null until a board carries data
  std::deque<Task*> board_queue;                    // the first task is published, the others wait
  // kPlan tasks in the order of their calls: `running` ones have transfers, `next` ones wait for
  // the window (kWindow).
  std::deque<Task*> running, next;
  std::uint64_t starts = 0;                                 // kPlan tasks so far
  std::uint64_t sequence = 0;                               // collectives so far
  std::vector<std::uint64_t> sends, recvs;                  // messages so far, by peer
  std::vector<std::uint64_t> sent_slices, received_slices;  // slices of these messages, by peer
  std::array<Past, 16> past;
  std::uint32_t next_past = 0;
  void remember(std::uint64_t tag, const Head& head) {
    past[next_past++ % past.size()] = {tag, head};
  }
  std::shared_ptr<GroupCache> cache;
  std::array<const Algorithm*, kCollectives> forced{};
  std::map<PickKey, const Algorithm*> picks;
  // The pick and the plan of each collective's last call; the next call mostly needs the same.
  struct Settled {
    const std::pair<const PickKey, const Algorithm*>* pick = nullptr;
    const std::pair<const PlanKey, std::unique_ptr<Plan>>* plan = nullptr;
    bool by_name = false;  // the user named the algorithm
  };
  std::array<Settled, kCollectives> settled;
  const Algorithm* last = nullptr;
  bool last_on_board = false;
  std::shared_ptr<DeviceLanes> device;  // null until a call uses device memory or a stream
  // A lane's companion: the user's call that the companion's tasks are a part of. record 0: none.
  struct PartOf {
    std::uint64_t record = 0, tag = 0;
    GroupState* group = nullptr;
    Collective collective = Collective::kBarrier;
    Head head = {};
  } part_of;
};

}  // namespace weft
