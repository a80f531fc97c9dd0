// The kernels of the device backend; device_kernel.h says how they are written. E is the element of
// the model, W that of statistics and state; sums are in the value type of both.
//
// Sums over rows have two steps and no atomic additions, so that a step has the same bits each time
// it is done.
#pragma once

#include "train/device_kernel.h"

namespace weft::train::kernels {

using Token = std::int32_t;

template <class E>
struct Types {
  using S = typename E::Stored;
  using V = typename E::Value;
  using W = typename WideOf<E>::Element;
  static constexpr Index kP = static_cast<Index>(kPack<E>);
  static WEFT_HD Index packs(Index width) { return (width + kP - 1) / kP; }
};

// ---- element by element ---------------------------------------------------------------------

// A kernel over `count` numbers in packs.
#define WEFT_KERNEL(title)                         \
  using T = Types<E>;                              \
  using S = typename T::S;                         \
  using V = typename T::V;                         \
  using W = typename T::W;                         \
  static constexpr int kN = kPack<E>;              \
  static constexpr const char* kTitle = title

template <class E>
struct Add {
  WEFT_KERNEL("add");
  S* to;
  const S* from;
  Index count;
  template <class F>
  void pointers(F f) { f(to), f(from); }
  WEFT_HD Index items() const { return T::packs(count); }
  WEFT_HD void item(Index i) const {
    const Index at = i * kN, n = least(kN, count - at);
    V a[kN], b[kN];
    load<E>(a, to + at, n);
    load<E>(b, from + at, n);
    for (int k = 0; k < kN; ++k) a[k] += b[k];
    store<E>(to + at, a, n);
  }
};

template <class E>
struct Scale {
  WEFT_KERNEL("scale");
  S* x;
  V factor;
  Index count;
  template <class F>
  void pointers(F f) { f(x); }
  WEFT_HD Index items() const { return T::packs(count); }
  WEFT_HD void item(Index i) const {
    const Index at = i * kN, n = least(kN, count - at);
    V a[kN];
    load<E>(a, x + at, n);
    for (int k = 0; k < kN; ++k) a[k] *= factor;
    store<E>(x + at, a, n);
  }
};

template <class E>
struct SetZero {
  WEFT_KERNEL("set_zero");
  S* x;
  Index count;
  template <class F>
  void pointers(F f) { f(x); }
  WEFT_HD Index items() const { return T::packs(count); }
  WEFT_HD void item(Index i) const {
    const Index at = i * kN;
    V zero[kN] = {};
    store<E>(x + at, zero, least(kN, count - at));
  }
};

// Rounds master weights to those of the model.
template <class E>
struct Narrow {
  WEFT_KERNEL("narrow");
  S* to;
  const V* from;
  Index count;
  template <class F>
  void pointers(F f) { f(to), f(from); }
  WEFT_HD Index items() const { return T::packs(count); }
  WEFT_HD void item(Index i) const {
    const Index at = i * kN, n = least(kN, count - at);
    V a[kN];
    load<W>(a, from + at, n);
    store<E>(to + at, a, n);
  }
};
template <class E>
struct Widen {
  WEFT_KERNEL("widen");
  V* to;
  const S* from;
  Index count;
  template <class F>
  void pointers(F f) { f(to), f(from); }
  WEFT_HD Index items() const { return T::packs(count); }
  WEFT_HD void item(Index i) const {
    const Index at = i * kN, n = least(kN, count - at);
    V a[kN];
    load<E>(a, from + at, n);
    store<W>(to + at, a, n);
  }
};

template <class V>
WEFT_HD V gelu_inner(V x) {
  return V(0.7978845608028654) * (x + V(0.044715) * x * x * x);  // sqrt(2 / pi)
}

template <class E>
struct Gelu {
  WEFT_KERNEL("gelu");
  S* y;
  const S* x;
  Index count;
  template <class F>
  void pointers(F f) { f(y), f(x); }
  WEFT_HD Index items() const { return T::packs(count); }
  WEFT_HD void item(Index i) const {
    const Index at = i * kN, n = least(kN, count - at);
    V a[kN];
    load<E>(a, x + at, n);
    for (int k = 0; k < kN; ++k) a[k] = V(0.5) * a[k] * (1 + hyperbolic_tangent(gelu_inner(a[k])));
    store<E>(y + at, a, n);
  }
};

template <class E>
struct GeluGrad {
  WEFT_KERNEL("gelu_grad");
  S* grad_x;
  const S* grad_y;
  const S* x;
  Index count;
  template <class F>
  void pointers(F f) { f(grad_x), f(grad_y), f(x); }
  WEFT_HD Index items() const { return T::packs(count); }
  WEFT_HD void item(Index i) const {
    const Index at = i * kN, n = least(kN, count - at);
    V a[kN], g[kN];
    load<E>(a, x + at, n);
    load<E>(g, grad_y + at, n);
    for (int k = 0; k < kN; ++k) {
      const V v = a[k], t = hyperbolic_tangent(gelu_inner(v));
      const V du = V(0.7978845608028654) * (1 + 3 * V(0.044715) * v * v);
      g[k] *= V(0.5) * (1 + t) + V(0.5) * v * (1 - t * t) * du;
    }
    store<E>(grad_x + at, g, n);
  }
};

// out = x + y + bias in each row; x and bias may be null (then they are zero).
template <class E>
struct AddRows {
  WEFT_KERNEL("add_rows");
  S* out;
  const S* x;
  const S* y;
  const S* bias;
  Index rows, width;
  template <class F>
  void pointers(F f) { f(out), f(x), f(y), f(bias); }
  WEFT_HD Index items() const { return rows * T::packs(width); }
  WEFT_HD void item(Index i) const {
    const Index column = i % T::packs(width) * kN, at = i / T::packs(width) * width + column;
    const Index n = least(kN, width - column);
    V a[kN], b[kN];
    load<E>(a, y + at, n);
    if (x != nullptr) {
      load<E>(b, x + at, n);
      for (int k = 0; k < kN; ++k) a[k] += b[k];
    }
    if (bias != nullptr) {
      load<E>(b, bias + column, n);
      for (int k = 0; k < kN; ++k) a[k] += b[k];
    }
    store<E>(out + at, a, n);
  }
};

// ---- embedding ------------------------------------------------------------------------------

template <class E>
struct Embed {
  WEFT_KERNEL("embed");
  S* out;
  const S* table;
  const Token* tokens;
  Index first, count, rows, width;
  template <class F>
  void pointers(F f) { f(out), f(table), f(tokens); }
  WEFT_HD Index items() const { return rows * T::packs(width); }
  WEFT_HD void item(Index i) const {
    const Index row = i / T::packs(width), column = i % T::packs(width) * kN;
    const Index n = least(kN, width - column);
    const Index token = static_cast<Index>(tokens[row]) - first;  // wraps around below first
    V a[kN] = {};
    if (token < count) load<E>(a, table + token * width + column, n);
    store<E>(out + row * width + column, a, n);
  }
};

// Sums of the gradients of at most so many rows of one token, listed in `order`.
inline constexpr Index kSegment = 32;
template <class E>
struct EmbedSegments {
  WEFT_KERNEL("embed_segments");
  V* sums;  // [segments][width]
  const S* grad_out;
  const std::uint32_t* order;  // rows by token
  const std::uint32_t* begin;  // segments + 1 places in `order`
  Index segments, width;
  template <class F>
  void pointers(F f) { f(sums), f(grad_out), f(order), f(begin); }
  WEFT_HD Index items() const { return segments * T::packs(width); }
  WEFT_HD void item(Index i) const {
    const Index segment = i / T::packs(width), column = i % T::packs(width) * kN;
    const Index n = least(kN, width - column);
    V sum[kN] = {}, a[kN];
    for (Index k = begin[segment]; k < begin[segment + 1]; ++k) {
      load<E>(a, grad_out + order[k] * width + column, n);
      for (int j = 0; j < kN; ++j) sum[j] += a[j];
    }
    store<W>(sums + segment * width + column, sum, n);
  }
};
// Adds the segments of each token that occurs to its row of the table.
template <class E>
struct EmbedGrad {
  WEFT_KERNEL("embed_grad");
  S* grad_table;
  const V* sums;
  const std::uint32_t* token;  // row of the table
  const std::uint32_t* begin;  // its segments: tokens + 1 places
  Index tokens, width;
  template <class F>
  void pointers(F f) { f(grad_table), f(sums), f(token), f(begin); }
  WEFT_HD Index items() const { return tokens * T::packs(width); }
  WEFT_HD void item(Index i) const {
    const Index t = i / T::packs(width), column = i % T::packs(width) * kN;
    const Index n = least(kN, width - column);
    S* to = grad_table + token[t] * width + column;
    V sum[kN], a[kN];
    load<E>(sum, to, n);
    for (Index s = begin[t]; s < begin[t + 1]; ++s) {
      load<W>(a, sums + s * width + column, n);
      for (int k = 0; k < kN; ++k) sum[k] += a[k];
    }
    store<E>(to, sum, n);
  }
};

// x[row] += table[(first + row) % positions]
template <class E>
struct AddPositions {
  WEFT_KERNEL("add_positions");
  S* x;
  const S* table;
  Index first, positions, rows, width;
  template <class F>
  void pointers(F f) { f(x), f(table); }
  WEFT_HD Index items() const { return rows * T::packs(width); }
  WEFT_HD void item(Index i) const {
    const Index row = i / T::packs(width), column = i % T::packs(width) * kN;
    const Index n = least(kN, width - column);
    V a[kN], b[kN];
    load<E>(a, x + row * width + column, n);
    load<E>(b, table + (first + row) % positions * width + column, n);
    for (int k = 0; k < kN; ++k) a[k] += b[k];
    store<E>(x + row * width + column, a, n);
  }
};
template <class E>
struct PositionsGrad {
  WEFT_KERNEL("positions_grad");
  S* grad_table;
  const S* grad;
  Index first, positions, rows, width;
  template <class F>
  void pointers(F f) { f(grad_table), f(grad); }
  WEFT_HD Index items() const { return positions * T::packs(width); }
  WEFT_HD void item(Index i) const {
    const Index position = i / T::packs(width), column = i % T::packs(width) * kN;
    const Index n = least(kN, width - column);
    Index row = (position + positions - first % positions) % positions;
    if (row >= rows) return;
    S* to = grad_table + position * width + column;
    V sum[kN], a[kN];
    load<E>(sum, to, n);
    for (; row < rows; row += positions) {
      load<E>(a, grad + row * width + column, n);
      for (int k = 0; k < kN; ++k) sum[k] += a[k];
    }
    store<E>(to, sum, n);
  }
};

// ---- columns --------------------------------------------------------------------------------

// Sums of each column over slabs of rows; with x, also of the products with its normalised rows.
inline constexpr Index kSlabs = 128;  // at most
template <class E>
struct ColumnSlabs {
  WEFT_KERNEL("column_slabs");
  V* sums;           // [slabs][width]
  V* products;       // the same; null without x
  const S* y;
  const S* x;
  const V* mean;
  const V* rstd;
  Index rows, width, slab;  // rows of a slab
  template <class F>
  void pointers(F f) { f(sums), f(products), f(y), f(x), f(mean), f(rstd); }
  WEFT_HD Index slabs() const { return (rows + slab - 1) / slab; }
  WEFT_HD Index items() const { return slabs() * T::packs(width); }
  WEFT_HD void item(Index i) const {
    const Index part = i / T::packs(width), column = i % T::packs(width) * kN;
    const Index n = least(kN, width - column), end = least(rows, (part + 1) * slab);
    V sum[kN] = {}, product[kN] = {}, a[kN], b[kN];
    for (Index r = part * slab; r < end; ++r) {
      load<E>(a, y + r * width + column, n);
      for (int k = 0; k < kN; ++k) sum[k] += a[k];
      if (x == nullptr) continue;
      load<E>(b, x + r * width + column, n);
      for (int k = 0; k < kN; ++k) product[k] += a[k] * ((b[k] - mean[r]) * rstd[r]);
    }
    store<W>(sums + part * width + column, sum, n);
    if (x != nullptr) store<W>(products + part * width + column, product, n);
  }
};
template <class E>
struct AddSlabs {
  WEFT_KERNEL("add_slabs");
  S* to;
  const V* sums;
  Index slabs, width;
  template <class F>
  void pointers(F f) { f(to), f(sums); }
  WEFT_HD Index items() const { return width; }
  WEFT_HD void item(Index column) const {
    V sum = 0;
    for (Index s = 0; s < slabs; ++s) sum += sums[s * width + column];
    put<E>(to + column, get<E>(to + column) + sum);
  }
};

// ---- rows -----------------------------------------------------------------------------------

// Calls f(column, how many there) for the packs of a row that are this lane's.
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
  template <class F>
  void pointers(F f) { f(y), f(mean), f(rstd), f(x), f(gain), f(bias); }
  WEFT_HD Index teams() const { return rows; }
  template <class Team>
  WEFT_HD void team(Team& t, Index r) const {
    typename Team::template PerLane<V> sum;
    const S* row = x + r * width;
    t.each([&](int lane) {
      V s = 0, a[kN];
      each_pack<E>(lane, width, [&](Index c, Index n) {
        load<E>(a, row + c, n);
        for (int k = 0; k < kN; ++k) s += a[k];
      });
      sum[lane] = s;
    });
    const V mu = t.join(sum, Plus()) / static_cast<V>(width);
    t.each([&](int lane) {
      V s = 0, a[kN];
      each_pack<E>(lane, width, [&](Index c, Index n) {
        load<E>(a, row + c, n);
        for (int k = 0; k < kN; ++k)
          if (static_cast<Index>(k) < n) s += (a[k] - mu) * (a[k] - mu);
      });
      sum[lane] = s;
    });
    const V scale = 1 / root(t.join(sum, Plus()) / static_cast<V>(width) + V(1e-5));
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

// Adds to grad_x; gain's and bias's gradients are ColumnSlabs.
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
  template <class F>
  void pointers(F f) { f(grad_x), f(grad_y), f(x), f(mean), f(rstd), f(gain); }
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
          const V each = g[k] * w[k];  // zero past the end
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
        for (int k = 0; k < kN; ++k)
          to[k] += (g[k] * w[k] - s - (a[k] - mu) * scale * p) * scale;
        store<E>(grad_x + r * width + c, to, n);
      });
    });
  }
};

