// How the processes of a job find each other, exchange a few bytes, and learn of each other's end.
//
// A launcher (weft launch, PMIx, torchrun) tells a process its rank, the job's size, the address of
// rank 0 and the secret. All else is one protocol over TCP: a star with rank 0 in the middle,
// which stays open for the life of the job as the control plane.
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

// The information that a process has from its launcher.
struct JobSpec {
  Rank rank = 0;
  int size = 1;
  std::string launcher = "none";     // "weft", "pmix", "torchrun", "id", "none"
  std::string address;               // rank 0's address
  std::vector<std::uint16_t> ports;  // rank 0 listens on the first free port, others try all
  int listen_fd = -1;                // rank 0: a listening socket of weft launch
  std::string secret;                // HMAC key of the job
  std::chrono::milliseconds timeout{30000};  // for every wait of the bootstrap
};

// Reads the environment: WEFT_RANK/WEFT_SIZE/WEFT_ROOT/WEFT_SECRET (weft launch), a PMIx server,
// torchrun's RANK/WORLD_SIZE/MASTER_ADDR/MASTER_PORT, in this order; a job of one rank otherwise.
// WEFT_TIMEOUT_MS sets the timeout. Throws Error naming the variable and its value when one is
// malformed or missing.
JobSpec job_from_environment();

// Thrown when ranks did not come to an all_gather in time, or left; what() names them.
class GatherFailed : public Error {
 public:
  using Error::Error;
};

// Thrown by connect() when the ranks of a job did not find each other; what() names them.
class AssemblyFailed : public Error {
 public:
  using Error::Error;
};

// Thrown where it is known why: how the processes were started (a limit, a port that is in use,
// secrets or sizes that differ). It says nothing of the network.
class WrongSetUp : public AssemblyFailed {
 public:
  using AssemblyFailed::AssemblyFailed;
};

// A job that has assembled: one object per process (or per thread, in tests). Thread-safe.
class Job {
 public:
  virtual ~Job() = default;
  virtual Rank rank() const = 0;
  virtual int size() const = 0;

  // Gathers bytes of any size from every rank and returns them in rank order; all ranks call it.
  // Throws GatherFailed naming the ranks that did not call before the timeout.
  virtual std::vector<std::string> all_gather(std::string_view mine) = 0;
  // The same among the ranks that pass the same group; all ranks of the job call it. The bytes of
  // other groups' ranks come out empty, and are not brought here.
  virtual std::vector<std::string> all_gather_in_group(std::string_view group,
                                                       std::string_view mine);
  // Sends mine[r] to rank r and returns the bytes that each rank has for this one; all ranks call
  // it. For data of pairs it moves less than an all_gather, which takes every pair's to every rank.
  virtual std::vector<std::string> all_to_all(const std::vector<std::string>& mine);
  // Brings bytes of any size from every rank to rank 0, which gets them in rank order; the others
  // get nothing, and hold nothing but their own. All ranks call it.
  virtual std::vector<std::string> gather(std::string_view mine);
  // Brings parts[r] from rank 0 to rank r, which gets it; the others pass nothing. All ranks call
  // it.
  virtual std::string scatter(const std::vector<std::string>& parts);

  // Derives a key from the job's secret, the same on every rank for the same label. Wires make the
  // keys of pairs of ranks from it; no key is ever sent. Throws Error where the job has no secret.
  virtual std::string key(std::string_view label) const;

  // Opens this rank's next mailbox; the ranks' mailboxes that were opened in the same place of the
  // order exchange letters. The mailbox may outlive the job. Returns nullptr where a job has none.
  virtual std::unique_ptr<Mailbox> open_mailbox() { return nullptr; }

  // Returns !failure().ok() by one relaxed load, cheap enough for a polling loop.
  virtual bool failed() const noexcept = 0;
  // Returns the first failure that ends gathers, ok while there is none. When a process ends
  // without leave(), all other ranks learn so within milliseconds
  // ("rank 3 (host b, pid 1234) died: connection closed"). The end of rank 0 is a failure of scope
  // kAll, that of another rank one of scope kRank.
  virtual Status failure() const = 0;
  // How many failures this rank has heard of, by one relaxed load; the failures from `first` on, in
  // the order of rank 0, the same on all ranks.
  virtual std::size_t heard() const noexcept { return failed(); }
  virtual std::vector<JobFailure> failures(std::size_t first) const {
    return first < heard() ? std::vector{JobFailure{failure()}} : std::vector<JobFailure>();
  }

  // Reports a failure to every rank; of several with the same scope the first one counts, and
  // nothing counts after one of scope kAll. Returns when this rank has heard of the one that
  // counts, or after a second at most: rank 0 may be dead.
  virtual void report(const Status& failure, const Scope& scope) noexcept = 0;
  void report(const Status& failure) noexcept { report(failure, {}); }

  // Returns the other ranks that have been silent for at least `age`: a stopped process, a dead
  // host. When rank 0 is silent, the other ranks see no rank but it, and the result is rank 0.
  virtual std::vector<Rank> silent(std::chrono::milliseconds age) const = 0;

  // Returns the witnesses' snapshots by rank, empty for a rank that did not answer; the programs of
  // the ranks may be stuck. The call ends when all ranks have answered, when no more answers come,
  // at the limit, or when this rank hears of a failure.
  virtual std::vector<std::string> inquire(std::chrono::milliseconds limit) {
    (void)limit;
    return {};
  }
  // Sets the witness of this rank, nullptr: none. After the return no call uses the former witness.
  virtual void set_witness(Witness* witness) { (void)witness; }

  // Ends this rank in good order: the end of its process is no failure from now on.
  virtual void leave() noexcept = 0;

  static constexpr std::size_t kMostReason = 200;
  // Gives the job up: within milliseconds failure() of every rank becomes kAborted with this rank
  // and the first kMostReason characters of the reason. Returns at once. Async-signal-safe. A
  // second call, or a call after another failure, has no effect.
  virtual void abort(const char* reason) noexcept = 0;

  // After a failure, makes the job of the ranks that go on, numbered anew in the same order. Every
  // such rank calls shrink(), which waits for the others, at most for the timeout. A rank that has
  // died, that a kPeerFailed names, that left, or that calls too late is not in the new job; it
  // gets an Error if it still calls. When rank 0 is gone, the lowest remaining rank takes its
  // place. This job ends and keeps its failure().
  virtual std::unique_ptr<Job> shrink() = 0;
  // Returns the former ranks of this job's ranks, if shrink() made it; empty otherwise.
  virtual std::vector<Rank> former_ranks() const { return {}; }
};

// Assembles the job over TCP. Throws Error where the spec is wrong, and AssemblyFailed when the job
// does not assemble within spec.timeout; the error names the missing ranks (on rank 0) or quotes
// rank 0's answer.
std::unique_ptr<Job> connect(const JobSpec& spec);

// Makes n ranks in one process, for tests; a thread of its own may use jobs[r].
std::vector<std::unique_ptr<Job>> local_jobs(int n);

}  // namespace weft
