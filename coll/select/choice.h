// The selector picks the algorithm that `auto` runs, by the cost model and by measured times.
//
// The times of a profile (profile.h) outrank the model's. Profile and model are the same on all
// ranks and do not change while the job runs, so all ranks run the same algorithm in a call.
#pragma once

#include <cstddef>
#include <vector>

#include "coll/select/cost.h"
#include "coll/select/profile.h"

namespace weft {

struct Candidate {
  const Algorithm* algorithm = nullptr;
  Prediction prediction;
  double measured_us = 0;  // from the profile; 0: not measured
};

// Returns the algorithms that apply. The first is the one to run: the model's pick or, where the
// profile has the pick's time, the measured algorithm that is clearly the fastest. The others
// follow by time, measured or else predicted.
std::vector<Candidate> candidates(Collective collective, const Shape& shape, std::size_t bytes,
                                  const CostModel& model, const Profile& profile);

}  // namespace weft
