// The borders of a tensor-parallel region, and the base class of layers with such regions. Outside
// a region a rank has all rows (replicated) or, with sequence parallelism, its block of the rows.
#pragma once

#include <utility>
#include <vector>

#include "train/model/gpt_layers.h"
#include "train/operators/operators.h"

namespace weft::train {

struct Regions {
  GptParallel parallel;

  Index size() const { return static_cast<Index>(parallel.tensor->size()); }
  // Returns the number of `rows` that this rank has outside a region.
  Index local(Index rows) const { return parallel.sequence ? rows / size() : rows; }
  // Returns the index of this rank's first element among all rows; `count`: elements per rank.
  Index offset(Index count) const {
    return parallel.sequence ? static_cast<Index>(parallel.tensor->rank()) * count : 0;
  }
  // Enters a region: all-gathers the rows in `whole`. No-op without sequence parallelism: every
  // rank already has all rows.
  template <class T>
  void gather(T* whole, Index count) const {
    if (parallel.sequence) parallel.tensor->all_gather(whole, count / size());
  }
  // Leaves a region: all-reduces `whole`; with sequence parallelism, reduce-scatters its rows.
  template <class T>
  void sum(T* whole, Index count) const {
    if (parallel.sequence)
      parallel.tensor->reduce_scatter(whole, count / size());
    else
      parallel.tensor->all_reduce(whole, count);
  }
  // Enters a region in the backward pass: returns a copy of the gradient of all rows.
  template <class T>
  Tensor<T> gathered(const Tensor<T>& mine, Index count) const {
    Tensor<T> whole(count, Use::kErrors);
    copy(whole.data() + offset(mine.count()), mine.data(), mine.count());
    gather(whole.data(), count);
    return whole;
  }
};

// A layer with parameters in the stage's list and norms at the borders of its regions.
template <class T>
class RegionLayer : public Layer<T> {
 protected:
  RegionLayer(const GptShape& shape, GptParallel parallel, std::vector<Parameter<T>>& list)
      : shape_(shape), regions_{parallel}, list_(list) {
    this->first = list.size();
  }
  Index h() const { return shape_.width; }
  Index rows_of(const Batch& batch) const {
    return batch.rows > 0 ? batch.rows : batch.samples * shape_.positions;
  }
  // Return the weights and the gradient of the layer's parameter `at`.
  T* value(int at) { return list_[this->first + static_cast<Index>(at)].value; }
  T* gradient(int at) { return list_[this->first + static_cast<Index>(at)].gradient; }

  // Enters a region: normalizes this rank's rows x and returns the normalized `rows` of all ranks.
  // Saves statistics at `mean` and mean + 1; the norm's bias follows its gain.
  Tensor<T> norm(const Tensor<T>& x, Index rows, int mean, int gain, SavedForBackward<T>& kept) {
    const auto m = static_cast<Index>(mean);
    const Index local = x.count() / h();
    Tensor<T> normal(rows * h(), Use::kActivations);
    kept[m] = Tensor<T>(wide_room<T>(local), Use::kActivations);
    kept[m + 1] = Tensor<T>(wide_room<T>(local), Use::kActivations);
    layer_norm(normal.data() + regions_.offset(local * h()), as_wide(kept[m].data()),
               as_wide(kept[m + 1].data()), x.data(), value(gain), value(gain + 1), local, h());
    regions_.gather(normal.data(), normal.count());
    return normal;
  }
  // Adds the gradient of the norm's input to `grad`; `whole` is the output gradient, all rows.
  void norm_grad(Tensor<T>& grad, const Tensor<T>& whole, int x, int mean, int gain,
                 SavedForBackward<T>& kept) {
    const auto m = static_cast<Index>(mean);
    layer_norm_grad(grad.data(), gradient(gain), gradient(gain + 1),
                    whole.data() + regions_.offset(grad.count()),
                    kept[static_cast<Index>(x)].data(), as_wide(kept[m].data()),
                    as_wide(kept[m + 1].data()), value(gain), grad.count() / h(), h());
  }

  const GptShape shape_;
  Regions regions_;
  std::vector<Parameter<T>>& list_;
};

}  // namespace weft::train
