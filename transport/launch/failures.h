// The exceptions that end a program on the ranks of a job: a usage error or a failure of the job.
#pragma once

#include <utility>

#include "topo/base/status.h"

namespace weft {

// The user asked for something impossible. Every rank throws it by itself; rank 0 prints it.
class UsageError : public Error {
 public:
  using Error::Error;
};

// The job failed while it ran.
class JobFailed : public StatusError {
 public:
  using StatusError::StatusError;
};
// Throws JobFailed unless the status is ok.
inline void require(Status status) {
  if (!status.ok()) throw JobFailed(std::move(status));
}

// Returns the rank that reports the failure of `culprit` (maybe kNoRank): 0, but 1 for culprit 0.
inline Rank speaker(Rank culprit) { return culprit == 0 ? 1 : 0; }

}  // namespace weft
