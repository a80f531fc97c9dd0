// Waits for tasks with a deadline, and runs the progress thread and the callback thread. This file
// does not depend on which rank caused a task to be late (failures.cc).
#include "coll/runtime/waiting.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <utility>

#include "coll/runtime/core.h"
#include "topo/base/thread.h"
#include "topo/base/yield.h"

namespace weft {

using Clock = std::chrono::steady_clock;

// A thread that waits for a lane checks at this interval whether another task is under way.
constexpr std::chrono::milliseconds kLookAround{1};
// Waiting::while_waiting is called in one of this many turns that yield.
constexpr int kTurnsBetween = 8;
// Without tasks, the progress thread polls the rails at this interval.
constexpr std::chrono::milliseconds kRailsEvery{20};
// The progress thread takes over tasks after the program has not called weft for this long: at
// first, and after repeated calls. While the program keeps calling, each check of the thread takes
// a core from it for a few us, in vain.
constexpr std::chrono::microseconds kLeastGrace{50}, kMostGrace{400};

// ---- giving way ----------------------------------------------------------------------------

namespace {

// Unlocks the mutex until no other thread waits for it (at most for 100 yields).
void let_in(Core& core, CoreLock& lock) WEFT_REQUIRES(core_held) {
  lock.without([&] {
    for (int i = 0; i < 100 && core.mutex.wanted(); ++i) yield_core();
  });
}

// The polling of one thread, from the first turn of a wait to the wait's end.
class Polling {
 public:
  // between: called without the lock after some turns without progress; null: none.
  Polling(const Core& core, void (*between)());
  // Makes progress once. While nothing moves, turns first spin, then yield the core, then sleep for
  // a moment or until a transport wakes them; yielding and sleeping release the lock. kLookAtClock:
  // the caller must check the job and the clock before the next turn.
  enum class Turn : bool { kPollOn, kLookAtClock };
  Turn turn(Core& core, CoreLock& lock) WEFT_REQUIRES(core_held);

 private:
  void give_way(Core& core, CoreLock& lock) WEFT_REQUIRES(core_held);

