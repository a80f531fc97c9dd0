// Operators on the CPU besides matrix products and optimizers. This file knows shapes, no ranks.
#include "train/operators/operators.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "train/operators/instances.h"
#include "train/operators/tensor.h"
#include "train/operators/wide_loops.h"

namespace weft::train {
namespace {

// Sums in lanes (simd) are the same for the same count, wherever the numbers lie.

double exponential(double x) { return std::exp(x); }
// Cephes' polynomial on [-ln 2 / 2, ln 2 / 2], which compilers vectorise; 2 units in the last
// place. NaN stays NaN, but has no power of two: no integer is NaN.
inline float exponential(float x) {
  x = x < -87.3f ? -87.3f : x > 88.3f ? 88.3f : x;
  const float power = x * 1.44269504f + (x < 0 ? -0.5f : 0.5f);
  const float n = static_cast<float>(static_cast<int>(power == power ? power : 0));
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1;
  return p * std::bit_cast<float>((static_cast<std::int32_t>(n) + 127) << 23);
}
template <class T>
inline T hyperbolic_tangent(T x) {
  return 1 - 2 / (exponential(2 * x) + 1);
}

template <class T>
T sum_of_products(const T* a, const T* b, Index n) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

template <class T>
T maximum_of(const T* x, Index n) {
  T most = x[0];
#pragma omp simd reduction(max : most)
  for (Index i = 0; i < n; ++i) most = x[i] > most ? x[i] : most;
  return most;
}

template <class T>
T exp_and_sum(T* x, T shift, Index n) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index i = 0; i < n; ++i) {
    const T e = exponential(x[i] - shift);
    x[i] = e;
    sum += e;
  }
  return sum;
}

constexpr double kGeluScale = 0.7978845608028654;  // sqrt(2 / pi)
constexpr double kGeluCube = 0.044715;

constexpr Index kRowElements = 16384;  // of a piece of rows: some 10 us
constexpr Index kElements = 32768;     // of a piece of elements

