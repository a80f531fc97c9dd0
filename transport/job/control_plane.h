// The common part of the control plane on all ranks of an assembled job: a thread that serves the
// connections, and the state that the thread shares with the callers of Job.
//
// silent() counts from the thread's last turn: while the thread itself cannot run (the process is
// stopped, the machine is busy) it cannot hear any rank, and so calls no rank silent. silent()
// takes an age below three heartbeats as three, since chance delays a heartbeat that much.
#pragma once

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <optional>
#include <set>
#include <thread>

#include "topo/base/mutex.h"
#include "transport/job/job_assembly.h"

namespace weft {

class Plane {
 public:
  Plane(const JobSpec& spec, std::chrono::milliseconds period);
  virtual ~Plane() = default;  // after stop()
  Plane(const Plane&) = delete;
  Plane& operator=(const Plane&) = delete;

  Rank rank() const { return rank_; }
  int size() const { return size_; }
  // See Job::key(). The label keeps these keys apart from the MACs of the handshake.
  std::string key(std::string_view label) const;
  bool failed() const noexcept { return failed_.load(std::memory_order_relaxed); }
  Status failure() const;
  std::size_t heard() const noexcept { return heard_.load(std::memory_order_relaxed); }
  std::vector<JobFailure> failures(std::size_t first) const;
  // See Job::all_gather(), all_to_all(), gather() and scatter(), which returns one part.
  std::vector<std::string> all_gather(std::string_view mine,
                                      wire::Gathering what = wire::Gathering::kForAll);
  void report(const Status& failure, const Scope& scope) noexcept;
  std::vector<std::string> inquire(std::chrono::milliseconds limit);
  void set_witness(Witness* witness);
  virtual std::vector<Rank> silent(std::chrono::milliseconds age) const = 0;
  virtual void leave() noexcept = 0;
  std::unique_ptr<Mailbox> open_mailbox() { return office_->open(); }

  void abort(const char* reason) noexcept;
  // Waits until the thread has told the failure that abort() stored.
  void await_abort() noexcept;
  // See Job::shrink(). The survivors are ranks of this job; the new plane's thread has not started.
  struct Shrunk {
    std::unique_ptr<Plane> plane;
    std::vector<Rank> survivors;
  };
  virtual Shrunk shrink() = 0;

  void start();
  // Ends the thread; other ranks see a failure unless leave() came before. Waits, within limits,
  // until queued frames are sent and other ranks are served.
  void stop() noexcept;

 protected:
  using Lock = MutexLock;

  // Hands this rank's part to the job.
  virtual void contribute(std::string_view mine, wire::Gathering what) WEFT_REQUIRES(mutex_) = 0;
  virtual void tell(const Status& failure, const Scope& scope) WEFT_REQUIRES(mutex_) = 0;
  // Sends a letter of this rank on its way.
  virtual void carry(std::uint32_t box, Rank to, std::string_view bytes) WEFT_REQUIRES(mutex_) = 0;
  static constexpr std::uint64_t letter_id(std::uint32_t box, Rank rank) {
    return std::uint64_t{box} << 32 | static_cast<std::uint32_t>(rank);
  }
  // Waits, for a moment at most, until rank 0 has decided on a failure of that scope.
  virtual void await_verdict(const Scope&, Lock&) WEFT_REQUIRES(mutex_) {}
  // Asks all other ranks; their answers go to take_snapshot().
  virtual void ask(std::uint32_t number) WEFT_REQUIRES(mutex_) = 0;
  // One round of the thread: what to poll, and then what to do; false ends the thread.
  virtual Clock::time_point prepare(std::vector<pollfd>& polled, Clock::time_point now)
      WEFT_REQUIRES(mutex_) = 0;
  virtual bool serve(const std::vector<pollfd>& polled, Clock::time_point now)
      WEFT_REQUIRES(mutex_) = 0;

