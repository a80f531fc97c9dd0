// Traces of a pipeline: what its ranks computed in a step, written as Chrome trace events, and read
// as a schedule again.
#pragma once

#include <string>
#include <vector>

#include "train/pipeline/runtime.h"

namespace weft::train {

// F, B and W of this rank (schema weft.trace/1, so that `weft trace merge` joins those of all
// ranks). pipeline: the ranks of its pipeline, from the first stage on. Throws Error where it
// cannot be written.
void write_pipeline_trace(const std::string& path, Rank rank, const std::vector<Rank>& pipeline,
                          const PipelineShape& shape, const std::vector<PipelineRecord>& records);

// The planned schedule with F, B and W in the order in which the ranks of rank 0's pipeline really
// did them, by the files that they wrote: file_of_rank(path, rank). Throws Error where a file is
// missing or of another schedule, or where something began before what it needs had ended.
PipelineSchedule schedule_of_trace(const std::string& path, const PipelineSchedule& planned);

}  // namespace weft::train
