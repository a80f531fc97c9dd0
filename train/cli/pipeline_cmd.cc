// `weft pipeline explain` prints the steps of a pipeline schedule, `weft pipeline bubbles` measures
// idle time. Trains nothing.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "coll/jobs/session.h"
#include "topo/base/exit_code.h"
#include "train/cli/commands.h"
#include "train/cli/options.h"
#include "train/cli/train_log.h"
#include "train/pipeline/bubble.h"
#include "train/pipeline/explain.h"
#include "train/pipeline/schedule.h"
#include "train/pipeline/trace.h"
#include "transport/launch/local_job.h"

namespace weft {
namespace {

struct ExplainPipelineFlags {
  std::string schedule = "1f1b", of;
  int stages = 4, micro_batches = 0, chunks = 1;
};

// Sets the flags to the plan in the run's trace. Flags given in addition to --of must match it.
void read_plan(const CLI::App& command, ExplainPipelineFlags& flags, const std::string& trace) {
  const auto plan = train::plan_of_trace(trace);
  if (!plan) return;
  const auto take = [&](const char* option, auto& value, const auto& of_run) {
    if (command.get_option(option)->count() > 0 && value != of_run)
      throw UsageError(fmt::format("{} {}: the run of --of {} had {}; leave it out", option, value,
                                   flags.of, of_run));
    value = of_run;
  };
  take("--schedule", flags.schedule, plan->schedule);
  take("--stages", flags.stages, plan->shape.ranks);
  take("--micro-batches", flags.micro_batches, plan->shape.microbatches);
  take("--chunks", flags.chunks, plan->shape.chunks);
}

int explain_schedule(const CLI::App& command, ExplainPipelineFlags& flags) {
  const std::string trace = flags.of.empty() ? "" : train::pipeline_file(flags.of);
  if (!trace.empty()) read_plan(command, flags, trace);
  const int micro_batches = flags.micro_batches > 0 ? flags.micro_batches : flags.stages;
  auto schedule =
      train::make_pipeline_schedule(flags.schedule, {flags.stages, micro_batches, flags.chunks});
  if (!trace.empty()) schedule = train::schedule_of_trace(trace, schedule);
  fmt::print("{}", train::explain_pipeline(schedule));
  return kExitOk;
}

struct BubbleFlags {
  JobFlags job;
  int op_us = 3000;
};

int measure_all_bubbles(BubbleFlags& flags) {
  if (!launched() && flags.job.ranks == 0) flags.job.ranks = 4;
  return run_job("pipeline bubbles", flags.job, [&](World& world) {
    const auto rows = train::measure_bubbles(world.world(), flags.op_us);
    if (world.rank() == 0)
      fmt::print("# {} stages; F, B and W take {} us each\n{}", world.size(), flags.op_us,
                 train::to_text(rows));
    return kExitOk;
  });
}

}  // namespace

void add_pipeline(CLI::App& app, int& exit_code) {
  CLI::App* pipeline =
      app.add_subcommand("pipeline", "schedules of pipelines: their steps, their bubbles");
  pipeline->require_subcommand(1);

  const auto e = std::make_shared<ExplainPipelineFlags>();
  CLI::App* explain = pipeline->add_subcommand("explain", "print the steps of a schedule");
  const OptionAdder add(*explain);
  add("--schedule", e->schedule, "schedule of the pipeline",
      CLI::IsMember(train::pipeline_schedule_names()));
  add("--stages", e->stages, "stages, a rank each", CLI::PositiveNumber);
  add.unset("--micro-batches", e->micro_batches, "micro-batches (default: --stages)",
            CLI::PositiveNumber);
  add("--chunks", e->chunks, "stages of a rank (interleaved)", CLI::PositiveNumber);
  add("--of", e->of, "what a run really did, by the FILE of its --trace, which tells the rest")
      ->type_name("FILE");
  explain->footer("Example: weft pipeline explain --schedule dataflow --stages 4");
  explain->callback([explain, e, &exit_code] { exit_code = explain_schedule(*explain, *e); });

  const auto b = std::make_shared<BubbleFlags>();
  CLI::App* bubbles = pipeline->add_subcommand(
      "bubbles", "measure the bubbles of all schedules with stages that sleep, one to a rank");
  add_job_flags(*bubbles, b->job);
  OptionAdder{*bubbles}("--op-us", b->op_us, "time of F, B and W each, in us", CLI::PositiveNumber);
  bubbles->footer("Example: weft pipeline bubbles -N 4");
  bubbles->callback([b, &exit_code] { exit_code = measure_all_bubbles(*b); });
}

}  // namespace weft
