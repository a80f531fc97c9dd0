// Task: a collective or message under way; GroupState: what a communicator keeps on this rank.
// Both know no clock and no thread; the mutex of Core guards both.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "coll/api/communicator.h"
#include "coll/engine/engine.h"
#include "coll/engine/plan.h"
#include "coll/runtime/lock.h"
#include "coll/runtime/telemetry.h"
#include "coll/runtime/waiting.h"
#include "coll/schedule/algorithm.h"
#include "coll/select/choice.h"
#include "transport/transport.h"

namespace weft {

// The tag of a transfer has, from the top: the communicator's id, one bit for point to point, and
// then either a counter, or the collective's number, its round and its ordinal (engine.h).
inline constexpr int kSequenceBits = 12;
inline constexpr int kMessageBit = kSequenceBits + kRoundBits + kOrdinalBits;
inline constexpr int kIdShift = kMessageBit + 1;

// Bits above a communicator's id that name one of its companions (gpu/lane.h, codec/coded_task.h);
// 0: the communicator.
inline constexpr int kLaneBits = 4;

// The ids of the communicators that every job has; groups without a common rank share an id.
enum FixedGroup : std::uint32_t { kWorldGroup, kHostGroup, kRailGroup, kFixedGroups };

// The most ranks of a communicator with a board.
inline constexpr int kMostOnBoard = 256;

// After this long without any progress a rank looks for unexpected messages that show a mismatch,
// then again after twice that time, and so on.
inline constexpr std::chrono::milliseconds kLookAfter{20};

// A collective, or one point-to-point message, under way. Each kind of task is in a file of its
// own (coll/tasks); the runtime knows no kind. The caller of every function holds the core's mutex.
struct Task {
  Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  virtual ~Task() = default;

  // ---- what the runtime tells the task
  // Tasks::submit() has taken the task in: posts what can go at once.
  virtual void start() WEFT_REQUIRES(core_held) {}
  // A transfer of the task has ended.
  virtual void complete(const Completion& transfer) WEFT_REQUIRES(core_held) { (void)transfer; }
  // Moves along, after complete(), or in every turn of those who wait (Tasks::ask()).
  enum class Step : std::uint8_t { kGoOn, kDone, kFailed };
  virtual Step progress() WEFT_REQUIRES(core_held) { return Step::kGoOn; }
  // The task has succeeded; the next tasks of its group may go.
  virtual void done() WEFT_REQUIRES(core_held) {}
  // The task and the others of its group have failed: drops their order, and gives up what the task
  // holds. The runtime cancels its transfers.
  virtual void cancel() WEFT_REQUIRES(core_held) {}
  // Nobody needs the task any more.
  virtual void release() WEFT_REQUIRES(core_held) { delete this; }

  // ---- what the runtime asks the task
  // A world rank that the task waits for; kNoRank: none.
  virtual Rank waiting_for() const { return kNoRank; }
  // Fills in how far the task is with each peer; false: it waits for others of its group.
  virtual bool survey(Recorder::Stalled& how_far) const = 0;
  // After Step::kFailed: what the transport says of it.
  virtual Status failure() const WEFT_REQUIRES(core_held) { return {}; }
  // Searches for a message that shows that a peer runs another call than this rank does or did; ok
  // when there is none. The search takes long: it is for when nothing moves.
  virtual Status mismatch() const WEFT_REQUIRES(core_held) { return {}; }
  // What the task has moved to and from each peer.
  virtual std::span<const Run::Traffic> traffic() { return {}; }
  // Whether threads that wait for the task move it, by a deadline; else a thread of its own does.
  virtual bool polled() const { return true; }

