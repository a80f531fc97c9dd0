// Operators on the CPU besides matrix products and optimizers. Knows shapes, no ranks.
#include "train/operators/operators.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "train/operators/tensor.h"
#include "train/operators/wide_loops.h"

namespace weft::train {
namespace {

// SIMD sums depend only on the count, not on the alignment of the data.

double exponential(double x) { return std::exp(x); }
// Cephes' polynomial on [-ln 2 / 2, ln 2 / 2], which compilers vectorize; 2 ulp. NaN propagates
// through r; the power of two uses `at`, as NaN has no integer. GCC recognizes `at` as a vector
// maximum, but does not vectorize a loop that compares a number with itself.
inline float exponential(float x) {
  x = x < -87.3f ? -87.3f : x > 88.3f ? 88.3f : x;
  const float at = x > -87.3f ? x : -87.3f;
  const float n = static_cast<float>(static_cast<int>(at * 1.44269504f + (at < 0 ? -0.5f : 0.5f)));
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

// Rows [first, first + rows) of one head: converts the scores of `seen` keys to probabilities.
template <class T>
WEFT_WIDE void softmax_rows(T* p, T* log_sum, Index first, Index rows, Index seen) {
  for (Index i = 0; i < rows; ++i, p += seen) {
    const Index keys = first + i + 1;
    const T most = maximum_of(p, keys), sum = exp_and_sum(p, most, keys), factor = 1 / sum;
    log_sum[i] = most + std::log(sum);
#pragma omp simd
    for (Index j = 0; j < keys; ++j) p[j] *= factor;
    std::memset(p + keys, 0, (seen - keys) * sizeof(T));
  }
}
// Converts scores p to probabilities, and gradients g of probabilities to gradients of scores.
template <class T>
WEFT_WIDE void softmax_rows_grad(T* g, T* p, const T* log_sum, const T* grad_out, const T* out,
                                 Index out_stride, Index width, Index first, Index rows, Index seen,
                                 T factor) {
  for (Index i = 0; i < rows; ++i, g += seen, p += seen) {
    const Index keys = first + i + 1;
    const T inner = sum_of_products(grad_out + i * out_stride, out + i * out_stride, width);
    const T log = log_sum[i];
#pragma omp simd
    for (Index j = 0; j < keys; ++j) {
      p[j] = exponential(p[j] - log);
      g[j] = p[j] * (g[j] - inner) * factor;
    }
    std::memset(g + keys, 0, (seen - keys) * sizeof(T));
    std::memset(p + keys, 0, (seen - keys) * sizeof(T));
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

namespace {

// Rows of a head per block of scores, with all keys up to the last row.
constexpr Index kAttentionRows = 128;

// Calls f(first row, rows, keys) for all row blocks of a head, last block first.
template <class F>
void in_row_blocks(Index positions, F f) {
  for (Index end = positions; end > 0;) {
    const Index first = (end - 1) / kAttentionRows * kAttentionRows;
    f(first, end - first, end);
    end = first;
  }
}
template <class T>
Tensor<T> scores_of_workers(Index positions, Index matrices) {
  const auto workers = static_cast<Index>(operator_threads());
  return Tensor<T>(workers * matrices * std::min(kAttentionRows, positions) * positions,
                   Use::kWorkspace);
}

}  // namespace

template <class T>
void attention(T* out, Wide<T>* log_sum, const T* qkv, const AttentionShape& s) {
  const Index n = s.positions, d = s.head_width, w = s.width(), stride = 3 * w;
  const T factor = 1 / std::sqrt(static_cast<T>(d));
  Tensor<T> scores = scores_of_workers<T>(n, 1);
  in_pieces(s.batch * s.heads, [&](Index piece, Index worker) {
    const Index b = piece / s.heads, h = piece % s.heads;
    const T *q = qkv + b * n * stride + h * d, *k = q + w, *v = k + w;
    T *to = out + b * n * w + h * d, *p = scores.data() + worker * std::min(kAttentionRows, n) * n;
    in_row_blocks(n, [&](Index first, Index rows, Index seen) {
      gemm<T>(false, true, rows, seen, d, factor, q + first * stride, stride, k, stride, 0, p,
              seen);
      softmax_rows(p, log_sum + piece * n + first, first, rows, seen);
      gemm<T>(false, false, rows, d, seen, 1, p, seen, v, stride, 0, to + first * w, w);
    });
  });
}

template <class T>
void attention_of_rows(T* out, const T* cache, Index begin, Index rows, const AttentionShape& s) {
  const Index d = s.head_width, width = s.width();
  const T factor = 1 / std::sqrt(static_cast<T>(d));
  in_pieces(s.heads * rows, [=](Index piece, Index) {
    const Index head = piece % s.heads, row = begin + piece / s.heads;
    const T* q = cache + row * 3 * width + head * d;
    std::vector<T> score(row + 1);
    for (Index i = 0; i <= row; ++i) {
      const T* k = cache + (3 * i + 1) * width + head * d;
      T sum = 0;
#pragma omp simd reduction(+ : sum)
      for (Index e = 0; e < d; ++e) sum += q[e] * k[e];
      score[i] = sum * factor;
    }
    const T most = *std::max_element(score.begin(), score.end());
    T sum = 0;
    for (T& x : score) sum += x = std::exp(x - most);
    T* to = out + (row - begin) * width + head * d;
    std::fill_n(to, d, T(0));
    for (Index i = 0; i <= row; ++i) {
      const T share = score[i] / sum;
      const T* v = cache + (3 * i + 2) * width + head * d;
      for (Index e = 0; e < d; ++e) to[e] += share * v[e];
    }
  });
}

template <class T>
void attention_grad(T* grad_qkv, const T* grad_out, const T* out, const Wide<T>* log_sum,
                    const T* qkv, const AttentionShape& s) {
  const Index n = s.positions, d = s.head_width, w = s.width(), stride = 3 * w;
  const T factor = 1 / std::sqrt(static_cast<T>(d));
  Tensor<T> scores = scores_of_workers<T>(n, 2);
  in_pieces(s.batch * s.heads, [&](Index piece, Index worker) {
    const Index b = piece / s.heads, h = piece % s.heads, at = b * n * stride + h * d;
    const Index place = b * n * w + h * d, most = std::min(kAttentionRows, n) * n;
    const T *q = qkv + at, *k = q + w, *v = k + w;
    T *to = grad_qkv + at, *p = scores.data() + 2 * worker * most, *g = p + most;
    in_row_blocks(n, [&](Index first, Index rows, Index seen) {
      const T *go = grad_out + place + first * w, *qi = q + first * stride;
      const T old = seen == n ? T(0) : T(1);  // the first block sees all keys
      gemm<T>(false, true, rows, seen, d, factor, qi, stride, k, stride, 0, p, seen);
      gemm<T>(false, true, rows, seen, d, 1, go, w, v, stride, 0, g, seen);
      softmax_rows_grad(g, p, log_sum + piece * n + first, go, out + place + first * w, w, d, first,
                        rows, seen, factor);
      gemm<T>(false, false, rows, d, seen, 1, g, seen, k, stride, 0, to + first * stride, stride);
      gemm<T>(true, false, seen, d, rows, 1, g, seen, qi, stride, old, to + w, stride);
      gemm<T>(true, false, seen, d, rows, 1, p, seen, go, w, old, to + 2 * w, stride);
    });
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

template void attention_of_rows(float*, const float*, Index, Index, const AttentionShape&);
template void attention_of_rows(double*, const double*, Index, Index, const AttentionShape&);
WEFT_OPERATORS(template, float)
WEFT_ATTENTION(template, float)
WEFT_SQUARES(template, float)
WEFT_OPERATORS(template, double)
WEFT_ATTENTION(template, double)
WEFT_SQUARES(template, double)
template void sum_losses<float>(double*, const float*, const float*, Index);
template void sum_losses<double>(double*, const double*, const double*, Index);
template void sum_losses<OnProcessor<Bf16>>(double*, const float*, const float*, Index);
template void sum_losses<OnProcessor<Fp16>>(double*, const float*, const float*, Index);

}  // namespace weft::train
