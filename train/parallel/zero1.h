// ZeRO 1: each rank of a shard group updates its part of the weights. A reduce-scatter gives the
// rank the sum of its part of each bucket; an all-gather gives all ranks the new weights. With
// several groups (MiCS), an all-reduce between groups adds their sums: 2 (r-1)/r Psi/s more bytes.
#pragma once

#include "train/parallel/data_parallel.h"

namespace weft::train {

template <class T>
class Zero1 : public DataParallel<T> {
 public:
  using DataParallel<T>::DataParallel;

 protected:
  using typename DataParallel<T>::BucketInFlight, typename DataParallel<T>::Sum;
  using DataParallel<T>::mesh_;

  void begin(BucketInFlight& b) override {
    if (mesh_.shard.size() == 1) {
      b.second = true;
      return DataParallel<T>::begin(b);
    }
    b.handle = mesh_.shard.template beside<T>().reduce_scatter_async(
        b.data, this->own_part(b), this->part(b.bucket->count()), kDType<Sum>, RedOp::kSum);
    // Enqueue the second half here, not when a rank observes the end of the first half, since calls
    // on a stream must have the same order on every rank.
    if (kOnDevice<T> && mesh_.replica.size() > 1) {
      b.first_half = std::move(b.handle);
      second_half(b);
    }
  }
  // The all-reduce between groups, once each rank of a group has the sum of its part.
  bool second_half(BucketInFlight& b) override {
    if (b.second || mesh_.replica.size() == 1) return false;
    b.second = true;
    Sum* own = this->own_part(b);
    b.handle = between_groups_.beside<T>().all_reduce_async(own, own, this->part(b.bucket->count()),
                                                            kDType<Sum>, RedOp::kSum);
    return true;
  }
  void share_weights() override {
    for (const auto& b : this->buckets_)
      mesh_.shard.all_gather(this->weights_.data() + b.begin, this->part(b.count()));
  }

 private:
  // A duplicate of the replica axis for second halves, which follow the first halves of this stage:
  // with one communicator for all model chunks, ranks could order the calls differently.
  Axis between_groups_ = this->options_.stages > 1 &&
                                 mesh_.shard.size() > 1 && mesh_.replica.size() > 1
                             ? mesh_.replica_again()
                             : mesh_.replica;
};

}  // namespace weft::train
