// Waits for tasks by a deadline, and runs the progress thread and the thread of callbacks.
// This file does not know who is to blame for a task that is late (failing.cc).
#include "coll/runtime/waiting.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <utility>

#include "coll/runtime/core.h"
#include "coll/runtime/internals.h"
#include "topo/base/thread.h"
#include "topo/base/yield.h"

namespace weft {

using Clock = std::chrono::steady_clock;

// Who waits for a lane looks this often whether something else is under way.
constexpr std::chrono::milliseconds kLookAround{1};
// Of so many turns that yield, one calls Core::while_waiting.
constexpr int kTurnsBetween = 8;
// Where no task is under way, the progress thread moves rails along this often.
constexpr std::chrono::milliseconds kRailsEvery{20};
// The progress thread moves tasks once the program has not come by for so long: at first, and after
// it has come by again and again. Then each look of the thread takes a core from the program, for a
// few us, in vain.
constexpr std::chrono::microseconds kLeastGrace{50}, kMostGrace{400};

// ---- giving way ----------------------------------------------------------------------------

namespace {

// Lets the mutex go until others have had it.
void let_in(Core& core, CoreLock& lock) WEFT_REQUIRES(core.mutex) {
  lock.without([&] {
    for (int i = 0; i < 100 && core.mutex.wanted(); ++i) yield_core();
  });
}

// The polling of one thread, from the first turn of a wait to the wait's end.
class Polling {
 public:
  // between: called, without the lock, when nothing has moved for some turns; null: nothing.
  Polling(const Core& core, void (*between)());
  // Makes progress once. While nothing moves, turns first spin, then yield the core, then sleep for
  // a moment or until a transport wakes them; yielding and sleeping let the lock go. kLookAtClock:
  // the caller must look at the job and at the clock before the next turn.
  enum class Turn : bool { kPollOn, kLookAtClock };
  Turn turn(Core& core, CoreLock& lock) WEFT_REQUIRES(core.mutex);

