// The planner's word on what a job's ranks send each other in one step, for the fabric tester.
#pragma once

#include "coll/jobs/traffic.h"
#include "train/plan/plan.h"

namespace weft::train {

// Returns the messages of a rank in the middle of the pipeline, in the sizes and the order of
// `layout`: the forward and backward passes of all micro-batches, then gradients and weights.
JobTraffic traffic_of(const TrafficAsked& asked, const ModelShape& model, const Layout& layout);

// The same for the layout that the planner recommends for these tp, pp and dp on H100 hosts. Throws
// Error that names the value that is wrong and says which values are right.
JobTraffic plan_traffic(const TrafficAsked& asked);

}  // namespace weft::train
