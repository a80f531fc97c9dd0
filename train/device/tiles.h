// Tiles: matrices of 16 x 16 numbers that a team of lanes holds, and their products. On a GPU
// tensor cores multiply tiles of 16-bit numbers; each lane holds the numbers that mma.m16n8k16 of
// PTX wants there. On the processor the same places are an array, so that tests without a GPU find
// a number in a wrong place.
#pragma once

#include "train/device/kernel.h"

namespace weft::train::kernels {

inline constexpr Index kSide = 16;  // rows and columns of a tile
inline constexpr int kOwn = 8;      // numbers of a tile that a lane holds

template <class N>
struct Tile {
  N own[kOwn];
};
// Returns the row and the column of the lane's number i. Numbers 2k and 2k + 1 are neighbours.
WEFT_HD constexpr Index row_of(int lane, int i) {
  return static_cast<Index>(lane / 4 + (i & 2) * 4);
}
WEFT_HD constexpr Index column_of(int lane, int i) {
  return static_cast<Index>(lane % 4 * 2 + (i & 1) + (i & 4) * 2);
}

template <class Team, class N>
using TileOf = typename Team::template PerLane<Tile<N>>;

// Two neighbours, which a lane reads and writes at once where their place allows.
template <class S>
struct alignas(2 * sizeof(S)) Pair {
  S each[2];
  static WEFT_HD bool fits(const S* p) {
    return reinterpret_cast<std::uintptr_t>(p) % sizeof(Pair) == 0;
  }
};

// Loads the tile whose first number is at `from`; numbers past `rows` and `columns` become zero.
template <class E, class Team>
WEFT_HD void load_tile(Team& t, TileOf<Team, typename E::Stored>& to,
                       const typename E::Stored* from, Index stride, Index rows, Index columns) {
  using S = typename E::Stored;
  t.each([&](int lane) {
    WEFT_UNROLL
    for (int i = 0; i < kOwn; i += 2) {
      const Index r = row_of(lane, i), c = column_of(lane, i);
      Pair<S> pair{};
      if (r < rows && c < columns) {
        const S* p = from + r * stride + c;
        if (c + 1 < columns && Pair<S>::fits(p))
          pair = *reinterpret_cast<const Pair<S>*>(p);
        else
          pair = {p[0], c + 1 < columns ? p[1] : S{}};
      }
      memcpy(to[lane].own + i, &pair, sizeof pair);
    }
  });
}
template <class E, class Team>
WEFT_HD void store_tile(Team& t, typename E::Stored* to, TileOf<Team, typename E::Value>& from,
                        Index stride, Index rows, Index columns) {
  using S = typename E::Stored;
  t.each([&](int lane) {
    WEFT_UNROLL
    for (int i = 0; i < kOwn; i += 2) {
      const Index r = row_of(lane, i), c = column_of(lane, i);
      if (r >= rows || c >= columns) continue;
      const Pair<S> pair = {Codec<E>::narrow(from[lane].own[i]),
                            Codec<E>::narrow(from[lane].own[i + 1])};
      S* p = to + r * stride + c;
      if (c + 1 < columns && Pair<S>::fits(p))
        *reinterpret_cast<Pair<S>*>(p) = pair;
      else if (p[0] = pair.each[0]; c + 1 < columns)
        p[1] = pair.each[1];
    }
  });
}

template <class Team, class Sums>
WEFT_HD void clear_tile(Team& t, Sums& tile) {
  t.each([&](int lane) {
    WEFT_UNROLL
    for (int i = 0; i < kOwn; ++i) tile[lane].own[i] = 0;
  });
}

// ---- products and transposition -------------------------------------------------------------

// c += a b^T
template <class E>
void multiply(HostTeam&, TileOf<HostTeam, typename E::Value>& c,
              const TileOf<HostTeam, typename E::Stored>& a,
              const TileOf<HostTeam, typename E::Stored>& b) {
  typename E::Value left[kSide][kSide], right[kSide][kSide];
  for (int lane = 0; lane < kLanes; ++lane)
    for (int i = 0; i < kOwn; ++i) {
      left[row_of(lane, i)][column_of(lane, i)] = Codec<E>::widen(a.all[lane].own[i]);
      right[row_of(lane, i)][column_of(lane, i)] = Codec<E>::widen(b.all[lane].own[i]);
    }
  for (int lane = 0; lane < kLanes; ++lane)
    for (int i = 0; i < kOwn; ++i)
      for (Index k = 0; k < kSide; ++k)
        c.all[lane].own[i] += left[row_of(lane, i)][k] * right[column_of(lane, i)][k];
}
template <class S>
void transpose(HostTeam&, TileOf<HostTeam, S>& tile) {
  S turned[kSide][kSide];
  for (int lane = 0; lane < kLanes; ++lane)
    for (int i = 0; i < kOwn; ++i)
      turned[column_of(lane, i)][row_of(lane, i)] = tile.all[lane].own[i];
  for (int lane = 0; lane < kLanes; ++lane)
    for (int i = 0; i < kOwn; ++i)
      tile.all[lane].own[i] = turned[row_of(lane, i)][column_of(lane, i)];
}

#ifdef __CUDACC__
// The lane's numbers 2w and 2w + 1 are word w of PTX's fragments; rows of b are their columns.
template <class E>
__device__ __forceinline__ void multiply(GpuTeam&, TileOf<GpuTeam, typename E::Value>& c,
                                         const TileOf<GpuTeam, typename E::Stored>& a,
                                         const TileOf<GpuTeam, typename E::Stored>& b) {
  if constexpr (sizeof(typename E::Stored) == 2) {
    std::uint32_t x[4], y[4];
    memcpy(x, a.mine.own, sizeof x);
    memcpy(y, b.mine.own, sizeof y);
    WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {
      float* z = c.mine.own + 4 * half;
      if constexpr (E::kType == DType::kBFloat16)
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(z[0]), "+f"(z[1]), "+f"(z[2]), "+f"(z[3])
            : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[half]), "r"(y[half + 2]));
      else
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(z[0]), "+f"(z[1]), "+f"(z[2]), "+f"(z[3])
            : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[half]), "r"(y[half + 2]));
    }
  } else {  // lanes tell each other their numbers: exact, for tests more than for training
    const int lane = static_cast<int>(threadIdx.x % kLanes), row = lane / 4 * 4;
    const auto of = [](auto value, int from) { return __shfl_sync(0xffffffffu, value, from); };
    WEFT_UNROLL
    for (int k = 0; k < static_cast<int>(kSide); ++k) {
      const int at = (k & 1) | (k & 8) / 2, holder = (k & 7) / 2;
      typename E::Value left[2];
      WEFT_UNROLL
      for (int high = 0; high < 2; ++high) left[high] = of(a.mine.own[at | high * 2], row + holder);
      WEFT_UNROLL
      for (int column = 0; column < 4; ++column) {  // numbers column & 1 of half column / 2
        const auto right =
            of(b.mine.own[at | (column & 2)], (lane % 4 * 2 + (column & 1)) * 4 + holder);
        const int to = (column & 1) | (column & 2) * 2;
        c.mine.own[to] += left[0] * right;
        c.mine.own[to | 2] += left[1] * right;
      }
    }
  }
}
template <class S>
__device__ __forceinline__ void transpose(GpuTeam&, TileOf<GpuTeam, S>& tile) {
  S* own = tile.mine.own;
  if constexpr (sizeof(S) == 2) {
    std::uint32_t x[4];
    memcpy(x, own, sizeof x);
    WEFT_UNROLL
    for (int w = 0; w < 4; ++w)
      asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(x[w]));
    const std::uint32_t corner = x[1];
    x[1] = x[2];
    x[2] = corner;
    memcpy(own, x, sizeof x);
  } else {
    const int lane = static_cast<int>(threadIdx.x % kLanes);
    S turned[kOwn];
    WEFT_UNROLL
    for (int i = 0; i < kOwn; ++i) {  // (row, column) comes from (column, row)
      const int from = static_cast<int>(column_of(lane, i & 1)) * 4 + lane / 8,
                at = (i & 4) / 2 | (i & 2) * 2;
      const S even = __shfl_sync(0xffffffffu, own[at], from);
      const S odd = __shfl_sync(0xffffffffu, own[at | 1], from);
      turned[i] = lane / 4 % 2 == 0 ? even : odd;
    }
    WEFT_UNROLL
    for (int i = 0; i < kOwn; ++i) own[i] = turned[i];
  }
}
#endif

}  // namespace weft::train::kernels
