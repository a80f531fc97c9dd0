// A transformer block with tensor parallelism as the source documents have it (docs/training.md):
// every product is split by outputs, and each result is gathered whole. Forward 8 (t-1)/t bsh where
// the form of gpt_block.cc needs 4. Q and K are gathered although a head only attends to itself:
// that is the documents' form, and what it costs is what there is to see.
#include <fmt/format.h>

#include <cmath>

#include "train/gpt_regions.h"

namespace weft::train {
namespace {

template <class T>
class SeedBlock : public Layer<T> {
 public:
  SeedBlock(const GptShape& shape, GptParallel parallel, Index number,
            std::vector<Parameter<T>>& list)
      : shape_(shape), axis_(*parallel.tensor), list_(list) {
    const Index h = shape.width, d = h / shape.heads;
    const double deviation = 0.02 / std::sqrt(2 * static_cast<double>(shape.layers));
    const Shard whole{}, rows{0, axis_.rank(), axis_.size()}, heads{1, axis_.rank(), axis_.size()};
    this->first = list.size();
    const auto declare = [&](const char* part, std::vector<Index> s, Shard shard, double dev,
                             bool ones = false) {
      list.push_back({.logical = {fmt::format("h{}.{}", number, part), std::move(s), shard},
                      .deviation = dev,
                      .ones = ones,
                      .decays = dev > 0});
    };
    declare("norm1.gain", {h}, whole, 0, true);
    declare("norm1.bias", {h}, whole, 0);
    declare("qkv.weight", {3, shape.heads, d, h}, heads, 0.02);
    declare("qkv.bias", {3, shape.heads, d}, heads, 0);
    declare("proj.weight", {h, h}, whole, deviation);
    declare("proj.bias", {h}, whole, 0);
    declare("norm2.gain", {h}, whole, 0, true);
    declare("norm2.bias", {h}, whole, 0);
    declare("grow.weight", {4 * h, h}, rows, 0.02);
    declare("grow.bias", {4 * h}, rows, 0);
    declare("shrink.weight", {h, 4 * h}, rows, deviation);
    declare("shrink.bias", {h}, whole, 0);
    this->last = list.size();
  }

  Tensor<T> forward(Tensor<T> x, Batch& batch, Kept<T>& kept) override {
    kept.resize(kPlaces);
    const Index n = batch.samples * shape_.positions;
    const auto tensor = [](Index count) { return Tensor<T>(count, Use::kActivations); };
    kept[kNormal1] = norm(x, kMean1, kNorm1, kept);
    kept[kQkvOut] = tensor(n * 3 * part());
    linear(kept[kQkvOut].data(), kept[kNormal1].data(), value(kQkv), value(kQkv + 1), n, h(),
           3 * part());
    gather_columns(kept[kQkvOut].data(), 3 * part(), part(), n);           // Q
    gather_columns(kept[kQkvOut].data() + part(), 3 * part(), part(), n);  // K
    Tensor<T> attended(n * part(), Use::kWorkspace);
    kept[kProbabilities] = tensor(n * shape_.positions * shape_.heads / size());
    attention(attended.data(), kept[kProbabilities].data(), kept[kQkvOut].data(),
              attention_shape(batch));
    kept[kContext] = gather_columns(attended.data(), part(), part(), n);
    Tensor<T> middle = tensor(n * h());
    linear(middle.data(), kept[kContext].data(), value(kProj), value(kProj + 1), n, h(), h());
    add(middle.data(), x.data(), x.count());
    kept[kX] = std::move(x);

    kept[kNormal2] = norm(middle, kMean2, kNorm2, kept);
    kept[kGrown] = tensor(n * 4 * part());
    linear(kept[kGrown].data(), kept[kNormal2].data(), value(kGrow), value(kGrow + 1), n, h(),
           4 * part());
    Tensor<T> active(n * 4 * part(), Use::kWorkspace);
    gelu(active.data(), kept[kGrown].data(), active.count());
    kept[kActive] = gather_columns(active.data(), 4 * part(), 4 * part(), n);
    Tensor<T> local(n * part(), Use::kWorkspace);
    linear<T>(local.data(), kept[kActive].data(), value(kShrink), nullptr, n, 4 * h(), part());
    Tensor<T> out = gather_columns(local.data(), part(), part(), n);
    for (Index r = 0; r < n; ++r) add(out.data() + r * h(), value(kShrink + 1), h());
    add(out.data(), middle.data(), out.count());
    kept[kMiddle] = std::move(middle);
    return out;
  }

