// A transformer block in the source documents' tensor-parallel form (docs/training/topics.md):
// every product is sharded by outputs, and each result is all-gathered. Attention: each rank has a
// slice of every head's Q, K and V. An all-gather of Q and K gives every rank all scores, which the
// rank multiplies with its slice of V. The backward pass gathers Q and K again, and sums their
// gradients over the ranks. This form exists to measure its cost: 20 (t-1)/t bsh elements per
// layer, against 8 in gpt_block.cc.
#include "train/model/gpt_block_parts.h"

namespace weft::train {
namespace {

using namespace gpt_block;

template <class T>
class SeedBlock : public BlockParts<T> {
  using Base = BlockParts<T>;
  using Base::gradient, Base::h, Base::norm, Base::norm_back, Base::part, Base::shape_, Base::value;

 public:
  SeedBlock(const GptShape& shape, GptParallel parallel, Index number,
            std::vector<Parameter<T>>& list)
      : Base(shape, parallel, number, list, {2, parallel.tensor->rank(), parallel.tensor->size()},
             {}, {0, parallel.tensor->rank(), parallel.tensor->size()}),
        axis_(*parallel.tensor) {}

  Tensor<T> forward(Tensor<T> x, Batch& batch, SavedForBackward<T>& kept) override {
    kept.resize(kPlaces);
    const Index n = this->rows_of(batch);
    const auto tensor = [](Index count) { return Tensor<T>(count, Use::kActivations); };
    kept[kNormal1] = norm(x, n, kMean1, kNorm1, kept);
    kept[kQkvOut] = Tensor<T>(n * 3 * part(), Use::kWeightedSums);
    linear(kept[kQkvOut].data(), kept[kNormal1].data(), value(kQkv), value(kQkv + 1), n, h(),
           3 * part());
    Tensor<T> context(n * h(), Use::kWorkspace);
    kept[kLogSum] = tensor(wide_room<T>(n * shape_.heads));
    this->attend(context, whole_qkv(kept[kQkvOut], n), batch, attention_shape(batch), kept);
    const Tensor<T> mine = own_columns(context, f(), n * shape_.heads);
    kept[kAttended] = gather_columns(mine.data(), part(), f(), n, shape_.heads);
    Tensor<T> middle = tensor(n * h());
    linear(middle.data(), kept[kAttended].data(), value(kProj), value(kProj + 1), n, h(), h());
    add(middle.data(), x.data(), x.count());
    kept[kX] = std::move(x);

    kept[kNormal2] = norm(middle, n, kMean2, kNorm2, kept);
    kept[kGrown] = Tensor<T>(n * 4 * part(), Use::kWeightedSums);
    linear(kept[kGrown].data(), kept[kNormal2].data(), value(kGrow), value(kGrow + 1), n, h(),
           4 * part());
    Tensor<T> active(n * 4 * part(), Use::kWorkspace);
    gelu(active.data(), kept[kGrown].data(), active.count());
    kept[kActive] = gather_columns(active.data(), 4 * part(), 4 * part(), n, 1);
    Tensor<T> local(n * part(), Use::kWorkspace);
    linear<T>(local.data(), kept[kActive].data(), value(kShrink), nullptr, n, 4 * h(), part());
    Tensor<T> out = gather_columns(local.data(), part(), part(), n, 1);
    add_residual(out.data(), middle.data(), out.data(), value(kShrink + 1), n, h());
    kept[kMiddle] = std::move(middle);
    return out;
  }

  Tensor<T> backward_input(Tensor<T> grad, const Batch& batch, SavedForBackward<T>& kept) override {
    const Index n = this->rows_of(batch);
    kept[kGradShrink] = copied(grad);
    const Tensor<T> mine = own_columns(grad, part(), n);
    Tensor<T> whole(n * 4 * h(), Use::kErrors);
    linear_grad_input(whole.data(), mine.data(), value(kShrink), n, 4 * h(), part());
    Tensor<T> g = sum_columns(whole, 4 * part(), n);
    gelu_grad(g.data(), g.data(), kept[kGrown].data(), g.count());
    norm_back(grad, g, kGrow, 4 * part(), n, kMiddle, kMean2, kNorm2, kept);
    kept[kGradGrow] = std::move(g);

    kept[kGradProj] = copied(grad);
    Tensor<T> context(n * h(), Use::kErrors);
    linear_grad_input(context.data(), grad.data(), value(kProj), n, h(), h());
    // From this rank's slice of V; the resulting gradients of Q and K are partial sums over the
    // ranks.
    const Tensor<T> fragment = own_columns(context, f(), n * shape_.heads);
    context.fill_zero();
    place_columns(context, fragment, f(), n * shape_.heads);
    Tensor<T> whole_grad(n * 3 * h(), Use::kErrors);
    attention_grad(whole_grad.data(), context.data(), kept[kAttended].data(),
                   as_wide(kept[kLogSum].data()), whole_qkv(kept[kQkvOut], n).data(),
                   attention_shape(batch));
    g = Tensor<T>(n * 3 * part(), Use::kErrors);
    for (const Index which : {0, 1, 2}) {
      copy_columns(context.data(), h(), whole_grad.data() + which * h(), 3 * h(), n, h());
      const Tensor<T> own = which < 2 ? sum_columns(context, f(), n * shape_.heads)
                                      : own_columns(context, f(), n * shape_.heads);
      copy_columns(g.data() + which * part(), 3 * part(), own.data(), part(), n, part());
    }
    norm_back(grad, g, kQkv, 3 * part(), n, kX, kMean1, kNorm1, kept);
    kept[kGradQkv] = std::move(g);
    return grad;
  }

