// The formulas of rank_facts.h. Each lists the tensors of train/model that it counts.
#include "train/plan/rank_facts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "train/model/balance.h"
#include "train/pipeline/checker.h"

namespace weft::train {
namespace {

// Facts that depend on the order of a schedule's actions.
struct HeldFacts {
  std::vector<int> pairs;   // most (micro-batch, stage) pairs held, by rank
  int heads = 0;            // most micro-batches that the last stage holds
  bool head_stays = false;  // the head's weights are never released between micro-batches
};

// A pipeline is periodic after its first micro-batches, so a short schedule suffices.
const HeldFacts& held_of(const Layout& l) {
  static std::map<std::tuple<std::string, int, int, int>, HeldFacts> known;
  const int m = l.schedule == "gpipe" ? l.microbatches : std::min(l.microbatches, 3 * l.pp);
  auto [at, added] = known.try_emplace({l.schedule, l.pp, m, l.chunks});
  HeldFacts& facts = at->second;
  if (!added) return facts;
  const PipelineSchedule schedule = make_pipeline_schedule(l.schedule, {l.pp, m, l.chunks});
  facts.pairs = peak_held(schedule);
  int passes = 0, kept = 0, gathers = 0;
  for (const PipelineAction& a : schedule.of_rank.back()) {
    if (a.stage + 1 != schedule.shape.stages()) continue;
    if (a.op == PipeOp::kForward) {
      facts.heads = std::max(facts.heads, ++kept);
      gathers += passes++ == 0 ? 1 : 0;
    }
    if (a.op == PipeOp::kBackwardInput) --passes;
    if (a.op == PipeOp::kBackwardWeight) --kept;
  }
  facts.head_stays = gathers == 1;
  return facts;
}

// Sizes per micro-batch and unit, for all ranks of a layout.
struct LayoutSizes {
  LayoutSizes(const ModelShape& m, const Layout& layout)
      : l(layout),
        stages(l.pp * l.chunks),
        tied(m.gpt()),
        h(m.hidden),
        t(l.tp),
        rows(static_cast<double>(m.sequence) * l.microbatch / l.cp),
        d(l.replicas()) {
    const double positions = m.gpt() ? m.sequence * h : 0, norms = m.gpt() ? 2 * h : h;
    table = m.vocabulary * h / t;
    // Of the mean block: ep replicas shard the experts.
    const double share = static_cast<double>(m.moe_layers()) / m.layers;
    const double all = static_cast<double>(m.expert_parameters()) * m.moe.experts * share;
    experts = all / t / l.ep;
    const double rest = static_cast<double>(m.blocks()) / m.layers - all;
    block =
        m.gpt() ? padded(12 * h * h / t + 7 * h / t + 6 * h) : padded(rest / t + 2 * h) + experts;
    const bool alike = m.gpt() && stages > 1 && l.zero > 0 && d > 1;  // both end units equally long
    embedding = padded(table + (alike ? std::max(positions, 2 * h) : positions));
    head = alike ? embedding : padded(norms + (stages > 1 || !m.gpt() ? table : 0));
    // Attention saves one number per row and head, and no scores. In the backward pass, a device
    // needs one more such number, the CPU two blocks of scores.
    kept_sums = rows * m.heads / t * (l.precision.wide / l.precision.element);
    scratch = l.precision.has_master()
                  ? kept_sums
                  : 2.0 * static_cast<double>(std::min<Index>(128, m.sequence)) *
                        static_cast<double>(m.sequence);
    logits = rows * m.vocabulary / t;
    // `results`: q, k, v, attention's result, two (GELU) or three (SwiGLU) results of the FFN's
    // width, and the inputs of experts. Excludes x, both norms' outputs and the sum of x and the
    // attention.
    const double value = static_cast<double>(m.heads * m.value_size());
    const double kv =
        m.attention.kv_rank > 0
            ? static_cast<double>(m.q_width() - m.heads * m.attention.rope_size) + value
            : static_cast<double>(m.kv_width());
    const double dense = m.gpt() ? 8 * h : 3.0 * m.ffn;
    const double of_experts = (m.moe.active + m.moe.shared) * 3.0 * m.moe.width + m.moe.active * h;
    results =
        static_cast<double>(m.q_width()) + kv + value + (1 - share) * dense + share * of_experts;
    sent_keys = rows * static_cast<double>(m.kv_width()) / t;
    dispatched = share * rows * m.moe.active * h / t;
  }
  double padded(double elements) const {
    return l.zero == 0 ? elements : std::ceil(elements / d) * d;
  }
  // Returns the bytes saved per block until its backward pass: x, the outputs of two norms, the sum
  // of x and the attention; `results`; four numbers per row.
  double saved() const {
    return l.precision.element * (4 * rows * h + results * rows / t + kept_sums) +
           4 * rows * l.precision.wide;
  }
  double kept() const { return l.recompute ? bsh() : saved(); }
  // Returns the bytes held per block between B and W: inputs of four products and gradients of
  // their results.
  double between() const { return l.precision.element * (4 * rows * h + results * rows / t); }
  // Returns the bytes held by the head, in addition to the logits.
  double head_kept() const { return 2 * bsh() + 2 * rows * l.precision.wide; }
  double bsh() const { return rows * h * l.precision.element; }

