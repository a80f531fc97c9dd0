// The operators of the device backend: those of operators.h, for elements in device memory. They
// return at once and run in the order of the compute stream (device/context.h). Where both backends
// need different code, this header has one function for both, which layers call.
#pragma once

#include <algorithm>
#include <cmath>

#include "train/operators/exact_sum.h"
#include "train/operators/operators.h"
#include "train/operators/tensor.h"

namespace weft::train {

template <class T>
concept DeviceElement = kOnDevice<T>;

template <DeviceElement T>
void linear(T* y, const T* x, const T* w, const T* bias, Index rows, Index in, Index out);
template <DeviceElement T>
void linear_grad_input(T* grad_x, const T* grad_y, const T* w, Index rows, Index in, Index out);
template <DeviceElement T>
void linear_grad_weight(T* grad_w, T* grad_bias, const T* grad_y, const T* x, Index rows, Index in,
                        Index out);
template <DeviceElement T>
void gelu(T* y, const T* x, Index count);
template <DeviceElement T>
void gelu_grad(T* grad_x, const T* grad_y, const T* x, Index count);
// Tokens and targets are in host memory, here and below.
template <DeviceElement T>
void embed(T* out, const T* table, const Token* tokens, Index first, Index n, Index rows,
           Index width);
template <DeviceElement T>
void embed_grad(T* grad_table, const T* grad_out, const Token* tokens, Index first, Index n,
                Index rows, Index width);
template <DeviceElement T>
void attention(T* out, Wide<T>* log_sum, const T* qkv, const AttentionShape& s);
template <DeviceElement T>
void attention_grad(T* grad_qkv, const T* grad_out, const T* out, const Wide<T>* log_sum,
                    const T* qkv, const AttentionShape& s);
template <DeviceElement T>
void add(T* to, const T* from, Index count);
template <DeviceElement T>
void scale(T* x, HostOf<T> factor, Index count);

// Mean and rstd are Wide; on the processor Wide<T> is T.
template <class E>
void layer_norm(OnDevice<E>* y, Wide<OnDevice<E>>* mean, Wide<OnDevice<E>>* rstd,
                const OnDevice<E>* x, const OnDevice<E>* gain, const OnDevice<E>* bias, Index rows,
                Index width);
template <class E>
void layer_norm_grad(OnDevice<E>* grad_x, OnDevice<E>* grad_gain, OnDevice<E>* grad_bias,
                     const OnDevice<E>* grad_y, const OnDevice<E>* x, const Wide<OnDevice<E>>* mean,
                     const Wide<OnDevice<E>>* rstd, const OnDevice<E>* gain, Index rows,
                     Index width);

// ---- functions for both backends -------------------------------------------------------------

// out = x + y + bias in each row.
template <class T>
void add_residual(T* out, const T* x, const T* y, const T* bias, Index rows, Index width) {
  in_ranges(rows, 1 + 16384 / width, [=](Index begin, Index end) {
    for (Index i = begin * width; i < end * width; i += width)
      for (Index k = 0; k < width; ++k) out[i + k] = x[i + k] + y[i + k] + bias[k];
  });
}
template <DeviceElement T>
void add_residual(T* out, const T* x, const T* y, const T* bias, Index rows, Index width);

// Adds every row of x to `to`.
template <class T>
void add_columns(T* to, const T* x, Index rows, Index width) {
  add_rows(to, x, rows, width);
}
template <DeviceElement T>
void add_columns(T* to, const T* x, Index rows, Index width);

// to[row][columns] = from[row][columns]; strides are the distances of rows in elements.
template <class T>
void copy_columns(T* to, Index to_stride, const T* from, Index from_stride, Index rows,
                  Index columns) {
  for (Index r = 0; r < rows; ++r) copy(to + r * to_stride, from + r * from_stride, columns);
}
template <DeviceElement T>
void copy_columns(T* to, Index to_stride, const T* from, Index from_stride, Index rows,
                  Index columns);

// x[row] += table[(first + row) % positions]
template <class T>
void add_positions(T* x, const T* table, Index first, Index positions, Index rows, Index width) {
  for (Index r = 0; r < rows; ++r)
    add(x + r * width, table + (first + r) % positions * width, width);
}
template <DeviceElement T>
void add_positions(T* x, const T* table, Index first, Index positions, Index rows, Index width);
// grad_table[(first + row) % positions] += grad[row]
template <class T>
void add_positions_grad(T* grad_table, const T* grad, Index first, Index positions, Index rows,
                        Index width) {
  for (Index r = 0; r < rows; ++r)
    add(grad_table + (first + r) % positions * width, grad + r * width, width);
}
template <DeviceElement T>
void add_positions_grad(T* grad_table, const T* grad, Index first, Index positions, Index rows,
                        Index width);

// *loss = the sum of the rows' losses. Replaces the logits by the gradient of that sum times
// `scale`. The rank has columns [first, first + n); reduce(numbers, count, operator) reduces
// numbers over the ranks that share the vocabulary. whole: the rank has all columns and does not
// reduce.
template <class T, class Reduce>
void cross_entropy(T* logits, const Token* targets, Index first, Index n, Index rows, bool whole,
                   double scale, LossSum<T>* loss, Reduce reduce);

// Sum of squares of several pieces; on a device the device adds them up.
template <class T>
class SquareSum {
 public:
  void add(const T* x, Index count) { sum_ += sum_of_squares(x, count); }
  double value() { return sum_; }

