// Causal attention without a score matrix. A team computes one row of one head and loops over the
// rows of the other side with an online softmax (FlashAttention-2, Dao, arXiv 2307.08691). The
// forward pass saves log(sum of exp(score)) per row; the backward pass recomputes scores. Two
// kernels compute gradients, one for queries and one for keys and values, so that each number has
// one writer and repeated passes have the same bits. In 16 bits a GPU runs
// device/cuda_attention16.h instead. See device/kernels.h.
#pragma once

#include "train/device/kernel.h"

namespace weft::train::kernels {

// Positions of a team's rows in qkv[rows][3][heads][width], in out[rows][heads][width], and in
// arrays of [batch][heads][positions].
struct Heads {
  Index batch, positions, heads, width;
  struct Place {
    Index qkv, out, number;  // of the head's first row
    Index own;               // the team's row
  };
  WEFT_HD Index row() const { return heads * width; }
  WEFT_HD Index teams() const { return batch * heads * positions; }
  // Later rows have more keys and run first, so that the last teams have little work.
  WEFT_HD Place place(Index team) const {
    const Index both = team / positions, sample = both / heads, head = both % heads;
    return {sample * positions * 3 * row() + head * width,
            sample * positions * row() + head * width, both * positions,
            positions - 1 - team % positions};
  }
};

WEFT_HD Index rest(Index all, Index from) { return all > from ? all - from : 0; }

// A vector of up to kWidth numbers, where a lane has elements lane, lane + 32, ...; zero-padded.
template <class Team, class V, Index kWidth>
struct HeadVector {
  static constexpr int kOwn = static_cast<int>(kWidth) / kLanes;
  struct Own {
    V at[kOwn];
  };
  typename Team::template PerLane<Own> all;

