// Prints schedules step by step. Constructs no schedules.
#include "train/pipeline/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "train/pipeline/checker.h"
#include "train/pipeline/simulator.h"

namespace weft::train {
namespace {

// Returns the messages sent at the end of a step: "0>1 F2".
std::string sent_in(const PipelineSchedule& s, const PipelineStep& step) {
  std::vector<std::string> all;
  const int last = s.shape.stages() - 1;
  for (Rank r = 0; r < s.shape.ranks && s.shape.ranks > 1; ++r)
    for (const PipelineAction& a : step.of_rank[static_cast<std::size_t>(r)]) {
      const bool forward = a.op == PipeOp::kForward;
      if (!(forward && a.stage < last) && !(a.op == PipeOp::kBackwardInput && a.stage > 0))
        continue;
      const PipelineAction send{forward ? PipeOp::kSendActivation : PipeOp::kSendGradient,
                                a.microbatch, a.stage};
      all.push_back(fmt::format("{}>{} {}", r, s.peer(send), describe(a, s.shape)));
    }
  return fmt::format("{}", fmt::join(all, ", "));
}

std::string cell(const PipelineSchedule& s, const std::vector<PipelineAction>& actions) {
  std::vector<std::string> all;
  for (const PipelineAction& a : actions) all.push_back(describe(a, s.shape));
  return all.empty() ? "." : fmt::format("{}", fmt::join(all, " "));
}

}  // namespace

std::string explain_pipeline(const PipelineSchedule& s) {
  const PipelineShape& x = s.shape;
  const std::vector<PipelineStep> steps = steps_of(s);
  std::size_t width = 6;
  for (const PipelineStep& step : steps)
    for (const auto& actions : step.of_rank) width = std::max(width, cell(s, actions).size());

  std::string text = fmt::format(
      "{}: {} stages on {} ranks, {} micro-batches, {} steps\n"
      "F: forward, B: backward{}; the number is the micro-batch{}\n\n",
      s.name, x.stages(), x.ranks, x.microbatches, steps.size(),
      s.name == "zero-bubble" ? " (gradient of the input), W: gradient of the weights" : "",
      x.chunks > 1 ? ", then the stage" : "");
  text += "step";
  for (Rank r = 0; r < x.ranks; ++r)
    text += fmt::format("  {:<{}}", fmt::format("rank {}", r), width);
  text += "  active  sent\n";
  for (std::size_t t = 0; t < steps.size(); ++t) {
    text += fmt::format("{:>4}", t + 1);
    for (const auto& actions : steps[t].of_rank)
      text += fmt::format("  {:<{}}", cell(s, actions), width);
    const std::string sent = sent_in(s, steps[t]);
    text +=
        fmt::format("  {:>4.0f} %{}{}\n", 100 * steps[t].active, sent.empty() ? "" : "  ", sent);
  }
  std::vector<int> active;
  for (const PipelineStep& step : steps)
    active.push_back(static_cast<int>(100 * step.active + 0.5));
  text += fmt::format("\nactive %: {}\n", fmt::join(active, "/"));

  const double v = x.chunks;
  const PipelineTime time = simulate(s, {1 / v, 1 / v, 1 / v, 0, {}});
  const double formula = bubble_formula(s);
  text += fmt::format("bubble, F = B = W and no time for messages: {:.1f} %{}\n", 100 * time.bubble,
                      formula < 0 ? "" : fmt::format(" (formula: {:.1f} %)", 100 * formula));
  text += fmt::format("micro-batches held at most, by rank: {}\n", fmt::join(peak_held(s), " "));
  const std::string fault = check(s);
  text += fmt::format("checked: {}\n", fault.empty() ? "complete, in order, no deadlock" : fault);
  return text;
}

}  // namespace weft::train
