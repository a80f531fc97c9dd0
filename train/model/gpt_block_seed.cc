// A transformer block in the source documents' tensor-parallel form (docs/training.md): every
// product is split by outputs, and each result is gathered whole: 8 (t-1)/t bsh elements forward
// where gpt_block.cc sends 4. Q and K are gathered although a head attends to itself only: the form
// is here so that its cost can be measured.
#include "train/model/gpt_block_parts.h"

namespace weft::train {
namespace {

template <class T>
class SeedBlock : public BlockParts<T> {
  using Base = BlockParts<T>;
  using Base::attention_shape, Base::gradient, Base::h, Base::heads, Base::norm, Base::norm_back,
      Base::part, Base::shape_, Base::value;
  using Base::kNorm1, Base::kQkv, Base::kProj, Base::kNorm2, Base::kGrow, Base::kShrink, Base::kX,
      Base::kMean1, Base::kNormal1, Base::kQkvOut, Base::kLogSum, Base::kAttended, Base::kMiddle,
      Base::kMean2, Base::kNormal2, Base::kGrown, Base::kActive, Base::kGradShrink, Base::kGradGrow,
      Base::kGradProj, Base::kGradQkv, Base::kPlaces;

 public:
  SeedBlock(const GptShape& shape, GptParallel parallel, Index number,
            std::vector<Parameter<T>>& list)
      : Base(shape, parallel, number, list, {},
             {0, parallel.tensor->rank(), parallel.tensor->size()}),
        axis_(*parallel.tensor) {}

  Tensor<T> forward(Tensor<T> x, Batch& batch, SavedForBackward<T>& kept) override {
    kept.resize(kPlaces);
    const Index n = batch.samples * shape_.positions;
    const auto tensor = [](Index count) { return Tensor<T>(count, Use::kActivations); };
    kept[kNormal1] = norm(x, n, kMean1, kNorm1, kept);
    kept[kQkvOut] = tensor(n * 3 * part());
    linear(kept[kQkvOut].data(), kept[kNormal1].data(), value(kQkv), value(kQkv + 1), n, h(),
           3 * part());
    for (const Index at : {Index{0}, part()}) {  // Q and K; this rank's heads are those gathered
      const Tensor<T> whole = gather_columns(kept[kQkvOut].data() + at, 3 * part(), part(), n);
      copy_columns(kept[kQkvOut].data() + at, 3 * part(),
                   whole.data() + static_cast<Index>(axis_.rank()) * part(), h(), n, part());
    }
    Tensor<T> attended(n * part(), Use::kWorkspace);
    kept[kLogSum] = tensor(wide_room<T>(n * heads()));
    attention(attended.data(), as_wide(kept[kLogSum].data()), kept[kQkvOut].data(),
              attention_shape(batch));
    kept[kAttended] = gather_columns(attended.data(), part(), part(), n);
    Tensor<T> middle = tensor(n * h());
    linear(middle.data(), kept[kAttended].data(), value(kProj), value(kProj + 1), n, h(), h());
    add(middle.data(), x.data(), x.count());
    kept[kX] = std::move(x);

    kept[kNormal2] = norm(middle, n, kMean2, kNorm2, kept);
    kept[kGrown] = tensor(n * 4 * part());
    linear(kept[kGrown].data(), kept[kNormal2].data(), value(kGrow), value(kGrow + 1), n, h(),
           4 * part());
    Tensor<T> active(n * 4 * part(), Use::kWorkspace);
    gelu(active.data(), kept[kGrown].data(), active.count());
    kept[kActive] = gather_columns(active.data(), 4 * part(), 4 * part(), n);
    Tensor<T> local(n * part(), Use::kWorkspace);
    linear<T>(local.data(), kept[kActive].data(), value(kShrink), nullptr, n, 4 * h(), part());
    Tensor<T> out = gather_columns(local.data(), part(), part(), n);
    add_residual(out.data(), middle.data(), out.data(), value(kShrink + 1), n, h());
    kept[kMiddle] = std::move(middle);
    return out;
  }