// The largest of a row and the sum of exponentials relative to it, in one pass ("online": a larger
// maximum rescales the sum so far). Milakov and Gimelshein, arXiv 1805.02867.
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

// Probabilities from scores, in place: row i of n has i + 1 of them, the rest become zero.
template <class E>
struct CausalSoftmax {
  WEFT_KERNEL("causal_softmax");
  S* scores;  // [rows][positions], rows a multiple of positions
  Index rows, positions;
  template <class F>
  void pointers(F f) { f(scores); }
  WEFT_HD Index teams() const { return rows; }
  template <class Team>
  WEFT_HD void team(Team& t, Index r) const {
    typename Team::template PerLane<V> most, sum;
    S* row = scores + r * positions;
    const Index seen = r % positions + 1;
    const Online<V> all = online_softmax<E>(t, row, seen, most, sum);
    const V factor = 1 / all.sum;
    t.each([&](int lane) {
      V a[kN] = {};
      each_pack<E>(lane, positions, [&](Index c, Index n) {
        if (c < seen) load<E>(a, row + c, n);
        for (int k = 0; k < kN; ++k)
          a[k] = c + static_cast<Index>(k) < seen ? exponential(a[k] - all.most) * factor : V(0);
        store<E>(row + c, a, n);
      });
    });
  }
};

