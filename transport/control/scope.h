// The communicators that a failure ends. The control plane is independent of communicators, so a
// number and a rank identify a communicator.
#pragma once

#include <compare>
#include <cstdint>

#include "topo/base/status.h"

namespace weft {

struct Scope {
  enum class Ends : std::uint8_t {
    kAll,    // every communicator of the job
    kRank,   // communicators that contain `rank`: the rank has failed
    kGroup,  // the communicator `group`, whose first member is `rank`
  };
  Ends ends = Ends::kAll;
  Rank rank = kNoRank;
  std::uint64_t group = 0;
  bool every_rank = false;  // the communicator contains every rank of the job
  // Returns whether the ranks can no longer gather on the control plane.
  bool ends_gathers() const { return ends != Ends::kGroup || every_rank; }
  auto operator<=>(const Scope&) const = default;  // kAll sorts first
};

struct JobFailure {
  Status status;
  Scope scope = {};
};

}  // namespace weft