  Tensor<T> backward_input(Tensor<T> grad, const Batch& batch, SavedForBackward<T>& kept) override {
    const Index n = batch.samples * shape_.positions;
    kept[kGradShrink] = copied(grad);
    const Tensor<T> mine = own_columns(grad, n);
    Tensor<T> whole(n * 4 * h(), Use::kErrors);
    linear_grad_input(whole.data(), mine.data(), value(kShrink), n, 4 * h(), part());
    Tensor<T> g = sum_columns(whole, 4 * part(), n);
    gelu_grad(g.data(), g.data(), kept[kGrown].data(), g.count());
    norm_back(grad, g, kGrow, 4 * part(), n, kMiddle, kMean2, kNorm2, kept);
    kept[kGradGrow] = std::move(g);

    kept[kGradProj] = copied(grad);
    Tensor<T> context(n * h(), Use::kErrors);
    linear_grad_input(context.data(), grad.data(), value(kProj), n, h(), h());
    const Tensor<T> grad_attended = own_columns(context, n);
    const Tensor<T> attended = own_columns(kept[kAttended], n);
    g = Tensor<T>(n * 3 * part(), Use::kErrors);
    attention_grad(g.data(), grad_attended.data(), attended.data(), as_wide(kept[kLogSum].data()),
                   kept[kQkvOut].data(), attention_shape(batch));
    norm_back(grad, g, kQkv, 3 * part(), n, kX, kMean1, kNorm1, kept);
    kept[kGradQkv] = std::move(g);
    return grad;
  }

  void backward_weight(const Batch& batch, SavedForBackward<T>& kept) override {
    const Index n = batch.samples * shape_.positions;
    const Tensor<T> mine = own_columns(kept[kGradShrink], n);
    linear_grad_weight<T>(gradient(kShrink), nullptr, mine.data(), kept[kActive].data(), n, 4 * h(),
                          part());
    add_columns(gradient(kShrink + 1), kept[kGradShrink].data(), n, h());
    linear_grad_weight(gradient(kGrow), gradient(kGrow + 1), kept[kGradGrow].data(),
                       kept[kNormal2].data(), n, h(), 4 * part());
    linear_grad_weight(gradient(kProj), gradient(kProj + 1), kept[kGradProj].data(),
                       kept[kAttended].data(), n, h(), h());
    linear_grad_weight(gradient(kQkv), gradient(kQkv + 1), kept[kGradQkv].data(),
                       kept[kNormal1].data(), n, h(), 3 * part());
    kept.clear();
  }

 private:
  Index size() const { return static_cast<Index>(axis_.size()); }
  static Tensor<T> copied(const Tensor<T>& from) {
    Tensor<T> to(from.count(), Use::kErrors);
    copy(to.data(), from.data(), from.count());
    return to;
  }

  // All columns of a matrix of which each rank has `columns`, in rows that are `stride` apart.
  Tensor<T> gather_columns(const T* mine, Index stride, Index columns, Index n) {
    Tensor<T> blocks(n * columns * size(), Use::kWorkspace);
    T* own = blocks.data() + static_cast<Index>(axis_.rank()) * n * columns;
    copy_columns(own, columns, mine, stride, n, columns);
    axis_.all_gather(blocks.data(), n * columns);
    Tensor<T> whole(blocks.count(), Use::kActivations);
    for (Index b = 0; b < size(); ++b)
      copy_columns(whole.data() + b * columns, size() * columns, blocks.data() + b * n * columns,
                   columns, n, columns);
    return whole;
  }
  // This rank's columns of the sum over the ranks.
  Tensor<T> sum_columns(const Tensor<T>& whole, Index columns, Index n) {
    Tensor<T> blocks(whole.count(), Use::kWorkspace), mine(n * columns, Use::kErrors);
    for (Index b = 0; b < size(); ++b)
      copy_columns(blocks.data() + b * n * columns, columns, whole.data() + b * columns,
                   size() * columns, n, columns);
    axis_.reduce_scatter(blocks.data(), n * columns);
    copy(mine.data(), blocks.data() + static_cast<Index>(axis_.rank()) * n * columns, mine.count());
    return mine;
  }
  Tensor<T> own_columns(const Tensor<T>& whole, Index n) {
    Tensor<T> mine(n * part(), Use::kErrors);
    copy_columns(mine.data(), part(), whole.data() + static_cast<Index>(axis_.rank()) * part(), h(),
                 n, part());
    return mine;
  }

  Axis& axis_;
};

}  // namespace

template <class T>
std::unique_ptr<Layer<T>> make_seed_block(const GptShape& shape, GptParallel parallel, Index number,
                                          std::vector<Parameter<T>>& list) {
  return std::make_unique<SeedBlock<T>>(shape, parallel, number, list);
}

#define WEFT_SEED_BLOCK(T)                                                                \
  template std::unique_ptr<Layer<T>> make_seed_block(const GptShape&, GptParallel, Index, \
                                                     std::vector<Parameter<T>>&);
WEFT_TYPES(WEFT_SEED_BLOCK)

}  // namespace weft::train
