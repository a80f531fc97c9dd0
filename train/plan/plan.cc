// Predicts memory and time of a layout, and searches for the best layout. Prints nothing.
#include "train/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <tuple>

#include "topo/base/status.h"
#include "train/pipeline/simulator.h"
#include "train/plan/rank_facts.h"

namespace weft::train {
namespace {

// Sequential messages of a gather or a reduction among n ranks, by halving or doubling, which sends
// no more bytes than a ring (n - 1 messages). An all-reduce is a reduction and a gather.
double messages(double n) { return std::ceil(std::log2(std::max(1.0, n))); }

// A pipeline is periodic after its first micro-batches: extrapolates from two short simulations.
double pipeline_seconds(const Layout& l, const PipelineCosts& costs) {
  const auto of = [&](int m) {
    return simulate(make_pipeline_schedule(l.schedule, {l.pp, m, l.chunks}), costs).time;
  };
  const int few = 2 * l.pp, more = 3 * l.pp, m = l.microbatches;
  if (m <= more) return of(m);
  const double a = of(few), b = of(more);
  return b + (b - a) / (more - few) * (m - more);
}

// Sets the memory of the rank that needs the most, and the bytes of the rank that sends the most.
void take_facts(const ModelShape& model, const Cluster& cluster, Layout& l) {
  double most = -1;
  for (const RankFacts& rank : rank_facts(model, l)) {
    if (rank.memory.total() > l.memory.total()) l.memory = rank.memory;
    const double sent = rank.tp_bytes + rank.pp_bytes + rank.dp_bytes;
    if (sent <= most) continue;
    most = sent;
    l.blocks = rank.blocks;
    l.parameters = rank.parameters;
    l.tp_bytes = rank.tp_bytes;
    l.pp_bytes = rank.pp_bytes;
    l.dp_bytes = rank.dp_bytes;
    l.ep_bytes = rank.ep_bytes;
    l.cp_bytes = rank.cp_bytes;
  }
  l.fits = l.memory.total() <= cluster.gpu_memory() * (1 - cluster.headroom);
}

}  // namespace

Layout predict(const ModelShape& model, const Cluster& c, Layout l) {
  l.memory = {};
  take_facts(model, c, l);
  const double tokens = static_cast<double>(model.sequence) * l.microbatch / l.cp;
  const double bsh = tokens * model.hidden * l.precision.element;
  const double rate = c.gpu_tflops() * 1e12 * c.efficiency;
  const int m = l.microbatches;
  // Per block and micro-batch: B and W cost one F each; recomputation one more F.
  const double third = tokens * model.block_flops() / l.tp / 3 / rate;

  const bool tp_inside = l.tp <= c.gpus_per_host;
  const double tp_rate = (tp_inside ? c.host_GBps() : c.rail_GBps()) * 1e9;
  const double reduces_forward = 2, reduces_backward = 2, again = l.recompute ? 2 : 0;
  const double tp_latency =
      2 * messages(l.tp) * (tp_inside ? c.host_us() : c.rail_us()) * 1e-6;  // reduce + gather
  const double tp_one = 2.0 * (l.tp - 1) / l.tp * bsh / tp_rate + tp_latency;
  const double tp_forward = reduces_forward * tp_one;
  const double tp_backward = (reduces_backward + again) * tp_one;

  // Expert and context parallelism use ranks next to the tensor-parallel ranks, in the same host if
  // possible.
  const auto seconds = [&](double bytes, int n) {
    const bool inside = l.tp * n <= c.gpus_per_host;
    return bytes / ((inside ? c.host_GBps() : c.rail_GBps()) * 1e9);
  };
  l.ep_s = seconds(l.ep_bytes, l.ep);
  l.cp_s = seconds(l.cp_bytes, l.cp);
  const double beside = (l.ep_s + l.cp_s) / m / std::max(1, l.blocks);  // per block

  const bool pp_inside = l.ranks() <= c.gpus_per_host;
  PipelineCosts costs;
  costs.forward = third + tp_forward + beside / 3;
  costs.backward_input = third * (l.recompute ? 2 : 1) + tp_backward + 2 * beside / 3;
  costs.backward_weight = third;
  costs.weight_of_stage = stage_weights(model, l);
  if (l.pp > 1)
    costs.transfer = bsh / ((pp_inside ? c.host_GBps() : c.rail_GBps()) * 1e9) +
                     (pp_inside ? c.host_us() : c.rail_us()) * 1e-6;
  const double pipeline = pipeline_seconds(l, costs);

  std::vector<double> of_rank(static_cast<std::size_t>(l.pp), 0.0);  // blocks, including the head
  for (std::size_t s = 0; s < costs.weight_of_stage.size(); ++s)
    of_rank[s % of_rank.size()] += costs.weight_of_stage[s];
  const double slowest = *std::max_element(of_rank.begin(), of_rank.end());
  const double mean = std::accumulate(of_rank.begin(), of_rank.end(), 0.0) / l.pp;
  const double pass = costs.forward + costs.backward_input + costs.backward_weight;
  l.bubble = 1 - pass * m * mean / pipeline;
  l.pace = slowest / mean;
  l.compute_s = third * (l.recompute ? 4 : 3) * m * slowest;
  l.tp_s = (tp_forward + tp_backward) * m * l.blocks;
  l.tp_latency_s = (reduces_forward + reduces_backward + again) * tp_latency * m * l.blocks;

  // Inside the host among k ranks, then along the rail among d / k, each with 1/k of the bytes.
  const int d = l.replicas();
  const int k = std::clamp(c.gpus_per_host / std::max(1, l.tp), 1, d);
  const double hosts = static_cast<double>(d) / k;
  const double sent = d > 1 ? l.dp_bytes * d / (d - 1) : 0;  // including this rank's own part
  l.dp_rail_bytes = sent * (hosts - 1) / hosts / k;
  const double inside = sent * (k - 1) / k / (c.host_GBps() * 1e9);
  // Number of gathers and reductions: with ZeRO 3 all, with ZeRO 2 the reductions, run per block
  // and micro-batch; otherwise per bucket.
  const double buckets = std::ceil(l.parameters * l.precision.wide / kBucket);
  const double times = l.zero >= 3   ? 3.0 * m * l.blocks
                       : l.zero == 2 ? static_cast<double>(m) * l.blocks + buckets
                                     : 2 * buckets;
  l.dp_latency_s = times * 1e-6 * (messages(k) * c.host_us() + messages(hosts) * c.rail_us());
  l.dp_s = std::max(inside, l.dp_rail_bytes / (c.rail_GBps() * 1e9)) + l.dp_latency_s;
  // Gradients overlap with the last micro-batch's backward pass; with ZeRO 2 and 3, gradients
  // overlap with all backward passes, and gathers with all compute.
  const double backward = (costs.backward_input + costs.backward_weight) * slowest;
  const double behind = l.zero >= 3 ? l.compute_s : l.zero == 2 ? m * backward : backward;
  l.dp_exposed_s = std::max(0.0, l.dp_s - behind);

  l.step_s = pipeline + l.dp_exposed_s;
  const double all_tokens = tokens * m * d;
  l.tokens_per_s = all_tokens / l.step_s;
  l.mfu = all_tokens * model.flops() / (l.step_s * c.gpu_tflops() * 1e12 * l.ranks());
  return l;
}

namespace {

struct Choice {
  std::string schedule;
  int chunks;
};

// Returns the requested schedule, or the candidates. Without a pipeline, schedules differ only in
// the number of held micro-batches.
std::vector<Choice> choices(const Wanted& w, int p) {
  const std::string& asked = w.schedule;
  if (p > 1 && asked == "interleaved") return {{asked, 2}, {asked, 4}};
  if (!asked.empty()) return {{asked, 1}};
  if (p == 1) return {{"1f1b", 1}};
  return {{"1f1b", 1}, {"zero-bubble", 1}, {"interleaved", 2}, {"interleaved", 4}};
}

// Returns whether the schedule cannot run with the layout; `why` then has the reason and a remedy.
bool why_not(const ModelShape& model, const Layout& l, std::string& why) {
  if (l.schedule != "interleaved") return false;
  const int stages = l.pp * l.chunks;
  if (l.pp == 1)
    why = "--schedule interleaved with pp 1: it needs a pipeline; use --pp 2 or more";
  else if (model.layers % stages != 0)
    why = fmt::format(
        "--schedule interleaved with pp {}: {} layers are not shared out alike by {} stages, {} a "
        "rank; use another --pp or --layers",
        l.pp, model.layers, stages, l.chunks);
  else if (l.microbatches % l.pp != 0)
    why = fmt::format(
        "--schedule interleaved with pp {}: {} micro-batches are no multiple of {}; take another "
        "--batch or --micro-batch",
        l.pp, l.microbatches, l.pp);
  else
    return false;
  return true;
}

// why: the reason why the last schedule was skipped.
std::vector<Layout> candidates(const ModelShape& model, const Cluster& c, const Wanted& w,
                               std::string& why) {
  std::vector<Layout> all;
  const auto allowed = [](int wanted, int value) { return wanted == 0 || wanted == value; };
  if (w.cp < 1 || c.gpus % w.cp != 0 || model.sequence % w.cp != 0) return all;
  const int gpus = c.gpus / w.cp;
  for (int t = 1; t <= gpus; ++t) {
    if (gpus % t != 0 || model.heads % t != 0 || !allowed(w.tp, t)) continue;
    if (w.tp == 0 && t > c.gpus_per_host) continue;
    for (int p = 1; p <= std::min(model.layers, gpus / t); ++p) {
      if (gpus / t % p != 0 || !allowed(w.pp, p)) continue;
      if (w.pp == 0 && model.layers % p != 0) continue;
      const int d = gpus / t / p;
      if (!allowed(w.dp, d)) continue;
      for (int b = 1; b <= std::min(w.batch, 16); b *= 2) {
        const int size = w.microbatch > 0 ? w.microbatch : b;
        if (w.microbatch > 0 && b > 1) break;
        if (w.batch % (std::int64_t{d} * size) != 0) continue;
        Layout l;
        l.tp = t;
        l.pp = p;
        l.dp = d;
        l.cp = w.cp;
        l.microbatch = size;
        l.microbatches = w.batch / (d * size);
        l.precision = w.precision;
        for (const Choice& choice : choices(w, p)) {
          l.schedule = choice.schedule;
          l.chunks = choice.chunks;
          if (why_not(model, l, why)) continue;
          for (int zero = 0; zero <= 3; ++zero) {
            if (w.zero >= 0 ? zero != w.zero : (zero > 0 && d * w.cp == 1)) continue;
            for (const bool recompute : {false, true}) {
              l.zero = zero;
              l.recompute = recompute;
              for (l.ep = 1; l.ep <= std::max(1, std::min(model.moe.experts, d)); l.ep *= 2)
                if (allowed(w.ep, l.ep) && d % l.ep == 0 && model.moe.experts % l.ep == 0)
                  all.push_back(l);
            }
          }
        }
      }
    }
  }
  return all;
}

// Returns the recommended strategy for the model's size.
std::string advise(const Plan& plan) {
  const double state = plan.model.stated() * kStateBytes, room = plan.cluster.gpu_memory();
  const std::string size = fmt::format(
      "the model's state takes {} GB, a GPU has {:.4g} GB",
      state < 1000e9 ? fmt::format("{:.4g}", state / 1e9) : fmt::format("{:.0f}", state / 1e9),
      room / 1e9);
  if (plan.layouts.empty()) {
    Wanted free;
    free.batch = plan.wanted.batch;
    if (plan.wanted != free) {  // the user's choices may be the reason
      const Plan other = make_plan(plan.model, plan.cluster, free);
      if (!other.layouts.empty()) {
        const Layout& l = other.layouts.front();
        return fmt::format(
            "{}: what is asked for does not fit; tp {} x pp {} x dp {} with ZeRO {} "
            "does: {:.1f} GB per GPU, {:.1f} ms per step",
            size, l.tp, l.pp, l.dp, l.zero, l.memory.total() / 1e9, 1e3 * l.step_s);
      }
    }
    return fmt::format("{}: nothing fits {} GPUs; take more GPUs, or offload the optimizer", size,
                       plan.cluster.gpus);
  }
  const Layout& best = plan.layouts.front();
  std::vector<std::string> how;
  if (best.dp > 1) how.push_back(best.zero > 0 ? "sharded data parallelism" : "data parallelism");
  if (best.tp > 1) how.push_back("tensor parallelism inside the host");
  if (best.pp > 1) how.push_back("a pipeline along the rails");
  std::string text = size + ": ";
  if (plan.cluster.gpus == 1) return text + "one GPU is enough";
  for (std::size_t i = 0; i < how.size(); ++i)
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == how.size() ? " and " : ", ", how[i]);
  if (state < 0.7 * room && best.tp * best.pp == 1) text += " is enough";
  return text;
}

}  // namespace