// Gradient of the scores from that of the probabilities, in place.
template <class E>
struct CausalSoftmaxGrad {
  WEFT_KERNEL("causal_softmax_grad");
  S* grad;
  const S* probabilities;
  Index rows, positions;
  V factor;
  template <class F>
  void pointers(F f) { f(grad), f(probabilities); }
  WEFT_HD Index teams() const { return rows; }
  template <class Team>
  WEFT_HD void team(Team& t, Index r) const {
    typename Team::template PerLane<V> inner;
    S* row = grad + r * positions;
    const S* p = probabilities + r * positions;
    const Index seen = r % positions + 1;
    t.each([&](int lane) {
      V s = 0, a[kN], b[kN];
      each_pack<E>(lane, seen, [&](Index c, Index n) {
        load<E>(a, row + c, n);
        load<E>(b, p + c, n);
        for (int k = 0; k < kN; ++k) s += a[k] * b[k];
      });
      inner[lane] = s;
    });
    const V sum = t.join(inner, Plus());
    t.each([&](int lane) {
      V a[kN] = {}, b[kN] = {};
      each_pack<E>(lane, positions, [&](Index c, Index n) {
        if (c < seen) load<E>(a, row + c, n), load<E>(b, p + c, n);
        for (int k = 0; k < kN; ++k)
          a[k] = c + static_cast<Index>(k) < seen ? b[k] * (a[k] - sum) * factor : V(0);
        store<E>(row + c, a, n);
      });
    });
  }
};

