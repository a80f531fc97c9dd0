// Task: a collective or message under way. It uses no clock and no thread; the mutex of Core guards
// it.
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

// After this long without progress a rank searches unexpected messages for a mismatch; the interval
// then doubles.
inline constexpr std::chrono::milliseconds kLookAfter{20};

// A collective, or one point-to-point message, under way. Each kind of task has its own file
// (coll/tasks), unknown to the runtime. The caller of every function holds the core's mutex.
struct Task {
  Task() = default;
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  virtual ~Task() = default;

  // ---- called by the runtime. Pure functions: otherwise GCC would speculatively devirtualize
  // calls to the default implementation, in files that include no kind of task.
  // A transfer of the task has ended.
  virtual void complete(const Completion& transfer) WEFT_REQUIRES(core_held) = 0;
  // Makes progress: called after complete(), or in every poll (Tasks::ask()).
  enum class Step : std::uint8_t { kGoOn, kDone, kFailed };
  virtual Step progress() WEFT_REQUIRES(core_held) = 0;
  // The task has succeeded; the next tasks of its group may start.
  virtual void done() WEFT_REQUIRES(core_held) = 0;
  // All tasks of the group have failed: drops their order and the resources of this task. The
  // runtime cancels its transfers.
  virtual void cancel() WEFT_REQUIRES(core_held) {}
  // The task is no longer used.
  virtual void release() WEFT_REQUIRES(core_held) { delete this; }

  // ---- what the runtime asks the task
  // The user's call that the task runs, or is part of.
  CallDescriptor what() const {
    const GroupState::PartOf& whole = group->part_of;
    return whole.record ? numbered(whole.prepared->what, whole.number)
                        : numbered(prepared->what, number);
  }
  // A world rank for which the task waits; kNoRank: none.
  virtual Rank waiting_for() const { return kNoRank; }
  // Fills in the task's progress with each peer; false: it waits for other tasks of its group.
  virtual bool survey(Recorder::Stalled& how_far) const = 0;
  // After Step::kFailed: the error of the transport.
  virtual Status failure() const WEFT_REQUIRES(core_held) { return {}; }
  // Searches for a message that shows that a peer runs another call than this rank does or did; ok
  // if there is none. The search is slow: call it only in a stall.
  virtual Status mismatch() const WEFT_REQUIRES(core_held) { return {}; }
  // Bytes and messages sent to and received from each peer.
  virtual std::span<const Run::Traffic> traffic() { return {}; }
  // Whether waiting threads progress the task and check its deadline; otherwise a thread of its own
  // does.
  virtual bool polled() const { return true; }

  GroupState* group = nullptr;
  // The call's description, and its number among the communicator's collectives, or among the
  // messages to or from the peer.
  PreparedRef prepared;
  std::uint64_t number = 0;
  Call call;                 // of a message: only its head and its tag
  std::uint32_t id = 0;      // the upper half of the ids of the task's transfers; 0: none yet
  std::uint64_t record = 0;  // the call's number in the flight recorder; 0: not opened
  Telemetry::Timing timing;
  bool over = false;
  Status status;
  std::optional<std::uint64_t> receipts;  // receipts of Rails: the task waits only for these
  bool moved = false;                     // the task has moved since the last check_deadline()
  bool marked = false;                    // in Tasks::marked_
  bool asked = false;                     // in Tasks::asked_
  std::size_t at = kNowhere;              // index into Tasks::all()
  static constexpr std::size_t kNowhere = ~std::size_t{0};
  bool patient = false;  // Request::set_patient()
  Stall stall;
  std::chrono::milliseconds look_after = kLookAfter;
  std::function<void(const Status&)> on_done;
  std::shared_ptr<GroupState> keep;  // set by Request::detach(): no Request owns the task
};

// The tasks with schedules of a process; the free ones keep their scratch.
struct SchedulePool {
  SpareScratch scratch;  // of tasks that have ended
  std::vector<std::unique_ptr<ScheduleTask>> all;
  std::vector<ScheduleTask*> free;
};

}  // namespace weft
