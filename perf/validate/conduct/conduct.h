// Runs a plan on a fabric, locates causes, and tests suspects until all are resolved or the time is
// used up. Used for real and simulated fabrics.
#pragma once

#include <functional>
#include <vector>

#include "perf/validate/facts/policy.h"
#include "perf/validate/locate/cause.h"
#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/plan.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

struct Conducted {
  Plan plan;  // the plan as executed: left_out, measured_paths and smallest_* are from the samples
  Samples samples;
  std::vector<Cause> causes;
  int further_rounds = 0;  // number of rounds in addition to the plan, to distinguish causes
};

// A function that gets the results so far and the seconds since the start.
using EachMinute = std::function<void(const Conducted& so_far, double seconds)>;

// Takes at most options.budget_s + options.soak_s of fabric.now_s(), except that the last round may
// end later; leaves a tenth of the budget for later work. During a soak, calls `each_minute` about
// once a minute. Throws what Fabric::run throws.
Conducted conduct(Fabric& fabric, const PlanOptions& options, const Thresholds& thresholds,
                  const EachMinute& each_minute = {});

}  // namespace weft::fabric