  GroupState* group = nullptr;
  CallDescriptor what;       // the user's call that the task is, or that it is a part of
  Call call;                 // of a message: its head and its tag
  std::uint32_t id = 0;      // the upper half of the ids of the task's transfers; 0: none yet
  std::uint64_t record = 0;  // the call's number in the flight recorder
  Telemetry::Timing timing;
  bool over = false;
  Status status;
  std::optional<std::uint64_t> receipts;  // set when these, of Rails, are all that is missing
  bool moved = false;                     // the task has moved since the last check_deadline()
  bool stirred = false;                   // in Tasks::stirred_
  bool asked = false;                     // in Tasks::asked_
  std::size_t at = kNowhere;              // index into Tasks::all()
  static constexpr std::size_t kNowhere = ~std::size_t{0};
  bool patient = false;  // Request::set_patient()
  Stall stall;
  std::chrono::milliseconds look_after = kLookAfter;
  std::function<void(const Status&)> on_done;
  std::shared_ptr<GroupState> keep;  // set by Request::detach(): no Request holds the task
};

struct PlanKey {
  const Algorithm* algorithm;
  Rank root;
  bool in_place, small, premultiplied, deterministic;
  std::uint32_t ports;  // Core::port_set
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
  bool proved = false;  // prove_rails() has run
};

// What follows from the arguments of a call except its addresses. A communicator keeps that of each
// collective's last call, since the next call mostly has the same arguments; of a collective with a
// root, of the last call with each of kKeptRoots roots, since roots often take turns.
inline constexpr unsigned kKeptRoots = 4;
struct Prepared {
  struct Arguments {
    std::uint64_t selection = 0;        // Core::selection; 0: of no call
    const Algorithm* forced = nullptr;  // null: auto
    std::size_t count = 0;
    Rank root = 0;
    DType type = DType::kFloat32;
    RedOp op = RedOp::kSum;
    bool in_place = false, deterministic = false;
    bool operator==(const Arguments&) const = default;
  } of;
  // What follows. `head` is unsealed; its place and the number in `what` and `packed` are those of
  // the last call.
  std::size_t total_bytes = 0;
  // What the call reads and writes, and where in each of the two buffers one and the same byte lies
  // in a call in place.
  std::size_t in_bytes = 0, out_bytes = 0, in_at = 0, out_at = 0;
  bool board = false, empty = false;
  Head head;
  CallDescriptor what;
  book::Record packed;  // of `what`
  const Algorithm* algorithm = nullptr;
  const Plan* plan = nullptr;  // null: not looked for yet, or the call needs none
  Slicing slicing;
  bool timed = true;  // the time of the call says something of the algorithm

