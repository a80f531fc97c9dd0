// The borders of a tensor-parallel region, and what layers with such regions share. Outside a
// region a rank has all rows (the same on every rank) or, with sequence parallelism, its block of
// the rows.
#pragma once

#include <utility>
#include <vector>

#include "train/model/gpt_layers.h"
#include "train/operators/operators.h"

namespace weft::train {

struct Regions {
  GptParallel parallel;

  Index size() const { return static_cast<Index>(parallel.tensor->size()); }
  // The rank's own share of `rows` outside a region.
  Index local(Index rows) const { return parallel.sequence ? rows / size() : rows; }
  // Index of this rank's first element among all rows; `count`: elements per rank.
  Index offset(Index count) const {
    return parallel.sequence ? static_cast<Index>(parallel.tensor->rank()) * count : 0;
  }
  // Enters a region: collects the rows of all ranks in `whole`. Without sequence parallelism every
  // rank has all rows already, and the call does nothing.
  template <class T>
  void gather(T* whole, Index count) const {
    if (parallel.sequence) parallel.tensor->all_gather(whole, count / size());
  }
  // Leaves a region: sums `whole` over the ranks; with sequence parallelism only this rank's rows.
  template <class T>
  void sum(T* whole, Index count) const {
    if (parallel.sequence)
      parallel.tensor->reduce_scatter(whole, count / size());
    else
      parallel.tensor->all_reduce(whole, count);
  }
  // Enters the end of a region in the backward pass: returns the gradient of all rows, a copy.
  template <class T>
  Tensor<T> gathered(const Tensor<T>& mine, Index count) const {
    Tensor<T> whole(count, Use::kErrors);
    copy(whole.data() + offset(mine.count()), mine.data(), mine.count());
    gather(whole.data(), count);
    return whole;
  }
};

// A layer with its parameters in the stage's list, and with norms at the borders of its regions.
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
  // Of the layer's parameter number `at`.
  T* value(int at) { return list_[this->first + static_cast<Index>(at)].value; }
  T* gradient(int at) { return list_[this->first + static_cast<Index>(at)].gradient; }

  // Enters a region: normalises this rank's rows x and returns the normalised `rows` of all ranks.
  // Statistics are saved at `mean` and mean + 1; the norm's bias follows its gain.
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
  // Adds to `grad` the gradient of the norm's input, from that of all rows of its result.
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
