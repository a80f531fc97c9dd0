// ZeRO 3: a rank also has only its part of the weights. Gathers all weights of a unit while the
// previous unit computes, and frees them after the unit.
#pragma once

#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "train/parallel/zero2.h"

namespace weft::train {

template <class T>
class Zero3 : public Zero2<T> {
 public:
  using Zero2<T>::Zero2;

  void expect_weights(int unit) override {
    if (this->options_.overlap && at(unit).weights.empty()) fetch(unit);
  }
  void want_weights(int unit) override {
    poll();
    OfUnit& u = at(unit);
    if (u.wanted++ > 0) return;
    if (u.weights.empty()) fetch(unit);
    if (kOnDevice<T> && u.fetch) {
      u.fetched.before(rank_device().compute());
      fetches_.emplace_back(std::move(*u.fetch), u.since);
    } else if (u.fetch) {
      this->timed([&] { require(u.fetch->wait()); });
      this->total_ += (u.arrived > 0 ? u.arrived : now_s()) - u.since;
    }
    u.fetch.reset();
    this->stage_.bind(unit, u.weights.data(), nullptr);
  }
  void release_weights(int unit) override {
    if (--at(unit).wanted == 0) at(unit).weights = {};
  }
  void poll() override {
    if (this->adding_) return;
    for (OfUnit& u : units_)
      if (u.fetch && u.fetch->test() && u.arrived == 0) u.arrived = now_s();
    for (; !fetches_.empty() && fetches_.front().first.test(); fetches_.pop_front()) {
      require(fetches_.front().first.wait());
      this->total_ += now_s() - fetches_.front().second;
    }
    Zero2<T>::poll();
  }
  void finish() override {
    Zero2<T>::finish();
    for (; !fetches_.empty(); fetches_.pop_front()) require(fetches_.front().first.wait());
  }

 protected:
  void share_weights() override {}  // the next all-gathers distribute them

 private:
  struct OfUnit {
    Tensor<T> weights;  // all weights of the unit, gathered, while needed
    int wanted = 0;
    std::optional<Request> fetch;
    DeviceMark fetched;  // mark after the all-gather on the device
    double since = 0, arrived = 0;
  };
  OfUnit& at(int unit) { return units_[static_cast<std::size_t>(unit)]; }

  // Starts the all-gather of a unit's weights.
  void fetch(int unit) {
    OfUnit& u = at(unit);
    const Unit& place = this->unit_at(unit);
    Axis& shard = this->mesh_.shard;
    const std::size_t all = place.end - place.begin, n = this->part(all);
    u.weights = Tensor<T>(all, Use::kWeights);
    T* mine = u.weights.data() + static_cast<std::size_t>(shard.rank()) * n;
    copy(mine, this->weights_.data() + this->part(place.begin), n);
    if (shard.size() == 1) return;
    u.since = now_s();
    u.arrived = 0;
    u.fetch.emplace(shard.beside<T>().all_gather_async(mine, u.weights.data(), n, kDType<T>));
    if constexpr (kOnDevice<T>) u.fetched = rank_device().mark(rank_device().communication());
  }

  std::vector<OfUnit> units_ = std::vector<OfUnit>(this->stage_.units().size());
  // All-gathers for which the device waits, not the host, and their start times.
  std::deque<std::pair<Request, double>> fetches_;
};

}  // namespace weft::train
