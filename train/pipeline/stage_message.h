// StageMessage: a message between ranks of a pipeline. The pipeline sends and receives host memory:
// a host tensor is the message itself, a device tensor is copied through pinned memory in the order
// of the operators. The host waits for no copy.
#pragma once

#include <utility>

#include "train/operators/tensor.h"

namespace weft::train {

template <class T>
class StageMessage {
 public:
  StageMessage() = default;
  // Makes a message to send, once it is ready().
  explicit StageMessage(Tensor<T> out) : count_(out.count()), use_(out.use()) {
    if constexpr (kOnDevice<T>) {
      pinned_ = rank_device().pinned(bytes());
      rank_device().copy(pinned_.get(), out.data(), bytes());
      copied_ = rank_device().mark(rank_device().compute());
    } else {
      tensor_ = std::move(out);
    }
  }
  // Makes room for a message to receive.
  StageMessage(std::size_t count, Use use) : count_(count), use_(use) {
    if constexpr (kOnDevice<T>)
      pinned_ = rank_device().pinned(bytes());
    else
      tensor_ = Tensor<T>(count, use);
  }
  bool ready() const { return copied_.passed(); }
  void* data() {
    if constexpr (kOnDevice<T>)
      return pinned_.get();
    else
      return tensor_.data();
  }
  std::size_t count() const { return count_; }
  std::size_t bytes() const { return count_ * sizeof(T); }
  Tensor<T> open() {  // takes the received tensor
    if constexpr (kOnDevice<T>) {
      Tensor<T> in(count_, use_);
      rank_device().upload_pinned(in.data(), std::move(pinned_), bytes());
      return in;
    } else {
      return std::move(tensor_);
    }
  }

 private:
  std::size_t count_ = 0;
  Use use_ = Use::kWorkspace;
  Tensor<T> tensor_;     // the message of a host tensor
  PinnedMemory pinned_;  // the message of a device tensor
  DeviceMark copied_;
};

}  // namespace weft::train
