// Which algorithm `auto` runs: what the cost model says, corrected by what was measured.
//
// The times of a profile (profile.h) come before the model's. Both are the same on all ranks and
// stay as they are while the job runs, so that all ranks run the same algorithm in the same call.
#pragma once

#include <cstddef>
#include <vector>

#include "coll/select/cost.h"
#include "coll/select/profile.h"

namespace weft {

struct Candidate {
  const Algorithm* algorithm = nullptr;
  Prediction prediction;
  double measured_us = 0;  // by the profile; 0: not
};

// All that apply, the one to run first. Where the profile has the time of what the model picks, it
// is the fastest of those measured, if it is clearly faster; otherwise the model's pick. The rest
// by time: measured, else predicted.
std::vector<Candidate> candidates(Collective collective, const Shape& shape, std::size_t bytes,
                                  const CostModel& model, const Profile& profile);

}  // namespace weft