 private:
  double sum_ = 0;
};
template <class E>
class SquareSum<OnDevice<E>> {
 public:
  SquareSum();
  void add(const OnDevice<E>* x, Index count);
  double value();  // waits for the compute stream

 private:
  Tensor<WideOnDevice<double>> total_, parts_;
};

// Exact sum of squares of several pieces: the same bits for any cut into pieces (exact_sum.h).
template <class T>
class ExactSquares {
 public:
  void see(const T* x, Index count) { most_ = std::max(most_, largest_of(x, count)); }
  double largest() { return most_; }
  void add(const T* x, Index count, int shift) { sum_.add_squares(x, count, shift); }
  ExactSum sum() { return sum_; }

 private:
  double most_ = 0;
  ExactSum sum_;
};
template <class E>
class ExactSquares<OnDevice<E>> {
 public:
  ExactSquares();
  void see(const OnDevice<E>* x, Index count);
  double largest();  // waits for the compute stream
  void add(const OnDevice<E>* x, Index count, int shift);
  ExactSum sum();  // waits for the compute stream

 private:
  Tensor<WideOnDevice<double>> most_, sums_;  // sums_ holds integers of the same size
};

// One step of the optimizer. w is rounded from the master weights; master is null where T has all
// digits. Moments that the optimizer lacks are null.
struct Update {
  bool adam = true;
  AdamW how{};  // SGD uses rate and decay
  double momentum = 0, gradient_scale = 1;
};
template <class T>
void update_weights(T* w, Wide<T>* master, Wide<T>* moment1, Wide<T>* moment2, const T* gradient,
                    Index count, const Update& u) {
  if constexpr (!kOnDevice<T>) {
    (void)master;
    const T scale = static_cast<T>(u.gradient_scale);
    if (u.adam)
      adamw(w, moment1, moment2, gradient, count, u.how, scale);
    else
      sgd(w, moment1, gradient, count, u.how.rate, u.momentum, u.how.decay, scale);
  }
}
template <DeviceElement T>
void update_weights(T* w, Wide<T>* master, Wide<T>* moment1, Wide<T>* moment2, const T* gradient,
                    Index count, const Update& u);

// Rounds master weights to the model's weights.
template <DeviceElement T>
void narrow(T* to, const Wide<T>* from, Index count);
// Converts the model's weights to master weights.
template <DeviceElement T>
void widen(Wide<T>* to, const T* from, Index count);

// ---- cross-entropy ---------------------------------------------------------------------------

// The steps of cross_entropy() on a device.
template <DeviceElement T>
class DeviceCrossEntropy {
 public:
  DeviceCrossEntropy(T* logits, const Token* targets, Index first, Index n, Index rows);
  Wide<T>* maximum() { return numbers_.data(); }
  Wide<T>* sum_and_target() { return numbers_.data() + rows_; }
  void fused(double scale);  // all steps in one kernel
  void find_maximum();
  void find_sum();
  void gradient(double scale);
  void sum_losses(WideOnDevice<double>* loss);

 private:
  T* logits_;
  Index first_, n_, rows_;
  Tensor<Wide<T>> numbers_;              // maximum, sum, target
  Tensor<WideOnDevice<float>> targets_;  // holds tokens, which have the same size
};

template <class T, class Reduce>
void cross_entropy(T* logits, const Token* targets, Index first, Index n, Index rows, bool whole,
                   double scale, LossSum<T>* loss, Reduce reduce) {
  if constexpr (kOnDevice<T>) {
    DeviceCrossEntropy<T> steps(logits, targets, first, n, rows);
    if (whole) {
      steps.fused(scale);
    } else {
      steps.find_maximum();
      reduce(steps.maximum(), rows, RedOp::kMax);
      steps.find_sum();
      reduce(steps.sum_and_target(), 2 * rows, RedOp::kSum);
      steps.gradient(scale);
    }
    steps.sum_losses(loss);
  } else {
    Tensor<T> numbers(3 * rows, Use::kWorkspace);
    T *maximum = numbers.data(), *sum = maximum + rows, *target = sum + rows;
    row_maximum(maximum, logits, rows, n);
    if (!whole) reduce(maximum, rows, RedOp::kMax);
    row_exp(logits, sum, target, maximum, targets, first, n, rows);
    if (!whole) reduce(sum, 2 * rows, RedOp::kSum);
    *loss = 0;
    for (Index r = 0; r < rows; ++r) *loss += static_cast<double>(std::log(sum[r]) - target[r]);
    cross_entropy_grad(logits, sum, targets, first, n, rows, static_cast<T>(scale));
  }
}

}  // namespace weft::train
