// AdamW and SGD on the CPU, element by element. This file does not know which rank has which part.
#include <cmath>

#include "train/operators/operators.h"
#include "train/operators/wide_loops.h"

namespace weft::train {
namespace {

constexpr Index kUpdatePiece = 16384;  // elements: some 10 us

template <class T>
WEFT_WIDE void adamw_part(T* w, T* m, T* v, const T* gradient, Index count, T b1, T b2, T step,
                          T second, T epsilon, T keep, T gradient_scale) {
#pragma omp simd
  for (Index i = 0; i < count; ++i) {
    const T g = gradient[i] * gradient_scale;
    m[i] = b1 * m[i] + (1 - b1) * g;
    v[i] = b2 * v[i] + (1 - b2) * g * g;
    w[i] = w[i] * keep - step * m[i] / (std::sqrt(v[i]) * second + epsilon);
  }
}

template <class T>
WEFT_WIDE void sgd_part(T* w, const T* gradient, Index count, T rate, T decay, T gradient_scale) {
#pragma omp simd
  for (Index i = 0; i < count; ++i) w[i] -= rate * (gradient[i] * gradient_scale + decay * w[i]);
}
template <class T>
WEFT_WIDE void momentum_part(T* w, T* moment, const T* gradient, Index count, T rate, T momentum,
                             T decay, T gradient_scale) {
#pragma omp simd
  for (Index i = 0; i < count; ++i) {
    moment[i] = momentum * moment[i] + gradient[i] * gradient_scale + decay * w[i];
    w[i] -= rate * moment[i];
  }
}

}  // namespace

template <class T>
void adamw(T* w, T* m, T* v, const T* gradient, Index count, const AdamW& how, T gradient_scale) {
  const T step = static_cast<T>(how.rate / (1 - std::pow(how.beta1, how.step)));
  const T second = static_cast<T>(1 / std::sqrt(1 - std::pow(how.beta2, how.step)));
  in_ranges(count, kUpdatePiece, [&](Index begin, Index end) {
    adamw_part(w + begin, m + begin, v + begin, gradient + begin, end - begin,
               static_cast<T>(how.beta1), static_cast<T>(how.beta2), step, second,
               static_cast<T>(how.epsilon), static_cast<T>(1 - how.rate * how.decay),
               gradient_scale);
  });
}

template <class T>
void sgd(T* w, T* moment, const T* gradient, Index count, double rate, double momentum,
         double decay, T gradient_scale) {
  const T r = static_cast<T>(rate), mu = static_cast<T>(momentum), d = static_cast<T>(decay);
  in_ranges(count, kUpdatePiece, [=](Index begin, Index end) {
    if (momentum == 0)
      sgd_part(w + begin, gradient + begin, end - begin, r, d, gradient_scale);
    else
      momentum_part(w + begin, moment + begin, gradient + begin, end - begin, r, mu, d,
                    gradient_scale);
  });
}

#define WEFT_OPTIMIZER(T)                                            \
  template void adamw(T*, T*, T*, const T*, Index, const AdamW&, T); \
  template void sgd(T*, T*, const T*, Index, double, double, double, T);
WEFT_OPTIMIZER(float)
WEFT_OPTIMIZER(double)

}  // namespace weft::train