  void set_failure(const Status& failure) WEFT_REQUIRES(mutex_);
  // Takes down a failure that rank 0 has decided on, or that rank 0 is gone.
  void hear(const Status& failure, const Scope& scope) WEFT_REQUIRES(mutex_);
  // Whether nothing more is to be said about the scope.
  bool decided(const Scope& scope) const WEFT_REQUIRES(mutex_);
  bool blamed(Rank rank) const WEFT_REQUIRES(mutex_) { return blamed(rank, {}); }
  bool taken_for_dead(Rank rank) const WEFT_REQUIRES(mutex_) {
    return blamed(rank, Code::kPeerFailed);
  }
  // Throws Error unless this rank may go on after a failure.
  void check_shrink() const WEFT_REQUIRES(mutex_);
  // Ends the thread as it is, so that its connections can go to another plane.
  void retire(Lock& lock) WEFT_REQUIRES(mutex_);
  // A spec for the ranks of `mask` ('1' or '0' for each), and which ranks these are.
  JobSpec shrunk_spec(std::string_view mask, std::vector<Rank>& survivors) const;
  void fail_gather(const std::string& why) WEFT_REQUIRES(mutex_);
  void finish_gather(std::vector<std::string> parts) WEFT_REQUIRES(mutex_);
  // control_inquiry.cc
  static std::uint64_t inquiry_id(Rank rank, std::uint32_t number) {
    return static_cast<std::uint64_t>(rank) << 32 | number;
  }
  std::string snapshot() WEFT_REQUIRES(mutex_);
  void take_snapshot(Rank from, std::uint32_t number, std::string_view bytes) WEFT_REQUIRES(mutex_);
  // Of the thread, in every round: a beat passes on what outsiders ask. Returns when to come again.
  void serve_inquiry(Clock::time_point now, bool beat) WEFT_REQUIRES(mutex_);
  Clock::time_point inquiry_due(Clock::time_point otherwise) const WEFT_REQUIRES(mutex_);
  void wake() noexcept { ring(wake_); }  // the thread: there may be more to write
  std::chrono::milliseconds at_least_audible(std::chrono::milliseconds age) const {
    return std::max<std::chrono::milliseconds>(age, 3 * period_);
  }

  JobSpec spec_;
  const Rank rank_;
  const int size_;
  const std::chrono::milliseconds timeout_;
  const std::chrono::milliseconds period_;  // between heartbeats

  mutable Mutex mutex_;
  Status failure_ WEFT_GUARDED_BY(mutex_);  // see Job::failure()
  std::vector<JobFailure> failures_ WEFT_GUARDED_BY(mutex_);
  std::set<Scope> decided_ WEFT_GUARDED_BY(mutex_);  // those of failures_
  std::condition_variable_any changed_;
  bool left_ WEFT_GUARDED_BY(mutex_) = false;      // leave() was called here
  bool stopping_ WEFT_GUARDED_BY(mutex_) = false;  // stop() was called
  // shrink() was called here: a letter sent later could be taken for one of the next job.
  bool shrinking_ WEFT_GUARDED_BY(mutex_) = false;
  const std::shared_ptr<PostOffice> office_;
  // The connections belong to the job that goes on.
  bool handed_over_ WEFT_GUARDED_BY(mutex_) = false;
  // Of the all_gather under way or done last, counted from 1.
  std::uint64_t sequence_ WEFT_GUARDED_BY(mutex_) = 0;
  // Sticks: ranks that disagree about it cannot agree again.
  std::string gather_error_ WEFT_GUARDED_BY(mutex_);
  // When the thread had last read everything there was.
  Clock::time_point tick_ WEFT_GUARDED_BY(mutex_) = Clock::now();

 private:
  void run();
  bool blamed(Rank rank, std::optional<Code> code) const WEFT_REQUIRES(mutex_);
  void begin_inquiry() WEFT_REQUIRES(mutex_);
  void end_inquiry() WEFT_REQUIRES(mutex_);

  Witness* witness_ WEFT_GUARDED_BY(mutex_) = nullptr;
  // The number of the one under way, or done last.
  std::uint32_t inquiry_ WEFT_GUARDED_BY(mutex_) = 0;
  bool inquiring_ WEFT_GUARDED_BY(mutex_) = false;      // it is under way
  bool for_outsiders_ WEFT_GUARDED_BY(mutex_) = false;  // and somebody outside waits for it
  std::vector<std::string> snapshots_ WEFT_GUARDED_BY(mutex_);
  Clock::time_point last_snapshot_ WEFT_GUARDED_BY(mutex_){};
  Clock::time_point inquiry_until_ WEFT_GUARDED_BY(mutex_){};

  std::atomic<bool> failed_{false};
  std::atomic<std::size_t> heard_{0};  // failures_.size()
  bool gathered_ WEFT_GUARDED_BY(mutex_) = false;
  std::vector<std::string> parts_ WEFT_GUARDED_BY(mutex_);
  Mutex one_gather_;  // all_gather calls of several threads of this rank queue here
  Fd wake_;
  std::thread thread_;
  std::atomic<int> aborted_{0};  // 1: reason being written, 2: written, 3: told
  char abort_reason_[Job::kMostReason + 1] = {};
};

// Makes rank 0's plane, the middle of the star.
std::unique_ptr<Plane> make_root_plane(const JobSpec& spec, std::vector<Member> members);
// Changes "rank 5 (host b, pid 12)" to "rank 4 (host b, pid 12)".
std::string renumber(const std::string& who, Rank rank);

// Wraps a Plane as a Job for the process that made it. A forked child has neither the thread nor
// the sockets of the plane: there every call throws, fails or does nothing.
std::unique_ptr<Job> make_job(std::unique_ptr<Plane> plane, std::vector<Rank> former = {});

}  // namespace weft
