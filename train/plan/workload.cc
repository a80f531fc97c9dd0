// Converts a layout of the planner to a workload, with the formulas of predict() in plan.cc, per
// call instead of per step.
#include "train/plan/workload.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <iterator>

#include "topo/base/status.h"

namespace weft::train {
namespace {

// A collective in SimAI's spelling, and the bytes of its message.
struct Call {
  const char* name = "NONE";
  std::int64_t bytes = 0;
};
// A pass of a line: its time, and the call after it.
struct Pass {
  double ns = 0;
  Call call = {};
};

class Workload {
 public:
  void line(const char* name, const Pass& forward, const Pass& input, const Pass& weight = {}) {
    fmt::format_to(std::back_inserter(lines_), "{}\t-1", name);
    for (const Pass* pass : {&forward, &input, &weight})
      fmt::format_to(std::back_inserter(lines_), "\t{}\t{}\t{}", std::llround(pass->ns),
                     pass->call.name, pass->call.bytes);
    lines_ += "\t100\n";
    ++count_;
  }
  std::string text(const std::string& header) const {
    return fmt::format("{}\n{}\n{}", header, count_, lines_);
  }

 private:
  std::string lines_;
  int count_ = 0;
};

}  // namespace

std::string simai_workload(const ModelShape& model, const Layout& l) {
  if (l.tp * l.pp * l.dp < 2)
    throw Error("--trace: a job of one rank sends nothing; give --gpus 2 or more");
  const auto whole = [](double bytes) { return static_cast<std::int64_t>(std::llround(bytes)); };
  const double e = l.precision.element, elements = l.parameters, sums = l.precision.wide;
  const double message = static_cast<double>(model.sequence) * l.microbatch * model.hidden * e;
  const Call none, reduce = l.tp > 1 ? Call{"ALLREDUCE", whole(message)} : none;
  const auto of_data = [&](const char* name, double bytes) {
    return l.dp > 1 ? Call{name, whole(bytes)} : none;
  };
  const Call gather = of_data("ALLGATHER_DP", elements * e / l.blocks);
  const Call scatter = of_data("REDUCESCATTER_DP", elements * sums / l.blocks);
  // The forward pass is a third of a block's time; attention and FFN each take half of it.
  const double pass_ns = l.compute_s * 1e9 / (l.recompute ? 4 : 3) / l.microbatches / l.blocks / 2;

  Workload workload;
  // The backward pass runs from the last line to the first, so the step's end is at the top.
  const double buckets = std::ceil(elements * sums / kBucket);
  for (double bucket = 0; l.dp > 1 && l.zero > 0 && l.zero < 3 && bucket < buckets; ++bucket)
    workload.line("weights", {}, {}, {0, of_data("ALLGATHER_DP", elements * e / buckets)});
  for (double bucket = 0; l.dp > 1 && l.zero < 2 && bucket < buckets; ++bucket)
    workload.line(
        "gradients", {}, {},
        {0, of_data(l.zero == 0 ? "ALLREDUCE_DP" : "REDUCESCATTER_DP", elements * sums / buckets)});
  for (int piece = 0; piece < l.microbatches * l.blocks; ++piece) {
    const Pass pass{pass_ns, reduce};
    if (l.zero >= 3) workload.line("gather", {0, gather}, {});
    workload.line("attention", pass, pass, {pass_ns});
    workload.line("feed_forward", pass, pass, {pass_ns, l.zero >= 2 ? scatter : none});
    for (int half = 0; half < (l.recompute ? 2 : 0); ++half) workload.line("recomputed", {}, pass);
    if (l.zero >= 3) workload.line("gather_again", {}, {0, gather});
  }
  return workload.text(fmt::format(
      "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: {} ep: 1 pp: {} vpp: {} ga: {} "
      "all_gpus: {} checkpoints: 0 checkpoint_initiates: 0 pp_comm: {}",
      l.tp, l.pp, l.chunks, l.microbatches, l.tp * l.pp * l.dp, l.pp > 1 ? whole(message) : 0));
}

}  // namespace weft::train
