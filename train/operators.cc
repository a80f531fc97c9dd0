#include "train/operators.h"

#include <cblas.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "train/tensor.h"

// Loops are compiled twice, for processors with wide vectors and for all others; the loader picks.
// No product and sum are fused, but sums have other lanes: bits may differ between processors.
// Sanitizers do not stand the picking.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WEFT_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WEFT_WIDE
#endif

namespace weft::train {
namespace {

// Sums in lanes (simd) are the same for the same count, wherever the numbers lie.

double exponential(double x) { return std::exp(x); }
// Cephes' polynomial on [-ln 2 / 2, ln 2 / 2], which compilers vectorise; 2 units in the last place.
inline float exponential(float x) {
  x = x < -87.3f ? -87.3f : x > 88.3f ? 88.3f : x;
  const float n = static_cast<float>(static_cast<int>(x * 1.44269504f + (x < 0 ? -0.5f : 0.5f)));
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

}  // namespace

void set_operator_threads(int threads) { openblas_set_num_threads(threads); }

template <class T>
void gemm(bool transpose_a, bool transpose_b, Index m, Index n, Index k, T alpha, const T* a,
          Index a_stride, const T* b, Index b_stride, T beta, T* c, Index c_stride) {
  if (m == 0 || n == 0) return;
  const auto ta = transpose_a ? CblasTrans : CblasNoTrans;
  const auto tb = transpose_b ? CblasTrans : CblasNoTrans;
  const auto i = [](Index x) { return static_cast<blasint>(x); };
  if constexpr (sizeof(T) == 4)
    cblas_sgemm(CblasRowMajor, ta, tb, i(m), i(n), i(k), alpha, a, i(a_stride), b, i(b_stride),
                beta, c, i(c_stride));
  else
    cblas_dgemm(CblasRowMajor, ta, tb, i(m), i(n), i(k), alpha, a, i(a_stride), b, i(b_stride),
                beta, c, i(c_stride));
}

template <class T>
void linear(T* y, const T* x, const T* w, const T* bias, Index rows, Index in, Index out) {
  for (Index r = 0; bias != nullptr && r < rows; ++r)
    std::memcpy(y + r * out, bias, out * sizeof(T));
  gemm<T>(false, true, rows, out, in, 1, x, in, w, in, bias != nullptr ? T(1) : T(0), y, out);
}

template <class T>
void linear_grad_input(T* grad_x, const T* grad_y, const T* w, Index rows, Index in, Index out) {
  gemm<T>(false, false, rows, in, out, 1, grad_y, out, w, in, 0, grad_x, in);
}

template <class T>
void linear_grad_weight(T* grad_w, T* grad_bias, const T* grad_y, const T* x, Index rows, Index in,
                        Index out) {
  gemm<T>(true, false, out, in, rows, 1, grad_y, out, x, in, 1, grad_w, in);
  for (Index r = 0; grad_bias != nullptr && r < rows; ++r) add(grad_bias, grad_y + r * out, out);
}

template <class T>
WEFT_WIDE void layer_norm(T* y, T* mean, T* rstd, const T* x, const T* gain, const T* bias, Index rows,
                Index width) {
  const T n = static_cast<T>(width);
  for (Index r = 0; r < rows; ++r, x += width, y += width) {
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
WEFT_WIDE void layer_norm_grad(T* grad_x, T* grad_gain, T* grad_bias, const T* grad_y, const T* x,
                     const T* mean, const T* rstd, const T* gain, Index rows, Index width) {
  const T n = static_cast<T>(width);
  for (Index r = 0; r < rows; ++r, x += width, grad_x += width, grad_y += width) {
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
    for (Index i = 0; i < width; ++i) {
      const T hat = (x[i] - mu) * s;
      grad_x[i] += (grad_y[i] * gain[i] - sum - hat * projection) * s;
      grad_gain[i] += grad_y[i] * hat;
      grad_bias[i] += grad_y[i];
    }
  }
}

template <class T>
WEFT_WIDE void attention(T* out, T* probabilities, const T* qkv, const AttentionShape& s) {
  const Index n = s.positions, d = s.head_width, stride = 3 * s.width();
  const T factor = 1 / std::sqrt(static_cast<T>(d));
  for (Index b = 0; b < s.batch; ++b)
    for (Index h = 0; h < s.heads; ++h) {
      const T* q = qkv + b * n * stride + h * d;
      const T *k = q + s.width(), *v = k + s.width();
      T* p = probabilities + (b * s.heads + h) * n * n;
      gemm<T>(false, true, n, n, d, factor, q, stride, k, stride, 0, p, n);
      for (Index i = 0; i < n; ++i) {
        T* row = p + i * n;
        const T sum = exp_and_sum(row, maximum_of(row, i + 1), i + 1);
        scale(row, 1 / sum, i + 1);
        std::memset(row + i + 1, 0, (n - i - 1) * sizeof(T));
      }
      gemm<T>(false, false, n, d, n, 1, p, n, v, stride, 0, out + b * n * s.width() + h * d,
              s.width());
    }
}

template <class T>
WEFT_WIDE void attention_grad(T* grad_qkv, const T* grad_out, const T* probabilities, const T* qkv,
                    const AttentionShape& s) {
  const Index n = s.positions, d = s.head_width, w = s.width(), stride = 3 * w;
  const T factor = 1 / std::sqrt(static_cast<T>(d));
  Tensor<T> grad_p(n * n, Use::kWorkspace);
  T* g = grad_p.data();
  for (Index b = 0; b < s.batch; ++b)
    for (Index h = 0; h < s.heads; ++h) {
      const Index at = b * n * stride + h * d;
      const T *q = qkv + at, *k = q + w, *v = k + w;
      const T* p = probabilities + (b * s.heads + h) * n * n;
      const T* go = grad_out + b * n * w + h * d;
      gemm<T>(true, false, n, d, n, 1, p, n, go, w, 0, grad_qkv + at + 2 * w, stride);
      gemm<T>(false, true, n, n, d, 1, go, w, v, stride, 0, g, n);
      for (Index i = 0; i < n; ++i) {
        T* row = g + i * n;
        const T* pi = p + i * n;
        const T inner = sum_of_products(row, pi, i + 1);
#pragma omp simd
        for (Index j = 0; j <= i; ++j) row[j] = pi[j] * (row[j] - inner) * factor;
        std::memset(row + i + 1, 0, (n - i - 1) * sizeof(T));
      }
      gemm<T>(false, false, n, d, n, 1, g, n, k, stride, 0, grad_qkv + at, stride);
      gemm<T>(true, false, n, d, n, 1, g, n, q, stride, 0, grad_qkv + at + w, stride);
    }
}

template <class T>
WEFT_WIDE void gelu(T* y, const T* x, Index count) {
#pragma omp simd
  for (Index i = 0; i < count; ++i) {
    const T v = x[i], u = T(kGeluScale) * (v + T(kGeluCube) * v * v * v);
    y[i] = T(0.5) * v * (1 + hyperbolic_tangent(u));
  }
}

template <class T>
WEFT_WIDE void gelu_grad(T* grad_x, const T* grad_y, const T* x, Index count) {
#pragma omp simd
  for (Index i = 0; i < count; ++i) {
    const T v = x[i], u = T(kGeluScale) * (v + T(kGeluCube) * v * v * v);
    const T t = hyperbolic_tangent(u);
    const T du = T(kGeluScale) * (1 + 3 * T(kGeluCube) * v * v);
    grad_x[i] = grad_y[i] * (T(0.5) * (1 + t) + T(0.5) * v * (1 - t * t) * du);
  }
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
    if (i < n) add(grad_table + i * width, grad_out + r * width, width);
  }
}

template <class T>
WEFT_WIDE void row_maximum(T* maximum, const T* logits, Index rows, Index n) {
  for (Index r = 0; r < rows; ++r) maximum[r] = maximum_of(logits + r * n, n);
}

template <class T>
WEFT_WIDE void row_exp(T* logits, T* sum, T* target, const T* maximum, const Token* targets, Index first,
             Index n, Index rows) {
  for (Index r = 0; r < rows; ++r) {
    T* row = logits + r * n;
    const Index i = static_cast<Index>(targets[r]) - first;
    target[r] = i < n ? row[i] - maximum[r] : 0;
    sum[r] = exp_and_sum(row, maximum[r], n);
  }
}

template <class T>
WEFT_WIDE void cross_entropy_grad(T* logits, const T* sum, const Token* targets, Index first, Index n,
                        Index rows, T factor) {
  for (Index r = 0; r < rows; ++r) {
    T* row = logits + r * n;
    scale(row, factor / sum[r], n);
    const Index i = static_cast<Index>(targets[r]) - first;
    if (i < n) row[i] -= factor;
  }
}

template <class T>
WEFT_WIDE void add(T* to, const T* from, Index count) {
#pragma omp simd
  for (Index i = 0; i < count; ++i) to[i] += from[i];
}

template <class T>
WEFT_WIDE void scale(T* x, T factor, Index count) {
#pragma omp simd
  for (Index i = 0; i < count; ++i) x[i] *= factor;
}

template <class T>
WEFT_WIDE double sum_of_squares(const T* x, Index count) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

template <class T>
WEFT_WIDE void adamw(T* w, T* m, T* v, const T* gradient, Index count, const AdamW& how, T gradient_scale) {
  const T b1 = static_cast<T>(how.beta1), b2 = static_cast<T>(how.beta2);
  const T step = static_cast<T>(how.rate / (1 - std::pow(how.beta1, how.step)));
  const T second = static_cast<T>(1 / std::sqrt(1 - std::pow(how.beta2, how.step)));
  const T epsilon = static_cast<T>(how.epsilon), keep = static_cast<T>(1 - how.rate * how.decay);
#pragma omp simd
  for (Index i = 0; i < count; ++i) {
    const T g = gradient[i] * gradient_scale;
    m[i] = b1 * m[i] + (1 - b1) * g;
    v[i] = b2 * v[i] + (1 - b2) * g * g;
    w[i] = w[i] * keep - step * m[i] / (std::sqrt(v[i]) * second + epsilon);
  }
}

template <class T>
WEFT_WIDE void sgd(T* w, T* moment, const T* gradient, Index count, double rate, double momentum,
         double decay, T gradient_scale) {
  const T r = static_cast<T>(rate), mu = static_cast<T>(momentum), d = static_cast<T>(decay);
  if (momentum == 0) {
#pragma omp simd
    for (Index i = 0; i < count; ++i) w[i] -= r * (gradient[i] * gradient_scale + d * w[i]);
    return;
  }
#pragma omp simd
  for (Index i = 0; i < count; ++i) {
    moment[i] = mu * moment[i] + gradient[i] * gradient_scale + d * w[i];
    w[i] -= r * moment[i];
  }
}

#define WEFT_OPERATORS(T)                                                                          \
  template void gemm(bool, bool, Index, Index, Index, T, const T*, Index, const T*, Index, T, T*,  \
                     Index);                                                                       \
  template void linear(T*, const T*, const T*, const T*, Index, Index, Index);                     \
  template void linear_grad_input(T*, const T*, const T*, Index, Index, Index);                    \
  template void linear_grad_weight(T*, T*, const T*, const T*, Index, Index, Index);               \
  template void layer_norm(T*, T*, T*, const T*, const T*, const T*, Index, Index);                \
  template void layer_norm_grad(T*, T*, T*, const T*, const T*, const T*, const T*, const T*,      \
                                Index, Index);                                                     \
  template void attention(T*, T*, const T*, const AttentionShape&);                                \
  template void attention_grad(T*, const T*, const T*, const T*, const AttentionShape&);           \
  template void gelu(T*, const T*, Index);                                                         \
  template void gelu_grad(T*, const T*, const T*, Index);                                          \
  template void embed(T*, const T*, const Token*, Index, Index, Index, Index);                     \
  template void embed_grad(T*, const T*, const Token*, Index, Index, Index, Index);                \
  template void row_maximum(T*, const T*, Index, Index);                                           \
  template void row_exp(T*, T*, T*, const T*, const Token*, Index, Index, Index);                  \
  template void cross_entropy_grad(T*, const T*, const Token*, Index, Index, Index, T);            \
  template void add(T*, const T*, Index);                                                          \
  template void scale(T*, T, Index);                                                               \
  template double sum_of_squares(const T*, Index);                                                 \
  template void adamw(T*, T*, T*, const T*, Index, const AdamW&, T);                               \
  template void sgd(T*, T*, const T*, Index, double, double, double, T);
WEFT_OPERATORS(float)
WEFT_OPERATORS(double)

}  // namespace weft::train
