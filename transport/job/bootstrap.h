// Connects the processes of a job: rendezvous, small collective exchanges, and failure
// notification.
//
// A launcher (weft launch, PMIx, torchrun) gives a process its rank, the job's size, the address of
// rank 0 and the secret. All other data is exchanged in one protocol over TCP: a star centered on
// rank 0 that remains connected for the lifetime of the job as the control plane.
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
  std::string launcher = "none";  // "weft", "pmix", "torchrun", "id", "none"
  std::string address;            // rank 0's address
  // Rank 0 listens on the first free port; other ranks try all ports.
  std::vector<std::uint16_t> ports;
  int listen_fd = -1;                        // rank 0: listening socket inherited from weft launch
  std::string secret;                        // HMAC key of the job
  std::chrono::milliseconds timeout{30000};  // limit of every wait of the bootstrap
};

// Reads the environment: WEFT_RANK/WEFT_SIZE/WEFT_ROOT/WEFT_SECRET (weft launch), a PMIx server,
// torchrun's RANK/WORLD_SIZE/MASTER_ADDR/MASTER_PORT, in this order; without any of these, the job
// has one rank. WEFT_TIMEOUT_MS sets the timeout. Throws Error naming the variable and its value if
// a variable is malformed or missing.
JobSpec job_from_environment();

// Thrown if ranks missed the timeout of an all_gather or left the job; what() contains these ranks.
class GatherFailed : public Error {
 public:
  using Error::Error;
};

// Thrown by connect() if the ranks of a job did not connect to each other; what() contains the
// missing ranks.
class AssemblyFailed : public Error {
 public:
  using Error::Error;
};

// Thrown if the cause is the launch (a resource limit, a port in use, secrets or sizes that differ)
// and not the network.
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

  // All-gathers byte strings of any size; returns the strings of all ranks in rank order.
  // Collective. Throws GatherFailed naming the ranks that did not call before the timeout.
  virtual std::vector<std::string> all_gather(std::string_view mine) = 0;
  // All-gather within each group: collective over the job, but a rank receives only the entries of
  // ranks that passed the same group. Other entries are empty, and their bytes are not transferred
  // to this rank.
  virtual std::vector<std::string> all_gather_in_group(std::string_view group,
                                                       std::string_view mine);
  // Sends mine[r] to rank r and returns what each rank sent to this rank. Collective. Moves fewer
  // bytes than an all_gather of the same data, which sends every pair's data to every rank.
  virtual std::vector<std::string> all_to_all(const std::vector<std::string>& mine);
  // Gathers byte strings of any size on rank 0, in rank order. Collective. Other ranks get an empty
  // vector and need memory only for their own bytes.
  virtual std::vector<std::string> gather(std::string_view mine);
  // Scatters: returns rank 0's parts[r] on rank r; the other ranks' `parts` are ignored.
  // Collective.
  virtual std::string scatter(const std::vector<std::string>& parts);

  // Derives a key from the job's secret, equal on all ranks for equal labels. Transports derive
  // per-pair keys from it; no key is ever sent. Throws Error if the job has no secret.
  virtual std::string key(std::string_view label) const;

  // Opens this rank's next mailbox. The n-th mailboxes of all ranks exchange letters (out-of-band
  // messages). A mailbox may outlive the job. Returns nullptr if the job does not support
  // mailboxes.
  virtual std::unique_ptr<Mailbox> open_mailbox() { return nullptr; }

  // Returns !failure().ok() with one relaxed load: cheap enough for a polling loop.
  virtual bool failed() const noexcept = 0;
  // Returns the first failure that ends gathers, or ok. If a process ends without leave(), all
  // other ranks detect it within milliseconds ("rank 3 (host b, pid 1234) died: connection
  // closed"). The end of rank 0 has scope kAll, the end of any other rank scope kRank.
  virtual Status failure() const = 0;
  // heard(): the number of failures that this rank was notified of (one relaxed load). failures():
  // the failures from index `first` on, in rank 0's order, which is the same on all ranks.
  virtual std::size_t heard() const noexcept { return failed(); }
  virtual std::vector<JobFailure> failures(std::size_t first) const {
    return first < heard() ? std::vector{JobFailure{failure()}} : std::vector<JobFailure>();
  }

  // Reports a failure to every rank. The first report of a scope is decisive; after a report of
  // scope kAll all reports are ignored. Returns once this rank has received the decisive report, or
  // after at most one second, since rank 0 may be dead.
  virtual void report(const Status& failure, const Scope& scope) noexcept = 0;
  void report(const Status& failure) noexcept { report(failure, {}); }

  // Returns other ranks that have not responded for at least `age` (stopped process, dead host).
  // All heartbeats pass through rank 0: if rank 0 is unresponsive, the other ranks return only rank
  // 0.
  virtual std::vector<Rank> silent(std::chrono::milliseconds age) const = 0;

  // Returns the witnesses' snapshots by rank; an entry is empty if the rank did not respond. Works
  // while the ranks' programs are blocked. Returns when all ranks have responded, when no further
  // responses arrive, at the limit, or when this rank is notified of a failure.
  virtual std::vector<std::string> inquire(std::chrono::milliseconds limit) {
    (void)limit;
    return {};
  }
  // Sets this rank's witness (nullptr: none). After the return, the previous witness is not called
  // anymore.
  virtual void set_witness(Witness* witness) { (void)witness; }

  // Leaves the job cleanly: after this call the end of this process is not a failure.
  virtual void leave() noexcept = 0;

  static constexpr std::size_t kMostReason = 200;
  // Aborts the job: within milliseconds failure() of every rank becomes kAborted with this rank and
  // the first kMostReason characters of the reason. Returns at once. Async-signal-safe. No effect
  // after another abort() or failure.
  virtual void abort(const char* reason) noexcept = 0;

  // After a failure, creates a job of the surviving ranks, renumbered in the same order. Every
  // survivor calls shrink(), which waits for the others up to the timeout. A rank is excluded if it
  // died, is named in a kPeerFailed, left, or calls too late; if it still calls, it gets an Error.
  // If rank 0 has failed, the lowest surviving rank becomes rank 0. The former job ends and keeps
  // its failure().
  virtual std::unique_ptr<Job> shrink() = 0;
  // Returns the ranks' numbers in the former job if shrink() created this job; otherwise empty.
  virtual std::vector<Rank> former_ranks() const { return {}; }
};

// Assembles the job over TCP. Throws Error if the spec is invalid, and AssemblyFailed if the job is
// not assembled within spec.timeout; the error contains the missing ranks (on rank 0) or rank 0's
// response.
std::unique_ptr<Job> connect(const JobSpec& spec);

// Creates n ranks in one process, for tests; each jobs[r] may be used by its own thread.
std::vector<std::unique_ptr<Job>> local_jobs(int n);

}  // namespace weft
