// BlockParts: the common parameters and sizes of both forms of a transformer block (gpt_block.cc,
// gpt_block_seed.cc).
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "train/model/gpt_regions.h"
#include "train/operators/operators.h"

namespace weft::train {

namespace gpt_block {

// Indices of parameters in declaration order; each bias follows its weight.
enum { kNorm1 = 0, kQkv = 2, kProj = 4, kNorm2 = 6, kGrow = 8, kShrink = 10 };
// Indices in SavedForBackward.
enum {
  kX,
  kMean1,
  kRstd1,
  kNormal1,
  kQkvOut,
  kLogSum,
  kAttended,
  kMiddle,
  kMean2,
  kRstd2,
  kNormal2,
  kGrown,
  kActive,
  kGradShrink,
  kGradGrow,
  kGradProj,
  kGradQkv,
  kCache,  // KV cache: qkv of all rows so far, in inference
  kPlaces
};

}  // namespace gpt_block

template <class T>
class BlockParts : public RegionLayer<T> {
 protected:
  using RegionLayer<T>::h, RegionLayer<T>::regions_, RegionLayer<T>::value;

  // qkv, proj, shrink: shards of these weights; `grow` is sharded by outputs.
  BlockParts(const GptShape& shape, GptParallel parallel, Index number,
             std::vector<Parameter<T>>& list, Shard qkv, Shard proj, Shard shrink)
      : RegionLayer<T>(shape, parallel, list) {
    const int t = parallel.tensor->size(), me = parallel.tensor->rank();
    const Index h = shape.width, d = h / shape.heads;
    const double out_deviation = 0.02 / std::sqrt(2 * static_cast<double>(shape.layers));
    const Shard whole{}, rows{0, me, t};
    // deviation 0: a vector of zeros or ones, without weight decay.
    const auto declare = [&](const char* part, std::vector<Index> s, Shard shard, double deviation,
                             bool ones = false) {
      list.push_back({.logical = {fmt::format("h{}.{}", number, part), std::move(s), shard},
                      .deviation = deviation,
                      .ones = ones,
                      .decays = deviation > 0});
    };
    declare("norm1.gain", {h}, whole, 0, true);
    declare("norm1.bias", {h}, whole, 0);
    declare("qkv.weight", {3, shape.heads, d, h}, qkv, 0.02);
    declare("qkv.bias", {3, shape.heads, d}, qkv, 0);
    declare("proj.weight", {h, h}, proj, out_deviation);
    declare("proj.bias", {h}, whole, 0);
    declare("norm2.gain", {h}, whole, 0, true);
    declare("norm2.bias", {h}, whole, 0);
    declare("grow.weight", {4 * h, h}, rows, 0.02);
    declare("grow.bias", {4 * h}, rows, 0);
    declare("shrink.weight", {h, 4 * h}, shrink, out_deviation);
    declare("shrink.bias", {h}, whole, 0);
    this->last = list.size();
    for (const int norm : {gpt_block::kNorm1, gpt_block::kNorm2})
      for (const int at : {norm, norm + 1}) list[this->first + static_cast<Index>(at)].early = true;
  }

  Index part() const { return h() / regions_.size(); }
  // Attention of the batch's rows, from their qkv; in inference also over the cached rows.
  void attend(Tensor<T>& out, const Tensor<T>& qkv, const Batch& batch, const AttentionShape& shape,
              SavedForBackward<T>& kept) {
    if (batch.rows == 0)
      return attention(out.data(), as_wide(kept[gpt_block::kLogSum].data()), qkv.data(), shape);
    if constexpr (std::is_floating_point_v<T>) {
      Tensor<T>& cache = kept[gpt_block::kCache];
      const Index row = 3 * shape.width();
      if (cache.empty()) cache = Tensor<T>(shape.positions * row, Use::kActivations);
      copy(cache.data() + batch.begin * row, qkv.data(), batch.rows * row);
      attention_of_rows(out.data(), cache.data(), batch.begin, batch.rows, shape);
    }
  }
  // Backward pass of the region that starts with norm(x): adds its input gradient to `grad`.
  void norm_back(Tensor<T>& grad, const Tensor<T>& g, int weight, Index out_width, Index rows,
                 int x, int mean, int gain, SavedForBackward<T>& kept) {
    Tensor<T> whole(rows * h(), Use::kErrors);
    linear_grad_input(whole.data(), g.data(), value(weight), rows, h(), out_width);
    regions_.sum(whole.data(), whole.count());
    this->norm_grad(grad, whole, x, mean, gain, kept);
  }
};

}  // namespace weft::train
