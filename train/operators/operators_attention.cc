// Attention on the CPU, in blocks of rows: OpenBLAS multiplies, loops compute the softmax.
#include <cmath>
#include <cstring>
#include <vector>

#include "train/operators/operators.h"
#include "train/operators/tensor.h"
#include "train/operators/wide_loops.h"

namespace weft::train {
namespace {

template <class T>
T sum_of_products(const T* a, const T* b, Index n) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
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

template void attention_of_rows(float*, const float*, Index, Index, const AttentionShape&);
template void attention_of_rows(double*, const double*, Index, Index, const AttentionShape&);
WEFT_ATTENTION(template, float)
WEFT_ATTENTION(template, double)

}  // namespace weft::train
