// Operators on the CPU except matrix products, attention and optimizers. Depends on shapes, not on
// ranks.
#include "train/operators/operators.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "train/operators/tensor.h"
#include "train/operators/wide_loops.h"

namespace weft::train {
namespace {

template <class T>
inline T hyperbolic_tangent(T x) {
  return 1 - 2 / (exponential(2 * x) + 1);
}

constexpr double kGeluScale = 0.7978845608028654;  // sqrt(2 / pi)
constexpr double kGeluCube = 0.044715;

constexpr Index kRowElements = 16384;  // elements in a piece of rows: about 10 us
constexpr Index kElements = 32768;     // elements in an elementwise piece

// Columns of a piece, with all their rows; at least a cache line.
Index columns_of_piece(Index width) { return std::max<Index>(64, (width + 7) / 8); }
Index rows_of_piece(Index width) { return 1 + (kRowElements - 1) / std::max<Index>(width, 1); }

template <class T>
WEFT_WIDE void norm_rows(T* y, T* mean, T* rstd, const T* x, const T* gain, const T* bias,
                         Index begin, Index end, Index width) {
  const T n = static_cast<T>(width);
  x += begin * width, y += begin * width;
  for (Index r = begin; r < end; ++r, x += width, y += width) {
    T sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
    for (Index i = 0; i < width; ++i) sum += x[i];
    const T mu = sum / n;
#pragma omp simd reduction(+ : squares)
    for (Index i = 0; i < width; ++i) squares += (x[i] - mu) * (x[i] - mu);
    const T s = 1 / std::sqrt(squares / n + T(1e-5));
#pragma omp simd
    for (Index i = 0; i < width; ++i) y[i] = (x[i] - mu) * s * gain[i] + bias[i];
    mean[r] = mu;
    rstd[r] = s;
  }
}

template <class T>
WEFT_WIDE void norm_rows_grad(T* grad_x, const T* grad_y, const T* x, const T* mean, const T* rstd,
                              const T* gain, Index begin, Index end, Index width) {
  const T n = static_cast<T>(width);
  x += begin * width, grad_x += begin * width, grad_y += begin * width;
  for (Index r = begin; r < end; ++r, x += width, grad_x += width, grad_y += width) {
    const T mu = mean[r], s = rstd[r];
    T sum = 0, projection = 0;
#pragma omp simd reduction(+ : sum, projection)
    for (Index i = 0; i < width; ++i) {
      const T hat = (x[i] - mu) * s, g = grad_y[i] * gain[i];
      sum += g;
      projection += g * hat;
    }
    sum /= n;
    projection /= n;
#pragma omp simd
    for (Index i = 0; i < width; ++i)
      grad_x[i] += (grad_y[i] * gain[i] - sum - (x[i] - mu) * s * projection) * s;
  }
}
// Computes columns [begin, end), over all rows.
template <class T>
WEFT_WIDE void norm_columns_grad(T* grad_gain, T* grad_bias, const T* grad_y, const T* x,
                                 const T* mean, const T* rstd, Index rows, Index width, Index begin,
                                 Index end) {
  for (Index r = 0; r < rows; ++r, x += width, grad_y += width) {
    const T mu = mean[r], s = rstd[r];
#pragma omp simd
    for (Index i = begin; i < end; ++i) {
      grad_gain[i] += grad_y[i] * ((x[i] - mu) * s);
      grad_bias[i] += grad_y[i];
    }
  }
}

template <class T>
WEFT_WIDE void gelu_part(T* y, const T* x, Index count) {
#pragma omp simd
  for (Index i = 0; i < count; ++i) {
    const T v = x[i], u = T(kGeluScale) * (v + T(kGeluCube) * v * v * v);
    y[i] = T(0.5) * v * (1 + hyperbolic_tangent(u));
  }
}
template <class T>
WEFT_WIDE void gelu_grad_part(T* grad_x, const T* grad_y, const T* x, Index count) {
#pragma omp simd
  for (Index i = 0; i < count; ++i) {
    const T v = x[i], u = T(kGeluScale) * (v + T(kGeluCube) * v * v * v);
    const T t = hyperbolic_tangent(u);
    const T du = T(kGeluScale) * (1 + 3 * T(kGeluCube) * v * v);
    grad_x[i] = grad_y[i] * (T(0.5) * (1 + t) + T(0.5) * v * (1 - t * t) * du);
  }
}

template <class T>
WEFT_WIDE void exp_rows(T* logits, T* sum, T* target, const T* maximum, const Token* targets,
                        Index first, Index n, Index begin, Index end) {
  for (Index r = begin; r < end; ++r) {
    T* row = logits + r * n;
    const Index i = static_cast<Index>(targets[r]) - first;
    target[r] = i < n ? row[i] - maximum[r] : 0;
    sum[r] = exp_and_sum(row, maximum[r], n);
  }
}

template <class T>
WEFT_WIDE void add_part(T* to, const T* from, Index count) {
#pragma omp simd
  for (Index i = 0; i < count; ++i) to[i] += from[i];
}
template <class T>
WEFT_WIDE void scale_part(T* x, T factor, Index count) {
#pragma omp simd
  for (Index i = 0; i < count; ++i) x[i] *= factor;
}
template <class T>
WEFT_WIDE double squares_of(const T* x, Index count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

}  // namespace

template <class T>
void layer_norm(T* y, Wide<T>* mean, Wide<T>* rstd, const T* x, const T* gain, const T* bias,
                Index rows, Index width) {
  in_ranges(rows, rows_of_piece(width), [=](Index begin, Index end) {
    norm_rows(y, mean, rstd, x, gain, bias, begin, end, width);
  });
}

template <class T>
void layer_norm_grad(T* grad_x, T* grad_gain, T* grad_bias, const T* grad_y, const T* x,
                     const Wide<T>* mean, const Wide<T>* rstd, const T* gain, Index rows,
                     Index width) {
  in_ranges(rows, rows_of_piece(width), [=](Index begin, Index end) {
    norm_rows_grad(grad_x, grad_y, x, mean, rstd, gain, begin, end, width);
  });
  in_ranges(width, columns_of_piece(width), [=](Index begin, Index end) {
    norm_columns_grad(grad_gain, grad_bias, grad_y, x, mean, rstd, rows, width, begin, end);
  });
}

template <class T>
void gelu(T* y, const T* x, Index count) {
  in_ranges(count, kElements,
            [=](Index begin, Index end) { gelu_part(y + begin, x + begin, end - begin); });
}

template <class T>
void gelu_grad(T* grad_x, const T* grad_y, const T* x, Index count) {
  in_ranges(count, kElements, [=](Index begin, Index end) {
    gelu_grad_part(grad_x + begin, grad_y + begin, x + begin, end - begin);
  });
}

template <class T>
void embed(T* out, const T* table, Tokens tokens, Index first, Index n, Index rows, Index width) {
  for (Index r = 0; r < rows; ++r) {
    const Index i = static_cast<Index>(tokens[r]) - first;  // wraps around if less than `first`
    if (i < n)
      std::memcpy(out + r * width, table + i * width, width * sizeof(T));
    else
      std::memset(out + r * width, 0, width * sizeof(T));
  }
}

template <class T>
void embed_grad(T* grad_table, const T* grad_out, const Token* tokens, Index first, Index n,
                Index rows, Index width) {
  for (Index r = 0; r < rows; ++r) {
    const Index i = static_cast<Index>(tokens[r]) - first;
    if (i < n) add_part(grad_table + i * width, grad_out + r * width, width);
  }
}

template <class T>
void add_positions(T* x, const T* table, Index first, Index positions, Index rows, Index width) {
  for (Index r = 0; r < rows; ++r)
    add(x + r * width, table + (first + r) % positions * width, width);
}
template <class T>
void add_positions_grad(T* grad_table, const T* grad, Index first, Index positions, Index rows,
                        Index width) {
  for (Index r = 0; r < rows; ++r)
    add(grad_table + (first + r) % positions * width, grad + r * width, width);
}

template <class T>
void add(T* to, const T* from, Index count) {
  in_ranges(count, kElements,
            [=](Index begin, Index end) { add_part(to + begin, from + begin, end - begin); });
}
template <class T>
void scale(T* x, HostOf<T> factor, Index count) {
  in_ranges(count, kElements,
            [=](Index begin, Index end) { scale_part(x + begin, factor, end - begin); });
}
template <class T>
void add_residual(T* out, const T* x, const T* y, const T* bias, Index rows, Index width) {
  in_ranges(rows, rows_of_piece(width), [=](Index begin, Index end) {
    for (Index i = begin * width; i < end * width; i += width)
      for (Index k = 0; k < width; ++k) out[i + k] = x[i + k] + y[i + k] + bias[k];
  });
}
template <class T>
void add_columns(T* to, const T* x, Index rows, Index width) {
  in_ranges(width, columns_of_piece(width), [=](Index begin, Index end) {
    for (Index r = 0; r < rows; ++r) add_part(to + begin, x + r * width + begin, end - begin);
  });
}
template <class T>
void copy_columns(T* to, Index to_stride, const T* from, Index from_stride, Index rows,
                  Index columns) {
  for (Index r = 0; r < rows; ++r) copy(to + r * to_stride, from + r * from_stride, columns);
}

template <class T>
void row_maximum(Wide<T>* maximum, const T* logits, Index rows, Index n) {
  in_ranges(rows, rows_of_piece(n), [=](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) maximum[r] = maximum_of(logits + r * n, n);
  });
}
template <class T>
void row_exp(T* logits, Wide<T>* sum, Wide<T>* target, const Wide<T>* maximum, Tokens targets,
             Index first, Index n, Index rows) {
  in_ranges(rows, rows_of_piece(n), [=](Index begin, Index end) {
    exp_rows(logits, sum, target, maximum, targets.host, first, n, begin, end);
  });
}
template <class T>
void cross_entropy_grad(T* logits, const Wide<T>*, const Wide<T>* sum, Tokens targets, Index first,
                        Index n, Index rows, HostOf<T> factor) {
  in_ranges(rows, rows_of_piece(n), [=](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) {
      T* row = logits + r * n;
      scale_part(row, factor / sum[r], n);
      const Index i = static_cast<Index>(targets[r]) - first;
      if (i < n) row[i] -= factor;
    }
  });
}
template <class T>
void whole_cross_entropy(T* logits, Wide<T>* sum, Wide<T>* target, Tokens targets, Index n,
                         Index rows, HostOf<T> scale) {
  Tensor<T> maximum(rows, Use::kWorkspace);
  row_maximum(maximum.data(), logits, rows, n);
  row_exp(logits, sum, target, maximum.data(), targets, 0, n, rows);
  cross_entropy_grad(logits, maximum.data(), sum, targets, 0, n, rows, scale);
}
template <class T>
requires(!kOnDevice<T>) void sum_losses(LossSum<T>* loss, const Wide<T>* sum, const Wide<T>* target,
                                        Index rows) {
  *loss = 0;
  for (Index r = 0; r < rows; ++r) *loss += static_cast<double>(std::log(sum[r]) - target[r]);
}

