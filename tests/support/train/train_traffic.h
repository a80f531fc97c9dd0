// Expected bytes sent by each rank in one step, by the formulas of docs/training/what-travels.md
// ("What travels"): written from the documents, not from the trainer.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "train/trainer.h"

namespace weft::testing {

using train::AxisBytes;
using train::TrainOptions;

// Sizes on the wire: bytes of an element, bytes per row of the cross-entropy, and the alignment of
// parameters in elements.
struct TrafficElement {
  std::uint64_t bytes = 4, number = 4, aligned = 1;
  std::uint64_t sum = 4;  // of the sum of a parameter's gradients
};

struct Traffic {
  AxisBytes sent, forward;
};

// A step, and the bytes that this rank sent during forward passes.
struct StepTraffic : train::StepReport {
  AxisBytes sent_forward;
};
template <class T>
StepTraffic step_with_traffic(World& world, train::Trainer<T>& trainer) {
  StepTraffic step;
  const train::AxisCounter counter(world, trainer.mesh().shape);
  trainer.pipeline().on_action = [&, begin = AxisBytes()](const train::PipelineAction& action,
                                                          bool before) mutable {
    if (action.op != train::PipeOp::kForward) return;
    if (before)
      begin = counter.sent();
    else
      step.sent_forward += counter.sent() - begin;
  };
  static_cast<train::StepReport&>(step) = trainer.step();
  trainer.pipeline().on_action = nullptr;
  return step;
}

// Whether each tensor-parallel rank has a block of the vocabulary.
inline bool is_split(const TrainOptions& o) { return o.embed == "vocab-parallel"; }

// A gathered or reduced unit of a rank's weights.
struct TrafficUnit {
  enum Kind { kEmbedding, kBlock, kHead } kind;
  std::uint64_t elements;
  std::uint64_t vectors;  // of `elements`, those replicated on all tensor-parallel ranks
};

// The units of stage g of `stages`, on a rank with or without embedding and head.
inline std::vector<TrafficUnit> units_of_stage(const TrainOptions& o, int g, int stages,
                                               const TrafficElement& element, std::uint64_t s,
                                               bool tables) {
  const std::uint64_t h = o.model.width, t = static_cast<std::uint64_t>(o.mesh.tensor);
  const std::uint64_t table = o.model.vocabulary * h / (is_split(o) ? t : 1);
  const std::uint64_t positions = o.model.positions * h;
  const bool alike = o.model.tied && stages > 1 && s > 1;  // both ends, to be split alike
  const auto unit = [&](TrafficUnit::Kind kind, const std::vector<std::uint64_t>& tensors,
                        std::uint64_t vectors) {
    const auto up = [](std::uint64_t n, std::uint64_t to) { return (n + to - 1) / to * to; };
    std::uint64_t n = 0;
    for (const std::uint64_t count : tensors) n += up(count, element.aligned);
    if (alike && tables && kind != TrafficUnit::kBlock)
      n = up(table, element.aligned) +
          std::max(up(positions, element.aligned), 2 * up(h, element.aligned));
    return TrafficUnit{kind, up(std::max<std::uint64_t>(n, 1), std::lcm(element.aligned, s)),
                       vectors};
  };
  std::vector<TrafficUnit> all;
  if (g == 0)
    all.push_back(unit(TrafficUnit::kEmbedding,
                       tables ? std::vector{table, positions} : std::vector<std::uint64_t>{},
                       positions));
  const auto layers = static_cast<int>(o.model.layers);
  for (int b = 0; b < layers / stages + (g < layers % stages ? 1 : 0); ++b)
    all.push_back(unit(TrafficUnit::kBlock,
                       {h, h, 3 * h * h / t, 3 * h / t, o.seed_style ? h * h : h * h / t, h, h, h,
                        4 * h * h / t, 4 * h / t, 4 * h * h / t, h},
                       6 * h));
  if (g == stages - 1) {
    std::vector<std::uint64_t> tensors{h, h};
    if (tables && (!o.model.tied || stages > 1)) tensors.push_back(table);
    all.push_back(unit(TrafficUnit::kHead, tensors, 2 * h));
  }
  return all;
}

// This rank's elements of the tied embedding in a unit shared by `s` ranks. The embedding begins
// the unit, whose buckets are cut from the end.
inline std::uint64_t tied_part(const TrainOptions& o, const train::Coordinates& at,
                               std::uint64_t table, std::uint64_t unit, std::uint64_t s,
                               std::uint64_t element_bytes) {
  const std::uint64_t most =
      o.zero >= 2 ? unit : std::max(o.bucket_bytes / element_bytes / s * s, s);
  const std::uint64_t mine = static_cast<std::uint64_t>(at.data) % s;
  std::uint64_t sum = 0;
  for (std::uint64_t end = unit; end > 0; end -= std::min(most, end)) {
    const std::uint64_t count = std::min(most, end), begin = end - count + mine * (count / s);
    sum += std::min(begin + count / s, table) - std::min(begin, table);
  }
  return sum;
}

// Under 1F1B and `ring` (or equivalent algorithms if a size is a power of two).
inline Traffic expected_traffic(const TrainOptions& o, const train::Coordinates& at,
                                const TrafficElement& element = {}) {
  using U = std::uint64_t;
  const U n = static_cast<U>(o.mesh.data), t = static_cast<U>(o.mesh.tensor);
  const U m = o.batch / (o.micro_batch * n), e = element.bytes;
  const U s = o.zero == 0 ? 1 : o.mesh.shard > 0 ? static_cast<U>(o.mesh.shard) : n, r = n / s;
  const U rows = o.micro_batch * o.model.positions, bsh = rows * o.model.width * e;
  const int stages = o.mesh.pipeline * o.chunks;
  const bool tables = o.embed != "owner" || at.tensor == 0;
  const bool apart = o.model.tied && stages > 1 && tables;  // two copies of the tied embedding
  // The owner's broadcast passes along the ranks; the last rank sends nothing.
  const U owned = o.embed == "owner" && at.tensor + 1 < o.mesh.tensor ? bsh : 0;
  const auto all_reduce = [](U ranks, U bytes) { return 2 * (ranks - 1) * bytes / ranks; };
  Traffic x;
  for (int g = at.pipeline; g < stages; g += o.mesh.pipeline) {
    if (o.mesh.pipeline > 1) {
      const U boundary = o.sequence_parallel ? bsh / t : bsh;
      x.sent.pipeline += m * boundary * ((g > 0 ? 1u : 0u) + (g + 1 < stages ? 1u : 0u));
      x.forward.pipeline += g + 1 < stages ? m * boundary : 0;
    }
    for (const TrafficUnit& unit : units_of_stage(o, g, stages, element, s, tables)) {
      using Unit = TrafficUnit;
      const bool shared = apart && unit.kind != Unit::kBlock;  // its gradient is sent once
      const U part = (s - 1) * unit.elements * e / s;          // gathered weights
      const U sums = unit.elements * element.sum;              // scattered gradients
      const U between = all_reduce(r, sums / s);               // between groups
      const U times = o.zero < 2 || shared ? 1 : m;
      x.sent.data += times * ((o.zero == 0 ? 0 : (s - 1) * sums / s) + between);
      if (o.zero == 1 || o.zero == 2) x.sent.data += part;
      if (o.zero == 3) {
        // Blocks: before both passes. The embedding's backward pass needs no weights, unless the
        // head uses them; the head keeps its own from one pass to the next.
        const bool twice = unit.kind == Unit::kBlock ||
                           (unit.kind == Unit::kEmbedding && o.model.tied && stages == 1);
        x.sent.data += m * (twice ? 2 : 1) * part;
        x.forward.data += m * part * (unit.kind == Unit::kEmbedding && twice ? 2 : 1);
      }
      U forward = 0, backward = 0;
      if (unit.kind == Unit::kBlock) {
        forward = (o.seed_style ? 8 : 4) * (t - 1) * bsh / t;
        backward = (o.seed_style ? 12 : 4) * (t - 1) * bsh / t + (o.recompute ? forward : 0);
      } else if (unit.kind == Unit::kEmbedding) {
        forward = is_split(o) ? all_reduce(t, bsh) : owned;
      } else if (!is_split(o)) {
        backward = owned;
      } else {
        forward = 3 * all_reduce(t, rows * element.number);
        backward = all_reduce(t, bsh);
      }
      if (o.sequence_parallel) {  // the same in halves, before and after the region
        const U half = (t - 1) * bsh / t;
        if (unit.kind == Unit::kEmbedding) forward = backward = half;
        if (unit.kind == Unit::kHead) forward += half, backward = half;
        x.sent.tensor += times * all_reduce(t, unit.vectors * element.sum);
      }
      x.sent.tensor += m * (forward + backward);
      x.forward.tensor += m * forward;
    }
  }
  const bool end = at.pipeline == 0 || at.pipeline + 1 == o.mesh.pipeline;
  if (apart && o.mesh.pipeline > 1 && end) {
    const U table = o.model.vocabulary * o.model.width / (is_split(o) ? t : 1);
    const U unit = units_of_stage(o, 0, stages, element, s, true).front().elements;
    x.sent.pipeline += all_reduce(2, tied_part(o, at, table, unit, s, element.sum) * element.sum);
  }
  return x;
}

}  // namespace weft::testing
