// The operators of both backends. Each operator has overloads for elements on the CPU (float,
// double: operators.cc) and, by the lists at the end, for elements that kernels compute
// (device/operators.cc): 16-bit elements on the CPU, and elements on a device. On the CPU OpenBLAS
// computes matrix products and loops the rest, on the threads of base/threads.h. On a device
// operators are asynchronous and run on the compute stream (device/context.h). Operators depend on
// shapes only; gpt_layers.h shards tensors over ranks.
//
// Matrices are row-major. Weights are [outputs][inputs], so that a layer is y = x w^T. An operator
// that "adds" accumulates in its destination. rows = samples x positions. Wide<T> is T on the CPU.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "train/base/threads.h"
#include "train/operators/exact_sum.h"
#include "train/operators/tensor.h"

namespace weft::train {

using Token = std::int32_t;
using Index = std::size_t;

// Tokens or targets in host memory; `device`: a copy of the tokens in device memory, or null.
struct Tokens {
  Tokens(const Token* host_, const Token* device_ = nullptr) : host(host_), device(device_) {}
  Token operator[](Index i) const { return host[i]; }
  const Token *host, *device;
};

template <class T>
concept DeviceElement = kOnDevice<T>;
template <class T>
concept HalfElement = kHasMaster<T> && !kOnDevice<T>;
// Elements whose operators are built from kernels (device/operators.cc).
template <class T>
concept KernelElement = DeviceElement<T> || HalfElement<T>;

// CPU only: c[m][n] = alpha a b + beta c, where a or b may be transposed. Strides are elements
// between rows.
template <class T>
void gemm(bool transpose_a, bool transpose_b, Index m, Index n, Index k, T alpha, const T* a,
          Index a_stride, const T* b, Index b_stride, T beta, T* c, Index c_stride);

// y[rows][out] = x[rows][in] w[out][in]^T + bias[out]; bias may be null.
template <class T>
void linear(T* y, const T* x, const T* w, const T* bias, Index rows, Index in, Index out);
// grad_x = grad_y w
template <class T>
void linear_grad_input(T* grad_x, const T* grad_y, const T* w, Index rows, Index in, Index out);
// Accumulates in grad_w and, unless null, in grad_bias.
template <class T>
void linear_grad_weight(T* grad_w, T* grad_bias, const T* grad_y, const T* x, Index rows, Index in,
                        Index out);

// y = (x - mean) rstd gain + bias in each row; also writes mean[rows] and rstd[rows].
template <class T>
void layer_norm(T* y, Wide<T>* mean, Wide<T>* rstd, const T* x, const T* gain, const T* bias,
                Index rows, Index width);
// Accumulates in all three gradients.
template <class T>
void layer_norm_grad(T* grad_x, T* grad_gain, T* grad_bias, const T* grad_y, const T* x,
                     const Wide<T>* mean, const Wide<T>* rstd, const T* gain, Index rows,
                     Index width);

struct AttentionShape {
  Index batch, positions, heads, head_width;
  Index width() const { return heads * head_width; }
  Index rows() const { return batch * positions; }
  Index numbers() const { return batch * heads * positions; }
};
// out[rows][heads x head_width] from qkv[rows][3][heads x head_width]; causal, scores scaled by 1 /
// sqrt(head_width). Also writes log(sum of exp(score)) per row, log_sum[batch][heads][positions],
// the only statistics that attention_grad() needs.
template <class T>
void attention(T* out, Wide<T>* log_sum, const T* qkv, const AttentionShape& s);
// CPU only: attention with a KV cache, for rows [begin, begin + rows) of one sample, each over all
// rows up to it. `cache`: qkv of all rows so far; out: the new rows.
template <class T>
void attention_of_rows(T* out, const T* cache, Index begin, Index rows, const AttentionShape& s);
template <class T>
void attention_grad(T* grad_qkv, const T* grad_out, const T* out, const Wide<T>* log_sum,
                    const T* qkv, const AttentionShape& s);

// y = gelu(x), GPT-2's tanh approximation.
template <class T>
void gelu(T* y, const T* x, Index count);
template <class T>
void gelu_grad(T* grad_x, const T* grad_y, const T* x, Index count);  // grad_x may be grad_y

// out[row] = table[tokens[row] - first], or zeros if the token is not in [first, first + n).
template <class T>
void embed(T* out, const T* table, Tokens tokens, Index first, Index n, Index rows, Index width);
// Adds each row of grad_out to its token's row of grad_table.
template <class T>
void embed_grad(T* grad_table, const T* grad_out, const Token* tokens, Index first, Index n,
                Index rows, Index width);

// x[row] += table[(first + row) % positions]
template <class T>
void add_positions(T* x, const T* table, Index first, Index positions, Index rows, Index width);
// grad_table[(first + row) % positions] += grad[row]
template <class T>
void add_positions_grad(T* grad_table, const T* grad, Index first, Index positions, Index rows,
                        Index width);

template <class T>
void add(T* to, const T* from, Index count);
template <class T>
void scale(T* x, HostOf<T> factor, Index count);
// out = x + y + bias in each row.
template <class T>
void add_residual(T* out, const T* x, const T* y, const T* bias, Index rows, Index width);
// Adds the rows of x to `to`, in order.
template <class T>
void add_columns(T* to, const T* x, Index rows, Index width);
// to[row][columns] = from[row][columns]; strides in elements.
template <class T>
void copy_columns(T* to, Index to_stride, const T* from, Index from_stride, Index rows,
                  Index columns);

// ---- cross-entropy ---------------------------------------------------------------------------

// Cross-entropy takes three steps, because the vocabulary may be sharded over ranks: a rank has
// columns [first, first + n). Between the steps, cross_entropy() reduces maximum, sum and target
// over the ranks. This first step writes the maximum of each row.
template <class T>
void row_maximum(Wide<T>* maximum, const T* logits, Index rows, Index n);
// Second step: sum of exp(logit - maximum) per row; target = the target's logit - maximum, or 0 if
// another rank has the target's column. On the CPU the exponentials replace the logits; on a device
// 16 bits would lose precision.
template <class T>
void row_exp(T* logits, Wide<T>* sum, Wide<T>* target, const Wide<T>* maximum, Tokens targets,
             Index first, Index n, Index rows);
// Third step, after row_exp(): logits = scale (softmax - one_hot(target)).
template <class T>
void cross_entropy_grad(T* logits, const Wide<T>* maximum, const Wide<T>* sum, Tokens targets,
                        Index first, Index n, Index rows, HostOf<T> scale);
// All three steps for an unsharded vocabulary.
template <class T>
void whole_cross_entropy(T* logits, Wide<T>* sum, Wide<T>* target, Tokens targets, Index n,
                         Index rows, HostOf<T> scale);
// *loss = the sum over rows of log(sum) - target. T cannot be deduced.
template <class T>
requires(!kOnDevice<T>) void sum_losses(LossSum<T>* loss, const Wide<T>* sum, const Wide<T>* target,
                                        Index rows);
template <DeviceElement T>
void sum_losses(LossSum<T>* loss, const Wide<T>* sum, const Wide<T>* target, Index rows);

// ---- sums of squares, and optimizers ---------------------------------------------------------

// Adds the sum of squares to *total.
template <class T>
void add_squares(Beside<T, double>* total, const T* x, Index count);
// Exact sums (exact_sum.h) have kExactParts parts: the largest |x| so far, and the sums of high
// words and of low words.
template <class T>
inline constexpr Index kExactParts = kOnDevice<T> ? 1024 : 1;
template <class T>
void see_largest(Beside<T, double>* parts, const T* x, Index count);
template <class T>
void add_exact_squares(Beside<T, std::int64_t>* parts, const T* x, Index count, int shift);

struct AdamW {
  double rate, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, decay = 0.1;
  int step = 1;  // number of the step, from 1
};
// One optimizer step, in fp32 or fp64. Moments that the optimizer does not have are null.
struct Update {
  bool adam = true;
  AdamW how{};  // SGD uses only rate and decay
  double momentum = 0, gradient_scale = 1;
};
template <class T>
void update_weights(T* w, Wide<T>* moment1, Wide<T>* moment2, const T* gradient, Index count,
                    const Update& u);

// Rounds master elements to 16 bits, and widens.
template <KernelElement T>
void narrow(T* to, const Wide<T>* from, Index count);
template <KernelElement T>
void widen(Wide<T>* to, const T* from, Index count);

// ---- lists -----------------------------------------------------------------------------------

// Every operator of both backends, after PREFIX: `template` instantiates them.
#define WEFT_PRODUCTS(PREFIX, T)                                              \
  PREFIX void linear(T*, const T*, const T*, const T*, Index, Index, Index);  \
  PREFIX void linear_grad_input(T*, const T*, const T*, Index, Index, Index); \
  PREFIX void linear_grad_weight(T*, T*, const T*, const T*, Index, Index, Index);
#define WEFT_OPERATORS(PREFIX, T)                                                                 \
  PREFIX void layer_norm(T*, Wide<T>*, Wide<T>*, const T*, const T*, const T*, Index, Index);     \
  PREFIX void layer_norm_grad(T*, T*, T*, const T*, const T*, const Wide<T>*, const Wide<T>*,     \
                              const T*, Index, Index);                                            \
  PREFIX void gelu(T*, const T*, Index);                                                          \
  PREFIX void gelu_grad(T*, const T*, const T*, Index);                                           \
  PREFIX void embed(T*, const T*, Tokens, Index, Index, Index, Index);                            \
  PREFIX void embed_grad(T*, const T*, const Token*, Index, Index, Index, Index);                 \
  PREFIX void add_positions(T*, const T*, Index, Index, Index, Index);                            \
  PREFIX void add_positions_grad(T*, const T*, Index, Index, Index, Index);                       \
  PREFIX void add(T*, const T*, Index);                                                           \
  PREFIX void scale(T*, HostOf<T>, Index);                                                        \
  PREFIX void add_residual(T*, const T*, const T*, const T*, Index, Index);                       \
  PREFIX void add_columns(T*, const T*, Index, Index);                                            \
  PREFIX void copy_columns(T*, Index, const T*, Index, Index, Index);                             \
  PREFIX void row_maximum(Wide<T>*, const T*, Index, Index);                                      \
  PREFIX void row_exp(T*, Wide<T>*, Wide<T>*, const Wide<T>*, Tokens, Index, Index, Index);       \
  PREFIX void cross_entropy_grad(T*, const Wide<T>*, const Wide<T>*, Tokens, Index, Index, Index, \
                                 HostOf<T>);                                                      \
  PREFIX void whole_cross_entropy(T*, Wide<T>*, Wide<T>*, Tokens, Index, Index, HostOf<T>);
#define WEFT_ATTENTION(PREFIX, T)                                              \
  PREFIX void attention(T*, Wide<T>*, const T*, const AttentionShape&);        \
  PREFIX void attention_grad(T*, const T*, const T*, const Wide<T>*, const T*, \
                             const AttentionShape&);
#define WEFT_SQUARES(PREFIX, T)                                 \
  PREFIX void add_squares(Beside<T, double>*, const T*, Index); \
  PREFIX void see_largest(Beside<T, double>*, const T*, Index); \
  PREFIX void add_exact_squares(Beside<T, std::int64_t>*, const T*, Index, int);
#define WEFT_OPTIMIZER(PREFIX, T) \
  PREFIX void update_weights(T*, Wide<T>*, Wide<T>*, const T*, Index, const Update&);

WEFT_PRODUCTS(template <KernelElement T>, T)
WEFT_OPERATORS(template <KernelElement T>, T)
WEFT_ATTENTION(template <DeviceElement T>, T)
WEFT_ATTENTION(template <HalfElement T>, T)
WEFT_SQUARES(template <DeviceElement T>, T)
WEFT_OPTIMIZER(template <DeviceElement T>, T)

// ---- what is made of operators ---------------------------------------------------------------

// *loss = the sum of the rows' losses. Replaces the logits by the gradient of that sum times
// `scale`. The rank has columns [first, first + n); reduce(numbers, count, op) all-reduces over the
// ranks that shard the vocabulary. whole: the rank has all columns, and reduce is not called.
template <class T, class Reduce>
void cross_entropy(T* logits, Tokens targets, Index first, Index n, Index rows, bool whole,
                   double scale, LossSum<T>* loss, Reduce reduce) {
  Tensor<Wide<T>> numbers(3 * rows, Use::kWorkspace);
  Wide<T>*maximum = numbers.data(), *sum = maximum + rows, *target = sum + rows;
  const auto factor = static_cast<HostOf<T>>(scale);
  if (whole) {
    whole_cross_entropy(logits, sum, target, targets, n, rows, factor);
  } else {
    row_maximum(maximum, logits, rows, n);
    reduce(maximum, rows, RedOp::kMax);
    row_exp(logits, sum, target, maximum, targets, first, n, rows);
    reduce(sum, 2 * rows, RedOp::kSum);
    cross_entropy_grad(logits, maximum, sum, targets, first, n, rows, factor);
  }
  sum_losses<T>(loss, sum, target, rows);
}

// Sum of squares of several pieces.
template <class T>
class SquareSum {
 public:
  void add(const T* x, Index count) { add_squares(total_.data(), x, count); }
  double value() {  // synchronizes with the device
    double sum = 0;
    to_host(&sum, total_.data(), 1);
    return sum;
  }

