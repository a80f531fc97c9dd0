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
#include <thread>

#include "topo/base/mutex.h"
#include "transport/job/job_assembly.h"

namespace weft {

class Plane {
 public:
  Plane(const JobSpec& spec, std::chrono::milliseconds period)
      : spec_(spec), rank_(spec.rank), size_(spec.size), timeout_(spec.timeout), period_(period) {}
  virtual ~Plane() = default;  // after stop()
  Plane(const Plane&) = delete;
  Plane& operator=(const Plane&) = delete;

  Rank rank() const { return rank_; }
  int size() const { return size_; }
  bool failed() const noexcept { return failed_.load(std::memory_order_relaxed); }
  Status failure() const;
  // See Job::all_gather(); with for_each Job::all_to_all(), and `mine` is wire::encode_parts().
  std::vector<std::string> all_gather(std::string_view mine, bool for_each = false);
  void report(const Status& failure) noexcept;
  std::vector<std::string> inquire(std::chrono::milliseconds limit);
  void set_witness(Witness* witness);
  virtual std::vector<Rank> silent(std::chrono::milliseconds age) const = 0;
  virtual void leave() noexcept = 0;

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

  // Hands this rank's part of a gather to the job.
  virtual void contribute(std::string_view mine, bool for_each) = 0;
  virtual void tell(const Status& failure) = 0;
  // Waits, for a moment at most, until the job's failure is decided.
  virtual void await_verdict(Lock&) {}
  // Asks all other ranks for snapshots; take_snapshot() takes the answers.
  virtual void ask(std::uint32_t number) = 0;
  // Collects the descriptors to poll in a round of the thread; returns when to stop waiting.
  virtual Clock::time_point prepare(std::vector<pollfd>& polled, Clock::time_point now) = 0;
  // Does the work of a round; false ends the thread.
  virtual bool serve(const std::vector<pollfd>& polled, Clock::time_point now) = 0;

  // Callers of the functions below hold mutex_.
  void set_failure(const Status& failure);
  bool blamed(Rank rank) const { return !failure_.ok() && failure_.rank() == rank; }
  bool taken_for_dead(Rank rank) const {
    return blamed(rank) && failure_.code() == Code::kPeerFailed;
  }
  // Throws Error unless this rank may go on after a failure.
  void check_shrink() const;
  // Ends the thread and keeps its connections open, for the plane that takes them over.
  void retire(Lock& lock);
  // Makes the spec of a job of the ranks with '1' in `mask`, and lists these ranks in `survivors`.
  JobSpec shrunk_spec(std::string_view mask, std::vector<Rank>& survivors) const;
  void fail_gather(const std::string& why) WEFT_REQUIRES(mutex_);
  void finish_gather(std::vector<std::string> parts) WEFT_REQUIRES(mutex_);
  // control_inquiry.cc
  static std::uint64_t inquiry_id(Rank rank, std::uint32_t number) {
    return static_cast<std::uint64_t>(rank) << 32 | number;
  }
  std::string snapshot();
  void take_snapshot(Rank from, std::uint32_t number, std::string_view bytes);
  // The thread calls it in every round; with `beat` it passes on the questions of outsiders.
  void serve_inquiry(Clock::time_point now, bool beat);
  // Returns when serve_inquiry() must run next, at the latest `otherwise`.
  Clock::time_point inquiry_due(Clock::time_point otherwise) const;
  void wake() noexcept { ring(wake_); }  // makes the thread look for frames to write
  std::chrono::milliseconds at_least_audible(std::chrono::milliseconds age) const {
    return std::max<std::chrono::milliseconds>(age, 3 * period_);
  }

  JobSpec spec_;
  const Rank rank_;
  const int size_;
  const std::chrono::milliseconds timeout_;
  const std::chrono::milliseconds period_;  // between heartbeats

  mutable std::mutex mutex_;
  Status failure_;
  std::condition_variable changed_;
  bool left_ = false;           // leave() was called here
  bool stopping_ = false;       // stop() was called
  bool handed_over_ = false;    // the connections belong to the job of shrink()
  std::uint64_t sequence_ = 0;  // the number of the latest all_gather, from 1
  std::string gather_error_;    // stays: ranks that disagree on a gather cannot agree again
  Clock::time_point tick_ = Clock::now();  // when the thread had last read all sockets

 private:
  void run();
  void begin_inquiry() WEFT_REQUIRES(mutex_);
  void end_inquiry() WEFT_REQUIRES(mutex_);

  Witness* witness_ = nullptr;
  std::uint32_t inquiry_ = 0;   // the number of the latest inquiry
  bool inquiring_ = false;      // an inquiry is under way
  bool for_outsiders_ = false;  // an observer outside the job waits for the inquiry
  std::vector<std::string> snapshots_;
  Clock::time_point last_snapshot_{}, inquiry_until_{};

  std::atomic<bool> failed_{false};
  bool gathered_ = false;
  std::vector<std::string> parts_;
  std::mutex one_gather_;  // serialises the all_gather calls of this rank's threads
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
