// The deterministic mode: sums with the same bits for every number of replicas. Micro-batches are
// assigned round-robin: replica r of n computes numbers r, r + n, r + 2n, ...; the sum adds them in
// the order of their numbers.
#pragma once

#include "train/parallel/data_parallel.h"

namespace weft::train {

// For modes with all gradients on each rank (Base: ZeRO 0, 1, the parameter server). After each
// micro-batch, a round adds the gradients of n more micro-batches to the sum: replica 0 adds the
// sum so far to its gradients, then an all-reduce adds in rank order.
template <class T, class Base>
class InOrder : public Base {
 public:
  using Base::Base;

  void gradients_done(int unit) override {
    this->poll();
    if (unit != 0) return;
    for (int u = static_cast<int>(this->stage_.units().size()) - 1; u >= 0; --u)
      this->sum_partial(u, this->gradients_.data() + this->unit_at(u).begin);
    auto& sums = this->sums_;
    auto& gradients = this->gradients_;
    if constexpr (kHasMaster<T>) {
      Tensor<Sum> widened(gradients.count(), Use::kWorkspace);
      widen(as_wide(widened.data()), gradients.data(), gradients.count());
      add_round(widened, sums);
    } else {
      add_round(gradients, sums);
    }
    gradients.fill_zero();
  }

 protected:
  using typename Base::Sum;
  bool sent_last(int) const override { return false; }

 private:
  void add_round(Tensor<Sum>& round, Tensor<Sum>& sums) {
    if (this->mesh_.data.rank() == 0) add(round.data(), sums.data(), sums.count());
    this->sum_whole(round.data(), round.count());
    copy(sums.data(), round.data(), sums.count());
  }
};

// For modes with a part of the gradients on each rank (Base: ZeRO 2, 3). An all-to-all sends each
// block to its owner, which adds the blocks in rank order.
template <class T, class Base>
class InOrderOfParts : public Base {
 public:
  using Base::Base;

 protected:
  using typename Base::BucketInFlight, typename Base::Sum;
  bool sent_last(int unit) const override { return unit == this->stage_.shared_unit(); }
  void begin(BucketInFlight& b) override {
    b.blocks = Tensor<Sum>(b.bucket->count(), Use::kRemoteGradients);
    b.handle = this->mesh_.shard.template beside<T>().all_to_all_async(
        b.data, b.blocks.data(), this->part(b.bucket->count()), kDType<Sum>);
  }
  void arrived(BucketInFlight& b) override {
    if (b.blocks.empty()) return Base::arrived(b);  // one replica
    const std::size_t n = this->part(b.bucket->count());
    for (std::size_t r = 0; r < this->shards(); ++r) this->add_to_own(b, b.blocks.data() + r * n);
  }
};

}  // namespace weft::train
