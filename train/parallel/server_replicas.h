// A parameter server (--sync ps) replaces the all-reduce: the first rank of each data-parallel
// group, the server, computes like the other ranks, but it alone has optimizer state. Gradients are
// reduced to the server, by bucket, during the backward pass; the server updates and broadcasts the
// weights. Results equal the all-reduce's. Each pipeline stage and each tensor rank has its own
// server.
#pragma once

#include "train/parallel/data_parallel.h"

namespace weft::train {

template <class T>
class ServerReplicas : public DataParallel<T> {
 public:
  using DataParallel<T>::DataParallel;

 protected:
  using typename DataParallel<T>::BucketInFlight, typename DataParallel<T>::Sum;
  static constexpr Rank kServer = 0;  // of the data axis

  void begin(BucketInFlight& b) override {
    b.handle = this->mesh_.data.template beside<T>().reduce_async(
        b.data, b.data, b.bucket->count(), kDType<Sum>, RedOp::kSum, kServer);
  }
  void sum_whole(Sum* all, std::size_t count) override {
    Axis& data = this->mesh_.data;
    data.run([&] {
      return data.in_order<T>().reduce(all, all, count, kDType<Sum>, RedOp::kSum, kServer);
    });
  }
  void share_weights() override {
    for (const auto& b : this->buckets_)  // broadcast from rank 0
      this->mesh_.data.broadcast(this->weights_.data() + b.begin, b.count());
  }
};

}  // namespace weft::train
