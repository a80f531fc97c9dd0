// The common part of the control plane on all ranks of a connected job: a thread that serves the
// connections, and the state that it shares with the callers of Job.
//
// silent() measures ages at the thread's last iteration: while the thread itself does not run
// (stopped process, busy machine), no rank is treated as unresponsive. Ages below three heartbeats
// are raised to three, since heartbeats have that much jitter.
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
  virtual ~Plane() = default;  // call stop() first
  Plane(const Plane&) = delete;
  Plane& operator=(const Plane&) = delete;

  Rank rank() const { return rank_; }
  int size() const { return size_; }
  // See Job::key(). The label separates these keys from the MACs of the handshake.
  std::string key(std::string_view label) const;
  bool failed() const noexcept { return failed_.load(std::memory_order_relaxed); }
  Status failure() const;
  std::size_t heard() const noexcept { return heard_.load(std::memory_order_relaxed); }
  std::vector<JobFailure> failures(std::size_t first) const;
  // See Job::all_gather(), all_to_all(), gather() and scatter(); scatter() returns one part.
  std::vector<std::string> all_gather(std::string_view mine,
                                      wire::Gathering what = wire::Gathering::kForAll);
  void report(const Status& failure, const Scope& scope) noexcept;
  std::vector<std::string> inquire(std::chrono::milliseconds limit);
  void set_witness(Witness* witness);
  virtual std::vector<Rank> silent(std::chrono::milliseconds age) const = 0;
  virtual void leave() noexcept = 0;
  std::unique_ptr<Mailbox> open_mailbox() { return office_->open(); }

  void abort(const char* reason) noexcept;
  // Waits until the thread has sent the failure that abort() stored.
  void await_abort() noexcept;
  // See Job::shrink(). The survivors are ranks of the current job; the new plane's thread has not
  // started.
  struct Shrunk {
    std::unique_ptr<Plane> plane;
    std::vector<Rank> survivors;
  };
  virtual Shrunk shrink() = 0;

  void start();
  // Ends the thread; other ranks see a failure unless leave() was called before. Waits, within
  // limits, until queued frames are sent and other ranks are served.
  void stop() noexcept;

 protected:
  using Lock = MutexLock;

  // Submits this rank's part of a gather.
  virtual void contribute(std::string_view mine, wire::Gathering what) WEFT_REQUIRES(mutex_) = 0;
  virtual void tell(const Status& failure, const Scope& scope) WEFT_REQUIRES(mutex_) = 0;
  // Sends a letter (out-of-band message) from this rank.
  virtual void carry(std::uint32_t box, Rank to, std::string_view bytes) WEFT_REQUIRES(mutex_) = 0;
  static constexpr std::uint64_t letter_id(std::uint32_t box, Rank rank) {
    return std::uint64_t{box} << 32 | static_cast<std::uint32_t>(rank);
  }
  // Waits briefly until rank 0 has decided which failure of that scope was the first.
  virtual void await_verdict(const Scope&, Lock&) WEFT_REQUIRES(mutex_) {}
  // Requests a snapshot from all other ranks; take_snapshot() receives the responses.
  virtual void ask(std::uint32_t number) WEFT_REQUIRES(mutex_) = 0;
  // One iteration of the thread: prepare() lists the descriptors to poll, serve() handles their
  // events; false ends the thread.
  virtual Clock::time_point prepare(std::vector<pollfd>& polled, Clock::time_point now)
      WEFT_REQUIRES(mutex_) = 0;
  virtual bool serve(const std::vector<pollfd>& polled, Clock::time_point now)
      WEFT_REQUIRES(mutex_) = 0;

  void set_failure(const Status& failure) WEFT_REQUIRES(mutex_);
  // Records a failure on which rank 0 has decided, or the loss of rank 0.
  void hear(const Status& failure, const Scope& scope) WEFT_REQUIRES(mutex_);
  // Returns whether rank 0 has decided on a failure of this scope, or of scope kAll.
  bool decided(const Scope& scope) const WEFT_REQUIRES(mutex_);
  bool blamed(Rank rank) const WEFT_REQUIRES(mutex_) { return blamed(rank, {}); }
  bool taken_for_dead(Rank rank) const WEFT_REQUIRES(mutex_) {
    return blamed(rank, Code::kPeerFailed);
  }
  // Throws Error unless this rank may continue after a failure.
  void check_shrink() const WEFT_REQUIRES(mutex_);
  // Stops the thread immediately so that its connections can move to another plane.
  void retire(Lock& lock) WEFT_REQUIRES(mutex_);
  // Creates the spec of the job of the ranks in `mask` ('1' or '0' per rank) and lists these ranks.
  JobSpec shrunk_spec(std::string_view mask, std::vector<Rank>& survivors) const;
  void fail_gather(const std::string& why) WEFT_REQUIRES(mutex_);
  void finish_gather(std::vector<std::string> parts) WEFT_REQUIRES(mutex_);
  // Defined in control_inquiry.cc:
  static std::uint64_t inquiry_id(Rank rank, std::uint32_t number) {
    return static_cast<std::uint64_t>(rank) << 32 | number;
  }
  std::string snapshot() WEFT_REQUIRES(mutex_);
  void take_snapshot(Rank from, std::uint32_t number, std::string_view bytes) WEFT_REQUIRES(mutex_);
  // The thread calls serve_inquiry() in every iteration; on a heartbeat it also starts inquiries
  // for outside observers. inquiry_due() returns the time of the next call.
  void serve_inquiry(Clock::time_point now, bool beat) WEFT_REQUIRES(mutex_);
  Clock::time_point inquiry_due(Clock::time_point otherwise) const WEFT_REQUIRES(mutex_);
  void wake() noexcept { ring(wake_); }  // wakes the thread, which checks for data to write
  std::chrono::milliseconds at_least_audible(std::chrono::milliseconds age) const {
    return std::max<std::chrono::milliseconds>(age, 3 * period_);
  }

  JobSpec spec_;
  const Rank rank_;
  const int size_;
  const std::chrono::milliseconds timeout_;
  const std::chrono::milliseconds period_;  // time between heartbeats

  mutable Mutex mutex_;
  Status failure_ WEFT_GUARDED_BY(mutex_);  // see Job::failure()
  std::vector<JobFailure> failures_ WEFT_GUARDED_BY(mutex_);
  std::set<Scope> decided_ WEFT_GUARDED_BY(mutex_);  // the scopes of failures_
  std::condition_variable_any changed_;
  bool left_ WEFT_GUARDED_BY(mutex_) = false;      // leave() was called on this rank
  bool stopping_ WEFT_GUARDED_BY(mutex_) = false;  // stop() was called
  // shrink() was called on this rank: a later letter could be received in the next job.
  bool shrinking_ WEFT_GUARDED_BY(mutex_) = false;
  const std::shared_ptr<PostOffice> office_;
  // The connections have moved to the new job.
  bool handed_over_ WEFT_GUARDED_BY(mutex_) = false;
  // Number of the current or last all_gather, from 1.
  std::uint64_t sequence_ WEFT_GUARDED_BY(mutex_) = 0;
  // Sticky: after a failed gather the ranks' sequence numbers may differ.
  std::string gather_error_ WEFT_GUARDED_BY(mutex_);
  // The time at which the thread last finished reading all connections.
  Clock::time_point tick_ WEFT_GUARDED_BY(mutex_) = Clock::now();

 private:
  void run();
  bool blamed(Rank rank, std::optional<Code> code) const WEFT_REQUIRES(mutex_);
  void begin_inquiry() WEFT_REQUIRES(mutex_);
  void end_inquiry() WEFT_REQUIRES(mutex_);

  Witness* witness_ WEFT_GUARDED_BY(mutex_) = nullptr;
  // Number of the current or last inquiry.
  std::uint32_t inquiry_ WEFT_GUARDED_BY(mutex_) = 0;
  bool inquiring_ WEFT_GUARDED_BY(mutex_) = false;  // an inquiry is in progress
  // An outside observer waits for the current inquiry.
  bool for_outsiders_ WEFT_GUARDED_BY(mutex_) = false;
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
  std::atomic<int> aborted_{0};  // 1: reason being written, 2: written, 3: sent
  char abort_reason_[Job::kMostReason + 1] = {};
};

// Creates rank 0's plane, the center of the star.
std::unique_ptr<Plane> make_root_plane(const JobSpec& spec, std::vector<Member> members);
// Changes "rank 5 (host b, pid 12)" to "rank 4 (host b, pid 12)".
std::string renumber(const std::string& who, Rank rank);

// Wraps a Plane as a Job for the process that created it. A forked child has neither the plane's
// thread nor its sockets: in the child every call throws, fails or has no effect.
std::unique_ptr<Job> make_job(std::unique_ptr<Plane> plane, std::vector<Rank> former = {});

}  // namespace weft
