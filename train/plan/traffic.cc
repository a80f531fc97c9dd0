// Turns a layout of the planner into messages: the same formulas as predict() in plan.cc, per call
// instead of per step.
#include "train/plan/traffic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "topo/base/status.h"

namespace weft::train {
namespace {

constexpr std::int64_t kMostRanks = 1'000'000;

std::uint64_t whole(double bytes) { return static_cast<std::uint64_t>(std::llround(bytes)); }

std::vector<int> divisors(int n) {
  std::vector<int> all;
  for (int d = 1; d <= n; ++d)
    if (n % d == 0) all.push_back(d);
  return all;
}

// Throws Error unless the model can be cut that way.
void check_asked(const TrafficAsked& a, const ModelShape& model) {
  const auto least_one = [](const char* flag, int value) {
    if (value < 1) throw Error(fmt::format("{} {}: at least 1 is needed", flag, value));
  };
  least_one("--tp", a.tp);
  least_one("--pp", a.pp);
  least_one("--dp", a.dp);
  least_one("--batch", a.batch);
  if (model.heads % a.tp != 0)
    throw Error(fmt::format("--tp {}: {} has {} heads, which {} ranks cannot share alike; take {}",
                            a.tp, model.name, model.heads, a.tp,
                            fmt::join(divisors(model.heads), ", ")));
  if (model.layers % a.pp != 0)
    throw Error(
        fmt::format("--pp {}: {} has {} layers, which {} stages cannot share alike; take {}", a.pp,
                    model.name, model.layers, a.pp, fmt::join(divisors(model.layers), ", ")));
  if (a.batch % a.dp != 0)
    throw Error(fmt::format(
        "--dp {}: {} sequences per step are no multiple of it; take --batch {}, or another --dp",
        a.dp, a.batch, (std::int64_t{a.batch} / a.dp + 1) * a.dp));
  const std::int64_t ranks = std::int64_t{a.tp} * a.pp * a.dp;
  if (ranks < 2)
    throw Error("--like: a job of tp 1 x pp 1 x dp 1 sends nothing; give --tp, --pp or --dp");
  if (ranks > kMostRanks)
    throw Error(fmt::format("--like: tp {} x pp {} x dp {} are {} ranks; at most {} are planned",
                            a.tp, a.pp, a.dp, ranks, kMostRanks));
}

}  // namespace

JobTraffic traffic_of(const TrafficAsked& asked, const ModelShape& model, const Layout& l) {
  const double e = l.precision.element, d = l.dp;
  const double message = static_cast<double>(model.sequence) * l.microbatch * model.hidden * e;
  const auto blocks = static_cast<std::uint64_t>(l.blocks);
  // A block reduces its attention and its FFN.
  const std::uint64_t forward = 2 * blocks, backward = (l.recompute ? 4 : 2) * blocks;
  TrafficBeat pass, end;
  pass.times = static_cast<std::uint64_t>(l.microbatches);
  // Calls of the data axis for messages of so many bytes together.
  const auto add_data = [&](TrafficBeat& beat, Collective collective, double bytes, double calls) {
    if (d > 1)
      beat.parts.push_back({TrafficAxis::kData, collective, false, whole(bytes / calls),
                            static_cast<std::uint64_t>(calls)});
  };
  const double elements = l.parameters;
  const auto add_pass = [&](std::uint64_t reductions, bool back) {
    if (l.zero >= 3) add_data(pass, Collective::kAllGather, elements * e, l.blocks);
    if (l.tp > 1)
      pass.parts.push_back(
          {TrafficAxis::kTensor, Collective::kAllReduce, false, whole(message), reductions});
    if (l.pp > 1)
      pass.parts.push_back({TrafficAxis::kPipeline, Collective::kSendRecv, back, whole(message),
                            static_cast<std::uint64_t>(l.chunks)});
    if (l.zero >= 2 && back)
      add_data(pass, Collective::kReduceScatter, elements * l.precision.sum(), l.blocks);
  };
  add_pass(forward, false);
  add_pass(backward, true);
  const double buckets = std::ceil(elements * l.precision.sum() / kBucket);
  if (l.zero == 0) add_data(end, Collective::kAllReduce, elements * l.precision.sum(), buckets);
  if (l.zero == 1) add_data(end, Collective::kReduceScatter, elements * l.precision.sum(), buckets);
  if (l.zero == 1 || l.zero == 2) add_data(end, Collective::kAllGather, elements * e, buckets);
  return {asked, {std::move(pass), std::move(end)}};
}

JobTraffic plan_traffic(const TrafficAsked& asked) {
  const auto& models = known_models();
  if (std::ranges::find(models, asked.model) == models.end())
    throw Error(fmt::format("--like {}: the planner knows no such model; take {}", asked.model,
                            fmt::join(models, ", ")));
  const ModelShape model = known_model(asked.model);
  check_asked(asked, model);
  Cluster cluster;
  cluster.gpus = asked.tp * asked.pp * asked.dp;
  Wanted wanted;
  wanted.batch = asked.batch;
  wanted.tp = asked.tp;
  wanted.pp = asked.pp;
  wanted.dp = asked.dp;
  const Plan plan = make_plan(model, cluster, wanted);
  return traffic_of(asked, model,
                    plan.layouts.empty() ? plan.closest.front() : plan.layouts.front());
}

}  // namespace weft::train
