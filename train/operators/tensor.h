// Tensor: an owning buffer of T, in the host or device memory of T. The ledger counts its bytes
// under the tensor's Use. A tensor has no shape.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "train/base/memory_ledger.h"
#include "train/operators/memory.h"

namespace weft::train {

// Movable. Must be destroyed on the thread that constructed it, whose ledger counts its bytes.
template <class T>
class Tensor {
 public:
  Tensor() = default;
  Tensor(std::size_t count, Use use)  // not initialized
      : data_(allocate<T>(count)), count_(count), use_(use) {
    MemoryLedger::of_this_rank().add(use_, count_ * sizeof(T));
  }
  static Tensor zeros(std::size_t count, Use use) {
    Tensor t(count, use);
    t.fill_zero();
    return t;
  }
  Tensor(Tensor&& o) noexcept { swap(o); }
  Tensor& operator=(Tensor&& o) noexcept {
    Tensor(std::move(o)).swap(*this);
    return *this;
  }
  ~Tensor() {
    if (data_) MemoryLedger::of_this_rank().remove(use_, count_ * sizeof(T));
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::size_t count() const { return count_; }
  std::size_t bytes() const { return count_ * sizeof(T); }
  Use use() const { return use_; }
  bool empty() const { return data_ == nullptr; }
  T& operator[](std::size_t i) { return data_[i]; }
  const T& operator[](std::size_t i) const { return data_[i]; }
  std::span<T> span() { return {data_.get(), count_}; }
  void fill_zero() { set_zero(data_.get(), count_); }

 private:
  void swap(Tensor& o) {
    std::swap(data_, o.data_);
    std::swap(count_, o.count_);
    std::swap(use_, o.use_);
  }
  std::unique_ptr<T[], Free<T>> data_;
  std::size_t count_ = 0;
  Use use_ = Use::kWorkspace;
};

}  // namespace weft::train
