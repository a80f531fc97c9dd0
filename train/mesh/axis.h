// Axis: the communicator of this rank along one axis of the mesh (data, tensor, pipeline ...), and
// the time that the rank waits in the axis's calls. An axis of one rank sends nothing. Calls on
// device memory do not block: they run on a stream, in order with the operators.
#pragma once

#include <functional>
#include <utility>

#include "coll/api/communicator.h"
#include "topo/base/clock.h"
#include "train/operators/tensor.h"
#include "transport/launch/failures.h"

namespace weft::train {

// Collective calls throw JobFailed when the communicator fails.
class Axis {
 public:
  Axis() = default;  // constructs a group of this rank alone
  explicit Axis(Communicator comm) : comm_(std::move(comm)) {
    if (comm_) size_ = comm_.size(), rank_ = comm_.rank();
  }
  int size() const { return size_; }
  int rank() const { return rank_; }
  Communicator& comm() { return comm_; }
  // Returns the communicator for calls on memory of T, in stream order with the operators.
  template <class T>
  Communicator in_order() const {
    if constexpr (kOnDevice<T>) return comm_.on(rank_device().compute());
    return comm_;
  }
  // Returns the communicator for calls on memory of T, which overlap with later operators.
  template <class T>
  Communicator beside() const {
    if constexpr (kOnDevice<T>) return comm_.on(rank_device().communication_after_compute());
    return comm_;
  }

  template <class T>
  void all_reduce(T* x, std::size_t count, Reduction op = RedOp::kSum) {
    run([&] { return in_order<T>().all_reduce(x, x, count, kDType<T>, op); });
  }
  // all: size() blocks of `count` elements; this rank has filled its own block.
  template <class T>
  void all_gather(T* all, std::size_t count) {
    run([&] { return in_order<T>().all_gather(all + me() * count, all, count, kDType<T>); });
    if (after_gather && size_ > 1) after_gather(all, count * sizeof(T));
  }
  // Copies x of the group's rank 0 to all ranks.
  template <class T>
  void broadcast(T* x, std::size_t count) {
    run([&] { return in_order<T>().broadcast(x, x, count, kDType<T>, 0); });
  }
  // all: size() blocks of `count` elements; this rank's block becomes the sum.
  template <class T>
  void reduce_scatter(T* all, std::size_t count) {
    run([&] {
      return in_order<T>().reduce_scatter(all, all + me() * count, count, kDType<T>, RedOp::kSum);
    });
  }
  // Runs a call that returns a Status, and adds its time. Throws JobFailed if the call fails.
  template <class Call>
  void run(Call call) {
    if (size_ == 1) return;
    const double start = now_s();
    require(call());
    seconds_ += now_s() - start;
  }
  double seconds() const { return seconds_; }
  // For tests: all_gather() passes its result to this function, blocks of `bytes` each.
  std::function<void(void* all, std::size_t bytes)> after_gather;

 private:
  std::size_t me() const { return static_cast<std::size_t>(rank_); }
  Communicator comm_;
  int size_ = 1, rank_ = 0;
  double seconds_ = 0;
};

}  // namespace weft::train
