// StageMessage: a message between ranks of a pipeline. The tensor itself is the message, wherever
// it is: between GPUs of a host no byte passes host memory. The host waits for no copy.
#pragma once

#include <utility>

#include "train/operators/tensor.h"

namespace weft::train {

template <class T>
class StageMessage {
 public:
  StageMessage() = default;
  // Makes a message to send, or to receive in `tensor`, once it is ready(): when the device has
  // made it, or has done what used its memory before.
  explicit StageMessage(Tensor<T> tensor) : tensor_(std::move(tensor)) {
    if constexpr (kOnDevice<T>) free_ = rank_device().mark(rank_device().compute());
  }
  bool ready() const { return free_.passed(); }
  void* data() { return tensor_.data(); }
  std::size_t count() const { return tensor_.count(); }
  std::size_t bytes() const { return count() * sizeof(T); }
  Tensor<T> open() { return std::move(tensor_); }  // takes the received tensor

 private:
  Tensor<T> tensor_;
  DeviceMark free_;
};

}  // namespace weft::train
