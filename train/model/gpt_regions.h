// The borders of a tensor-parallel region. Outside, a rank has all rows (the same on every rank)
// or, with sequence parallelism, its block of the rows.
#pragma once

#include "train/model/gpt_layers.h"

namespace weft::train {

template <class T>
struct Regions {
  GptParallel parallel;

  Index size() const { return static_cast<Index>(parallel.tensor->size()); }
  // Where this rank's `count` elements begin in all rows.
  Index offset(Index count) const {
    return parallel.sequence ? static_cast<Index>(parallel.tensor->rank()) * count : 0;
  }
  // Into a region: all rows from every rank's. Without sequence parallelism they are there.
  void gather(T* whole, Index count) const {
    if (parallel.sequence) parallel.tensor->all_gather(whole, count / size());
  }
  // Out of a region: the sum over the ranks, of this rank's rows at least.
  void sum(T* whole, Index count) const {
    if (parallel.sequence)
      parallel.tensor->reduce_scatter(whole, count / size());
    else
      parallel.tensor->all_reduce(whole, count);
  }
  // The same for the gradient on its way back into the end of a region: a copy of all rows.
  Tensor<T> gathered(const Tensor<T>& mine, Index count) const {
    Tensor<T> whole(count, Use::kErrors);
    copy(whole.data() + offset(mine.count()), mine.data(), mine.count());
    gather(whole.data(), count);
    return whole;
  }
};

}  // namespace weft::train