  const Layout& l;
  int stages;
  bool tied;
  double h, t, rows, d;
  // Elements; experts: the part of `block` in experts. Per micro-batch and block: results per row,
  // keys and values sent around a ring, inputs sent to experts.
  double table, experts, block, embedding, head, kept_sums, scratch, logits;
  double results, sent_keys, dispatched;
};

// Returns the peak of the step: in the backward pass of the head, or of a block.
RankMemory memory_of(const LayoutSizes& x, const RankFacts& rank, int place,
                     const HeldFacts& held) {
  const Layout& l = x.l;
  const double e = l.precision.element, bsh = x.bsh(), d = x.d, sums = l.precision.wide;
  const double experts = rank.blocks * x.experts;  // already sharded over ep of the d ranks
  const double share =
      l.zero >= 1 ? (rank.parameters - experts) / d + experts * l.ep / d : rank.parameters;
  RankMemory memory;
  memory.weights = e * (l.zero >= 3 ? share : rank.parameters);
  if (l.zero < 2) memory.gradients = e * rank.parameters;
  if (l.zero >= 2 || sums > e) memory.gradients += sums * (l.zero >= 2 ? share : rank.parameters);
  memory.optimizer = l.precision.wide * (l.precision.has_master() ? 3 : 2) * share;

  const int pairs = held.pairs[static_cast<std::size_t>(place)];
  const int late = l.schedule == "zero-bubble" ? std::min(place, pairs - 1) : 0;
  const double layers = static_cast<double>(rank.blocks) / l.chunks;
  memory.activations = layers * ((pairs - late) * x.kept() + late * x.between());
  // In a pipeline, also the received message, the message being sent, and the messages of posted
  // receives.
  const double messages = bsh * ((rank.first ? 0 : 1) + (l.pp > 1 ? 2 : 0));
  RankMemory head = memory, block = memory;
  const int heads = rank.last ? held.heads : 0, others = std::max(0, heads - 1);
  head.activations += heads * x.head_kept();
  head.logits = heads * x.logits * e;
  head.working = messages + 2 * bsh;
  block.activations += others * x.head_kept();
  block.logits = others * x.logits * e;
  block.working = messages + (l.recompute ? x.saved() : 0) + 2 * bsh +
                  e * (4 * x.rows * x.h / x.t + x.scratch) + (rank.last ? 0 : bsh);
  const double ends = rank.first ? x.embedding : rank.last ? x.head : 0;  // unit of the tied table
  if (l.zero >= 2) {  // gradients of a unit while it computes, and of one in flight
    const bool apart = l.schedule == "zero-bubble" && place > 0;
    // With few blocks, the gradients of the first block in flight replace its saved tensors.
    const double way = layers > (l.zero == 2 && l.recompute ? 1 : 2) ? sums : 0;
    block.working += apart ? e * rank.parameters + way * x.block : (e + way) * x.block + e * ends;
    head.working += e * (x.head + (rank.first ? x.embedding : 0));
  }
  if (l.zero >= 3 && d > 1) {  // weights of a unit and of the next one (prefetch)
    block.working += std::min(2.0, layers) * e * x.block;
    head.working += e * (x.block + x.head + (rank.first ? x.embedding : 0));
  }
  return rank.last && head.total() > block.total() ? head : block;
}

void add_sent(const LayoutSizes& x, RankFacts& rank, bool head_stays) {
  const Layout& l = x.l;
  const double n = l.microbatches, e = l.precision.element, g = l.precision.wide;
  const bool apart = x.tied && x.stages > 1;  // two copies of the tied embedding
  const auto unit = [&](double elements, bool shared, double gathers, double d) {
    const double part = (d - 1) / d * elements;
    if (l.zero == 0) {
      rank.dp_bytes += 2 * part * g;
      return;
    }
    rank.dp_bytes += (l.zero == 1 || shared ? 1 : n) * part * g;
    rank.dp_bytes += (l.zero >= 3 ? gathers : 1) * part * e;
  };
  const double all_reduce = 2 * (x.t - 1) / x.t, bsh = x.bsh();
  for (int b = 0; b < rank.blocks; ++b) {
    unit(x.block - x.experts, false, 2 * n, x.d);
    if (x.experts > 0) unit(x.experts, false, 2 * n, x.d / l.ep);
  }
  // Dispatch to experts and back; keys and values around the ring, backward with their gradients.
  rank.ep_bytes = rank.blocks * n * (l.recompute ? 6 : 4) * x.dispatched * e * (l.ep - 1) / l.ep;
  rank.cp_bytes = rank.blocks * n * (l.recompute ? 4 : 3) * x.sent_keys * e * (l.cp - 1);
  rank.tp_bytes = rank.blocks * n * all_reduce * bsh * (l.recompute ? 6 : 4);
  if (rank.first) {
    unit(x.embedding, apart, apart ? n : 2 * n, x.d);
    rank.tp_bytes += n * all_reduce * bsh;
  }
  if (rank.last) {
    unit(x.head, apart, head_stays ? 1 : n, x.d);
    rank.tp_bytes += n * all_reduce * (bsh + 3 * x.rows * l.precision.wide);
  }
  if (l.pp == 1) return;
  rank.pp_bytes = n * bsh * (2 * l.chunks - (rank.first ? 1 : 0) - (rank.last ? 1 : 0));
  if (x.tied && (rank.first || rank.last)) rank.pp_bytes += x.table * g / (l.zero == 0 ? 1 : x.d);
}

// Splits blocks over stages as weft train does.
std::vector<std::size_t> blocks_of(const ModelShape& model, const Layout& l) {
  std::vector<double> beside(static_cast<std::size_t>(l.pp * l.chunks), 0.0);
  beside.back() = model.head_blocks();
  return balance_blocks(static_cast<std::size_t>(model.layers), std::move(beside));
}

}  // namespace

std::vector<RankFacts> rank_facts(const ModelShape& model, const Layout& l) {
  const LayoutSizes sizes(model, l);
  const auto blocks = blocks_of(model, l);
  const HeldFacts& held = held_of(l);
  std::vector<RankFacts> all(static_cast<std::size_t>(l.pp));
  for (std::size_t s = 0; s < blocks.size(); ++s)
    all[s % all.size()].blocks += static_cast<int>(blocks[s]);
  all.front().first = all.back().last = true;
  for (int place = 0; place < l.pp; ++place) {
    RankFacts& rank = all[static_cast<std::size_t>(place)];
    rank.parameters = rank.blocks * sizes.block + (rank.first ? sizes.embedding : 0) +
                      (rank.last ? sizes.head : 0);
    rank.memory = memory_of(sizes, rank, place, held);
    add_sent(sizes, rank, held.head_stays);
  }
  return all;
}

std::vector<double> stage_weights(const ModelShape& model, const Layout& l) {
  const auto blocks = blocks_of(model, l);
  std::vector<double> weights(blocks.begin(), blocks.end());
  weights.back() += model.head_blocks();
  return weights;
}

}  // namespace weft::train
