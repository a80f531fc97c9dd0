// A message between ranks of a pipeline. weft's send and recv take host memory: a tensor on the
// processor goes as it is, one on a device through pinned memory.
#pragma once

#include <memory>

#include "train/operators/tensor.h"

namespace weft::train {

template <class T>
class Parcel {
 public:
  Parcel() = default;
  explicit Parcel(Tensor<T> out) : count_(out.count()), use_(out.use()) {  // to send
    if constexpr (kOnDevice<T>) {
      pinned_.reset(pinned_memory(bytes()));
      download(pinned_.get(), out.data(), bytes());
    } else {
      tensor_ = std::move(out);
    }
  }
  Parcel(std::size_t count, Use use) : count_(count), use_(use) {  // to receive
    if constexpr (kOnDevice<T>)
      pinned_.reset(pinned_memory(bytes()));
    else
      tensor_ = Tensor<T>(count, use);
  }
  void* data() {
    if constexpr (kOnDevice<T>)
      return pinned_.get();
    else
      return tensor_.data();
  }
  std::size_t count() const { return count_; }
  std::size_t bytes() const { return count_ * sizeof(T); }
  Tensor<T> open() {  // what arrived
    if constexpr (kOnDevice<T>) {
      Tensor<T> in(count_, use_);
      upload(in.data(), pinned_.get(), bytes());
      return in;
    } else {
      return std::move(tensor_);
    }
  }

 private:
  struct Unpin {
    void operator()(void* memory) const noexcept { free_pinned(memory); }
  };
  std::size_t count_ = 0;
  Use use_ = Use::kWorkspace;
  Tensor<T> tensor_;                     // on the processor
  std::unique_ptr<void, Unpin> pinned_;  // on a device
};

}  // namespace weft::train
