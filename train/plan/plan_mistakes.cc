// find_mistakes(): common mistakes of a layout, each with its cost. Prints nothing.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "train/plan/plan.h"

namespace weft::train {

std::vector<std::string> find_mistakes(const Plan& plan) {
  std::vector<std::string> all;
  const ModelShape& model = plan.model;
  const Cluster& c = plan.cluster;
  const bool none = plan.layouts.empty();
  if (none && plan.closest.empty()) return all;
  const Layout& l = none ? plan.closest.front() : plan.layouts.front();
  const double state = model.stated() * kStateBytes;

  if (none)
    all.push_back(
        fmt::format("does not fit: the layout that needs least takes {:.1f} GB of {:.1f} "
                    "GB ({:.0f} % are kept free)",
                    l.memory.total() / 1e9, c.gpu_memory() / 1e9, 100 * c.headroom));
  if (plan.wanted.tp * plan.wanted.pp == 1 && plan.wanted.zero == 0 && state > c.gpu_memory())
    all.push_back(
        fmt::format("plain data parallelism keeps 20 bytes per parameter on every GPU: "
                    "{:.1f} GB; ZeRO 1, 2, 3 over {} ranks: {:.1f}, {:.1f}, {:.1f} GB",
                    state / 1e9, l.dp, state / 20e9 * state_bytes_per_parameter(1, l.dp),
                    state / 20e9 * state_bytes_per_parameter(2, l.dp),
                    state / 20e9 * state_bytes_per_parameter(3, l.dp)));
  if (l.tp > c.gpus_per_host)
    all.push_back(fmt::format(
        "tensor parallelism over {} GPUs leaves the host of {}: {:.2f} GB per step and GPU over a "
        "rail of {:.3g} GB/s, {:.1f} ms of a step of {:.1f} ms; at {:.3g} GB/s inside the host it "
        "would be {:.1f} ms",
        l.tp, c.gpus_per_host, l.tp_bytes / 1e9, c.rail_GBps(), 1e3 * l.tp_s, 1e3 * l.step_s,
        c.host_GBps(), 1e3 * l.tp_bytes / (c.host_GBps() * 1e9)));
  const double waits = l.bubble;
  const int enough = 4 * l.pp;
  if (waits > 0.2 && l.microbatches < enough) {
    const double then = (l.pp - 1.0) / (enough + l.pp - 1.0);
    all.push_back(
        fmt::format("{} micro-batches for {} stages: ranks wait {:.0f} % of the time; with "
                    "{} micro-batches 1f1b waits {:.0f} %",
                    l.microbatches, l.pp, 100 * waits, enough, 100 * std::min(waits, then)));
  }
  if (l.pace > 1.1)
    all.push_back(fmt::format(
        "{} layers, and a head over {} words that computes as much as {:.1f} of them, "
        "on {} stages: "
        "the slowest stage sets the pace, {:.0f} % slower than the mean",
        model.layers, model.vocabulary, model.head_blocks(), l.pp * l.chunks, 100 * (l.pace - 1)));
  if (l.dp_exposed_s > 0.05 * l.step_s) {
    const double hidden = l.dp_s - l.dp_exposed_s;
    all.push_back(fmt::format(
        "the interconnect is too slow for this batch: {:.1f} ms of gradients, of which {:.1f} ms "
        "hide behind computing: {:.0f} % of a step is waiting; a rail of {:.3g} GB/s, or {} times "
        "the batch, would hide them",
        1e3 * l.dp_s, 1e3 * hidden, 100 * l.dp_exposed_s / l.step_s,
        hidden > 0 ? l.dp_rail_bytes / hidden / 1e9 : c.rail_GBps(),
        hidden > 0 ? static_cast<int>(l.dp_s / hidden) + 1 : 2));
  }
  if (l.zero >= 3 && l.microbatches > 1)
    all.push_back(
        fmt::format("ZeRO 3 gathers the weights for every micro-batch: {:.2f} GB per step "
                    "and GPU, with one micro-batch {:.2f} GB",
                    l.dp_bytes / 1e9, l.dp_bytes / 1e9 / l.microbatches));
  // The same batch and number of steps, if the batch is divisible by the GPUs.
  if (state < 0.5 * c.gpu_memory() && plan.wanted.batch % c.gpus == 0 &&
      std::max(plan.wanted.tp, 1) * std::max(plan.wanted.pp, 1) > 1) {
    Layout simple = l;
    simple.dp = c.gpus;
    simple.tp = simple.pp = simple.chunks = 1;
    simple.schedule = "1f1b";
    const int per_rank = plan.wanted.batch / simple.dp;
    simple.microbatch = std::gcd(l.microbatch, per_rank);
    simple.microbatches = per_rank / simple.microbatch;
    simple = predict(model, c, simple);
    all.push_back(
        fmt::format("the model fits one GPU ({:.1f} GB of state): data parallelism over {} "
                    "GPUs takes {:.1f} ms per step, this layout {:.1f} ms",
                    state / 1e9, simple.dp, 1e3 * simple.step_s, 1e3 * l.step_s));
  }
  const double tokens = static_cast<double>(l.microbatch) * model.sequence;
  if (tokens < 512)
    all.push_back(
        fmt::format("a micro-batch of {} x {} = {:.0f} tokens makes matrix products too "
                    "small for a GPU: use --micro-batch {}",
                    l.microbatch, model.sequence, tokens, 512 / model.sequence + 1));
  return all;
}

}  // namespace weft::train
