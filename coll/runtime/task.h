// Task: a collective or message under way. It knows no clock and no thread; the mutex of Core
// guards it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "coll/call_descriptor.h"
#include "coll/engine/engine.h"
#include "coll/observe/recorder.h"
#include "coll/runtime/group_state.h"
#include "coll/runtime/lock.h"
#include "coll/runtime/telemetry.h"
#include "coll/runtime/waiting.h"
#include "topo/base/status.h"
#include "transport/transport.h"

namespace weft {

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

  // ---- what the runtime tells the task. Pure functions: of a default GCC would guess, where it
  // sees no kind of task, that all tasks have it.
  // Tasks::submit() has taken the task in: posts what can go at once.
  virtual void start() WEFT_REQUIRES(core_held) = 0;
  // A transfer of the task has ended.
  virtual void complete(const Completion& transfer) WEFT_REQUIRES(core_held) = 0;
  // Moves along, after complete(), or in every turn of those who wait (Tasks::ask()).
  enum class Step : std::uint8_t { kGoOn, kDone, kFailed };
  virtual Step progress() WEFT_REQUIRES(core_held) = 0;
  // The task has succeeded; the next tasks of its group may go.
  virtual void done() WEFT_REQUIRES(core_held) = 0;
  // The task and the others of its group have failed: drops their order, and gives up what the task
  // holds. The runtime cancels its transfers.
  virtual void cancel() WEFT_REQUIRES(core_held) {}
  // Nobody needs the task any more.
  virtual void release() WEFT_REQUIRES(core_held) { delete this; }

  // ---- what the runtime asks the task
  // The user's call that the task is, or that it is a part of.
  virtual CallDescriptor what() const = 0;
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
  Call call;                 // of a message: its head and its tag
  std::uint32_t id = 0;      // the upper half of the ids of the task's transfers; 0: none yet
  std::uint64_t record = 0;  // the call's number in the flight recorder
  Telemetry::Timing timing;
  bool over = false;
  Status status;
  std::optional<std::uint64_t> receipts;  // set when these, of Rails, are all that is missing
  bool moved = false;                     // the task has moved since the last check_deadline()
  bool marked = false;                    // in Tasks::marked_
  bool asked = false;                     // in Tasks::asked_
  std::size_t at = kNowhere;              // index into Tasks::all()
  static constexpr std::size_t kNowhere = ~std::size_t{0};
  bool patient = false;  // Request::set_patient()
  Stall stall;
  std::chrono::milliseconds look_after = kLookAfter;
  std::function<void(const Status&)> on_done;
  std::shared_ptr<GroupState> keep;  // set by Request::detach(): no Request holds the task
};

// The tasks with schedules of a process, and which of them are free. They keep their scratch.
struct SchedulePool {
  SpareScratch scratch;  // of tasks that have ended
  std::vector<std::unique_ptr<ScheduleTask>> all;
  std::vector<ScheduleTask*> free;
};

}  // namespace weft