// Sums each piece, then adds the sums in order: the bits do not depend on the threads.
template <class T>
void add_squares(Beside<T, double>* total, const T* x, Index count) {
  std::vector<double> sums((count + kElements - 1) / kElements);
  in_pieces(sums.size(), [&](Index i, Index) {
    sums[i] = squares_of(x + i * kElements, std::min(kElements, count - i * kElements));
  });
  double sum = 0;
  for (const double s : sums) sum += s;
  *total += sum;
}
template <class T>
void see_largest(Beside<T, double>* parts, const T* x, Index count) {
  *parts = std::max(*parts, largest_of(x, count));
}
template <class T>
void add_exact_squares(Beside<T, std::int64_t>* parts, const T* x, Index count, int shift) {
  ExactSum sum;
  sum.add_squares(x, count, shift);
  parts[0] += sum.high;
  parts[1] += sum.low;
}

WEFT_OPERATORS(template, float)
WEFT_SQUARES(template, float)
WEFT_OPERATORS(template, double)
WEFT_SQUARES(template, double)
template void sum_losses<float>(double*, const float*, const float*, Index);
template void sum_losses<double>(double*, const double*, const double*, Index);
template void sum_losses<OnProcessor<Bf16>>(double*, const float*, const float*, Index);
template void sum_losses<OnProcessor<Fp16>>(double*, const float*, const float*, Index);

}  // namespace weft::train