Plan make_plan(const ModelShape& model, const Cluster& cluster, const Wanted& wanted) {
  Plan plan{model, cluster, wanted, {}, {}, 0, 0, {}, {}};
  std::string why;
  const auto tried = candidates(model, cluster, wanted, why);
  plan.considered = static_cast<int>(tried.size());
  const std::int64_t together = std::int64_t{wanted.dp} * std::max(1, wanted.microbatch);
  if (tried.empty() && !why.empty() && !wanted.schedule.empty()) throw Error(why);
  if (tried.empty())
    throw Error(fmt::format(
        "no layout of {} GPUs (tp {}, pp {}, dp {}; 0: any), {} layers, {} heads and {} sequences "
        "per step, {} in a micro-batch: tp * pp * dp must be the GPUs, heads a multiple of tp, "
        "layers of pp, experts and dp of ep, and --batch a multiple of dp * microbatch{}",
        cluster.gpus, wanted.tp, wanted.pp, wanted.dp, model.layers, model.heads, wanted.batch,
        wanted.microbatch,
        wanted.dp > 0 ? fmt::format(" (e.g. {})", (wanted.batch / together + 1) * together) : ""));
  for (const Layout& l : tried) {
    Layout predicted = predict(model, cluster, l);
    if (predicted.fits)
      plan.layouts.push_back(predicted);
    else if (plan.closest.empty() || predicted.memory.total() < plan.closest[0].memory.total())
      plan.closest = {predicted};
  }
  // Round times to 10 us; among equally fast layouts, the simplest, smallest one is first.
  const auto rank = [](const Layout& l) {
    return std::make_tuple(std::llround(l.step_s * 1e5), l.zero, l.recompute, l.tp, l.pp,
                           l.memory.total());
  };
  std::sort(plan.layouts.begin(), plan.layouts.end(),
            [&](const Layout& a, const Layout& b) { return rank(a) < rank(b); });
  plan.fitting = static_cast<int>(plan.layouts.size());
  std::set<std::tuple<int, int, int>> seen;
  std::erase_if(plan.layouts, [&](const Layout& l) {
    return !seen.insert({l.tp, l.pp, l.dp}).second;
  });
  if (!plan.layouts.empty()) plan.closest.clear();
  plan.advice = advise(plan);
  plan.warnings = find_mistakes(plan);
  return plan;
}

}  // namespace weft::train