  void backward_weight(const Batch& batch, SavedForBackward<T>& kept) override {
    const Index n = this->rows_of(batch);
    const Tensor<T> mine = own_columns(kept[kGradShrink], part(), n);
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
  Index me() const { return static_cast<Index>(axis_.rank()); }
  Index f() const { return part() / shape_.heads; }  // columns of a rank's slice of a head
  AttentionShape attention_shape(const Batch& batch) const {
    return {batch.samples, shape_.positions, shape_.heads, h() / shape_.heads};
  }
  static Tensor<T> copied(const Tensor<T>& from) {
    Tensor<T> to(from.count(), Use::kErrors);
    copy(to.data(), from.data(), from.count());
    return to;
  }

  // Returns Q and K gathered from all ranks, and this rank's slice of V; other columns of V are 0.
  Tensor<T> whole_qkv(const Tensor<T>& mine, Index n) {
    Tensor<T> whole(n * 3 * h(), Use::kWorkspace), own(n * part(), Use::kWorkspace);
    const auto put = [&](Index which, const Tensor<T>& matrix) {
      copy_columns(whole.data() + which * h(), 3 * h(), matrix.data(), h(), n, h());
    };
    for (const Index which : {0, 1})
      put(which, gather_columns(mine.data() + which * part(), 3 * part(), f(), n, shape_.heads));
    copy_columns(own.data(), part(), mine.data() + 2 * part(), 3 * part(), n, part());
    Tensor<T> v = Tensor<T>::zeros(n * h(), Use::kWorkspace);
    place_columns(v, own, f(), n * shape_.heads);
    put(2, v);
    return whole;
  }

  // All-gathers the columns of a matrix. Each row has `groups` parts; each rank holds `columns`
  // columns of each part. Rows of `mine` are `stride` apart.
  Tensor<T> gather_columns(const T* mine, Index stride, Index columns, Index n, Index groups) {
    const Index own = n * groups * columns;
    Tensor<T> blocks(own * size(), Use::kWorkspace), whole(own * size(), Use::kActivations);
    copy_columns(blocks.data() + me() * own, groups * columns, mine, stride, n, groups * columns);
    axis_.all_gather(blocks.data(), own);
    for (Index b = 0; b < size(); ++b)
      copy_columns(whole.data() + b * columns, size() * columns, blocks.data() + b * own, columns,
                   n * groups, columns);
    return whole;
  }
  // Returns this rank's columns of a matrix [rows][size() x columns] that is summed over ranks.
  Tensor<T> sum_columns(const Tensor<T>& whole, Index columns, Index rows) {
    Tensor<T> blocks(whole.count(), Use::kWorkspace), mine(rows * columns, Use::kErrors);
    for (Index b = 0; b < size(); ++b)
      copy_columns(blocks.data() + b * mine.count(), columns, whole.data() + b * columns,
                   size() * columns, rows, columns);
    axis_.reduce_scatter(blocks.data(), mine.count());
    copy(mine.data(), blocks.data() + me() * mine.count(), mine.count());
    return mine;
  }
  // Copy this rank's columns out of an unsharded matrix, and back into it.
  Tensor<T> own_columns(const Tensor<T>& whole, Index columns, Index rows) {
    Tensor<T> mine(rows * columns, Use::kErrors);
    copy_columns(mine.data(), columns, whole.data() + me() * columns, size() * columns, rows,
                 columns);
    return mine;
  }
  void place_columns(Tensor<T>& whole, const Tensor<T>& mine, Index columns, Index rows) {
    copy_columns(whole.data() + me() * columns, size() * columns, mine.data(), columns, rows,
                 columns);
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
