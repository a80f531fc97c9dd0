// Traces of a pipeline: writes the F, B and W of a step as Chrome trace events, and reads them back
// as a schedule.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/model/sample_feed.h"
#include "train/pipeline/runtime.h"

namespace weft::train {

// Writes this rank's F, B and W, the load times of the samples, and the name and shape of the
// schedule (schema weft.trace/1; `weft trace merge` joins the files of all ranks). pipeline: the
// ranks of this rank's pipeline, first stage first. Throws Error if the file cannot be written.
void write_pipeline_trace(const std::string& path, Rank rank, const std::vector<Rank>& pipeline,
                          std::string_view schedule, const PipelineShape& shape,
                          const std::vector<PipelineRecord>& records,
                          const std::vector<BroughtSamples>& brought = {});

struct PipelinePlan {
  std::string schedule;
  PipelineShape shape;
};

// Returns the plan of the run that wrote file_of_rank(path, 0); nullopt if the file has none
// (written by weft before 2026-11-27). Throws Error if the file cannot be read.
std::optional<PipelinePlan> plan_of_trace(const std::string& path);

// Returns the planned schedule with F, B and W in the order in which the ranks of rank 0's pipeline
// executed them, from their files file_of_rank(path, rank). Throws Error if a file is missing or of
// another schedule, or an action began before its input was ready.
PipelineSchedule schedule_of_trace(const std::string& path, const PipelineSchedule& planned);

}  // namespace weft::train
