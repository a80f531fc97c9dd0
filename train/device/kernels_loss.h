// Kernels of the loss, of sums over all elements, of optimizers. See device/kernels.h.
#pragma once

#include "train/device/kernel.h"
#include "train/device/kernels_rows.h"

namespace weft::train::kernels {

// ---- cross-entropy --------------------------------------------------------------------------

template <class E>
struct RowMaximum {
  WEFT_KERNEL("row_maximum");
  V* maximum;
  const S* logits;
  Index rows, width;
  WEFT_POINTERS(f(maximum), f(logits));
  WEFT_HD Index teams() const { return rows; }
  template <class Team>
  WEFT_HD void team(Team& t, Index r) const {
    const auto most = [&](int lane) {
      V m = V(-1e30), a[kN];
      each_pack<E>(lane, width, [&](Index c, Index n) {
        load<E>(a, logits + r * width + c, n);
        for (int k = 0; k < kN; ++k)
          if (static_cast<Index>(k) < n && a[k] > m) m = a[k];
      });
      return m;
    };
    const V all = joined<V>(t, most, Larger());
    once(t, [&] { maximum[r] = all; });
  }
};

// Computes the sum of exp(logit - maximum) per row, and the target's logit - maximum. Keeps the
// logits: 16-bit exponentials would lose precision, so CrossEntropyGrad recomputes them.
template <class E>
struct RowSum {
  WEFT_KERNEL("row_sum");
  V* sum;
  V* target;
  const S* logits;
  const V* maximum;
  const Token* targets;
  Index first, rows, width;
  WEFT_POINTERS(f(sum), f(target), f(logits), f(maximum), f(targets));
  WEFT_HD Index teams() const { return rows; }
  template <class Team>
  WEFT_HD void team(Team& t, Index r) const {
    const V most = maximum[r];
    const auto part = [&](int lane) {
      V s = 0, a[kN];
      each_pack<E>(lane, width, [&](Index c, Index n) {
        load<E>(a, logits + r * width + c, n);
        for (int k = 0; k < kN; ++k)
          if (static_cast<Index>(k) < n) s += exponential(a[k] - most);
      });
      return s;
    };
    const V all = joined<V>(t, part, Plus());
    const Index at = static_cast<Index>(targets[r]) - first;
    once(t, [&] {
      sum[r] = all;
      target[r] = at < width ? get<E>(logits + r * width + at) - most : V(0);
    });
  }
};

// logits = scale (softmax - one_hot(target)), in place.
template <class E>
struct CrossEntropyGrad {
  WEFT_KERNEL("cross_entropy_grad");
  S* logits;
  const V* maximum;
  const V* sum;
  const Token* targets;
  Index first, rows, width;
  V scale;
  WEFT_POINTERS(f(logits), f(maximum), f(sum), f(targets));
  WEFT_PACKS_OF_ROWS(rows, width)
  WEFT_HD void pack(Index r, Index c, Index n) const {
    const Index at = static_cast<Index>(targets[r]) - first - c;
    V a[kN];
    load<E>(a, logits + r * width + c, n);
    const V factor = scale / sum[r];
    for (int k = 0; k < kN; ++k) {
      a[k] = exponential(a[k] - maximum[r]) * factor;
      if (static_cast<Index>(k) == at) a[k] -= scale;
    }
    store<E>(logits + r * width + c, a, n);
  }
};

// The whole cross-entropy in one kernel, for an unsharded vocabulary: writes sum and target for the
// loss, and replaces the logits by the gradient.
template <class E>
struct FusedCrossEntropy {
  WEFT_KERNEL("cross_entropy");
  S* logits;
  V* sum;
  V* target;
  const Token* targets;
  Index rows, width;
  V scale;
  WEFT_POINTERS(f(logits), f(sum), f(target), f(targets));
  WEFT_HD Index teams() const { return rows; }
  template <class Team>
  WEFT_HD void team(Team& t, Index r) const {
    typename Team::template PerLane<V> most, part;
    S* row = logits + r * width;
    const Online<V> all = online_softmax<E>(t, row, width, most, part);
    const Index at = static_cast<Index>(targets[r]);
    const auto logit_of = [&](int lane) { return lane == 0 ? get<E>(row + at) : V(0); };
    const V logit = joined<V>(t, logit_of, Plus());  // read before any lane writes
    t.each([&](int lane) {
      if (lane == 0) sum[r] = all.sum, target[r] = logit - all.most;
      const V factor = scale / all.sum;
      V a[kN];
      each_pack<E>(lane, width, [&](Index c, Index n) {
        load<E>(a, row + c, n);
        for (int k = 0; k < kN; ++k) {
          a[k] = exponential(a[k] - all.most) * factor;
          if (c + static_cast<Index>(k) == at) a[k] -= scale;
        }
        store<E>(row + c, a, n);
      });
    });
  }
};

// ---- sums over all elements ----------------------------------------------------------------

// Sums squares in double, in two steps: kParts teams, then one team (AddParts).
inline constexpr Index kParts = 1024;

// Calls f(number) for this lane's elements of `count`: packs are dealt round-robin to all lanes.
template <class E, class F>
WEFT_HD void each_of_part(Index part, int lane, const typename E::Stored* x, Index count, F f) {
  constexpr Index kN = static_cast<Index>(kPack<E>);
  typename E::Value a[kPack<E>];
  const Index first = (part * kLanes + static_cast<Index>(lane)) * kN;
  for (Index at = first; at < count; at += kParts * kLanes * kN) {
    load<E>(a, x + at, least(kN, count - at));
    for (const auto each : a) f(static_cast<double>(each));  // zero-padded
  }
}

template <class E>
struct SquareParts {
  WEFT_KERNEL("square_parts");
  double* parts;  // [kParts]
  const S* x;
  Index count;
  WEFT_POINTERS(f(parts), f(x));
  WEFT_HD Index teams() const { return kParts; }
  template <class Team>
  WEFT_HD void team(Team& t, Index i) const {
    const auto sum = [&](int lane) {
      double s = 0;
      each_of_part<E>(i, lane, x, count, [&](double a) { s += a * a; });
      return s;
    };
    const double all = joined<double>(t, sum, Plus());
    once(t, [&] { parts[i] = all; });
  }
};
// Sums the losses of rows, log(sum) - target.
template <class E>
struct LossParts {
  WEFT_KERNEL("loss_parts");
  double* parts;
  const V* sum;
  const V* target;
  Index rows;
  WEFT_POINTERS(f(parts), f(sum), f(target));
  WEFT_HD Index items() const { return kParts; }
  WEFT_HD void item(Index i) const {
    double s = 0;
    for (Index r = i; r < rows; r += kParts)
      s += static_cast<double>(logarithm(sum[r]) - target[r]);
    parts[i] = s;
  }
};
template <class E>
struct AddParts {
  WEFT_KERNEL("add_parts");
  double* total;  // accumulated
  const double* parts;
  WEFT_POINTERS(f(total), f(parts));
  WEFT_HD Index teams() const { return 1; }
  template <class Team>
  WEFT_HD void team(Team& t, Index) const {
    const auto sum = [&](int lane) {
      double s = 0;
      for (Index i = static_cast<Index>(lane); i < kParts; i += kLanes) s += parts[i];
      return s;
    };
    const double all = joined<double>(t, sum, Plus());
    once(t, [&] { *total += all; });
  }
};

// Computes the largest |x| of each team's elements; infinity if an element is inf or NaN.
template <class E>
struct LargestParts {
  WEFT_KERNEL("largest_parts");
  double* parts;  // [kParts]: running maxima
  const S* x;
  Index count;
  WEFT_POINTERS(f(parts), f(x));
  WEFT_HD Index teams() const { return kParts; }
  template <class Team>
  WEFT_HD void team(Team& t, Index i) const {
    const auto most = [&](int lane) {
      double m = 0;
      each_of_part<E>(i, lane, x, count, [&](double a) {
        const double each = a < 0 ? -a : a;
        m = !(each <= 0x1.fffffffffffffp+1023) ? HUGE_VAL : each > m ? each : m;
      });
      return m;
    };
    const double all = joined<double>(t, most, Larger());
    once(t, [&] { parts[i] = Larger()(parts[i], all); });
  }
};
// ExactSum::add_squares() on a device: integer sums do not depend on the order.
template <class E>
struct ExactSquareParts {
  WEFT_KERNEL("exact_square_parts");
  std::int64_t* parts;  // [2][kParts]: running sums of high and low
  const S* x;
  Index count;
  int shift;
  WEFT_POINTERS(f(parts), f(x));
  WEFT_HD Index teams() const { return kParts; }
  template <class Team>
  WEFT_HD void team(Team& t, Index i) const {
    typename Team::template PerLane<std::int64_t> high, low;
    t.each([&](int lane) {
      std::int64_t h = 0, l = 0;
      each_of_part<E>(i, lane, x, count, [&](double a) {
        const double below = times_power_of_two(a, shift / 2);
        const auto fixed = static_cast<std::int64_t>(below * below);
        h += fixed >> 31;
        l += fixed & 0x7fffffff;
      });
      high[lane] = h;
      low[lane] = l;
    });
    const std::int64_t all_high = t.join(high, Plus()), all_low = t.join(low, Plus());
    once(t, [&] { parts[i] += all_high, parts[kParts + i] += all_low; });
  }
};

// ---- optimizers -----------------------------------------------------------------------------

template <class E>
struct AdamW {
  WEFT_KERNEL("adamw");
  S* w;
  V* m;
  V* v;
  const S* gradient;
  Index count;
  V step, beta1, beta2, epsilon, keep, second, gradient_scale;  // as in operators_optimizer.cc
  WEFT_POINTERS(f(w), f(m), f(v), f(gradient));
  WEFT_PACKS(count)
  WEFT_HD void pack(Index at, Index n) const {
    V a[kN], b[kN], c[kN], g[kN];
    load<E>(a, w + at, n);
    load<W>(b, m + at, n);
    load<W>(c, v + at, n);
    load<E>(g, gradient + at, n);
    for (int k = 0; k < kN; ++k) {
      const V x = g[k] * gradient_scale;
      b[k] = beta1 * b[k] + (1 - beta1) * x;
      c[k] = beta2 * c[k] + (1 - beta2) * x * x;
      a[k] = a[k] * keep - step * b[k] / (root(c[k]) * second + epsilon);
    }
    store<W>(m + at, b, n);
    store<W>(v + at, c, n);
    store<E>(w + at, a, n);
  }
};

template <class E>
struct Sgd {
  WEFT_KERNEL("sgd");
  S* w;
  V* moment;  // null without momentum
  const S* gradient;
  Index count;
  V rate, momentum, decay, gradient_scale;
  WEFT_POINTERS(f(w), f(moment), f(gradient));
  WEFT_PACKS(count)
  WEFT_HD void pack(Index at, Index n) const {
    V a[kN], b[kN] = {}, g[kN];
    load<E>(a, w + at, n);
    if (moment != nullptr) load<W>(b, moment + at, n);
    load<E>(g, gradient + at, n);
    for (int k = 0; k < kN; ++k) {
      const V x = g[k] * gradient_scale + decay * a[k];
      b[k] = momentum * b[k] + x;
      a[k] -= rate * (moment != nullptr ? b[k] : x);
    }
    if (moment != nullptr) store<W>(moment + at, b, n);
    store<E>(w + at, a, n);
  }
};

}  // namespace weft::train::kernels
