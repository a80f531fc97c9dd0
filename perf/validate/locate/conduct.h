// Runs a plan on a fabric, locates causes, and tests suspects until they are clear or the time is
// spent. Real and simulated fabrics are tested by this one function.
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
  Plan
      plan;  // as far as it was run: left_out, measured_paths, and what was seen are of the samples
  Samples samples;
  std::vector<Cause> causes;
  int further_rounds = 0;  // beyond the plan, to tell causes apart
};

// Gets what was measured so far, and the seconds since the begin.
using EachMinute = std::function<void(const Conducted& so_far, double seconds)>;

// Uses at most options.budget_s + options.soak_s of fabric.now_s(), but for the last round's end; a
// tenth of the budget is left for what follows. With a soak, calls `each_minute` about once a
// minute. Throws what Fabric::run throws.
Conducted conduct(Fabric& fabric, const PlanOptions& options, const Thresholds& thresholds,
                  const EachMinute& each_minute = {});

}  // namespace weft::fabric