  Tensor<T> backward_input(Tensor<T> grad, const Batch& batch, Kept<T>& kept) override {
    const Index n = batch.samples * shape_.positions;
    kept[kGradOut] = copy(grad);
    const Tensor<T> mine = own_columns(grad, n);
    Tensor<T> whole(n * 4 * h(), Use::kErrors);
    linear_grad_input(whole.data(), mine.data(), value(kShrink), n, 4 * h(), part());
    Tensor<T> g = sum_columns(whole, 4 * part(), n);
    gelu_grad(g.data(), g.data(), kept[kGrown].data(), g.count());
    norm_back(grad, g, kGrow, 4 * part(), n, kMiddle, kMean2, kNorm2, kept);
    kept[kGradGrow] = std::move(g);

    kept[kGradMiddle] = copy(grad);
    Tensor<T> context(n * h(), Use::kErrors);
    linear_grad_input(context.data(), grad.data(), value(kProj), n, h(), h());
    const Tensor<T> attended = own_columns(context, n);
    g = Tensor<T>(n * 3 * part(), Use::kErrors);
    attention_grad(g.data(), attended.data(), kept[kProbabilities].data(), kept[kQkvOut].data(),
                   attention_shape(batch));
    norm_back(grad, g, kQkv, 3 * part(), n, kX, kMean1, kNorm1, kept);
    kept[kGradQkv] = std::move(g);
    return grad;
  }

  void backward_weight(const Batch& batch, Kept<T>& kept) override {
    const Index n = batch.samples * shape_.positions;
    const Tensor<T> mine = own_columns(kept[kGradOut], n);
    linear_grad_weight<T>(gradient(kShrink), nullptr, mine.data(), kept[kActive].data(), n, 4 * h(),
                          part());
    for (Index r = 0; r < n; ++r) add(gradient(kShrink + 1), kept[kGradOut].data() + r * h(), h());
    linear_grad_weight(gradient(kGrow), gradient(kGrow + 1), kept[kGradGrow].data(),
                       kept[kNormal2].data(), n, h(), 4 * part());
    linear_grad_weight(gradient(kProj), gradient(kProj + 1), kept[kGradMiddle].data(),
                       kept[kContext].data(), n, h(), h());
    linear_grad_weight(gradient(kQkv), gradient(kQkv + 1), kept[kGradQkv].data(),
                       kept[kNormal1].data(), n, h(), 3 * part());
    kept.clear();
  }

 private:
  enum { kNorm1 = 0, kQkv = 2, kProj = 4, kNorm2 = 6, kGrow = 8, kShrink = 10 };
  enum {
    kX, kMean1, kRstd1, kNormal1, kQkvOut, kProbabilities, kContext,
    kMiddle, kMean2, kRstd2, kNormal2, kGrown, kActive,
    kGradOut, kGradGrow, kGradMiddle, kGradQkv, kPlaces
  };

  Index h() const { return shape_.width; }
  Index size() const { return static_cast<Index>(axis_.size()); }
  Index part() const { return h() / size(); }
  AttentionShape attention_shape(const Batch& batch) const {
    return {batch.samples, shape_.positions, shape_.heads / size(), h() / shape_.heads};
  }
  T* value(int at) { return list_[this->first + static_cast<Index>(at)].value; }
  T* gradient(int at) { return list_[this->first + static_cast<Index>(at)].gradient; }
  static Tensor<T> copy(const Tensor<T>& from) {
    Tensor<T> to(from.count(), Use::kErrors);
    std::memcpy(to.data(), from.data(), from.bytes());
    return to;
  }

