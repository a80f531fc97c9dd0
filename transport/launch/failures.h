// Exceptions that end a program on the ranks of a job: usage errors and failures of the job.
#pragma once

#include <utility>

#include "topo/base/status.h"

namespace weft {

// Invalid options. Every rank throws this error independently; rank 0 prints it.
class UsageError : public Error {
 public:
  using Error::Error;
};

// Reports that the job failed while it ran.
class JobFailed : public StatusError {
 public:
  using StatusError::StatusError;
};
// Throws JobFailed unless the status is ok.
inline void require(Status status) {
  if (!status.ok()) throw JobFailed(std::move(status));
}

// Returns the rank that prints a failure caused by `culprit` (kNoRank if unknown): rank 0, or rank
// 1 if rank 0 failed.
inline Rank speaker(Rank culprit) { return culprit == 0 ? 1 : 0; }

}  // namespace weft
