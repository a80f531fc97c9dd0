// Elementwise kernels: sums, GELU, embedding, biases. See device/kernels.h.
#pragma once

#include "train/device/kernel.h"

namespace weft::train::kernels {

// ---- element by element ---------------------------------------------------------------------

template <class E>
struct Add {
  WEFT_KERNEL("add");
  S* to;
  const S* from;
  Index count;
  WEFT_POINTERS(f(to), f(from));
  WEFT_PACKS(count)
  WEFT_HD void pack(Index at, Index n) const {
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
  WEFT_POINTERS(f(x));
  WEFT_PACKS(count)
  WEFT_HD void pack(Index at, Index n) const {
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
  WEFT_POINTERS(f(x));
  WEFT_PACKS(count)
  WEFT_HD void pack(Index at, Index n) const {
    V zero[kN] = {};
    store<E>(x + at, zero, n);
  }
};

// Rounds master weights to the model's weights, or widens.
template <class E, bool kWidens>
struct Convert {
  WEFT_KERNEL(kWidens ? "widen" : "narrow");
  using To = std::conditional_t<kWidens, W, E>;
  using From = std::conditional_t<kWidens, E, W>;
  typename To::Stored* to;
  const typename From::Stored* from;
  Index count;
  WEFT_POINTERS(f(to), f(from));
  WEFT_PACKS(count)
  WEFT_HD void pack(Index at, Index n) const {
    V a[kN];
    load<From>(a, from + at, n);
    store<To>(to + at, a, n);
  }
};
template <class E>
using Narrow = Convert<E, false>;
template <class E>
using Widen = Convert<E, true>;

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
  WEFT_POINTERS(f(y), f(x));
  WEFT_PACKS(count)
  WEFT_HD void pack(Index at, Index n) const {
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
  WEFT_POINTERS(f(grad_x), f(grad_y), f(x));
  WEFT_PACKS(count)
  WEFT_HD void pack(Index at, Index n) const {
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

// out = x + y + table[(first + row) % positions] in each row; x and table may be null (zero).
template <class E>
struct AddRows {
  WEFT_KERNEL("add_rows");
  S* out;
  const S* x;
  const S* y;
  const S* table;
  Index rows, width;
  Index first = 0, positions = 1;  // by default the table has one row: a bias
  WEFT_POINTERS(f(out), f(x), f(y), f(table));
  WEFT_PACKS_OF_ROWS(rows, width)
  WEFT_HD void pack(Index row, Index column, Index n) const {
    V a[kN], b[kN];
    load<E>(a, y + row * width + column, n);
    if (x != nullptr) {
      load<E>(b, x + row * width + column, n);
      for (int k = 0; k < kN; ++k) a[k] += b[k];
    }
    if (table != nullptr) {
      load<E>(b, table + (first + row) % positions * width + column, n);
      for (int k = 0; k < kN; ++k) a[k] += b[k];
    }
    store<E>(out + row * width + column, a, n);
  }
};

// to[row][columns] = from[row][columns]; strides in elements.
template <class E>
struct CopyColumns {
  WEFT_KERNEL("copy_columns");
  S* to;
  const S* from;
  Index to_stride, from_stride, rows, columns;
  WEFT_POINTERS(f(to), f(from));
  WEFT_PACKS_OF_ROWS(rows, columns)
  WEFT_HD void pack(Index row, Index column, Index n) const {
    V a[kN];
    load<E>(a, from + row * from_stride + column, n);
    store<E>(to + row * to_stride + column, a, n);
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
  WEFT_POINTERS(f(out), f(table), f(tokens));
  WEFT_PACKS_OF_ROWS(rows, width)
  WEFT_HD void pack(Index row, Index column, Index n) const {
    const Index token = static_cast<Index>(tokens[row]) - first;  // wraps around if < first
    V a[kN] = {};
    if (token < count) load<E>(a, table + token * width + column, n);
    store<E>(out + row * width + column, a, n);
  }
};

// Sums the gradients of each segment: up to kSegment rows with the same token, listed in `order`.
inline constexpr Index kSegment = 32;
template <class E>
struct EmbedSegments {
  WEFT_KERNEL("embed_segments");
  V* sums;  // [segments][width]
  const S* grad_out;
  const std::uint32_t* order;  // rows by token
  const std::uint32_t* begin;  // segments + 1 indices into `order`
  Index segments, width;
  WEFT_POINTERS(f(sums), f(grad_out), f(order), f(begin));
  WEFT_PACKS_OF_ROWS(segments, width)
  WEFT_HD void pack(Index segment, Index column, Index n) const {
    V sum[kN] = {}, a[kN];
    for (Index k = begin[segment]; k < begin[segment + 1]; ++k) {
      load<E>(a, grad_out + order[k] * width + column, n);
      for (int j = 0; j < kN; ++j) sum[j] += a[j];
    }
    store<W>(sums + segment * width + column, sum, n);
  }
};
// Adds the segments of each token in the batch to its row of the table.
template <class E>
struct EmbedGrad {
  WEFT_KERNEL("embed_grad");
  S* grad_table;
  const V* sums;
  const std::uint32_t* token;  // row of the table
  const std::uint32_t* begin;  // first segment of each token; tokens + 1 elements
  Index tokens, width;
  WEFT_POINTERS(f(grad_table), f(sums), f(token), f(begin));
  WEFT_PACKS_OF_ROWS(tokens, width)
  WEFT_HD void pack(Index t, Index column, Index n) const {
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

// grad_table[(first + row) % positions] += grad[row]
template <class E>
struct PositionsGrad {
  WEFT_KERNEL("positions_grad");
  S* grad_table;
  const S* grad;
  Index first, positions, rows, width;
  WEFT_POINTERS(f(grad_table), f(grad));
  WEFT_PACKS_OF_ROWS(positions, width)
  WEFT_HD void pack(Index position, Index column, Index n) const {
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

// Maximum number of slabs: with 768 columns their threads fill a GPU of 132 multiprocessors.
inline constexpr Index kSlabs = 512;
// Sums each column of y over slabs of rows; with x, also the products of y and normalized x.
template <class E>
struct ColumnSlabs {
  WEFT_KERNEL("column_slabs");
  V* sums;      // [slabs][width]
  V* products;  // [slabs][width]; null without x
  const S* y;
  const S* x;
  const V* mean;
  const V* rstd;
  Index rows, width, slab;  // slab: rows per slab
  WEFT_POINTERS(f(sums), f(products), f(y), f(x), f(mean), f(rstd));
  WEFT_HD Index slabs() const { return (rows + slab - 1) / slab; }
  WEFT_PACKS_OF_ROWS(slabs(), width)
  WEFT_HD void pack(Index part, Index column, Index n) const {
    const Index end = least(rows, (part + 1) * slab);
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
  WEFT_POINTERS(f(to), f(sums));
  WEFT_HD Index teams() const { return width; }
  template <class Team>
  WEFT_HD void team(Team& t, Index column) const {
    const auto sum = [&](int lane) {
      V of_lane = 0;
      for (Index s = static_cast<Index>(lane); s < slabs; s += kLanes)
        of_lane += sums[s * width + column];
      return of_lane;
    };
    const V all = joined<V>(t, sum, Plus());
    once(t, [&] { put<E>(to + column, get<E>(to + column) + all); });
  }
};

}  // namespace weft::train::kernels
