// How the processes of a job find each other, exchange a few bytes, and learn of each other's end.
//
// A launcher (weft launch, PMIx, torchrun) only has to say: which rank am I, how many are there,
// where is rank 0, what is the secret. Everything else is one protocol over TCP: a star with rank
// 0 in the middle, kept open for the life of the job as the control plane.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "topo/base/status.h"
#include "transport/control/witness.h"

namespace weft {

// What a launcher told this process.
struct JobSpec {
  Rank rank = 0;
  int size = 1;
  std::string launcher = "none";     // "weft", "pmix", "torchrun", "none"
  std::string address;               // of rank 0
  std::vector<std::uint16_t> ports;  // rank 0 listens on the first that is free, others try all
  int listen_fd = -1;                // rank 0: already bound and listening (weft launch)
  std::string secret;                // HMAC key of the job
  std::chrono::milliseconds timeout{30000};  // for every wait of the rendezvous
};

// Reads the environment: WEFT_RANK/WEFT_SIZE/WEFT_ROOT/WEFT_SECRET (weft launch), a PMIx server,
// torchrun's RANK/WORLD_SIZE/MASTER_ADDR/MASTER_PORT, in this order; a job of one rank otherwise.
// WEFT_TIMEOUT_MS sets the timeout. Throws Error naming the variable and its value when one is
// malformed or missing.
JobSpec job_from_environment();

// Ranks did not come to an all_gather in time, or left: it says which.
class GatherFailed : public Error {
 public:
  using Error::Error;
};

// A job that has assembled. One object per process (or per thread, in tests). Thread-safe.
class Job {
 public:
  virtual ~Job() = default;
  virtual Rank rank() const = 0;
  virtual int size() const = 0;

  // Every rank calls this the same number of times, with bytes of any size; returns all of them in
  // rank order. Throws GatherFailed naming the ranks that did not arrive before the timeout.
  virtual std::vector<std::string> all_gather(std::string_view mine) = 0;
  // Likewise, with bytes for each rank, by rank; returns what all have for this one. For what each
  // pair has of its own: an all_gather brings every rank the words of all pairs.
  virtual std::vector<std::string> all_to_all(const std::vector<std::string>& mine);

  // The control plane. failure(): the first failure known to the job, ok while there is none;
  // failed() is its cheap form (one relaxed load), fit for a polling loop.
  // A rank whose process ended without leave() is reported to all others within milliseconds
  // ("rank 3 (host b, pid 1234) died: connection closed").
  virtual bool failed() const noexcept = 0;
  virtual Status failure() const = 0;

  // Tells every rank of a failure seen here (the first one reported sticks everywhere). Returns
  // when failure() is the one that sticks, or after a second at most: rank 0 may be the one that
  // failed.
  virtual void report(const Status& failure) noexcept = 0;

  // Ranks (other than this one) that have been silent for at least `age`: a stopped process, a
  // dead host. Empty when all are well. Rank 0 stands for the whole when it is itself silent.
  virtual std::vector<Rank> silent(std::chrono::milliseconds age) const = 0;

  // Asks the witnesses of all ranks what they know, whatever their programs do. By rank; empty
  // where one did not answer: ends when all have, when no more come, or at the limit, and at once
  // when the job fails meanwhile.
  virtual std::vector<std::string> inquire(std::chrono::milliseconds limit) {
    (void)limit;
    return {};
  }
  // Who speaks for this rank; nullptr: nobody. When it returns, the one before is not in use.
  virtual void set_witness(Witness* witness) { (void)witness; }

  // This rank ends in good order: its going away is no failure from now on.
  virtual void leave() noexcept = 0;

  // This rank gives the job up: failure() becomes kAborted with the reason (its first
  // kMostReason characters) and this rank, everywhere within milliseconds. Returns at once.
  // Async-signal-safe. Only the first call counts, and not after another failure.
  static constexpr std::size_t kMostReason = 200;
  virtual void abort(const char* reason) noexcept = 0;

  // After a failure: the job of the ranks that go on, which are counted anew in the same order.
  // Every one of them calls this; it waits for them, at most for the timeout. Not among them is
  // who died, was taken for dead (kPeerFailed names it), has left, or does not call in time; a
  // rank that is still there learns so from an Error. When rank 0 is gone, the lowest rank that is
  // left takes its place. This job ends; it keeps its failure().
  virtual std::unique_ptr<Job> shrink() = 0;
  // Of a job made by shrink(): the ranks that its ranks had before. Empty otherwise.
  virtual std::vector<Rank> former_ranks() const { return {}; }
};

// Rendezvous over TCP. Throws Error when the job does not assemble within spec.timeout, naming
// the ranks that are missing (on rank 0) or what rank 0 said.
std::unique_ptr<Job> connect(const JobSpec& spec);

// n ranks in one process, for tests: jobs[r] may be used by a thread of its own.
std::vector<std::unique_ptr<Job>> local_jobs(int n);

}  // namespace weft
