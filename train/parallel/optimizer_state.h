// OptimizerState: moments and master weights of a rank's part of a stage, which may be offloaded
// between steps.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "train/operators/offload.h"

namespace weft::train {

struct OptimizerOptions {
  bool adam = true;  // false: SGD
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, decay = 0.1, momentum = 0.9;
};

template <class T>
struct OptimizerState {
  OptimizerState() = default;  // empty: of a rank that does not run the optimizer
  // offload: a folder, or "host"; empty: no offload.
  OptimizerState(std::size_t count, const OptimizerOptions& optimizer, const std::string& offload) {
    if (optimizer.adam || optimizer.momentum != 0)
      moment1 = Tensor<Wide<T>>::zeros(count, Use::kFirstMoment);
    if (optimizer.adam) moment2 = Tensor<Wide<T>>::zeros(count, Use::kSecondMoment);
    if (kHasMaster<T>) master = Tensor<Wide<T>>::zeros(count, Use::kMasterWeights);
    if (!offload.empty()) offload_ = std::make_unique<Offload<Wide<T>>>(offload);
    send_away();
  }

  void send_away() {
    if (!offload_ || (moment1.empty() && master.empty())) return;
    std::vector<Tensor<Wide<T>>> state;
    for (Tensor<Wide<T>>* each : {&moment1, &moment2, &master}) state.push_back(std::move(*each));
    offload_->put(0, state);
  }
  // The state remains in memory until send_away().
  void bring_back() {
    if (!offload_) return;
    std::vector<Tensor<Wide<T>>> state;
    offload_->get(0, state);
    if (state.empty()) return;  // never offloaded
    moment1 = std::move(state[0]);
    moment2 = std::move(state[1]);
    master = std::move(state[2]);
  }
  std::uint64_t offloaded_bytes() const { return offload_ ? offload_->bytes_moved() : 0; }

  Tensor<Wide<T>> moment1, moment2;
  Tensor<Wide<T>> master;  // fp32 weights, if T has 16 bits

 private:
  std::unique_ptr<Offload<Wide<T>>> offload_;
};

}  // namespace weft::train
