// Waits for tasks, names a rank to blame when a task is late, and runs the progress thread and the
// thread of callbacks.
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

// Who waits for a lane looks this often whether something else is under way.
constexpr std::chrono::milliseconds kLookAround{1};
// Where no task is under way, the progress thread moves rails along this often.
constexpr std::chrono::milliseconds kRailsEvery{20};

// ---- giving way ----------------------------------------------------------------------------

namespace {

// The polling of one thread, from the first turn of a wait to the wait's end.
class Polling {
 public:
  explicit Polling(const Core& core);
  // Makes progress once. While nothing moves, turns first spin, then yield the core, then sleep for
  // a moment or until a transport wakes them; yielding and sleeping let the lock go. kLookAtClock:
  // the caller must look at the job and at the clock before the next turn.
  enum class Turn : bool { kPollOn, kLookAtClock };
  Turn turn(Core& core, CoreLock& lock) WEFT_REQUIRES(core.mutex);

 private:
  void give_way(Core& core, CoreLock& lock) WEFT_REQUIRES(core.mutex);

  const int spins_;
  int idle_ = 0;
  std::uint64_t turns_ = 0;
  std::vector<int> fds_;
};

Polling::Polling(const Core& core)
    : spins_(core.oversubscribed ? core.tuning.spins_oversubscribed : core.tuning.spins) {}

Polling::Turn Polling::turn(Core& core, CoreLock& lock) {
  const bool now_and_then = ++turns_ % 64 == 0;
  const Turn due = now_and_then ? Turn::kLookAtClock : Turn::kPollOn;
  const bool moved = core.progress();
  core.run_callbacks(lock);
  if (now_and_then && core.mutex.wanted())
    lock.without([&] {
      for (int i = 0; i < 100 && core.mutex.wanted(); ++i) yield_core();
    });
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
  if (idle_ < spins_ + core.tuning.yields) return lock.without(yield_core);
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

// ---- blame ---------------------------------------------------------------------------------

// A peer was waited for in vain. Who is to blame: a rank known to be dead, the root that the
// recorders of all ranks show, a rank that has gone silent, or (nobody knows better) the one waited
// for.
Status Core::deadline_status(Task* op) {
  if (const Status known = job->failure(); !known.ok()) return known;
  const GroupState::PartOf& whole = op->group->part_of;
  const std::string what =
      fmt::format("{} did not finish within {} ms",
                  name(whole.record ? whole.collective : op->collective), options.timeout.count());
  if (const Status cut = cut_off_status(what); !cut.ok()) return cut;
  if (const Status why = verdict(what); !why.ok()) return why;
  if (const Status silent = silence_status(what); !silent.ok()) return silent;
  Rank peer = kNoRank;
  if (op->kind == Task::Kind::kPlan) peer = op->run.waiting_for();
  if (op->kind == Task::Kind::kMessage) peer = op->group->ranks[static_cast<std::size_t>(op->root)];
  if (op->kind == Task::Kind::kBoard) peer = board_missing(*op->group);
  return {Code::kTimeout,
          fmt::format("{}: waiting for rank {}, which is alive; did it call the same collective "
                      "with the same arguments? (deadline: WEFT_TIMEOUT_MS)",
                      what, peer),
          peer};
}

// A rank that waits on the control plane has the deadline of the ranks that exchange messages
// meanwhile, and its time is up no later than theirs. So it inquires as they do.
Status Core::gather_status(const Error& thrown) {
  if (const Status known = job->failure(); !known.ok()) return known;
  if (dynamic_cast<const GatherFailed*>(&thrown) == nullptr) return {};
  const std::string what = thrown.what();
  const CoreLock lock(mutex);
  if (const Status cut = cut_off_status(what); !cut.ok()) return cut;
  if (const Status why = verdict(what); !why.ok()) return why;
  if (const Status silent = silence_status(what); !silent.ok()) return silent;
  return {Code::kPeerFailed, what};
}

// Where nobody on two or more other hosts is heard any more, it is this one that is cut off: none
// of them is to blame. Only rank 0 hears of all.
Status Core::cut_off_status(const std::string& what) const {
  const int here = topology->host(job->rank()), others = topology->nhosts() - 1;
  if (job->rank() != 0 || others < 2) return {};
  const std::vector<Rank> silent = job->silent(silence_age());
  std::vector<bool> mute(static_cast<std::size_t>(job->size()));
  for (const Rank r : silent) mute[static_cast<std::size_t>(r)] = true;
  for (Rank r = 0; r < job->size(); ++r)
    if (topology->host(r) != here && !mute[static_cast<std::size_t>(r)]) return {};
  return {
      Code::kPeerFailed,
      fmt::format("{}: no rank of the {} other hosts has been heard of for {} ms: host {} is cut "
                  "off from them",
                  what, others, silence_age().count(), topology->host_name(here))};
}

// Names the rank that has been silent for the longest time: on a busy machine others may be late.
Status Core::silence_status(const std::string& what) const {
  auto age = silence_age();
  std::vector<Rank> silent = job->silent(age);
  if (silent.empty()) return {};
  while (silent.size() > 1) {
    const auto longer = age * 9 / 8;
    std::vector<Rank> fewer = job->silent(longer);
    if (fewer.empty()) break;
    age = longer;
    silent = std::move(fewer);
  }
  return {Code::kPeerFailed,
          fmt::format("{}: rank {} on host {} has not been heard of for {} ms (stopped, or its "
                      "host is cut off)",
                      what, silent[0], topology->host_name(topology->host(silent[0])), age.count()),
          silent[0]};
}

// ---- waiting -------------------------------------------------------------------------------

bool Core::check_deadline(Task* op, Clock::time_point now) {
  if (op->over) return true;
  if (op->kind == Task::Kind::kDevice) return false;  // its lane bounds every wait
  if (job->failed()) {
    fail(job->failure());
    return true;
  }
  const bool moved = std::exchange(op->moved, false);
  if (moved) telemetry->moving();
  const bool late = op->stall.look(now, moved, moves, options.timeout);
  const auto idle = op->stall.idle(now);
  telemetry->waiting(idle);
  if (moved) op->look_after = kLookAfter;
  if (idle > op->look_after) {
    op->look_after *= 2;
    if (const Status status = disagreement_status(); !status.ok()) {
      fail(status);
      return true;
    }
  }
  if (late) fail(deadline_status(op));
  return op->over;
}

namespace {

// Whether there is something under way that moves in waits only, and not by a lane.
bool others_move_here(const Core& core) WEFT_REQUIRES(core.mutex) {
  const auto by_caller = [](const GroupState* g) { return g->part_of.record == 0; };
  return std::ranges::any_of(core.active, by_caller, &Task::group) ||
         std::ranges::any_of(core.boards_busy, by_caller);
}

}  // namespace

bool Core::wait_until(Task* op, Clock::time_point end, CoreLock& lock) {
  if (op->kind == Task::Kind::kDevice) {  // its lane does the work
    Polling polling(*this);
    for (auto now = Clock::now(); !op->over && now < end; now = Clock::now()) {
      if (!served && others_move_here(*this))
        polling.turn(*this, lock);
      else
        device_done.wait_until(lock, std::min(end, now + kLookAround), [&] { return op->over; });
    }
    run_callbacks(lock);
    return op->over;
  }
  ++waiters;
  Polling polling(*this);
  bool in_time = true;
  while (!op->over && in_time) {
    if (polling.turn(*this, lock) == Polling::Turn::kPollOn || op->over) continue;
    const auto now = Clock::now();
    check_deadline(op, now);
    in_time = now < end;
  }
  --waiters;
  telemetry->moving();
  run_callbacks(lock);
  if (served && waiters == 0) to_serve.notify_one();
  return op->over;
}

Status Core::wait(Task* op, CoreLock& lock, bool& give_way) {
  wait_until(op, Clock::time_point::max(), lock);
  Status status = std::move(op->status);
  // Others of this core may have what they wait for: they come first, not this rank's next call.
  give_way =
      oversubscribed && op->kind == Task::Kind::kPlan && !op->group->one_machine && status.ok();
  give_back(op);
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
  for (auto l = static_cast<std::size_t>(first_rail_link); l < links.size(); ++l) links[l]->leave();
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

void Core::serve() {
  CoreLock lock(mutex);
  Polling polling(*this);
  while (served) {
    // Whoever waits makes progress for all.
    if (waiters > 0 || (active.empty() && boards_busy.empty())) {
      if (waiters > 0 || !rails) {
        to_serve.wait(lock);
      } else {  // a peer may ask for what was lost with a rail
        to_serve.wait_for(lock, kRailsEvery);
        poll_rails();
      }
      continue;
    }
    if (polling.turn(*this, lock) == Polling::Turn::kPollOn) continue;
    const auto now = Clock::now();
    for (std::size_t i = 0; i < active.size(); ++i)
      if (check_deadline(active[i], now)) break;
    for (std::size_t i = 0; i < boards_busy.size(); ++i)
      if (!boards_busy[i]->board_queue.empty() &&
          check_deadline(boards_busy[i]->board_queue.front(), now))
        break;
    run_callbacks(lock);
  }
}

void Core::start_serving() {
  served = true;
  try {
    server = start_thread("the progress thread (WEFT_PROGRESS_THREAD)", [this] { serve(); });
  } catch (const Error& e) {
    served = false;
    const CoreLock lock(mutex);
    fail({Code::kTransport, fmt::format("rank {}: {}", job->rank(), e.what()), job->rank()});
    throw;
  }
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
      run_callbacks(guard);
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
