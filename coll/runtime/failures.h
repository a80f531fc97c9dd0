// Failures: collects suspicions that a communicator has failed, finds the failed rank, notifies all
// ranks, and ends the communicators that the failure concerns. This class is independent of how a
// task or a transport works.
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
  // Why a communicator may have failed. judge() finds the failed rank, which can take one or two
  // seconds, and ends the communicator. Later suspicions of the same communicator are ignored.
  struct Suspicion {
    enum class What : std::uint8_t { kKnown, kTransfer, kLate } what = What::kKnown;
    Scope scope = {};      // the communicator
    Task* task = nullptr;  // kTransfer: one of its transfers failed. kLate: its deadline passed
    Status why = {};       // kKnown
  };
  void suspect(Suspicion suspicion) WEFT_REQUIRES(core_held);
  bool any_suspicion() const WEFT_REQUIRES(core_held) { return !suspicions_.empty(); }
  // Removes the suspicions of a task that is over, except the one that judge() is working on.
  void forget(const Task* task) WEFT_REQUIRES(core_held);
  // Finds the failed rank for the first suspicion, notifies all ranks, and ends the failed
  // communicators; does nothing if a thread does this already. Unlocks the mutex while it sleeps or
  // queries other ranks. If it throws, the suspicion is dropped: the deadline of the task raises it
  // again.
  void judge(CoreLock& lock) WEFT_REQUIRES(core_held);
  // Notifies all ranks that the communicator has failed (null: all communicators), and ends it. The
  // first failure that was reported to the ranks sticks.
  void fail(const Status& why, const GroupState* g, CoreLock& lock) WEFT_REQUIRES(core_held);

  // ---- the end of communicators
  // The scope of a failure of the communicator. A dead rank ends all communicators that it is in.
  Scope scope_of(const GroupState& g) const;
  // Processes the failures of the job that this rank has not processed yet.
  void hear() WEFT_REQUIRES(core_held);
  // As hear(), for threads that wait for a GPU: no other thread of the process may be polling. Does
  // nothing while another thread holds the mutex.
  void notice() WEFT_EXCLUDES(core_held);
  // Ends the communicators of the scope, and their tasks.
  void end_groups(const Status& why, const Scope& scope) WEFT_REQUIRES(core_held);
  // Ends the communicator of a stalled task if a member has ended its World.
  void end_left_behind(const Task* task, std::chrono::steady_clock::time_point now)
      WEFT_REQUIRES(core_held);
  // Drops messages that peers still send in communicators that are over, until all peers must know.
  void sweep(std::chrono::steady_clock::time_point now) WEFT_REQUIRES(core_held) {
    if (!swept_.empty()) [[unlikely]]
      sweep_all(now);
  }
  // The failure behind an error of the control plane; ok if other ranks did not cause it.
  Status gather_status(const Error& thrown) WEFT_EXCLUDES(core_held);

  bool all_over() const { return broken_; }  // every communicator is over
  // The failure with which a new communicator starts; ok: none.
  Status of_new(const GroupState& g) const WEFT_REQUIRES(core_held);
  // The failure of the first communicator that was ended.
  const Status& first_end() const WEFT_REQUIRES(core_held) { return first_end_; }
  // When a mismatch between live ranks last ended a communicator.
  std::chrono::steady_clock::time_point disagreed_at() const WEFT_REQUIRES(core_held) {
    return disagreed_at_;
  }

 private:
  // Why the communicator has failed. `all`: ranks deadlock across several communicators, so all
  // end.
  struct Blame {
    Status why = {};
    bool all = false;
  };
  // Both functions return ok if the communicator has ended meanwhile; blame() also if the task has
  // made progress.
  Status cause_of(const Suspicion& suspicion, CoreLock& lock) WEFT_REQUIRES(core_held);
  Blame blame(const Suspicion& suspicion, CoreLock& lock) WEFT_REQUIRES(core_held);
  // Diagnoses from the snapshots of all ranks why data of these ranks is late; ok if the snapshots
  // explain nothing.
  Blame inquire(const std::string& what, const Scope& scope, const std::vector<Rank>& among,
                CoreLock& lock) WEFT_REQUIRES(core_held);
  Scope scope_of(const Status& why, const GroupState& g) const;
  // The communicator of the scope; null: it no longer exists.
  const GroupState* group_of(const Scope& scope) const WEFT_REQUIRES(core_held);
  bool over(const Scope& scope) const WEFT_REQUIRES(core_held);
  void sweep_all(std::chrono::steady_clock::time_point now) WEFT_REQUIRES(core_held);
  // Searches for a message that shows that a peer runs another call of the communicator than this
  // rank does or did; ok if there is none. The search is slow: call it only in a stall.
  Status mismatch(const Scope& scope) const WEFT_REQUIRES(core_held);
  // Ok if all of these ranks respond.
  Status silence_status(const std::string& what, const std::vector<Rank>& among) const;
  // A rank without a heartbeat for this long counts as unresponsive.
  std::chrono::milliseconds silence_age() const;
  // Ok if this host is not cut off.
  Status cut_off_status(const std::string& what) const;

  Core& core_;
  std::vector<Suspicion> suspicions_ WEFT_GUARDED_BY(core_held);
  bool judging_ WEFT_GUARDED_BY(core_held) = false;  // a thread is in judge()
  std::condition_variable_any judged_;               // notified when judge() ends
  std::atomic<bool> broken_{false};
  std::size_t heard_ WEFT_GUARDED_BY(core_held) = 0;  // processed entries of Job::failures()
  // From Job::failures(): ranks that have ended their Worlds after a failure.
  std::vector<JobFailure> left_ WEFT_GUARDED_BY(core_held);
  Status failure_ WEFT_GUARDED_BY(core_held);  // of communicators made after all are over
  Status first_end_ WEFT_GUARDED_BY(core_held);
  std::chrono::steady_clock::time_point disagreed_at_ WEFT_GUARDED_BY(core_held){};
  // Ids of ended communicators, and until when sweep() handles each.
  std::vector<std::pair<std::uint32_t, std::chrono::steady_clock::time_point>> swept_
      WEFT_GUARDED_BY(core_held);
  std::chrono::steady_clock::time_point swept_at_ WEFT_GUARDED_BY(core_held){};
};

// Whether a failure of this scope ends the communicator.
bool concerns(const Scope& scope, const GroupState& g);

// The rank that a transport error names (this rank itself may have run out of sockets), else
// `peer`.
Rank culprit(const Status& cause, Rank peer);

}  // namespace weft