// ---- cross-entropy --------------------------------------------------------------------------

template <class E>
struct RowMaximum {
  WEFT_KERNEL("row_maximum");
  V* maximum;
  const S* logits;
  Index rows, width;
  template <class F>
  void pointers(F f) { f(maximum), f(logits); }
  WEFT_HD Index teams() const { return rows; }
  template <class Team>
  WEFT_HD void team(Team& t, Index r) const {
    typename Team::template PerLane<V> most;
    t.each([&](int lane) {
      V m = V(-1e30), a[kN];
      each_pack<E>(lane, width, [&](Index c, Index n) {
        load<E>(a, logits + r * width + c, n);
        for (int k = 0; k < kN; ++k)
          if (static_cast<Index>(k) < n && a[k] > m) m = a[k];
      });
      most[lane] = m;
    });
    const V all = t.join(most, Larger());
    t.each([&](int lane) {
      if (lane == 0) maximum[r] = all;
    });
  }
};

// Sum of exp(logit - maximum) and the target's logit - maximum. Logits stay: their exponentials
// would lose digits in 16 bits, and are computed again with the gradient.
template <class E>
struct RowSum {
  WEFT_KERNEL("row_sum");
  V* sum;
  V* target;
  const S* logits;
  const V* maximum;
  const Token* targets;
  Index first, rows, width;
  template <class F>
  void pointers(F f) { f(sum), f(target), f(logits), f(maximum), f(targets); }
  WEFT_HD Index teams() const { return rows; }
  template <class Team>
  WEFT_HD void team(Team& t, Index r) const {
    typename Team::template PerLane<V> part;
    const V most = maximum[r];
    t.each([&](int lane) {
      V s = 0, a[kN];
      each_pack<E>(lane, width, [&](Index c, Index n) {
        load<E>(a, logits + r * width + c, n);
        for (int k = 0; k < kN; ++k)
          if (static_cast<Index>(k) < n) s += exponential(a[k] - most);
      });
      part[lane] = s;
    });
    const V all = t.join(part, Plus());
    const Index at = static_cast<Index>(targets[r]) - first;
    t.each([&](int lane) {
      if (lane != 0) return;
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
  template <class F>
  void pointers(F f) { f(logits), f(maximum), f(sum), f(targets); }
  WEFT_HD Index items() const { return rows * T::packs(width); }
  WEFT_HD void item(Index i) const {
    const Index r = i / T::packs(width), c = i % T::packs(width) * kN;
    const Index n = least(kN, width - c), at = static_cast<Index>(targets[r]) - first - c;
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

// All of it in one kernel where a rank has the whole vocabulary: sum and target for the loss, and
// the gradient in place of the logits.
template <class E>
struct FusedCrossEntropy {
  WEFT_KERNEL("cross_entropy");
  S* logits;
  V* sum;
  V* target;
  const Token* targets;
  Index rows, width;
  V scale;
  template <class F>
  void pointers(F f) { f(logits), f(sum), f(target), f(targets); }
  WEFT_HD Index teams() const { return rows; }
  template <class Team>
  WEFT_HD void team(Team& t, Index r) const {
    typename Team::template PerLane<V> most, part, mine;
    S* row = logits + r * width;
    const Online<V> all = online_softmax<E>(t, row, width, most, part);
    const Index at = static_cast<Index>(targets[r]);
    t.each([&](int lane) { mine[lane] = lane == 0 ? get<E>(row + at) : V(0); });
    const V logit = t.join(mine, Plus());  // read before any lane writes
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

// ---- sums of everything ---------------------------------------------------------------------

// In double, in two steps: kParts teams, then one.
inline constexpr Index kParts = 1024;
template <class E>
struct SquareParts {
  WEFT_KERNEL("square_parts");
  double* parts;  // [kParts]
  const S* x;
  Index count;
  template <class F>
  void pointers(F f) { f(parts), f(x); }
  WEFT_HD Index teams() const { return kParts; }
  template <class Team>
  WEFT_HD void team(Team& t, Index i) const {
    typename Team::template PerLane<double> sum;
    // In turns of a pack per lane and team.
    t.each([&](int lane) {
      double s = 0;
      V a[kN];
      const Index first = (i * kLanes + static_cast<Index>(lane)) * kN;
      for (Index at = first; at < count; at += kParts * kLanes * kN) {
        load<E>(a, x + at, least(kN, count - at));
        for (int k = 0; k < kN; ++k) s += static_cast<double>(a[k]) * static_cast<double>(a[k]);
      }
      sum[lane] = s;
    });
    const double all = t.join(sum, Plus());
    t.each([&](int lane) {
      if (lane == 0) parts[i] = all;
    });
  }
};
// Of log(sum) - target: the losses of rows.
template <class E>
struct LossParts {
  WEFT_KERNEL("loss_parts");
  double* parts;
  const V* sum;
  const V* target;
  Index rows;
  template <class F>
  void pointers(F f) { f(parts), f(sum), f(target); }
  WEFT_HD Index items() const { return kParts; }
  WEFT_HD void item(Index i) const {
    double s = 0;
    for (Index r = i; r < rows; r += kParts) s += static_cast<double>(logarithm(sum[r]) - target[r]);
    parts[i] = s;
  }
};
template <class E>
struct AddParts {
  WEFT_KERNEL("add_parts");
  double* total;  // grows
  const double* parts;
  template <class F>
  void pointers(F f) { f(total), f(parts); }
  WEFT_HD Index teams() const { return 1; }
  template <class Team>
  WEFT_HD void team(Team& t, Index) const {
    typename Team::template PerLane<double> sum;
    t.each([&](int lane) {
      double s = 0;
      for (Index i = static_cast<Index>(lane); i < kParts; i += kLanes) s += parts[i];
      sum[lane] = s;
    });
    const double all = t.join(sum, Plus());
    t.each([&](int lane) {
      if (lane == 0) *total += all;
    });
  }
};

// ---- optimizers -----------------------------------------------------------------------------

template <class E>
struct AdamW {
  WEFT_KERNEL("adamw");
  S* w;
  V* master;  // null: w has all digits
  V* m;
  V* v;
  const S* gradient;
  Index count;
  V step, beta1, beta2, epsilon, keep, second, gradient_scale;  // as operators.cc has them
  template <class F>
  void pointers(F f) { f(w), f(master), f(m), f(v), f(gradient); }
  WEFT_HD Index items() const { return T::packs(count); }
  WEFT_HD void item(Index i) const {
    const Index at = i * kN, n = least(kN, count - at);
    V a[kN], b[kN], c[kN], g[kN];
    if (master != nullptr)
      load<W>(a, master + at, n);
    else
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
    if (master != nullptr) store<W>(master + at, a, n);
    store<E>(w + at, a, n);
  }
};

template <class E>
struct Sgd {
  WEFT_KERNEL("sgd");
  S* w;
  V* master;
  V* moment;  // null without momentum
  const S* gradient;
  Index count;
  V rate, momentum, decay, gradient_scale;
  template <class F>
  void pointers(F f) { f(w), f(master), f(moment), f(gradient); }
  WEFT_HD Index items() const { return T::packs(count); }
  WEFT_HD void item(Index i) const {
    const Index at = i * kN, n = least(kN, count - at);
    V a[kN], b[kN] = {}, g[kN];
    if (master != nullptr)
      load<W>(a, master + at, n);
    else
      load<E>(a, w + at, n);
    if (moment != nullptr) load<W>(b, moment + at, n);
    load<E>(g, gradient + at, n);
    for (int k = 0; k < kN; ++k) {
      const V x = g[k] * gradient_scale + decay * a[k];
      b[k] = momentum * b[k] + x;
      a[k] -= rate * (moment != nullptr ? b[k] : x);
    }
    if (moment != nullptr) store<W>(moment + at, b, n);
    if (master != nullptr) store<W>(master + at, a, n);
    store<E>(w + at, a, n);
  }
};
#undef WEFT_KERNEL

// Every kernel for one element: X(kernel, element).
#define WEFT_DEVICE_KERNELS(X, E)                                                              \
  X(Add, E) X(Scale, E) X(SetZero, E) X(Narrow, E) X(Widen, E) X(Gelu, E) X(GeluGrad, E)        \
  X(AddRows, E) X(Embed, E) X(EmbedSegments, E) X(EmbedGrad, E) X(AddPositions, E)              \
  X(PositionsGrad, E) X(ColumnSlabs, E) X(AddSlabs, E) X(LayerNorm, E) X(LayerNormGrad, E)      \
  X(CausalSoftmax, E) X(CausalSoftmaxGrad, E) X(RowMaximum, E) X(RowSum, E)                     \
  X(CrossEntropyGrad, E) X(FusedCrossEntropy, E) X(SquareParts, E) X(LossParts, E)              \
  X(AddParts, E) X(AdamW, E) X(Sgd, E)

}  // namespace weft::train::kernels