 private:
  void give_way(Core& core, CoreLock& lock) WEFT_REQUIRES(core.mutex);

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
  const bool moved = core.progress();
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
  // What is between takes longer than a turn that yields, and most waits end sooner.
  if (between_ && (!yields || idle_ % kTurnsBetween == 0)) lock.without(between_);
  if (yields) return lock.without(yield_core);
  fds_.clear();
  bool armed = true;
  for (const std::size_t l : core.polled) armed = core.links[l]->arm(fds_) && armed;
  if (!armed) return;
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

bool Core::check_deadline(Task* task, Clock::time_point now) {
  if (task->over || !task->polled()) return task->over;
  hear();
  if (!swept.empty()) [[unlikely]]
    sweep(now);
  if (task->over || task->patient) return task->over;
  const bool moved = std::exchange(task->moved, false);
  if (moved) telemetry->moving();
  const bool late = task->stall.look(now, moved, moves, options.timeout);
  if (!left.empty()) [[unlikely]] {
    end_left_behind(task, now);
    if (task->over) return true;
  }
  const auto idle = task->stall.idle(now);
  telemetry->waiting(idle);
  if (moved) task->look_after = kLookAfter;
  if (idle > task->look_after) {
    task->look_after *= 2;
    for (const Task* other : tasks)
      if (Status why = other->mismatch(); !why.ok())
        suspect({.scope = scope_of(*other->group), .why = std::move(why)});
  }
  if (late) suspect({Suspicion::What::kLate, scope_of(*task->group), task});
  return false;
}

namespace {

// Whether there is something under way that moves in waits only, and not by a lane.
bool others_move_here(const Core& core) WEFT_REQUIRES(core.mutex) {
  return std::ranges::any_of(core.tasks,
                             [](const Task* task) { return task->group->part_of.record == 0; });
}

}  // namespace

bool Core::wait_until(Task* task, Clock::time_point end, CoreLock& lock) {
  if (!task->polled()) {
    Polling polling(*this, while_waiting);
    for (auto now = Clock::now(); !task->over && now < end; now = Clock::now()) {
      if (!served && others_move_here(*this))
        polling.turn(*this, lock);
      else
        device_done.wait_until(lock, std::min(end, now + kLookAround), [&] { return task->over; });
    }
  } else if (!task->over) {
    Polling polling(*this, while_waiting);
    come_by();
    ++waiters;
    bool in_time = true;
    while (!task->over && in_time) {
      if (polling.turn(*this, lock) == Polling::Turn::kPollOn || task->over) continue;
      const auto now = Clock::now();
      check_deadline(task, now);
      in_time = now < end;
    }
    --waiters;
  }
  end_wait(task, lock);
  return task->over;
}

// A thread of the program does not poll any more.
inline void Core::end_wait(const Task* task, CoreLock& lock) {
  if (!task->polled()) return run_callbacks(lock);
  telemetry->moving();
  run_callbacks(lock);
  // Where nothing is left to move, waking the progress thread only takes the core from this one.
  if (asleep && waiters == 0 && !tasks.empty()) to_serve.notify_one();
}

Status Core::wait(Task* op, CoreLock& lock, bool& give_way) {
  if (op->over)
    end_wait(op, lock);
  else
    wait_until(op, Clock::time_point::max(), lock);
  Status status;
  if (!op->status.ok()) status = std::exchange(op->status, {});
  // Others of this core may have what they wait for: they come first, not this rank's next call.
  give_way =
      oversubscribed && op->polled() && !op->what.message && !op->group->one_machine && status.ok();
  op->release();
  return status;
}

Status Core::wait(Task* op) {
  bool give_way = false;
  Status status;
  {
    CoreLock lock(mutex);
    status = wait(op, lock, give_way);
  }
  if (give_way) yield_core();
  return status;
}

void Core::set_out() {
  {
    const CoreLock lock(mutex);
    usable = true;
  }
  if (options.progress_thread) start_serving();
}

void Core::away() noexcept {
  if (!mutex.try_lock()) return;
  const CoreLock lock(mutex, std::adopt_lock);
  if (!usable || ending || first_rail_link < 0) return;
  for (auto l = static_cast<std::size_t>(first_rail_link); l < links.size(); ++l)
    links[l]->before_pause();
}

// ---- the end of tasks that nobody waits for ------------------------------------------------

void Core::call_ended(CoreLock& lock) {
  if (lane_thread) return to_call.notify_one();
  while (!ended.empty()) {
    std::vector<Ended> now = std::exchange(ended, {});
    lock.without([&] {
      for (Ended& e : now)
        if (e.call) e.call(e.status);
      now.clear();  // may end communicators, which takes the lock
    });
  }
}

void Core::sleep(CoreLock& lock) {
  asleep = true;
  if (!rails) {
    to_serve.wait(lock);
  } else {  // a peer may ask for what was lost with a rail
    to_serve.wait_for(lock, kRailsEvery);
    if (waiters == 0 && tasks.empty()) poll_rails();
  }
  asleep = false;
}

// Programs mostly wait for what they have started, and move it along meanwhile: a second thread
// that moves it takes the mutex from them, and where cores are scarce, the core. So this one stands
// back while the program comes by, and looks by naps whether it still does: waking the thread for
// each call would cost more than a small call.
void Core::serve() {
  CoreLock lock(mutex);
  Polling polling(*this, nullptr);
  std::chrono::microseconds grace = kLeastGrace;
  std::uint64_t seen = visits;
  while (served) {
    if (visits != seen) {
      lock.without([&] {
        do {
          seen = visits;
          std::this_thread::sleep_for(grace);
          grace = std::min(2 * grace, kMostGrace);
        } while (served && visits != seen);
      });
      continue;
    }
    if (waiters > 0 || tasks.empty()) {  // whoever waits makes progress for all
      sleep(lock);
      continue;
    }
    grace = kLeastGrace;
    const Polling::Turn turn = polling.turn(*this, lock);
    if (mutex.wanted()) let_in(*this, lock);
    if (turn == Polling::Turn::kPollOn) continue;
    const auto now = Clock::now();
    for (std::size_t i = 0; i < tasks.size(); ++i) check_deadline(tasks[i], now);
    settle(lock);
  }
}

void Core::start_serving() {
  served = true;
  try {
    server = start_thread("the progress thread (WEFT_PROGRESS_THREAD)", [this] { serve(); });
  } catch (const Error& e) {
    served = false;
    CoreLock lock(mutex);
    fail({Code::kTransport, fmt::format("rank {}: {}", job->rank(), e.what()), job->rank()},
         nullptr, lock);
    throw;
  }
}

void Internals::name_communicator(Communicator& comm, std::string_view name) {
  const GroupState& group = comm.state();
  Core& core = *group.core;
  const CoreLock lock(core.mutex);
  core.telemetry->name_communicator(group, std::string(name));
}

void Internals::while_waiting(World& world, void (*between)()) {
  world.core_->while_waiting = between;
}

void Internals::set_timeout(World& world, std::chrono::milliseconds timeout) {
  const CoreLock lock(world.core_->mutex);
  world.core_->options.timeout = timeout;
}

void Internals::start_progress_thread(World& world) {
  if (!world.core_->served) world.core_->start_serving();
}

void Core::stop_serving() noexcept {
  {
    const CoreLock lock(mutex);
    if (!served.exchange(false)) return;
    to_serve.notify_one();
  }
  server.join();
}

void Core::start_calling() {
  if (calls) return;
  caller = start_thread("the thread of callbacks", [this] {
    CoreLock guard(mutex);
    while (calls) {
      to_call.wait(guard, [this]() WEFT_REQUIRES(mutex) { return !ended.empty() || !calls; });
      settle(guard);
    }
  });
  calls = true;
}

void Core::stop_calling() noexcept {
  {
    const CoreLock lock(mutex);
    if (!std::exchange(calls, false)) return;
    to_call.notify_one();
  }
  caller.join();
}

}  // namespace weft
