// Predicts memory and time of a layout, and searches for the best one. This file prints nothing.
#include "train/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "topo/base/status.h"
#include "train/pipeline/checker.h"
#include "train/pipeline/simulator.h"

namespace weft::train {
namespace {

// Messages one after another in a gather or reduction among n: by halving or doubling, which moves
// no more bytes than a ring; a ring has n - 1. An all-reduce is one of each.
double messages(double n) { return std::ceil(std::log2(std::max(1.0, n))); }

// A pipeline is regular after its first micro-batches: two short simulations give the long one.
struct PipelineFacts {
  double time = 0;
  int held = 0;  // on the first rank
};
PipelineFacts pipeline(const Layout& l, const PipelineCosts& costs) {
  const auto of = [&](int m) {
    return simulate(make_pipeline_schedule(l.schedule, {l.pp, m, l.chunks}), costs).time;
  };
  static std::map<std::tuple<std::string, int, int, int>, int> held;
  const int few = 2 * l.pp, more = 3 * l.pp;
  const int m = l.microbatches, known = std::min(m, more);
  const auto key = std::make_tuple(l.schedule, l.pp, known, l.chunks);
  auto found = held.find(key);
  if (found == held.end())
    found =
        held.emplace(key, peak_held(make_pipeline_schedule(l.schedule, {l.pp, known, l.chunks}))[0])
            .first;
  if (m <= more) return {of(m), found->second};
  const double a = of(few), b = of(more);
  return {b + (b - a) / (more - few) * (m - more), found->second};
}

void predict_memory(const ModelShape& model, const Cluster& cluster, Layout& l, int held) {
  const double h = model.hidden;
  const int per_stage = (model.layers + l.pp - 1) / l.pp;
  // The first rank has the embedding; the last one its copy as the head, and the logits.
  const double parameters = (per_stage * static_cast<double>(model.block_parameters()) +
                             static_cast<double>(model.embedding_parameters()) + 2 * h) /
                            l.tp;
  const double d = l.dp;
  l.weights = 2 * parameters / (l.zero >= 3 ? d : 1);
  l.gradients = 2 * parameters / (l.zero >= 2 ? d : 1);
  l.optimizer = 16 * parameters / (l.zero >= 1 ? d : 1);
  const double layers_held = static_cast<double>(held) * per_stage / l.chunks;
  l.activations = layers_held * activation_bytes_per_layer(model, l.microbatch, l.tp, l.recompute);
  if (l.recompute)  // the layer that is being computed again
    l.activations += activation_bytes_per_layer(model, l.microbatch, l.tp, false);
  // fp32 logits; the last rank of a pipeline holds fewer micro-batches than the first, whose
  // activations are counted here.
  if (l.pp == 1) l.logits = 4.0 * model.sequence * l.microbatch * model.vocabulary / l.tp;
  l.fits = l.memory() <= cluster.gpu_memory * (1 - cluster.headroom);
}

}  // namespace

Layout predict(const ModelShape& model, const Cluster& c, Layout l) {
  const double tokens = static_cast<double>(model.sequence) * l.microbatch;
  const double bsh = tokens * model.hidden;
  const double rate = c.gpu_tflops * 1e12 * c.efficiency;
  const int m = l.microbatches, stages = l.pp * l.chunks;
  const double layers = static_cast<double>((model.layers + l.pp - 1) / l.pp) / l.chunks;
  // Of a stage and micro-batch: B and W cost as much as F each; F again where it is recomputed.
  const double flops = tokens * flops_per_token(model, false) * layers / model.layers / l.tp;
  const double third = flops / 3 / rate;

  const bool tp_inside = l.tp <= c.gpus_per_host;
  const double tp_rate = (tp_inside ? c.domain_GBps : c.rail_GBps) * 1e9;
  const double ring = 2.0 * (l.tp - 1) / l.tp;  // an all-reduce, in elements per element
  const double reduces_forward = 2, reduces_backward = 2, again = l.recompute ? 2 : 0;
  const double tp_latency =
      layers * 2 * messages(l.tp) * (tp_inside ? c.domain_us : c.rail_us) * 1e-6;  // of one each
  const double tp_one = layers * ring * bsh * kElement / tp_rate + tp_latency;
  const double tp_forward = reduces_forward * tp_one;
  const double tp_backward = (reduces_backward + again) * tp_one;

  const bool pp_inside = l.tp * l.dp * l.pp <= c.gpus_per_host;
  PipelineCosts costs;
  costs.forward = third + tp_forward;
  costs.backward_input = third * (l.recompute ? 2 : 1) + tp_backward;
  costs.backward_weight = third;
  if (l.pp > 1)
    costs.transfer = bsh * kElement / l.tp / ((pp_inside ? c.domain_GBps : c.rail_GBps) * 1e9) +
                     (pp_inside ? c.domain_us : c.rail_us) * 1e-6;
  const PipelineFacts facts = pipeline(l, costs);
  predict_memory(model, c, l, facts.held);

  const double busy = (costs.forward + costs.backward_input + costs.backward_weight) * m * l.chunks;
  l.bubble = 1 - busy / facts.time;
  l.compute_s = third * (l.recompute ? 4 : 3) * m * l.chunks;
  l.tp_s = (tp_forward + tp_backward) * m * l.chunks;
  l.tp_latency_s = (reduces_forward + reduces_backward + again) * tp_latency * m * l.chunks;
  l.tp_bytes =
      layers * l.chunks * m * (reduces_forward + reduces_backward + again) * ring * bsh * kElement;
  // A rank in the middle sends on and back; the tensor-parallel ranks share each message.
  l.pp_bytes = l.pp > 1 ? 2.0 * m * l.chunks * bsh * kElement / l.tp * (stages - 1) / stages : 0;

  // Inside the host among k ranks, then along the rail among d / k, each with a k-th.
  const double parameters = l.weights / 2 * (l.zero >= 3 ? l.dp : 1);
  const int k = std::clamp(c.gpus_per_host / std::max(1, l.tp), 1, l.dp);
  const double hosts = static_cast<double>(l.dp) / k;
  // Gathers and reductions: a ring all-reduce is one of each. ZeRO 3 gathers the weights for every
  // forward and backward pass.
  const double passes = l.zero >= 3 ? 2.0 * m + 1 : 2;
  l.dp_bytes = passes * (l.dp - 1) / l.dp * parameters * kElement;
  l.dp_rail_bytes = passes * (hosts - 1) / hosts * parameters / k * kElement;
  const double inside = passes * (k - 1) / k * parameters * kElement / (c.domain_GBps * 1e9);
  // Layer by layer with ZeRO 3, else bucket by bucket.
  const double times = l.zero >= 3 ? passes * layers * l.chunks
                                   : passes * std::ceil(parameters * kElement / kBucket);
  l.dp_latency_s = times * 1e-6 * (messages(k) * c.domain_us + messages(hosts) * c.rail_us);
  l.dp_s = std::max(inside, l.dp_rail_bytes / (c.rail_GBps * 1e9)) + l.dp_latency_s;
  // Gradients can go from the last micro-batch's backward pass on; gathers behind all computing.
  const double behind =
      l.zero >= 3 ? l.compute_s : (costs.backward_input + costs.backward_weight) * l.chunks;
  l.dp_exposed_s = std::max(0.0, l.dp_s - behind);

  l.step_s = facts.time + l.dp_exposed_s;
  const double all_tokens = tokens * m * l.dp;
  l.tokens_per_s = all_tokens / l.step_s;
  l.mfu = all_tokens * flops_per_token(model, false) /
          (l.step_s * c.gpu_tflops * 1e12 * l.tp * l.pp * l.dp);
  return l;
}

namespace {

std::vector<Layout> candidates(const ModelShape& model, const Cluster& c, const Wanted& w) {
  std::vector<Layout> all;
  const auto allowed = [](int wanted, int value) { return wanted == 0 || wanted == value; };
  for (int t = 1; t <= c.gpus; ++t) {
    if (c.gpus % t != 0 || model.heads % t != 0 || !allowed(w.tp, t)) continue;
    if (w.tp == 0 && t > c.gpus_per_host) continue;
    for (int p = 1; p <= std::min(model.layers, c.gpus / t); ++p) {
      if (c.gpus / t % p != 0 || !allowed(w.pp, p)) continue;
      if (w.pp == 0 && model.layers % p != 0) continue;
      const int d = c.gpus / t / p;
      if (!allowed(w.dp, d)) continue;
      for (int b = 1; b <= std::min(w.batch, 16); b *= 2) {
        const int size = w.microbatch > 0 ? w.microbatch : b;
        if (w.microbatch > 0 && b > 1) break;
        if (w.batch % (std::int64_t{d} * size) != 0) continue;
        Layout l;
        l.tp = t;
        l.pp = p;
        l.dp = d;
        l.microbatch = size;
        l.microbatches = w.batch / (d * size);
        struct Choice {
          const char* name;
          int chunks;
        };
        for (const Choice& s : {Choice{"1f1b", 1}, Choice{"zero-bubble", 1}, Choice{"gpipe", 1},
                                Choice{"interleaved", 2}, Choice{"interleaved", 4}}) {
          const bool wanted_schedule = w.schedule == s.name;
          if (!w.schedule.empty() && !wanted_schedule) continue;
          if (p == 1 && std::string_view(s.name) != "1f1b" && !wanted_schedule) continue;
          if (s.chunks > 1 &&
              (model.layers % (p * s.chunks) != 0 || l.microbatches % p != 0 || p == 1))
            continue;
          if (std::string_view(s.name) == "gpipe" && !wanted_schedule) continue;
          for (int zero = 0; zero <= 3; ++zero) {
            if (w.zero >= 0 ? zero != w.zero : (zero > 0 && d == 1)) continue;
            if (zero >= 2 && p > 1) continue;
            for (const bool recompute : {false, true}) {
              l.schedule = s.name;
              l.chunks = s.chunks;
              l.zero = zero;
              l.recompute = recompute;
              all.push_back(l);
            }
          }
        }
      }
    }
  }
  return all;
}

// Which strategy for which size.
std::string advise(const Plan& plan) {
  const double state = plan.model.stated() * kStateBytes, room = plan.cluster.gpu_memory;
  const std::string size = fmt::format(
      "the model's state takes {} GB, a GPU has {:.4g} GB",
      state < 1000e9 ? fmt::format("{:.4g}", state / 1e9) : fmt::format("{:.0f}", state / 1e9),
      room / 1e9);
  if (plan.layouts.empty()) {
    Wanted free;
    free.batch = plan.wanted.batch;
    if (plan.wanted != free) {  // what is fixed may be the reason
      const Plan other = make_plan(plan.model, plan.cluster, free);
      if (!other.layouts.empty()) {
        const Layout& l = other.layouts.front();
        return fmt::format(
            "{}: what is asked for does not fit; tp {} x pp {} x dp {} with ZeRO {} "
            "does: {:.1f} GB per GPU, {:.1f} ms per step",
            size, l.tp, l.pp, l.dp, l.zero, l.memory() / 1e9, 1e3 * l.step_s);
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
  const auto tried = candidates(model, cluster, wanted);
  plan.considered = static_cast<int>(tried.size());
  const std::int64_t together = std::int64_t{wanted.dp} * std::max(1, wanted.microbatch);
  if (tried.empty())
    throw Error(fmt::format(
        "no layout of {} GPUs (tp {}, pp {}, dp {}; 0: any), {} layers, {} heads and {} sequences "
        "per step, {} in a micro-batch: tp * pp * dp must be the GPUs, heads a multiple of tp, "
        "layers of pp, and --batch a multiple of dp * microbatch{}",
        cluster.gpus, wanted.tp, wanted.pp, wanted.dp, model.layers, model.heads, wanted.batch,
        wanted.microbatch,
        wanted.dp > 0 ? fmt::format(" (e.g. {})", (wanted.batch / together + 1) * together) : ""));
  for (const Layout& l : tried) {
    Layout predicted = predict(model, cluster, l);
    if (predicted.fits)
      plan.layouts.push_back(predicted);
    else if (plan.closest.empty() || predicted.memory() < plan.closest[0].memory())
      plan.closest = {predicted};
  }
  // To 10 us: of equally fast ones the simplest first, with the least memory.
  const auto rank = [](const Layout& l) {
    return std::make_tuple(std::llround(l.step_s * 1e5), l.zero, l.recompute, l.tp, l.pp,
                           l.memory());
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
