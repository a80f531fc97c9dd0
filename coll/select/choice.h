// The selector chooses the algorithm that `auto` runs, by the cost model and by measured times.
//
// Measured times of a profile (profile.h) take precedence over the model's predictions. Profile and
// model are the same on all ranks and do not change while the job runs, so all ranks run the same
// algorithm in a call.
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

// Returns the algorithms that support the shape. The first is the one to run: the model's choice
// or, if the profile contains a time of that choice, the algorithm whose measured time is clearly
// the shortest. The others follow in ascending order of time, measured if available, otherwise
// predicted.
std::vector<Candidate> candidates(Collective collective, const Shape& shape, std::size_t bytes,
                                  const CostModel& model, const Profile& profile);

}  // namespace weft