  // Whether a call has the arguments of the last one, and is right like that: of other addresses at
  // most, of buffers that do not overlap. Then sets `in_place`.
  bool repeated_by(const Call& call, Rank root, bool& in_place) const {
    if (of.selection == 0 || of.count != call.count || of.type != call.type || of.op != call.op ||
        of.root != root || call.is_vector || call.op == RedOp::kPreMulSum)
      return false;
    const auto in = reinterpret_cast<std::uintptr_t>(call.in);
    const auto out = reinterpret_cast<std::uintptr_t>(call.out);
    if ((in_bytes && !in) || (out_bytes && !out)) return false;
    if (in_bytes == 0 || out_bytes == 0) {
      in_place = of.in_place;
      return true;
    }
    in_place = in + in_at == out + out_at;
    return in_place || in >= out + out_bytes || out >= in + in_bytes;
  }
};

class BoardTask;     // coll/tasks/board_task.h
class ScheduleTask;  // coll/tasks/schedule_task.h

// The tasks with schedules of a process, and which of them are free. They keep their scratch.
struct SchedulePool {
  SpareScratch scratch;  // of tasks that have ended
  std::vector<std::unique_ptr<ScheduleTask>> all;
  std::vector<ScheduleTask*> free;
};

struct DeviceLanes;  // gpu/lane.h
struct CodedCalls;   // codec/coded_task.h
// Whether this thread is a communicator's GPU lane, which cannot end the communicator.
inline thread_local bool lane_thread = false;

// Starts a collective of a companion on host memory, and returns its task, or null with `status`
// where it is over already (coll/api/communicator.cc).
Task* begin_part(GroupState& companion, Collective c, Call& call, Status& status)
    WEFT_REQUIRES(core_held);

// A communicator on this rank. It lives as long as a Communicator or a task of it; the fixed ones
// (FixedGroup) live as long as the core.
struct GroupState {
  Core* core = nullptr;
  std::vector<Rank> ranks;  // world ranks
  Rank me = 0;              // this rank's index in `ranks`
  std::uint32_t id = 0;     // the same on every rank of the group
  // As `id`, but never used again for a group of the same first rank.
  std::uint64_t number = 0;
  // Of a companion: the communicator, with which the companion fails; null: none.
  const GroupState* whole = nullptr;
  // The communicator is over: every call returns `failure`, which sticks.
  std::atomic<bool> broken{false};
  Status failure = {};
  Shape shape;
  bool one_machine = false;      // shm connects every pair of the group
  std::unique_ptr<Board> board;  // null: the group has no board
  std::uint32_t board_round = 0;
  Counters::BoardTraffic* board_traffic = nullptr;  // null until a board carries data
  std::deque<BoardTask*> board_queue;               // the first task is published, the others wait
  // Tasks with schedules in the order of their calls: `running` ones have transfers, `next` ones
  // wait for the window.
  std::deque<ScheduleTask*> running, next;
  std::uint64_t starts = 0;                                 // tasks with schedules so far
  std::uint64_t sequence = 0;                               // collectives so far
  std::vector<std::uint64_t> sends, recvs;                  // messages so far, by peer
  std::vector<std::uint64_t> sent_slices, received_slices;  // slices of these messages, by peer
  std::array<Past, 16> past;
  std::uint32_t next_past = 0;
  // Describes a call of this communicator that has the signature `head`.
  CallDescriptor describe(Collective c, const Call& call, const Head& head, Rank root,
                          std::uint64_t number) const {
    CallDescriptor what{.comm = id,
                        .leader = ranks.front(),
                        .members = static_cast<int>(ranks.size()),
                        .sequence = number,
                        .collective = c,
                        .is_vector = call.is_vector,
                        .type = call.type,
                        .op = call.op,
                        .codec = call.codec,
                        .root = root,
                        .count = call.count};
    if (!call.is_vector) return what;
    std::uint64_t sum = 0;
    for (const std::size_t count : call.counts) sum += count;
    what.set_word(by_pairs(what) ? sum : head.about[0]);
    return what;
  }
  // The tag of the collective before which there were `number`.
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
  // The pick and the plan of each collective's last call; the next call mostly needs the same.
  struct Settled {
    const std::pair<const PickKey, const Algorithm*>* pick = nullptr;
    const std::pair<const PlanKey, std::unique_ptr<Plan>>* plan = nullptr;
    bool by_name = false;  // the user named the algorithm
  };
  std::array<Settled, kCollectives> settled;
  std::array<std::array<Prepared, kKeptRoots>, kCollectives> prepared;
  Prepared& prepared_for(Collective c, Rank root) {
    return prepared[static_cast<std::size_t>(c)][static_cast<unsigned>(root) % kKeptRoots];
  }
  const Algorithm* last = nullptr;
  bool last_on_board = false;
  std::shared_ptr<DeviceLanes> device;  // null until a call uses device memory or a stream
  std::shared_ptr<CodedCalls> coded;    // null until a call is compressed
  std::vector<std::unique_ptr<GroupState>> companions;  // of compressed calls
  // Of a companion: the user's call that the companion's tasks are a part of. record 0: none.
  struct PartOf {
    std::uint64_t record = 0, tag = 0;
    GroupState* group = nullptr;
    CallDescriptor what;
    Head head = {};
  } part_of;
  // Of a lane: what runs the collectives that start now (engine/compute.h); null: the processor.
  Compute* compute = nullptr;
};

}  // namespace weft
