// How the steps of a job end that cannot go on: what the user asked for cannot be, or the job
// failed.
#pragma once

#include <utility>

#include "topo/base/status.h"

namespace weft {

// Something the user asked for cannot be. Every rank finds out by itself; rank 0 says so.
class UsageError : public Error {
 public:
  using Error::Error;
};

// The job failed while it ran.
class JobFailed : public StatusError {
 public:
  using StatusError::StatusError;
};
inline void require(Status status) {
  if (!status.ok()) throw JobFailed(std::move(status));
}

// Which rank speaks when `culprit` (or nobody in particular) failed: 0, or 1 when 0 is the one.
inline Rank speaker(Rank culprit) { return culprit == 0 ? 1 : 0; }

}  // namespace weft
