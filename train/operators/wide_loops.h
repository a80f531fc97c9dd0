// WEFT_WIDE compiles a function twice, for AVX2 and for other CPUs; the loader selects one (ifunc).
// Neither version uses FMA, but sums have different numbers of lanes, so bits may differ between
// CPUs. Sanitizers do not support ifuncs.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WEFT_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define WEFT_WIDE
#endif

namespace weft::train {

// SIMD sums depend only on the count, not on the alignment of the data.

inline double exponential(double x) { return std::exp(x); }
// Cephes' polynomial on [-ln 2 / 2, ln 2 / 2], which compilers vectorize; 2 ulp. NaN propagates
// through r; the power of two uses `at`, as NaN has no integer. GCC recognizes `at` as a vector
// maximum, but does not vectorize a loop that compares a number with itself.
[[gnu::always_inline]] inline float exponential(float x) {
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
[[gnu::always_inline]] inline T maximum_of(const T* x, std::size_t n) {
  T most = x[0];
#pragma omp simd reduction(max : most)
  for (std::size_t i = 0; i < n; ++i) most = x[i] > most ? x[i] : most;
  return most;
}

template <class T>
[[gnu::always_inline]] inline T exp_and_sum(T* x, T shift, std::size_t n) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::size_t i = 0; i < n; ++i) {
    const T e = exponential(x[i] - shift);
    x[i] = e;
    sum += e;
  }
  return sum;
}

}  // namespace weft::train
