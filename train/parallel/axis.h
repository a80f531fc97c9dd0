// Axis: this rank's group along one axis of the mesh (data, tensor, pipeline ...), with the time
// spent waiting for it. A group of one rank costs nothing and sends nothing. On memory of a device
// nobody waits: calls take their place among the operators.
#pragma once

#include <utility>

#include "coll/api/communicator.h"
#include "topo/base/clock.h"
#include "train/operators/tensor.h"
#include "transport/launch/failures.h"

namespace weft::train {

// Failures are thrown as JobFailed.
class Axis {
 public:
  Axis() = default;  // this rank alone
  explicit Axis(Communicator comm) : comm_(std::move(comm)) {
    if (comm_) size_ = comm_.size(), rank_ = comm_.rank();
  }
  int size() const { return size_; }
  int rank() const { return rank_; }
  Communicator& comm() { return comm_; }
  // For calls on memory of T: on a device in the order of the operators, or beside those to come.
  template <class T>
  Communicator in_order() const {
    if constexpr (kOnDevice<T>) return comm_.on(compute_stream());
    return comm_;
  }
  template <class T>
  Communicator beside() const {
    if constexpr (kOnDevice<T>) return comm_.on(stream_beside_compute());
    return comm_;
  }

  template <class T>
  void all_reduce(T* x, std::size_t count, Reduction op = RedOp::kSum) {
    run([&] { return in_order<T>().all_reduce(x, x, count, kDType<T>, op); });
  }
  // all: size() blocks of `count`, of which this rank's is there already.
  template <class T>
  void all_gather(T* all, std::size_t count) {
    run([&] { return in_order<T>().all_gather(all + me() * count, all, count, kDType<T>); });
  }
  // all: size() blocks of `count`; this rank's block becomes the sum.
  template <class T>
  void reduce_scatter(T* all, std::size_t count) {
    run([&] {
      return in_order<T>().reduce_scatter(all, all + me() * count, count, kDType<T>, RedOp::kSum);
    });
  }
  // Calls what returns a Status, and counts the time.
  template <class Call>
  void run(Call call) {
    if (size_ == 1) return;
    const double start = now_s();
    require(call());
    seconds_ += now_s() - start;
  }
  double seconds() const { return seconds_; }

 private:
  std::size_t me() const { return static_cast<std::size_t>(rank_); }
  Communicator comm_;
  int size_ = 1, rank_ = 0;
  double seconds_ = 0;
};

}  // namespace weft::train
