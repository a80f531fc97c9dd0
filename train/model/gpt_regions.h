// The borders of a tensor-parallel region. Outside a region a rank has all rows (the same on every
// rank) or, with sequence parallelism, its block of the rows.
#pragma once

#include "train/model/gpt_layers.h"

namespace weft::train {

struct Regions {
  GptParallel parallel;

  Index size() const { return static_cast<Index>(parallel.tensor->size()); }
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

}  // namespace weft::train
