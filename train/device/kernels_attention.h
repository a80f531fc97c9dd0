// Causal attention without a matrix of scores: FlashAttention-2 (Dao, arXiv 2307.08691). A team
// has 16 rows of one head, in tiles. Of each row the forward pass keeps the logarithm of the sum of
// exp(score); the backward pass computes scores again. Two kernels compute gradients, one for the
// queries and one for keys and values, so that each number has one writer and a repeated pass has
// the same bits. See device/kernels.h.
#pragma once

#include "train/device/tiles.h"

namespace weft::train::kernels {

// Where teams find their rows in qkv[rows][3][heads][width], in out[rows][heads][width], and in
// numbers of [batch][heads][positions].
struct Heads {
  Index batch, positions, heads, width;
  struct Place {
    Index qkv, out, number;  // of the head's first row
    Index first;             // the team's first row
  };
  WEFT_HD Index row() const { return heads * width; }
  WEFT_HD Index teams() const { return batch * heads * blocks(); }
  // Later rows have more keys: they are first, so that the last teams are short ones.
  WEFT_HD Place place(Index team) const {
    const Index both = team / blocks(), sample = both / heads, head = both % heads;
    return {sample * positions * 3 * row() + head * width,
            sample * positions * row() + head * width, both * positions,
            (blocks() - 1 - team % blocks()) * kSide};
  }
  WEFT_HD Index blocks() const { return (positions + kSide - 1) / kSide; }
};

WEFT_HD Index rest(Index all, Index from) { return all > from ? all - from : 0; }

// kWidth: most numbers of a head, which a team holds in registers.
template <class E, Index kWidth>
struct AttentionOf {
  WEFT_KERNEL("attention");
  static constexpr Index kTiles = kWidth / kSide;
  static constexpr Index kAhead = 2;  // tiles of keys between two corrections of the maximum
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
    const Index stride = 3 * h.row(), rows = rest(h.positions, at.first);
    const S *q = qkv + at.qkv, *k = q + h.row(), *v = k + h.row();
    TileOf<Team, S> query[kTiles], key, weights;
    TileOf<Team, V> sums[kTiles], scores[kAhead];
    typename Team::template PerLane<V> most[2], sum[2], now[2];  // of rows r and r + 8
    WEFT_UNROLL
    for (Index c = 0; c < kTiles; ++c) {
      load_tile<E>(t, query[c], q + at.first * stride + c * kSide, stride, rows,
                   rest(h.width, c * kSide));
      clear_tile(t, sums[c]);
    }
    t.each([&](int lane) {
      most[0][lane] = most[1][lane] = V(-1e30);
      sum[0][lane] = sum[1][lane] = 0;
    });
    for (Index first = 0; first < at.first + kSide; first += kAhead * kSide) {
      WEFT_UNROLL
      for (Index a = 0; a < kAhead; ++a) {
        clear_tile(t, scores[a]);
        const Index here = first + a * kSide;
        WEFT_UNROLL
        for (Index c = 0; c < kTiles; ++c) {
          load_tile<E>(t, key, k + here * stride + c * kSide, stride, rest(h.positions, here),
                       rest(h.width, c * kSide));
          multiply<E>(t, scores[a], query[c], key);
        }
      }
      t.each([&](int lane) {
        now[0][lane] = most[0][lane], now[1][lane] = most[1][lane];
        WEFT_UNROLL
        for (Index a = 0; a < kAhead; ++a) WEFT_UNROLL
        for (int n = 0; n < kOwn; ++n) {
          V& score = scores[a][lane].own[n];
          const Index here = first + a * kSide + column_of(lane, n);
          score = here <= at.first + row_of(lane, n) ? score * factor : V(-1e30);
          now[n / 2 % 2][lane] = Larger()(now[n / 2 % 2][lane], score);
        }
      });
      t.template join<4>(now[0], Larger());
      t.template join<4>(now[1], Larger());
      t.each([&](int lane) {
        WEFT_UNROLL
        for (int half = 0; half < 2; ++half) {
          const V correction = exponential(most[half][lane] - now[half][lane]);
          most[half][lane] = now[half][lane];
          sum[half][lane] *= correction;
          WEFT_UNROLL
          for (Index c = 0; c < kTiles; ++c) WEFT_UNROLL
          for (int n = 0; n < kOwn; ++n)
            if (n / 2 % 2 == half) sums[c][lane].own[n] *= correction;
        }
      });
      WEFT_UNROLL
      for (Index a = 0; a < kAhead; ++a) {
        t.each([&](int lane) {
          WEFT_UNROLL
          for (int n = 0; n < kOwn; ++n) {
            const V p = exponential(scores[a][lane].own[n] - most[n / 2 % 2][lane]);
            sum[n / 2 % 2][lane] += p;
            weights[lane].own[n] = Codec<E>::narrow(p);
          }
        });
        const Index here = first + a * kSide;
        WEFT_UNROLL
        for (Index c = 0; c < kTiles; ++c) {
          load_tile<E>(t, key, v + here * stride + c * kSide, stride, rest(h.positions, here),
                       rest(h.width, c * kSide));
          transpose(t, key);
          multiply<E>(t, sums[c], weights, key);
        }
      }
    }
    t.template join<4>(sum[0], Plus());
    t.template join<4>(sum[1], Plus());
    t.each([&](int lane) {
      WEFT_UNROLL
      for (Index c = 0; c < kTiles; ++c) WEFT_UNROLL
      for (int n = 0; n < kOwn; ++n) sums[c][lane].own[n] /= sum[n / 2 % 2][lane];
      WEFT_UNROLL
      for (int half = 0; half < 2; ++half) {
        const Index row = row_of(lane, 2 * half);
        if (lane % 4 == 0 && row < rows)
          log_sum[at.number + at.first + row] = most[half][lane] + logarithm(sum[half][lane]);
      }
    });
    WEFT_UNROLL
    for (Index c = 0; c < kTiles; ++c)
      store_tile<E>(t, out + at.out + at.first * h.row() + c * kSide, sums[c], h.row(), rows,
                    rest(h.width, c * kSide));
  }
};

