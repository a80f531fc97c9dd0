// A transformer block.
#include <fmt/format.h>

#include <cmath>

#include "train/device_operators.h"
#include "train/gpt_regions.h"

namespace weft::train {
namespace {

template <class T>
class Block : public Layer<T> {
 public:
  Block(const GptShape& shape, GptParallel parallel, Index number, std::vector<Parameter<T>>& list)
      : shape_(shape), regions_{parallel}, list_(list) {
    const int t = parallel.tensor->size(), me = parallel.tensor->rank();
    const Index h = shape.width, d = h / shape.heads;
    const double out_deviation = 0.02 / std::sqrt(2 * static_cast<double>(shape.layers));
    this->first = list.size();
    const auto name = [&](const char* part) { return fmt::format("h{}.{}", number, part); };
    const auto vector = [&](const char* part, bool ones) {
      list.push_back({.logical = {name(part), {h}, {}}, .ones = ones});
    };
    const auto matrix = [&](const char* part, std::vector<Index> s, int dim, double deviation) {
      list.push_back({.logical = {name(part), std::move(s), {dim, me, t}},
                      .deviation = deviation,
                      .decays = true});
    };
    const auto split_bias = [&](const char* part, std::vector<Index> s, int dim) {
      list.push_back({.logical = {name(part), std::move(s), {dim, me, t}}});
    };
    vector("norm1.gain", true);
    vector("norm1.bias", false);
    matrix("qkv.weight", {3, shape.heads, d, h}, 1, 0.02);
    split_bias("qkv.bias", {3, shape.heads, d}, 1);
    matrix("proj.weight", {h, h}, 1, out_deviation);
    vector("proj.bias", false);
    vector("norm2.gain", true);
    vector("norm2.bias", false);
    matrix("grow.weight", {4 * h, h}, 0, 0.02);
    split_bias("grow.bias", {4 * h}, 0);
    matrix("shrink.weight", {h, 4 * h}, 1, out_deviation);
    vector("shrink.bias", false);
    this->last = list.size();
  }

  Tensor<T> forward(Tensor<T> x, Batch& batch, Kept<T>& kept) override {
    kept.resize(kPlaces);
    const Index rows = batch.samples * shape_.positions, local = x.count() / h();
    const auto tensor = [](Index n) { return Tensor<T>(n, Use::kActivations); };

    Tensor<T> normal = tensor(rows * h());
    norm(normal, x, kMean1, kNorm1, kept, local);
    Tensor<T> qkv = tensor(rows * 3 * part());
    linear(qkv.data(), normal.data(), value(kQkv), value(kQkv + 1), rows, h(), 3 * part());
    Tensor<T> attended = tensor(rows * part());
    Tensor<T> probabilities = tensor(rows * shape_.positions * heads());
    attention(attended.data(), probabilities.data(), qkv.data(), attention_shape(batch));
    Tensor<T> middle = region_out(attended, kProj, part(), rows, x);

    kept[kX] = std::move(x);
    kept[kNormal1] = std::move(normal);
    kept[kQkvOut] = std::move(qkv);
    kept[kProbabilities] = std::move(probabilities);
    kept[kAttended] = std::move(attended);

    normal = tensor(rows * h());
    norm(normal, middle, kMean2, kNorm2, kept, local);
    Tensor<T> grown = tensor(rows * 4 * part());
    linear(grown.data(), normal.data(), value(kGrow), value(kGrow + 1), rows, h(), 4 * part());
    Tensor<T> active = tensor(rows * 4 * part());
    gelu(active.data(), grown.data(), active.count());
    Tensor<T> out = region_out(active, kShrink, 4 * part(), rows, middle);
    kept[kMiddle] = std::move(middle);
    kept[kNormal2] = std::move(normal);
    kept[kGrown] = std::move(grown);
    kept[kActive] = std::move(active);
    return out;
  }

  Tensor<T> backward_input(Tensor<T> grad, const Batch& batch, Kept<T>& kept) override {
    const Index rows = batch.samples * shape_.positions;
    // The feed-forward half. The gradient of all rows goes through the parallel region.
    Tensor<T> whole = regions_.gathered(grad, rows * h());
    Tensor<T> g(rows * 4 * part(), Use::kErrors);
    linear_grad_input(g.data(), whole.data(), value(kShrink), rows, 4 * part(), h());
    kept[kGradShrink] = std::move(whole);
    gelu_grad(g.data(), g.data(), kept[kGrown].data(), g.count());
    kept[kGrown] = {};
    norm_back(grad, g, kGrow, 4 * part(), rows, kMiddle, kMean2, kNorm2, kept);
    kept[kGradGrow] = std::move(g);
    kept[kMiddle] = {};

    whole = regions_.gathered(grad, rows * h());
    Tensor<T> grad_attended(rows * part(), Use::kErrors);
    linear_grad_input(grad_attended.data(), whole.data(), value(kProj), rows, part(), h());
    kept[kGradProj] = std::move(whole);
    g = Tensor<T>(rows * 3 * part(), Use::kErrors);
    attention_grad(g.data(), grad_attended.data(), kept[kProbabilities].data(),
                   kept[kQkvOut].data(), attention_shape(batch));
    kept[kProbabilities] = {};
    kept[kQkvOut] = {};
    norm_back(grad, g, kQkv, 3 * part(), rows, kX, kMean1, kNorm1, kept);
    kept[kGradQkv] = std::move(g);
    kept[kX] = {};
    return grad;
  }

