// Connects the processes of a job: rendezvous, small collective exchanges, and failure
// notification.
//
// A launcher (weft launch, PMIx, torchrun) gives a process its rank, the job's size, the address of
// rank 0 and the secret. Everything else is one protocol over TCP: a star centered on rank 0 that
// stays open for the life of the job as the control plane.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "topo/base/status.h"
#include "transport/control/scope.h"
#include "transport/control/witness.h"
#include "transport/job/mailbox.h"

namespace weft {

// The launch parameters of one process.
struct JobSpec {
  Rank rank = 0;
  int size = 1;
  std::string launcher = "none";             // "weft", "pmix", "torchrun", "id", "none"
  std::string address;                       // rank 0's address
  std::vector<std::uint16_t> ports;          // rank 0 listens on the first free one; others try all
  int listen_fd = -1;                        // rank 0: listening socket inherited from weft launch
  std::string secret;                        // HMAC key of the job
  std::chrono::milliseconds timeout{30000};  // applies to every wait of the bootstrap
};

// Reads the environment: WEFT_RANK/WEFT_SIZE/WEFT_ROOT/WEFT_SECRET (weft launch), a PMIx server,
// torchrun's RANK/WORLD_SIZE/MASTER_ADDR/MASTER_PORT, in this order; without any of these, the job
// has one rank. WEFT_TIMEOUT_MS sets the timeout. Throws Error naming the variable and its value if
// one is malformed or missing.
JobSpec job_from_environment();

// Thrown when ranks missed an all_gather's timeout or left the job; what() names them.
class GatherFailed : public Error {
 public:
  using Error::Error;
};

// Thrown by connect() when the ranks of a job did not find each other; what() names them.
class AssemblyFailed : public Error {
 public:
  using Error::Error;
};

// Thrown when the cause is how the processes were started (a resource limit, a port in use, secrets
// or sizes that differ) rather than the network.
class WrongSetUp : public AssemblyFailed {
 public:
  using AssemblyFailed::AssemblyFailed;
};

// A connected job: one object per process (or per thread, in tests). Thread-safe.
class Job {
 public:
  virtual ~Job() = default;
  virtual Rank rank() const = 0;
  virtual int size() const = 0;

  // All-gathers byte strings of any size; returns them in rank order. Collective. Throws
  // GatherFailed naming the ranks that did not call before the timeout.
  virtual std::vector<std::string> all_gather(std::string_view mine) = 0;
  // All-gather within each group: collective over the job, results only from the ranks that passed
  // the same group. Entries of other ranks are empty; their bytes are not transferred to this rank.
  virtual std::vector<std::string> all_gather_in_group(std::string_view group,
                                                       std::string_view mine);
  // Sends mine[r] to rank r and returns what each rank sent to this one. Collective. For pairwise
  // data it moves less than an all_gather, which sends every pair's data to every rank.
  virtual std::vector<std::string> all_to_all(const std::vector<std::string>& mine);
  // Gathers byte strings of any size at rank 0, in rank order. Collective. Other ranks get an empty
  // vector and hold only their own bytes.
  virtual std::vector<std::string> gather(std::string_view mine);
  // Scatters: returns rank 0's parts[r] on rank r; the other ranks' `parts` are ignored.
  // Collective.
  virtual std::string scatter(const std::vector<std::string>& parts);

  // Derives a key from the job's secret, equal on all ranks for equal labels. Transports derive
  // per-pair keys from it; no key is ever sent. Throws Error if the job has no secret.
  virtual std::string key(std::string_view label) const;

  // Opens this rank's next mailbox. The n-th mailboxes of all ranks exchange letters with each
  // other. A mailbox may outlive the job. Returns nullptr if the job has none.
  virtual std::unique_ptr<Mailbox> open_mailbox() { return nullptr; }

  // Returns !failure().ok() with one relaxed load: cheap enough for a polling loop.
  virtual bool failed() const noexcept = 0;
  // Returns the first failure that ends gathers, or ok. When a process ends without leave(), all
  // other ranks see it within milliseconds ("rank 3 (host b, pid 1234) died: connection closed").
  // The end of rank 0 has scope kAll, the end of any other rank scope kRank.
  virtual Status failure() const = 0;
  // heard(): the number of failures this rank knows (one relaxed load). failures(): those from
  // index `first` on, in rank 0's order, which is the same on all ranks.
  virtual std::size_t heard() const noexcept { return failed(); }
  virtual std::vector<JobFailure> failures(std::size_t first) const {
    return first < heard() ? std::vector{JobFailure{failure()}} : std::vector<JobFailure>();
  }

  // Reports a failure to every rank. The first report of a scope wins; after one of scope kAll all
  // reports are ignored. Returns once this rank knows the winner, or after at most one second,
  // since rank 0 may be dead.
  virtual void report(const Status& failure, const Scope& scope) noexcept = 0;
  void report(const Status& failure) noexcept { report(failure, {}); }

  // Returns the other ranks without a sign of life for at least `age` (stopped process, dead host).
  // All heartbeats go through rank 0: if rank 0 is unresponsive, the result elsewhere is rank 0
  // alone.
  virtual std::vector<Rank> silent(std::chrono::milliseconds age) const = 0;

  // Returns the witnesses' snapshots by rank, empty for a rank that did not answer. Works while the
  // ranks' programs are stuck. Ends when all ranks have answered, when answers stop coming, at the
  // limit, or when this rank learns of a failure.
  virtual std::vector<std::string> inquire(std::chrono::milliseconds limit) {
    (void)limit;
    return {};
  }
  // Sets this rank's witness (nullptr: none). The former witness is not called after the return.
  virtual void set_witness(Witness* witness) { (void)witness; }

  // Leaves the job cleanly: from now on the end of this process is not a failure.
  virtual void leave() noexcept = 0;

  static constexpr std::size_t kMostReason = 200;
  // Aborts the job: within milliseconds failure() of every rank becomes kAborted with this rank and
  // the first kMostReason characters of the reason. Returns at once. Async-signal-safe. No effect
  // after another abort() or failure.
  virtual void abort(const char* reason) noexcept = 0;

  // After a failure, makes a job of the surviving ranks, renumbered in the same order. Every
  // survivor calls shrink(), which waits for the others up to the timeout. A rank that died, that a
  // kPeerFailed names, that left or that calls too late is excluded, and gets an Error if it still
  // calls. If rank 0 is gone, the lowest surviving rank takes its place. This job ends and keeps
  // its failure().
  virtual std::unique_ptr<Job> shrink() = 0;
  // If shrink() made this job, returns its ranks' numbers in the former job; otherwise empty.
  virtual std::vector<Rank> former_ranks() const { return {}; }
};

// Assembles the job over TCP. Throws Error if the spec is invalid, and AssemblyFailed when the job
// does not assemble within spec.timeout; the error names the missing ranks (on rank 0) or quotes
// rank 0's answer.
std::unique_ptr<Job> connect(const JobSpec& spec);

// Makes n ranks in one process, for tests; each jobs[r] may be used by its own thread.
std::vector<std::unique_ptr<Job>> local_jobs(int n);

}  // namespace weft
