// What is usual among graded sights, and how far healthy ones lie from that. Pure.
#pragma once

#include <vector>

#include "perf/validate/locate/peel.h"
#include "perf/validate/locate/sights.h"

namespace weft::fabric {

// The noise that is assumed at least, as standard deviations of a flow's value.
struct LeastNoise {
  double least = 0;       // always
  double of_few = 0;      // where few flows are as good as usual: these do not tell their noise
  double of_windows = 0;  // what the windows of a flow say, until paths were measured often enough
};

// What is usual among log values of which larger is worse, robust against fewer than half of the
// ports being bad, however often these were measured: the median port's better quarter, then the
// median of what lies as near to that as noise makes it.
double usual_of(const std::vector<Sight>& sights);

// Subtracts what is usual of each rail from graded.sights, and fills in graded.usual, flows, sigma
// and usual_error. The noise is that of the better half, which no fault can have touched, and of
// flows that were repeated.
void settle(const Shape& shape, Graded& graded, const LeastNoise& floor);

}  // namespace weft::fabric