// Columns: with all their rows; a cache line at least.
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
// Columns [begin, end), over all rows.
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
WEFT_WIDE void softmax_rows(T* p, Index n) {  // causal
  for (Index i = 0; i < n; ++i) {
    T* row = p + i * n;
    const T factor = 1 / exp_and_sum(row, maximum_of(row, i + 1), i + 1);
#pragma omp simd
    for (Index j = 0; j <= i; ++j) row[j] *= factor;
    std::memset(row + i + 1, 0, (n - i - 1) * sizeof(T));
  }
}
template <class T>
WEFT_WIDE void softmax_rows_grad(T* g, const T* p, Index n, T factor) {
  for (Index i = 0; i < n; ++i) {
    T* row = g + i * n;
    const T* pi = p + i * n;
    const T inner = sum_of_products(row, pi, i + 1);
#pragma omp simd
    for (Index j = 0; j <= i; ++j) row[j] = pi[j] * (row[j] - inner) * factor;
    std::memset(row + i + 1, 0, (n - i - 1) * sizeof(T));
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
void layer_norm(T* y, T* mean, T* rstd, const T* x, const T* gain, const T* bias, Index rows,
                Index width) {
  in_ranges(rows, rows_of_piece(width), [=](Index begin, Index end) {
    norm_rows(y, mean, rstd, x, gain, bias, begin, end, width);
  });
}

template <class T>
void layer_norm_grad(T* grad_x, T* grad_gain, T* grad_bias, const T* grad_y, const T* x,
                     const T* mean, const T* rstd, const T* gain, Index rows, Index width) {
  in_ranges(rows, rows_of_piece(width), [=](Index begin, Index end) {
    norm_rows_grad(grad_x, grad_y, x, mean, rstd, gain, begin, end, width);
  });
  in_ranges(width, columns_of_piece(width), [=](Index begin, Index end) {
    norm_columns_grad(grad_gain, grad_bias, grad_y, x, mean, rstd, rows, width, begin, end);
  });
}

template <class T>
void attention(T* out, T* probabilities, const T* qkv, const AttentionShape& s) {
  const Index n = s.positions, d = s.head_width, stride = 3 * s.width();
  const T factor = 1 / std::sqrt(static_cast<T>(d));
  in_pieces(s.batch * s.heads, [&](Index piece, Index) {
    const Index b = piece / s.heads, h = piece % s.heads;
    const T* q = qkv + b * n * stride + h * d;
    const T *k = q + s.width(), *v = k + s.width();
    T* p = probabilities + piece * n * n;
    gemm<T>(false, true, n, n, d, factor, q, stride, k, stride, 0, p, n);
    softmax_rows(p, n);
    gemm<T>(false, false, n, d, n, 1, p, n, v, stride, 0, out + b * n * s.width() + h * d,
            s.width());
  });
}

template <class T>
void attention_grad(T* grad_qkv, const T* grad_out, const T* probabilities, const T* qkv,
                    const AttentionShape& s) {
  const Index n = s.positions, d = s.head_width, w = s.width(), stride = 3 * w;
  const T factor = 1 / std::sqrt(static_cast<T>(d));
  const auto workers = static_cast<Index>(operator_threads());
  Tensor<T> grad_p(workers * n * n, Use::kWorkspace);
  in_pieces(s.batch * s.heads, [&](Index piece, Index worker) {
    const Index b = piece / s.heads, h = piece % s.heads, at = b * n * stride + h * d;
    const T *q = qkv + at, *k = q + w, *v = k + w;
    const T* p = probabilities + piece * n * n;
    const T* go = grad_out + b * n * w + h * d;
    T* g = grad_p.data() + worker * n * n;
    gemm<T>(true, false, n, d, n, 1, p, n, go, w, 0, grad_qkv + at + 2 * w, stride);
    gemm<T>(false, true, n, n, d, 1, go, w, v, stride, 0, g, n);
    softmax_rows_grad(g, p, n, factor);
    gemm<T>(false, false, n, d, n, 1, g, n, k, stride, 0, grad_qkv + at, stride);
    gemm<T>(true, false, n, d, n, 1, g, n, q, stride, 0, grad_qkv + at + w, stride);
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
void embed(T* out, const T* table, const Token* tokens, Index first, Index n, Index rows,
           Index width) {
  for (Index r = 0; r < rows; ++r) {
    const Index i = static_cast<Index>(tokens[r]) - first;  // wraps around below first
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
void row_maximum(T* maximum, const T* logits, Index rows, Index n) {
  in_ranges(rows, rows_of_piece(n), [=](Index begin, Index end) {
    for (Index r = begin; r < end; ++r) maximum[r] = maximum_of(logits + r * n, n);
  });
}

template <class T>
void row_exp(T* logits, T* sum, T* target, const T* maximum, const Token* targets, Index first,
             Index n, Index rows) {
  in_ranges(rows, rows_of_piece(n), [=](Index begin, Index end) {
    exp_rows(logits, sum, target, maximum, targets, first, n, begin, end);
  });
}

template <class T>
void cross_entropy_grad(T* logits, const T* sum, const Token* targets, Index first, Index n,
                        Index rows, T factor) {
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
void add(T* to, const T* from, Index count) {
  in_ranges(count, kElements,
            [=](Index begin, Index end) { add_part(to + begin, from + begin, end - begin); });
}

template <class T>
void add_rows(T* to, const T* from, Index rows, Index width) {
  in_ranges(width, columns_of_piece(width), [=](Index begin, Index end) {
    for (Index r = 0; r < rows; ++r) add_part(to + begin, from + r * width + begin, end - begin);
  });
}

template <class T>
void scale(T* x, T factor, Index count) {
  in_ranges(count, kElements,
            [=](Index begin, Index end) { scale_part(x + begin, factor, end - begin); });
}

// Sums each piece, then adds the pieces in their order.
template <class T>
double sum_of_squares(const T* x, Index count) {
  std::vector<double> sums((count + kElements - 1) / kElements);
  in_pieces(sums.size(), [&](Index i, Index) {
    sums[i] = squares_of(x + i * kElements, std::min(kElements, count - i * kElements));
  });
  double sum = 0;
  for (const double s : sums) sum += s;
  return sum;
}

WEFT_OPERATORS(float)
WEFT_OPERATORS(double)
#define WEFT_ROWS(T)                                                                    \
  template void row_maximum(T*, const T*, Index, Index);                                \
  template void row_exp(T*, T*, T*, const T*, const Token*, Index, Index, Index);       \
  template void cross_entropy_grad(T*, const T*, const Token*, Index, Index, Index, T); \
  template void add_rows(T*, const T*, Index, Index);                                   \
  template double sum_of_squares(const T*, Index);
WEFT_ROWS(float)
WEFT_ROWS(double)

}  // namespace weft::train