// Writes the gradient of the queries, and of each row the product of out and its gradient, which
// AttentionGradKeysOf reads.
template <class E, Index kWidth>
struct AttentionGradQueriesOf {
  WEFT_KERNEL("attention_grad_queries");
  static constexpr Index kTiles = kWidth / kSide;
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
    const Index stride = 3 * h.row(), rows = rest(h.positions, at.first);
    const S *q = qkv + at.qkv, *k = q + h.row(), *v = k + h.row();
    TileOf<Team, S> query[kTiles], grad[kTiles], other, weights;
    TileOf<Team, V> sums[kTiles], score, slope;
    typename Team::template PerLane<V> product[2], log[2];
    t.each([&](int lane) {
      WEFT_UNROLL
      for (int half = 0; half < 2; ++half) {
        const Index row = row_of(lane, 2 * half);
        product[half][lane] = 0;
        log[half][lane] = row < rows ? log_sum[at.number + at.first + row] : V(0);
      }
    });
    WEFT_UNROLL
    for (Index c = 0; c < kTiles; ++c) {
      const Index columns = rest(h.width, c * kSide), row = at.out + at.first * h.row() + c * kSide;
      load_tile<E>(t, query[c], q + at.first * stride + c * kSide, stride, rows, columns);
      load_tile<E>(t, grad[c], grad_out + row, h.row(), rows, columns);
      load_tile<E>(t, other, out + row, h.row(), rows, columns);
      clear_tile(t, sums[c]);
      t.each([&](int lane) {
        WEFT_UNROLL
        for (int n = 0; n < kOwn; ++n)
          product[n / 2 % 2][lane] +=
              Codec<E>::widen(grad[c][lane].own[n]) * Codec<E>::widen(other[lane].own[n]);
      });
    }
    t.template join<4>(product[0], Plus());
    t.template join<4>(product[1], Plus());
    for (Index first = 0; first < at.first + kSide; first += kSide) {
      const Index keys = rest(h.positions, first);
      clear_tile(t, score);
      clear_tile(t, slope);
      WEFT_UNROLL
      for (Index c = 0; c < kTiles; ++c) {
        const Index columns = rest(h.width, c * kSide);
        load_tile<E>(t, other, k + first * stride + c * kSide, stride, keys, columns);
        multiply<E>(t, score, query[c], other);
        load_tile<E>(t, other, v + first * stride + c * kSide, stride, keys, columns);
        multiply<E>(t, slope, grad[c], other);
      }
      t.each([&](int lane) {
        WEFT_UNROLL
        for (int n = 0; n < kOwn; ++n) {
          const int half = n / 2 % 2;
          const bool seen = first + column_of(lane, n) <= at.first + row_of(lane, n);
          const V p = seen ? exponential(score[lane].own[n] * factor - log[half][lane]) : V(0);
          weights[lane].own[n] =
              Codec<E>::narrow(p * (slope[lane].own[n] - product[half][lane]) * factor);
        }
      });
      WEFT_UNROLL
      for (Index c = 0; c < kTiles; ++c) {
        load_tile<E>(t, other, k + first * stride + c * kSide, stride, keys,
                     rest(h.width, c * kSide));
        transpose(t, other);
        multiply<E>(t, sums[c], weights, other);
      }
    }
    t.each([&](int lane) {
      WEFT_UNROLL
      for (int half = 0; half < 2; ++half) {
        const Index row = row_of(lane, 2 * half);
        if (lane % 4 == 0 && row < rows) inner[at.number + at.first + row] = product[half][lane];
      }
    });
    WEFT_UNROLL
    for (Index c = 0; c < kTiles; ++c)
      store_tile<E>(t, grad_qkv + at.qkv + at.first * stride + c * kSide, sums[c], stride, rows,
                    rest(h.width, c * kSide));
  }
};

