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

template <class T>
void update_weights(T* w, Wide<T>*, Wide<T>* moment1, Wide<T>* moment2, const T* gradient,
                    Index count, const Update& u) {
  const T scale = static_cast<T>(u.gradient_scale);
  if (u.adam)
    adamw(w, moment1, moment2, gradient, count, u.how, scale);
  else
    sgd(w, moment1, gradient, count, u.how.rate, u.momentum, u.how.decay, scale);
}

template void adamw(float*, float*, float*, const float*, Index, const AdamW&, float);
template void adamw(double*, double*, double*, const double*, Index, const AdamW&, double);
template void sgd(float*, float*, const float*, Index, double, double, double, float);
template void sgd(double*, double*, const double*, Index, double, double, double, double);
WEFT_OPTIMIZER(template, float)
WEFT_OPTIMIZER(template, double)

}  // namespace weft::train
