// ZeRO 2: sends a unit's gradients after each micro-batch, as one bucket, and frees their memory
// when the sum is complete. A rank keeps the sum of its part only.
#pragma once

#include <utility>
#include <vector>

#include "train/parallel/zero1.h"

namespace weft::train {

template <class T>
class Zero2 : public Zero1<T> {
 public:
  using Zero1<T>::Zero1;

  void want_gradients(int unit) override {
    auto& gradients = at(unit).gradients;
    if (!gradients.empty()) return;
    const Unit& u = this->unit_at(unit);
    gradients = Tensor<T>::zeros(u.end - u.begin, Use::kGradients);
    this->stage_.bind(unit, nullptr, gradients.data());
  }

 protected:
  using typename DataParallel<T>::BucketInFlight, typename DataParallel<T>::Sum;

  bool leaves(int unit, int) const override { return !this->sent_last(unit); }
  Sum* sums_of(int unit) override { return sum_at(unit).data(); }
  void take(BucketInFlight& b) override {
    b.own = std::move(sum_at(b.bucket->unit));
    b.data = b.own.data();
  }
  void add_to_sums(int unit) override {
    if constexpr (kHasMaster<T>) {
      OfUnit& u = at(unit);
      const std::size_t count = u.gradients.count();
      if (u.sum.empty()) u.sum = Tensor<Sum>::zeros(count, Use::kGradients);
      this->widen_and_add(u.sum.data(), u.gradients.data(), count);
      u.gradients = {};
    }
  }
  // Limits gradients in flight to one unit, in its own memory, while the next unit computes.
  void send_unit(int unit) override {
    Zero1<T>::send_unit(unit);
    if (kOnDevice<T>) return;
    this->timed([&] {
      while (this->in_flight_.size() > 1) this->take_front();
    });
  }
  void arrived(BucketInFlight& b) override { add_to_own(b, this->own_part(b)); }
  // The sums of this rank's part += from.
  void add_to_own(const BucketInFlight& b, const Sum* from) {
    add(this->sums() + this->part(b.bucket->begin), from, this->part(b.bucket->count()));
  }

 private:
  struct OfUnit {
    Tensor<T> gradients;  // gradients of the micro-batches that are not sent yet
    Tensor<Sum> sum;      // sum of the gradients, if the gradients have 16 bits
  };
  OfUnit& at(int unit) { return units_[static_cast<std::size_t>(unit)]; }
  Tensor<Sum>& sum_at(int unit) {
    if constexpr (kHasMaster<T>)
      return at(unit).sum;
    else
      return at(unit).gradients;
  }
  std::vector<OfUnit> units_ = std::vector<OfUnit>(this->stage_.units().size());
};

}  // namespace weft::train
