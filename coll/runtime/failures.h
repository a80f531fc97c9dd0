// Failures: suspects that a communicator has failed, decides which rank is to blame, tells all
// ranks, and ends the communicators that the failure concerns. This class does not know how a task
// or a transport works.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "coll/runtime/lock.h"
#include "coll/runtime/task.h"
#include "topo/base/status.h"
#include "transport/job/bootstrap.h"

namespace weft {

class Failures {
 public:
  explicit Failures(Core& core) : core_(core) {}

  // ---- suspicions
  // Why a communicator may have failed. judge() finds out which rank is to blame, which can take a
  // second or two, and ends the communicator. The first suspicion of a communicator counts.
  struct Suspicion {
    enum class What : std::uint8_t { kKnown, kTransfer, kLate } what = What::kKnown;
    Scope scope = {};      // the communicator
    Task* task = nullptr;  // kTransfer: a transfer of it failed. kLate: its deadline has passed
    Status why = {};       // kKnown
  };
  void suspect(Suspicion suspicion) WEFT_REQUIRES(core_held);
  bool any_suspicion() const WEFT_REQUIRES(core_held) { return !suspicions_.empty(); }
  // The task is over: nothing but judge(), which may look into it now, suspects it any more.
  void forget(const Task* task) WEFT_REQUIRES(core_held);
  // Finds out who is to blame for the first suspicion, unless a thread does already, tells all
  // ranks, and ends what has failed. Does not sleep, or ask other ranks, with the mutex held. Where
  // it throws, the suspicion is dropped: the deadline of the task raises it again.
  void judge(CoreLock& lock) WEFT_REQUIRES(core_held);
  // Tells all ranks that the communicator has failed (null: all of them), and ends it with the
  // first failure that the ranks have heard of, which sticks.
  void fail(const Status& why, const GroupState* g, CoreLock& lock) WEFT_REQUIRES(core_held);

  // ---- what ends
  // The scope of a failure of the communicator. A dead rank ends all communicators that it is in.
  Scope scope_of(const GroupState& g) const;
  // Ends what the job's failures end that this rank has not looked at yet.
  void hear() WEFT_REQUIRES(core_held);
  // As hear(), for threads that wait for a GPU: nobody else may be at work in the process. Does
  // nothing while another thread has the mutex.
  void notice() WEFT_EXCLUDES(core_held);
  // Ends the communicators of the scope, and their tasks.
  void end_groups(const Status& why, const Scope& scope) WEFT_REQUIRES(core_held);
  // Ends the task's communicator when the task has stood still since a member of it has left.
  void end_left_behind(const Task* task, std::chrono::steady_clock::time_point now)
      WEFT_REQUIRES(core_held);
  // Drops what peers still send in communicators that are over, for as long as they may not know.
  void sweep(std::chrono::steady_clock::time_point now) WEFT_REQUIRES(core_held) {
    if (!swept_.empty()) [[unlikely]]
      sweep_all(now);
  }
  // The failure behind an error of the control plane; ok where the other ranks are not its cause.
  Status gather_status(const Error& thrown) WEFT_EXCLUDES(core_held);

  bool all_over() const { return broken_; }  // every communicator is over
  // Why a communicator that is made now is over already; ok: it is not.
  Status of_new(const GroupState& g) const WEFT_REQUIRES(core_held);
  // The failure of the first communicator that was ended.
  const Status& first_end() const WEFT_REQUIRES(core_held) { return first_end_; }
  // When ranks that are all alive last ended a communicator, since they disagree.
  std::chrono::steady_clock::time_point disagreed_at() const WEFT_REQUIRES(core_held) {
    return disagreed_at_;
  }

 private:
  // Why it has failed. `all`: ranks wait for each other in calls of several communicators, none of
  // which can go on.
  struct Blame {
    Status why = {};
    bool all = false;
  };
  // Both return ok when the communicator is over meanwhile; blame() also when the task has moved.
  Status cause_of(const Suspicion& suspicion, CoreLock& lock) WEFT_REQUIRES(core_held);
  Blame blame(const Suspicion& suspicion, CoreLock& lock) WEFT_REQUIRES(core_held);
  // Explains by the snapshots of all ranks what did not come in time from these ranks; ok when the
  // snapshots explain nothing.
  Blame inquire(const std::string& what, const Scope& scope, const std::vector<Rank>& among,
                CoreLock& lock) WEFT_REQUIRES(core_held);
  Scope scope_of(const Status& why, const GroupState& g) const;
  // The communicator of the scope; null: there is none any more.
  const GroupState* group_of(const Scope& scope) const WEFT_REQUIRES(core_held);
  bool over(const Scope& scope) const WEFT_REQUIRES(core_held);
  void sweep_all(std::chrono::steady_clock::time_point now) WEFT_REQUIRES(core_held);
  // Searches for a message that shows that a peer runs another call of the communicator than this
  // rank does or did; ok when there is none. The search takes long: it is for when nothing moves.
  Status mismatch(const Scope& scope) const WEFT_REQUIRES(core_held);
  // Ok when none of these ranks has gone silent.
  Status silence_status(const std::string& what, const std::vector<Rank>& among) const;
  // A rank counts as silent when no message of it has come for this long.
  std::chrono::milliseconds silence_age() const;
  // Ok when this host is not cut off.
  Status cut_off_status(const std::string& what) const;

  Core& core_;
  std::vector<Suspicion> suspicions_ WEFT_GUARDED_BY(core_held);
  bool judging_ WEFT_GUARDED_BY(core_held) = false;  // a thread is in judge()
  std::condition_variable_any judged_;               // signals that no thread is
  std::atomic<bool> broken_{false};
  std::size_t heard_ WEFT_GUARDED_BY(core_held) = 0;  // of Job::failures()
  // Of Job::failures(): ranks that have ended their Worlds after a failure.
  std::vector<JobFailure> left_ WEFT_GUARDED_BY(core_held);
  Status failure_ WEFT_GUARDED_BY(core_held);  // of communicators that are made once all are over
  Status first_end_ WEFT_GUARDED_BY(core_held);
  std::chrono::steady_clock::time_point disagreed_at_ WEFT_GUARDED_BY(core_held){};
  // The ids of communicators that are over, and until when to sweep() for them.
  std::vector<std::pair<std::uint32_t, std::chrono::steady_clock::time_point>> swept_
      WEFT_GUARDED_BY(core_held);
  std::chrono::steady_clock::time_point swept_at_ WEFT_GUARDED_BY(core_held){};
};

// Whether a failure of that scope ends the communicator.
bool concerns(const Scope& scope, const GroupState& g);

// Whom a transport blames for what failed with a peer: this rank itself may have no socket.
Rank culprit(const Status& cause, Rank peer);

}  // namespace weft
