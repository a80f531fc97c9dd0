// A transformer block in Megatron-LM's tensor-parallel form (gpt_layers.h). Does not depend on the
// storage of weights.
#include "train/model/gpt_block_parts.h"

namespace weft::train {
namespace {

using namespace gpt_block;

template <class T>
class Block : public BlockParts<T> {
  using Base = BlockParts<T>;
  using Base::gradient, Base::h, Base::norm, Base::norm_back, Base::part, Base::regions_,
      Base::shape_, Base::value;

 public:
  Block(const GptShape& shape, GptParallel parallel, Index number, std::vector<Parameter<T>>& list)
      : Block(shape, parallel, number, list,
              {1, parallel.tensor->rank(), parallel.tensor->size()}) {}

  Tensor<T> forward(Tensor<T> x, Batch& batch, SavedForBackward<T>& kept) override {
    kept.resize(kPlaces);
    const Index rows = this->rows_of(batch);
    const auto tensor = [](Index n) { return Tensor<T>(n, Use::kActivations); };

    Tensor<T> normal = norm(x, rows, kMean1, kNorm1, kept);
    Tensor<T> qkv(rows * 3 * part(), Use::kWeightedSums);
    linear(qkv.data(), normal.data(), value(kQkv), value(kQkv + 1), rows, h(), 3 * part());
    Tensor<T> attended = tensor(rows * part());
    kept[kLogSum] = tensor(wide_room<T>(rows * heads()));
    this->attend(attended, qkv, batch, attention_shape(batch), kept);
    Tensor<T> middle = region_out(attended, kProj, part(), rows, x);

    kept[kX] = std::move(x);
    kept[kNormal1] = std::move(normal);
    kept[kQkvOut] = std::move(qkv);
    kept[kAttended] = std::move(attended);

    normal = norm(middle, rows, kMean2, kNorm2, kept);
    Tensor<T> grown(rows * 4 * part(), Use::kWeightedSums);
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

  Tensor<T> backward_input(Tensor<T> grad, const Batch& batch, SavedForBackward<T>& kept) override {
    const Index rows = this->rows_of(batch);
    // Feed-forward network. The gradient of all rows enters the tensor-parallel region.
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
    attention_grad(g.data(), grad_attended.data(), kept[kAttended].data(),
                   as_wide(kept[kLogSum].data()), kept[kQkvOut].data(), attention_shape(batch));
    kept[kLogSum] = {};
    kept[kQkvOut] = {};
    norm_back(grad, g, kQkv, 3 * part(), rows, kX, kMean1, kNorm1, kept);
    kept[kGradQkv] = std::move(g);
    kept[kX] = {};
    return grad;
  }

  void backward_weight(const Batch& batch, SavedForBackward<T>& kept) override {
    const Index rows = this->rows_of(batch);
    const auto weight = [&](int at, int grad_at, int input, Index in, Index out) {
      // Biases after an all-reduce are replicated: each rank sums its own rows' gradients.
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
  // qkv is sharded by heads, proj and shrink by inputs: all along dimension 1.
  Block(const GptShape& shape, GptParallel parallel, Index number, std::vector<Parameter<T>>& list,
        Shard split)
      : Base(shape, parallel, number, list, split, split, split) {}

  Index heads() const { return shape_.heads / regions_.size(); }
  AttentionShape attention_shape(const Batch& batch) const {
    return {batch.samples, shape_.positions, heads(), h() / shape_.heads};
  }
  // Returns x + the region's output: the sum of in w^T over the ranks, plus the bias once.
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
};

}  // namespace

template <class T>
std::unique_ptr<Layer<T>> make_block(const GptShape& shape, GptParallel parallel, Index number,
                                     std::vector<Parameter<T>>& list) {
  return std::make_unique<Block<T>>(shape, parallel, number, list);
}

#define WEFT_BLOCK(T)                                                                \
  template std::unique_ptr<Layer<T>> make_block(const GptShape&, GptParallel, Index, \
                                                std::vector<Parameter<T>>&);
WEFT_TYPES(WEFT_BLOCK)

}  // namespace weft::train