// Writes the gradients of keys and values. The team's rows are keys; queries are columns.
template <class E, Index kWidth>
struct AttentionGradKeysOf {
  WEFT_KERNEL("attention_grad_keys");
  static constexpr Index kTiles = kWidth / kSide;
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
    const Index stride = 3 * h.row(), rows = rest(h.positions, at.first);
    const S *q = qkv + at.qkv, *k = q + h.row(), *v = k + h.row();
    TileOf<Team, S> key[kTiles], value[kTiles], other, weights, slopes;
    TileOf<Team, V> key_sums[kTiles], value_sums[kTiles], score, slope;
    WEFT_UNROLL
    for (Index c = 0; c < kTiles; ++c) {
      const Index columns = rest(h.width, c * kSide), from = at.first * stride + c * kSide;
      load_tile<E>(t, key[c], k + from, stride, rows, columns);
      load_tile<E>(t, value[c], v + from, stride, rows, columns);
      clear_tile(t, key_sums[c]);
      clear_tile(t, value_sums[c]);
    }
    for (Index first = at.first; first < h.positions; first += kSide) {
      const Index queries = rest(h.positions, first);
      const S *row = q + first * stride, *grad = grad_out + at.out + first * h.row();
      clear_tile(t, score);
      clear_tile(t, slope);
      WEFT_UNROLL
      for (Index c = 0; c < kTiles; ++c) {
        const Index columns = rest(h.width, c * kSide);
        load_tile<E>(t, other, row + c * kSide, stride, queries, columns);
        multiply<E>(t, score, key[c], other);
        load_tile<E>(t, other, grad + c * kSide, h.row(), queries, columns);
        multiply<E>(t, slope, value[c], other);
      }
      t.each([&](int lane) {
        WEFT_UNROLL
        for (int n = 0; n < kOwn; ++n) {
          const Index query = first + column_of(lane, n);
          const bool seen = query < h.positions && at.first + row_of(lane, n) <= query;
          const Index number = at.number + query;
          const V p = seen ? exponential(score[lane].own[n] * factor - log_sum[number]) : V(0);
          const V d = seen ? p * (slope[lane].own[n] - inner[number]) * factor : V(0);
          weights[lane].own[n] = Codec<E>::narrow(p);
          slopes[lane].own[n] = Codec<E>::narrow(d);
        }
      });
      WEFT_UNROLL
      for (Index c = 0; c < kTiles; ++c) {
        const Index columns = rest(h.width, c * kSide);
        load_tile<E>(t, other, row + c * kSide, stride, queries, columns);
        transpose(t, other);
        multiply<E>(t, key_sums[c], slopes, other);
        load_tile<E>(t, other, grad + c * kSide, h.row(), queries, columns);
        transpose(t, other);
        multiply<E>(t, value_sums[c], weights, other);
      }
    }
    WEFT_UNROLL
    for (Index c = 0; c < kTiles; ++c) {
      const Index columns = rest(h.width, c * kSide);
      S* to = grad_qkv + at.qkv + at.first * stride + c * kSide;
      store_tile<E>(t, to + h.row(), key_sums[c], stride, rows, columns);
      store_tile<E>(t, to + 2 * h.row(), value_sums[c], stride, rows, columns);
    }
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
inline constexpr Index kWidestHead = 128;  // what a thread's registers hold

}  // namespace weft::train::kernels

// Attention's kernels for one element, for heads of up to 64 and up to 128 numbers.
#define WEFT_ATTENTION_KERNELS(X, E)                                                      \
  X(Attention<64>::Of, E)                                                                 \
  X(Attention<64>::GradQueries, E) X(Attention<64>::GradKeys, E) X(Attention<128>::Of, E) \
      X(Attention<128>::GradQueries, E) X(Attention<128>::GradKeys, E)