  // Calls f(number, column) for each element of this lane.
  template <class F>
  WEFT_HD void each(Team& t, F f) {
    t.each([&](int lane) {
      WEFT_UNROLL
      for (int i = 0; i < kOwn; ++i) f(all[lane].at[i], static_cast<Index>(lane + i * kLanes));
    });
  }
  template <class E>
  WEFT_HD void load(Team& t, const typename E::Stored* from, Index width) {
    each(t, [&](V& x, Index c) { x = c < width ? get<E>(from + c) : V(0); });
  }
  template <class E>
  WEFT_HD void store(Team& t, typename E::Stored* to, Index width) {
    each(t, [&](V& x, Index c) {
      if (c < width) put<E>(to + c, x);
    });
  }
  WEFT_HD void clear(Team& t) {
    each(t, [](V& x, Index) { x = 0; });
  }
  // *this = keep * *this + factor * other
  WEFT_HD void add(Team& t, V keep, V factor, HeadVector& other) {
    t.each([&](int lane) {
      WEFT_UNROLL
      for (int i = 0; i < kOwn; ++i)
        all[lane].at[i] = keep * all[lane].at[i] + factor * other.all[lane].at[i];
    });
  }
  WEFT_HD V dot(Team& t, HeadVector& other) {
    const auto of_lane = [&](int lane) {
      V s = 0;
      WEFT_UNROLL
      for (int i = 0; i < kOwn; ++i) s += all[lane].at[i] * other.all[lane].at[i];
      return s;
    };
    return joined<V>(t, of_lane, Plus());
  }
};

// kWidth: maximum head width, which a team holds in registers.
template <class E, Index kWidth>
struct AttentionOf {
  WEFT_KERNEL("attention");
  S* out;
  V* log_sum;
  const S* qkv;
  Heads h;
  V factor;
  WEFT_POINTERS(f(out), f(log_sum), f(qkv));
  WEFT_HD Index teams() const { return h.teams(); }
  template <class Team>
  WEFT_HD void team(Team& t, Index i) const {
    const Heads::Place at = h.place(i);
    const Index stride = 3 * h.row();
    const S *q = qkv + at.qkv, *k = q + h.row(), *v = k + h.row();
    HeadVector<Team, V, kWidth> query, other, sums;
    query.template load<E>(t, q + at.own * stride, h.width);
    sums.clear(t);
    V most = V(-1e30), sum = 0;
    for (Index key = 0; key <= at.own; ++key) {
      other.template load<E>(t, k + key * stride, h.width);
      const V score = query.dot(t, other) * factor, now = Larger()(most, score);
      const V correction = exponential(most - now), p = exponential(score - now);
      other.template load<E>(t, v + key * stride, h.width);
      sums.add(t, correction, p, other);
      sum = sum * correction + p;
      most = now;
    }
    sums.each(t, [&](V& x, Index) { x /= sum; });
    sums.template store<E>(t, out + at.out + at.own * h.row(), h.width);
    once(t, [&] { log_sum[at.number + at.own] = most + logarithm(sum); });
  }
};

// Writes the gradient of the queries, and per row the dot product of out and its gradient, for
// AttentionGradKeysOf.
template <class E, Index kWidth>
struct AttentionGradQueriesOf {
  WEFT_KERNEL("attention_grad_queries");
  S* grad_qkv;
  V* inner;
  const S* grad_out;
  const S* out;
  const V* log_sum;
  const S* qkv;
  Heads h;
  V factor;
  WEFT_POINTERS(f(grad_qkv), f(inner), f(grad_out), f(out), f(log_sum), f(qkv));
  WEFT_HD Index teams() const { return h.teams(); }
  template <class Team>
  WEFT_HD void team(Team& t, Index i) const {
    const Heads::Place at = h.place(i);
    const Index stride = 3 * h.row(), row = at.out + at.own * h.row();
    const S *q = qkv + at.qkv, *k = q + h.row(), *v = k + h.row();
    HeadVector<Team, V, kWidth> query, grad, other, sums;
    query.template load<E>(t, q + at.own * stride, h.width);
    grad.template load<E>(t, grad_out + row, h.width);
    other.template load<E>(t, out + row, h.width);
    sums.clear(t);
    const V product = grad.dot(t, other), log = log_sum[at.number + at.own];
    for (Index key = 0; key <= at.own; ++key) {
      other.template load<E>(t, v + key * stride, h.width);
      const V slope = grad.dot(t, other);
      other.template load<E>(t, k + key * stride, h.width);
      const V p = exponential(query.dot(t, other) * factor - log);
      sums.add(t, V(1), p * (slope - product) * factor, other);
    }
    sums.template store<E>(t, grad_qkv + at.qkv + at.own * stride, h.width);
    once(t, [&] { inner[at.number + at.own] = product; });
  }
};

// Writes the gradients of keys and values. The team's row is a key.
template <class E, Index kWidth>
struct AttentionGradKeysOf {
  WEFT_KERNEL("attention_grad_keys");
  S* grad_qkv;
  const V* inner;
  const S* grad_out;
  const V* log_sum;
  const S* qkv;
  Heads h;
  V factor;
  WEFT_POINTERS(f(grad_qkv), f(inner), f(grad_out), f(log_sum), f(qkv));
  WEFT_HD Index teams() const { return h.teams(); }
  template <class Team>
  WEFT_HD void team(Team& t, Index i) const {
    const Heads::Place at = h.place(i);
    const Index stride = 3 * h.row();
    const S *q = qkv + at.qkv, *own = q + at.own * stride;
    HeadVector<Team, V, kWidth> key, value, query, grad, key_sums, value_sums;
    key.template load<E>(t, own + h.row(), h.width);
    value.template load<E>(t, own + 2 * h.row(), h.width);
    key_sums.clear(t);
    value_sums.clear(t);
    for (Index row = at.own; row < h.positions; ++row) {
      query.template load<E>(t, q + row * stride, h.width);
      grad.template load<E>(t, grad_out + at.out + row * h.row(), h.width);
      const Index number = at.number + row;
      const V p = exponential(query.dot(t, key) * factor - log_sum[number]);
      key_sums.add(t, V(1), p * (grad.dot(t, value) - inner[number]) * factor, query);
      value_sums.add(t, V(1), p, grad);
    }
    S* to = grad_qkv + at.qkv + at.own * stride;
    key_sums.template store<E>(t, to + h.row(), h.width);
    value_sums.template store<E>(t, to + 2 * h.row(), h.width);
  }
};

template <Index kWidth>
struct Attention {
  template <class E>
  using Of = AttentionOf<E, kWidth>;
  template <class E>
  using GradQueries = AttentionGradQueriesOf<E, kWidth>;
  template <class E>
  using GradKeys = AttentionGradKeysOf<E, kWidth>;
};
inline constexpr Index kWidestHead = 128;  // limited by a thread's registers

}  // namespace weft::train::kernels

// Attention's kernels for one element, for heads of width up to 64 and up to 128.
#define WEFT_ATTENTION_KERNELS(X, E) \
  X(Attention<64>::Of, E)            \
  X(Attention<64>::GradQueries, E)   \
  X(Attention<64>::GradKeys, E)      \
  X(Attention<128>::Of, E) X(Attention<128>::GradQueries, E) X(Attention<128>::GradKeys, E)
