// StageMessage: a message between pipeline ranks. The tensor itself is the buffer, in its memory:
// between GPUs of a host no byte passes through host memory. The host never blocks on a copy.
#pragma once

#include <utility>

#include "train/operators/tensor.h"

namespace weft::train {

template <class T>
class StageMessage {
 public:
  StageMessage() = default;
  // A message to send from, or to receive into, `tensor`. It is ready() when the device has
  // computed the tensor, or no longer uses its memory.
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
