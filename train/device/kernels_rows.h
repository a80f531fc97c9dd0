// Row-wise kernels: layer norm, and the sums of a softmax. See device/kernels.h.
#pragma once

#include "train/device/kernel.h"

namespace weft::train::kernels {

// ---- rows -----------------------------------------------------------------------------------

// Calls f(column, count) for this lane's packs of a row.
template <class E, class F>
WEFT_HD void each_pack(int lane, Index width, F f) {
  constexpr Index kN = static_cast<Index>(kPack<E>);
  for (Index c = static_cast<Index>(lane) * kN; c < width; c += kLanes * kN)
    f(c, least(kN, width - c));
}

template <class E>
struct LayerNorm {
  WEFT_KERNEL("layer_norm");
  S* y;
  V* mean;
  V* rstd;
  const S* x;
  const S* gain;
  const S* bias;
  Index rows, width;
  WEFT_POINTERS(f(y), f(mean), f(rstd), f(x), f(gain), f(bias));
  WEFT_HD Index teams() const { return rows; }
  template <class Team>
  WEFT_HD void team(Team& t, Index r) const {
    const S* row = x + r * width;
    const auto sum = [&](int lane) {
      V s = 0, a[kN];
      each_pack<E>(lane, width, [&](Index c, Index n) {
        load<E>(a, row + c, n);
        for (int k = 0; k < kN; ++k) s += a[k];
      });
      return s;
    };
    const V mu = joined<V>(t, sum, Plus()) / static_cast<V>(width);
    const auto squares = [&](int lane) {
      V s = 0, a[kN];
      each_pack<E>(lane, width, [&](Index c, Index n) {
        load<E>(a, row + c, n);
        for (int k = 0; k < kN; ++k)
          if (static_cast<Index>(k) < n) s += (a[k] - mu) * (a[k] - mu);
      });
      return s;
    };
    const V scale = 1 / root(joined<V>(t, squares, Plus()) / static_cast<V>(width) + V(1e-5));
    t.each([&](int lane) {
      V a[kN], g[kN], b[kN];
      each_pack<E>(lane, width, [&](Index c, Index n) {
        load<E>(a, row + c, n);
        load<E>(g, gain + c, n);
        load<E>(b, bias + c, n);
        for (int k = 0; k < kN; ++k) a[k] = (a[k] - mu) * scale * g[k] + b[k];
        store<E>(y + r * width + c, a, n);
      });
      if (lane == 0) mean[r] = mu, rstd[r] = scale;
    });
  }
};

// Accumulates in grad_x; ColumnSlabs computes the gradients of gain and bias.
template <class E>
struct LayerNormGrad {
  WEFT_KERNEL("layer_norm_grad");
  S* grad_x;
  const S* grad_y;
  const S* x;
  const V* mean;
  const V* rstd;
  const S* gain;
  Index rows, width;
  WEFT_POINTERS(f(grad_x), f(grad_y), f(x), f(mean), f(rstd), f(gain));
  WEFT_HD Index teams() const { return rows; }
  template <class Team>
  WEFT_HD void team(Team& t, Index r) const {
    typename Team::template PerLane<V> sum, projection;
    const S *row = x + r * width, *grad = grad_y + r * width;
    const V mu = mean[r], scale = rstd[r];
    t.each([&](int lane) {
      V s = 0, p = 0, a[kN], g[kN], w[kN];
      each_pack<E>(lane, width, [&](Index c, Index n) {
        load<E>(a, row + c, n);
        load<E>(g, grad + c, n);
        load<E>(w, gain + c, n);
        for (int k = 0; k < kN; ++k) {
          const V each = g[k] * w[k];  // zero-padded
          s += each;
          p += each * (a[k] - mu) * scale;
        }
      });
      sum[lane] = s;
      projection[lane] = p;
    });
    const V s = t.join(sum, Plus()) / static_cast<V>(width);
    const V p = t.join(projection, Plus()) / static_cast<V>(width);
    t.each([&](int lane) {
      V a[kN], g[kN], w[kN], to[kN];
      each_pack<E>(lane, width, [&](Index c, Index n) {
        load<E>(a, row + c, n);
        load<E>(g, grad + c, n);
        load<E>(w, gain + c, n);
        load<E>(to, grad_x + r * width + c, n);
        for (int k = 0; k < kN; ++k) to[k] += (g[k] * w[k] - s - (a[k] - mu) * scale * p) * scale;
        store<E>(grad_x + r * width + c, to, n);
      });
    });
  }
};

// Online softmax: maximum of a row and sum of exponentials relative to it, in one pass; a larger
// maximum rescales the sum (Milakov and Gimelshein, arXiv 1805.02867).
template <class V>
struct Online {
  V most, sum;
  WEFT_HD void add(V x) {
    if (x > most) {
      sum = sum * exponential(most - x) + 1;
      most = x;
    } else {
      sum += exponential(x - most);
    }
  }
};
template <class E, class Team>
WEFT_HD Online<typename E::Value> online_softmax(
    Team& t, const typename E::Stored* row, Index width,
    typename Team::template PerLane<typename E::Value>& most,
    typename Team::template PerLane<typename E::Value>& sum) {
  using V = typename E::Value;
  constexpr int kN = kPack<E>;
  typename Team::template PerLane<V> own;
  t.each([&](int lane) {
    Online<V> so_far{V(-1e30), V(0)};
    V a[kN];
    each_pack<E>(lane, width, [&](Index c, Index n) {
      load<E>(a, row + c, n);
      for (int k = 0; k < kN; ++k)
        if (static_cast<Index>(k) < n) so_far.add(a[k]);
    });
    own[lane] = most[lane] = so_far.most;
    sum[lane] = so_far.sum;
  });
  const V all = t.join(most, Larger());
  t.each([&](int lane) { sum[lane] *= exponential(own[lane] - all); });
  return {all, t.join(sum, Plus())};
}

}  // namespace weft::train::kernels
