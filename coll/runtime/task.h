// What a communicator keeps on this rank, and its operations under way.
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

// Tags of transfers, from the top: id of the communicator, 1 bit for point to point, and then
// either a counter, or the number of the collective, round and ordinal (engine.h).
inline constexpr int kSequenceBits = 13;
inline constexpr int kMessageBit = kSequenceBits + kRoundBits + kOrdinalBits;
inline constexpr int kIdShift = kMessageBit + 1;

// Above the bits of an id: which of a communicator's companions it is (gpu/lane.h), 0 for
// itself.
inline constexpr int kLaneBits = 2;

// ids of the communicators that every job has; the same id for groups that cannot share a rank.
enum FixedGroup : std::uint32_t { kWorldGroup, kHostGroup, kRailGroup, kFixedGroups };

// After this long without any progress a rank looks at what came unasked; again after twice that,
// and so on.
inline constexpr std::chrono::milliseconds kLookAfter{20};

// Collectives of one communicator under way at once. More wait: they would use up the cells and
// slots that the first ones need to end, and a link is busy with fewer.
inline constexpr std::uint64_t kWindow = 8;

// A collective, or one point-to-point message, under way.
struct Task {
  enum class Kind : std::uint8_t { kFree, kPlan, kBoard, kMessage, kDevice } kind = Kind::kFree;
  Collective collective = Collective::kBarrier;
  GroupState* group = nullptr;
  std::uint32_t id = 0;        // upper half of its transfer ids
  std::uint64_t record = 0;    // in the flight recorder
  std::uint64_t began_ns = 0;  // 0: not timed
  int size_class = 0;
  const Algorithm* algorithm = nullptr;
  Call call;
  Rank root = 0;                    // of the collective; kMessage: the peer (of the communicator)
  std::vector<std::size_t> blocks;  // what Call's spans of a vector call point to
  Run run;                          // kPlan
  bool sends = false;               // kMessage
  std::size_t bytes = 0;            // kMessage
  // kMessage: it travels in slices, each a transfer. Those below `slices_ready` may be posted.
  std::byte* data = nullptr;
  bool on_device = false;
  std::size_t slice_bytes = SIZE_MAX;
  std::uint32_t slices = 1, slices_ready = 0, slices_posted = 0, slices_left = 1;
  bool under_way = false;                             // some transfer of it has been posted
  std::vector<std::uint32_t>* slices_over = nullptr;  // where a slice's number goes as it ends
  const Plan* plan = nullptr;                         // kPlan
  std::uint64_t start = 0;                            // kPlan: its number among those of its group
  bool over = false;
  Status status;
  std::optional<std::uint64_t> receipts;  // once it is done but for these, see Rails::receipts()
  bool moved = false;                     // since check_deadline() looked
  bool stirred = false;                   // kPlan: transfers have ended since its last progress()
  void complete(const Completion& transfer) {  // kPlan
    run.complete(transfer);
    stirred = true;
  }
  Stall stall;
  std::chrono::milliseconds look_after = kLookAfter;
  std::function<void(const Status&)> on_done;
  std::shared_ptr<GroupState> keep;  // detached: nobody holds a handle
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

// A collective that is over on this rank, kept for a while: a message of it that comes now is one
// that this rank did not expect.
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

// What communicators of the same ranks, in the same order, have in common.
struct GroupCache {
  std::map<PlanKey, std::unique_ptr<Plan>> plans;
  // By root, too: what is found first must not depend on which communicator called first here.
  std::map<std::pair<PickKey, Rank>, std::vector<Candidate>> candidates;
  // Why an algorithm leaves its rails; empty where it does not.
  std::map<std::tuple<const Algorithm*, Rank, bool>, std::string> breaches;
  bool proved = false;  // Core::prove_rails()
};

struct DeviceLanes;  // gpu/lane.h
// Whether this thread is one of a communicator's lanes, which cannot end the communicator.
inline thread_local bool lane_thread = false;

// Lives as long as a Communicator or an operation of it; the fixed ones as long as the core.
struct GroupState {
  Core* core = nullptr;
  std::vector<Rank> ranks;  // world ranks
  Rank me = 0;              // index in ranks
  std::uint32_t id = 0;     // the same on every rank of the group
  Shape shape;
  bool one_machine = false;      // every pair talks through shm
  std::unique_ptr<Board> board;  // where there is one
  std::uint32_t board_round = 0;
  Counters::BoardTraffic* board_traffic = nullptr;  // once there was any
  std::deque<Task*> board_queue;                    // the first one is published, the others wait
  // Collectives by schedules: those that run, in order, and those that wait until the first of
  // these is less than kWindow behind.
  std::deque<Task*> running, next;
  std::uint64_t starts = 0;
  std::uint64_t sequence = 0;                               // of collectives
  std::vector<std::uint64_t> sends, recvs;                  // per peer, of point-to-point messages
  std::vector<std::uint64_t> sent_slices, received_slices;  // what they travelled in
  std::array<Past, 16> past;
  std::uint32_t next_past = 0;
  void remember(std::uint64_t tag, const Head& head) {
    past[next_past++ % past.size()] = {tag, head};
  }
  std::shared_ptr<GroupCache> cache;
  std::array<const Algorithm*, kCollectives> forced{};
  std::map<PickKey, const Algorithm*> picks;
  // What the last call of each collective found: the next one mostly wants the same.
  struct Settled {
    const std::pair<const PickKey, const Algorithm*>* pick = nullptr;
    const std::pair<const PlanKey, std::unique_ptr<Plan>>* plan = nullptr;
    bool by_name = false;  // the algorithm was asked for
  };
  std::array<Settled, kCollectives> settled;
  const Algorithm* last = nullptr;
  bool last_on_board = false;
  std::shared_ptr<DeviceLanes> device;  // calls on device memory, where there were any
  // A lane's companion: the user's operation that its own ones are a part of. record 0: none.
  struct PartOf {
    std::uint64_t record = 0, tag = 0;
    GroupState* group = nullptr;
    Collective collective = Collective::kBarrier;
    Head head = {};
  } part_of;
};

}  // namespace weft