  void backward_weight(const Batch& batch, Kept<T>& kept) override {
    const Index rows = batch.samples * shape_.positions;
    const auto weight = [&](int at, int grad_at, int input, Index in, Index out) {
      // The biases after an all-reduce are the same on all ranks: each adds them on its own rows.
      const bool bias_here = at == kQkv || at == kGrow;
      const T* g = kept[static_cast<Index>(grad_at)].data();
      linear_grad_weight(gradient(at), bias_here ? gradient(at + 1) : nullptr, g,
                         kept[static_cast<Index>(input)].data(), rows, in, out);
      if (!bias_here) {
        const Index local = local_rows(shape_, regions_.parallel, batch.samples);
        add_columns(gradient(at + 1), g + regions_.offset(local * out), local, out);
      }
    };
    weight(kShrink, kGradShrink, kActive, 4 * part(), h());
    weight(kGrow, kGradGrow, kNormal2, h(), 4 * part());
    weight(kProj, kGradProj, kAttended, part(), h());
    weight(kQkv, kGradQkv, kNormal1, h(), 3 * part());
    kept.clear();
  }

 private:
  // Parameters, in the order of their declaration; a bias follows its weight.
  enum { kNorm1 = 0, kQkv = 2, kProj = 4, kNorm2 = 6, kGrow = 8, kShrink = 10 };
  // Places of what is kept.
  enum {
    kX, kMean1, kRstd1, kNormal1, kQkvOut, kProbabilities, kAttended,
    kMiddle, kMean2, kRstd2, kNormal2, kGrown, kActive,
    kGradShrink, kGradGrow, kGradProj, kGradQkv, kPlaces
  };

  Index h() const { return shape_.width; }
  Index heads() const { return shape_.heads / regions_.size(); }
  Index part() const { return h() / regions_.size(); }
  AttentionShape attention_shape(const Batch& batch) const {
    return {batch.samples, shape_.positions, heads(), h() / shape_.heads};
  }
  T* value(int at) { return list_[this->first + static_cast<Index>(at)].value; }
  T* gradient(int at) { return list_[this->first + static_cast<Index>(at)].gradient; }

  // normal: all rows; x: this rank's.
  void norm(Tensor<T>& normal, const Tensor<T>& x, int mean, int gain, Kept<T>& kept, Index local) {
    const auto m = static_cast<Index>(mean);
    kept[m] = Tensor<T>(wide_room<T>(local), Use::kActivations);
    kept[m + 1] = Tensor<T>(wide_room<T>(local), Use::kActivations);
    layer_norm(normal.data() + regions_.offset(local * h()), as_wide(kept[m].data()),
               as_wide(kept[m + 1].data()), x.data(), value(gain), value(gain + 1), local, h());
    regions_.gather(normal.data(), normal.count());
  }
  // x + what the region gives: the sum over the ranks of in w^T, and the bias once.
  Tensor<T> region_out(const Tensor<T>& in, int weight, Index in_width, Index rows,
                       const Tensor<T>& x) {
    Tensor<T> whole(rows * h(), Use::kWorkspace);
    linear<T>(whole.data(), in.data(), value(weight), nullptr, rows, in_width, h());
    regions_.sum(whole.data(), whole.count());
    Tensor<T> out(x.count(), Use::kActivations);
    add_residual(out.data(), x.data(), whole.data() + regions_.offset(x.count()), value(weight + 1),
                 x.count() / h(), h());
    return out;
  }
  // Adds to `grad` what comes back through the region that began with a norm of x.
  void norm_back(Tensor<T>& grad, const Tensor<T>& g, int weight, Index out_width, Index rows,
                 int x, int mean, int gain, Kept<T>& kept) {
    Tensor<T> whole(rows * h(), Use::kErrors);
    linear_grad_input(whole.data(), g.data(), value(weight), rows, h(), out_width);
    regions_.sum(whole.data(), whole.count());
    const auto m = static_cast<Index>(mean);
    layer_norm_grad(grad.data(), gradient(gain), gradient(gain + 1),
                    whole.data() + regions_.offset(grad.count()),
                    kept[static_cast<Index>(x)].data(), as_wide(kept[m].data()),
                    as_wide(kept[m + 1].data()), value(gain), grad.count() / h(), h());
  }

  const GptShape shape_;
  Regions<T> regions_;
  std::vector<Parameter<T>>& list_;
};

}  // namespace

template <class T>
std::unique_ptr<Layer<T>> make_block(const GptShape& shape, GptParallel parallel, Index number,
                                     std::vector<Parameter<T>>& list) {
  return std::make_unique<Block<T>>(shape, parallel, number, list);
}
template std::unique_ptr<Layer<float>> make_block(const GptShape&, GptParallel, Index,
                                                  std::vector<Parameter<float>>&);
template std::unique_ptr<Layer<double>> make_block(const GptShape&, GptParallel, Index,
                                                   std::vector<Parameter<double>>&);

#define WEFT_BLOCK(E)                                                                    \
  template std::unique_ptr<Layer<OnDevice<E>>> make_block(const GptShape&, GptParallel, Index, \
                                                          std::vector<Parameter<OnDevice<E>>>&);
WEFT_DEVICE_ELEMENTS(WEFT_BLOCK)

}  // namespace weft::train