  // All columns of a matrix of which each rank has `columns`, in rows that are `stride` apart.
  Tensor<T> gather_columns(const T* mine, Index stride, Index columns, Index n) {
    Tensor<T> blocks(n * columns * size(), Use::kWorkspace);
    T* own = blocks.data() + static_cast<Index>(axis_.rank()) * n * columns;
    for (Index r = 0; r < n; ++r)
      std::memcpy(own + r * columns, mine + r * stride, columns * sizeof(T));
    axis_.all_gather(blocks.data(), n * columns);
    Tensor<T> whole(blocks.count(), Use::kActivations);
    for (Index b = 0; b < size(); ++b)
      for (Index r = 0; r < n; ++r)
        std::memcpy(whole.data() + (r * size() + b) * columns,
                    blocks.data() + (b * n + r) * columns, columns * sizeof(T));
    return whole;
  }
  // This rank's columns of the sum over the ranks.
  Tensor<T> sum_columns(const Tensor<T>& whole, Index columns, Index n) {
    Tensor<T> blocks(whole.count(), Use::kWorkspace), mine(n * columns, Use::kErrors);
    for (Index b = 0; b < size(); ++b)
      for (Index r = 0; r < n; ++r)
        std::memcpy(blocks.data() + (b * n + r) * columns,
                    whole.data() + (r * size() + b) * columns, columns * sizeof(T));
    axis_.reduce_scatter(blocks.data(), n * columns);
    std::memcpy(mine.data(), blocks.data() + static_cast<Index>(axis_.rank()) * n * columns,
                mine.bytes());
    return mine;
  }
  Tensor<T> own_columns(const Tensor<T>& whole, Index n) {
    Tensor<T> mine(n * part(), Use::kErrors);
    for (Index r = 0; r < n; ++r)
      std::memcpy(mine.data() + r * part(),
                  whole.data() + r * h() + static_cast<Index>(axis_.rank()) * part(),
                  part() * sizeof(T));
    return mine;
  }

  Tensor<T> norm(const Tensor<T>& x, int mean, int gain, Kept<T>& kept) {
    const Index n = x.count() / h();
    const auto m = static_cast<Index>(mean);
    kept[m] = Tensor<T>(n, Use::kActivations);
    kept[m + 1] = Tensor<T>(n, Use::kActivations);
    Tensor<T> y(x.count(), Use::kActivations);
    layer_norm(y.data(), kept[m].data(), kept[m + 1].data(), x.data(), value(gain),
               value(gain + 1), n, h());
    return y;
  }
  void norm_back(Tensor<T>& grad, const Tensor<T>& g, int weight, Index out_width, Index n, int x,
                 int mean, int gain, Kept<T>& kept) {
    Tensor<T> whole(n * h(), Use::kErrors);
    linear_grad_input(whole.data(), g.data(), value(weight), n, h(), out_width);
    axis_.all_reduce(whole.data(), whole.count());
    const auto m = static_cast<Index>(mean);
    layer_norm_grad(grad.data(), gradient(gain), gradient(gain + 1), whole.data(),
                    kept[static_cast<Index>(x)].data(), kept[m].data(), kept[m + 1].data(),
                    value(gain), n, h());
  }

  const GptShape shape_;
  Axis& axis_;
  std::vector<Parameter<T>>& list_;
};

}  // namespace

template <class T>
std::unique_ptr<Layer<T>> make_seed_block(const GptShape& shape, GptParallel parallel,
                                          Index number, std::vector<Parameter<T>>& list) {
  return std::make_unique<SeedBlock<T>>(shape, parallel, number, list);
}
template std::unique_ptr<Layer<float>> make_seed_block(const GptShape&, GptParallel, Index,
                                                       std::vector<Parameter<float>>&);
template std::unique_ptr<Layer<double>> make_seed_block(const GptShape&, GptParallel, Index,
                                                        std::vector<Parameter<double>>&);

}  // namespace weft::train