 private:
  Tensor<Beside<T, double>> total_ = Tensor<Beside<T, double>>::zeros(1, Use::kWorkspace);
};

// Exact sum of squares of several pieces, with the same bits for any partition (exact_sum.h).
template <class T>
class ExactSquares {
 public:
  void see(const T* x, Index count) { see_largest(most_.data(), x, count); }
  void add(const T* x, Index count, int shift) { add_exact_squares(sums_.data(), x, count, shift); }
  double largest() {  // synchronizes with the device
    std::vector<double> parts(most_.count());
    to_host(parts.data(), most_.data(), parts.size());
    return *std::max_element(parts.begin(), parts.end());
  }
  ExactSum sum() {  // synchronizes with the device
    std::vector<std::int64_t> parts(sums_.count());
    to_host(parts.data(), sums_.data(), parts.size());
    const auto half = parts.begin() + kExactParts<T>;
    return {std::accumulate(parts.begin(), half, std::int64_t{0}),
            std::accumulate(half, parts.end(), std::int64_t{0})};
  }

 private:
  template <class V>
  using Parts = Tensor<Beside<T, V>>;
  Parts<double> most_ = Parts<double>::zeros(kExactParts<T>, Use::kWorkspace);
  Parts<std::int64_t> sums_ = Parts<std::int64_t>::zeros(2 * kExactParts<T>, Use::kWorkspace);
};

}  // namespace weft::train