  const int spins_;
  void (*const between_)();
  int idle_ = 0;
  std::uint64_t turns_ = 0;
  std::vector<int> fds_;
};

Polling::Polling(const Core& core, void (*between)())
    : spins_(core.oversubscribed ? core.tuning.spins_oversubscribed : core.tuning.spins),
      between_(between) {}

Polling::Turn Polling::turn(Core& core, CoreLock& lock) {
  const bool now_and_then = ++turns_ % 64 == 0;
  const Turn due = now_and_then ? Turn::kLookAtClock : Turn::kPollOn;
  const bool moved = core.tasks.progress();
  core.run_callbacks(lock);
  if (core.mutex.wanted()) let_in(core, lock);
  if (moved) {
    idle_ = 0;
    return due;
  }
  if (++idle_ < spins_) {
    if (idle_ > kEager) relax();
    return due;
  }
  give_way(core, lock);
  return Turn::kLookAtClock;
}

void Polling::give_way(Core& core, CoreLock& lock) {
  const bool yields = idle_ < spins_ + core.tuning.yields;
  // `between_` takes longer than a turn that yields, and most waits end sooner.
  if (between_ && (!yields || idle_ % kTurnsBetween == 0)) lock.without(between_);
  if (yields) return lock.without(yield_core);
  fds_.clear();
  if (!core.links.arm(fds_)) return;
  std::vector<pollfd> polls;
  for (const int fd : fds_) polls.push_back({fd, POLLIN, 0});
  core.telemetry->napping();
  lock.without([&] {
    const timespec nap{0, std::chrono::nanoseconds(core.tuning.nap).count()};
    ppoll(polls.data(), polls.size(), &nap, nullptr);
  });
}

}  // namespace

// ---- waiting -------------------------------------------------------------------------------

bool Waiting::check_deadline(Task* task, Clock::time_point now) {
  if (task->over || !task->polled()) return task->over;
  core_.failures.hear();
  core_.failures.sweep(now);
  if (task->over || task->patient) return task->over;
  const bool moved = std::exchange(task->moved, false);
  if (moved) core_.telemetry->moving();
  const bool late = task->stall.look(now, moved, core_.tasks.moves(), core_.options.timeout);
  core_.failures.end_left_behind(task, now);
  if (task->over) return true;
  const auto idle = task->stall.idle(now);
  core_.telemetry->waiting(idle);
  if (moved) task->look_after = kLookAfter;
  if (idle > task->look_after) {
    task->look_after *= 2;
    for (const Task* other : core_.tasks.all())
      if (Status why = other->mismatch(); !why.ok())
        core_.failures.suspect(
            {.scope = core_.failures.scope_of(*other->group), .why = std::move(why)});
  }
  if (late)
    core_.failures.suspect(
        {Failures::Suspicion::What::kLate, core_.failures.scope_of(*task->group), task});
  return false;
}

namespace {

// Whether any task progresses only in waits, not by a lane.
bool others_move_here(const Core& core) WEFT_REQUIRES(core_held) {
  return std::ranges::any_of(core.tasks.all(),
                             [](const Task* task) { return task->group->part_of.record == 0; });
}

}  // namespace

bool Waiting::wait_until(Task* task, Clock::time_point end, CoreLock& lock) {
  if (!task->polled()) {
    Polling polling(core_, while_waiting);
    for (auto now = Clock::now(); !task->over && now < end; now = Clock::now()) {
      if (!served_ && others_move_here(core_))
        polling.turn(core_, lock);
      else
        lane_task_over_.wait_until(lock, std::min(end, now + kLookAround),
                                   [&] { return task->over; });
    }
  } else if (!task->over) {
    Polling polling(core_, while_waiting);
    come_by();
    ++waiters_;
    bool in_time = true;
    while (!task->over && in_time) {
      if (polling.turn(core_, lock) == Polling::Turn::kPollOn || task->over) continue;
      const auto now = Clock::now();
      check_deadline(task, now);
      in_time = now < end;
    }
    --waiters_;
  }
  end_wait(task, lock);
  return task->over;
}

// A thread of the program stops polling.
inline void Waiting::end_wait(const Task* task, CoreLock& lock) {
  if (!task->polled()) return core_.run_callbacks(lock);
  core_.telemetry->moving();
  core_.run_callbacks(lock);
  // Without tasks, waking the progress thread would only take the core from this thread.
  if (asleep_ && waiters_ == 0 && !core_.tasks.all().empty()) to_serve_.notify_one();
}

Status Waiting::wait(Task* op, CoreLock& lock, bool& give_way) {
  if (op->over)
    end_wait(op, lock);
  else
    wait_until(op, Clock::time_point::max(), lock);
  Status status;
  if (!op->status.ok()) status = std::exchange(op->status, {});
  // Ranks that share this core may have received their data: they run before this rank's next call.
  give_way = core_.oversubscribed && op->polled() && !op->group->one_machine && status.ok() &&
             !op->what().message;
  op->release();
  return status;
}

Status Waiting::wait(Task* op) {
  bool give_way = false;
  Status status;
  {
    CoreLock lock(core_.mutex);
    status = wait(op, lock, give_way);
  }
  if (give_way) yield_core();
  return status;
}

// ---- tasks without a waiting thread --------------------------------------------------------

void Waiting::call_ended(CoreLock& lock) {
  if (lane_thread) return to_call_.notify_one();
  while (core_.tasks.any_ended()) {
    std::vector<Tasks::Ended> now = core_.tasks.take_ended();
    lock.without([&] {
      for (Tasks::Ended& e : now)
        if (e.call) e.call(e.status);
      now.clear();  // may end communicators, which takes the lock
    });
  }
}

void Waiting::sleep(CoreLock& lock) {
  asleep_ = true;
  if (!core_.links.rails) {
    to_serve_.wait(lock);
  } else {  // a peer may request messages that were lost with a rail
    to_serve_.wait_for(lock, kRailsEvery);
    if (waiters_ == 0 && core_.tasks.all().empty()) core_.links.poll_rails();
  }
  asleep_ = false;
}

// Programs mostly wait for the tasks they have started, and progress them meanwhile: a second
// polling thread contends for the mutex and, with few cores, for the core. So this thread backs off
// while the program calls weft, and checks `visits_` between naps: waking the thread for each call
// would cost more than a small call.
void Waiting::serve() {
  CoreLock lock(core_.mutex);
  Polling polling(core_, nullptr);
  std::chrono::microseconds grace = kLeastGrace;
  std::uint64_t seen = visits_;
  while (served_) {
    if (visits_ != seen) {
      lock.without([&] {
        do {
          seen = visits_;
          std::this_thread::sleep_for(grace);
          grace = std::min(2 * grace, kMostGrace);
        } while (served_ && visits_ != seen);
      });
      continue;
    }
    if (waiters_ > 0 || core_.tasks.all().empty()) {  // a waiting thread progresses all tasks
      sleep(lock);
      continue;
    }
    grace = kLeastGrace;
    const Polling::Turn turn = polling.turn(core_, lock);
    if (core_.mutex.wanted()) let_in(core_, lock);
    if (turn == Polling::Turn::kPollOn) continue;
    const auto now = Clock::now();
    for (std::size_t i = 0; i < core_.tasks.all().size(); ++i)
      check_deadline(core_.tasks.all()[i], now);
    core_.run_callbacks(lock);
  }
}

void Waiting::start_serving() {
  served_ = true;
  try {
    server_ = start_thread("the progress thread (WEFT_PROGRESS_THREAD)", [this] { serve(); });
  } catch (const Error& e) {
    served_ = false;
    CoreLock lock(core_.mutex);
    core_.failures.fail({Code::kTransport, fmt::format("rank {}: {}", core_.job->rank(), e.what()),
                         core_.job->rank()},
                        nullptr, lock);
    throw;
  }
}

void Waiting::stop_serving() noexcept {
  {
    const CoreLock lock(core_.mutex);
    if (!served_.exchange(false)) return;
    to_serve_.notify_one();
  }
  server_.join();
}

void Waiting::start_calling() {
  if (calls_) return;
  caller_ = start_thread("the thread of callbacks", [this] {
    CoreLock guard(core_.mutex);
    while (calls_) {
      to_call_.wait(
          guard, [this]() WEFT_REQUIRES(core_held) { return core_.tasks.any_ended() || !calls_; });
      core_.run_callbacks(guard);
    }
  });
  calls_ = true;
}

void Waiting::stop_calling() noexcept {
  {
    const CoreLock lock(core_.mutex);
    if (!std::exchange(calls_, false)) return;
    to_call_.notify_one();
  }
  caller_.join();
}

}  // namespace weft
