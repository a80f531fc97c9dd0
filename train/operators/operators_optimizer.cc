// AdamW and SGD on the CPU, element by element. Does not depend on sharding.
#include <cmath>

#include "train/operators/operators.h"
#include "train/operators/wide_loops.h"

namespace weft::train {
namespace {

constexpr Index kUpdatePiece = 16384;  // elements: about 10 us

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
void update_weights(T* w, Wide<T>* moment1, Wide<T>* moment2, const T* gradient, Index count,
                    const Update& u) {
  const auto t = [](double x) { return static_cast<T>(x); };
  const AdamW& how = u.how;
  const T step = t(how.rate / (1 - std::pow(how.beta1, how.step)));
  const T second = t(1 / std::sqrt(1 - std::pow(how.beta2, how.step)));
  in_ranges(count, kUpdatePiece, [&](Index begin, Index end) {
    const Index n = end - begin;
    if (u.adam)
      adamw_part(w + begin, moment1 + begin, moment2 + begin, gradient + begin, n, t(how.beta1),
                 t(how.beta2), step, second, t(how.epsilon), t(1 - how.rate * how.decay),
                 t(u.gradient_scale));
    else if (u.momentum == 0)
      sgd_part(w + begin, gradient + begin, n, t(how.rate), t(how.decay), t(u.gradient_scale));
    else
      momentum_part(w + begin, moment1 + begin, gradient + begin, n, t(how.rate), t(u.momentum),
                    t(how.decay), t(u.gradient_scale));
  });
}

WEFT_OPTIMIZER(template, float)
WEFT_OPTIMIZER(template, double)

}  // namespace weft::train
