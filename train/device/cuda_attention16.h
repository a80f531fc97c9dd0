// Attention in 16 bits on tensor cores: the kernels of kernels_attention.h, with the same
// parameters and results. A block of four warps computes 64 rows of one head; tiles of keys and
// values (or queries) stream through shared memory in two stages (cp.async), and warps load
// fragments for PTX's mma.m16n8k16 from there (ldmatrix). FlashAttention-2 (Dao, arXiv 2307.08691);
// each number has one writer and one summation order, so repeated passes have the same bits. Needs
// a GPU: other tests run kernels_attention.h, and CudaOperators.Attention compares both with fp64.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "train/device/kernels_attention.h"

namespace weft::train::kernels::attention16 {

inline constexpr int kWarps = 4, kBlock = kWarps * kLanes;
inline constexpr int kRows = 16 * kWarps;  // rows that a block computes
inline constexpr float kLog2E = 1.44269504f, kLn2 = 0.69314718f, kMasked = -1e30f;
using Word = std::uint32_t;  // two adjacent numbers, or an address in shared memory
using Number = std::uint16_t;

// Rows of a streamed tile: limited by the registers that a thread's sums leave free.
template <int kD>
inline constexpr int kPassing = kD <= 64 ? 64 : 32;

// ---- instructions ---------------------------------------------------------------------------

template <class E>
__device__ __forceinline__ Word pack(float low, float high) {
  Word word;
  if constexpr (E::kType == DType::kBFloat16) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    memcpy(&word, &both, sizeof word);
  } else {
    const __half2 both = __floats2half2_rn(low, high);
    memcpy(&word, &both, sizeof word);
  }
  return word;
}

__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// c[16 x 8] += a[16 x 16] b[16 x 8]
template <class E>
__device__ __forceinline__ void multiply_add(float (&c)[4], const Word (&a)[4], Word b0, Word b1) {
  if constexpr (E::kType == DType::kBFloat16)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
        "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// ---- tiles in shared memory -----------------------------------------------------------------
// A tile's rows have kD numbers, in chunks of 8; chunk c of row r is at index c ^ r % 8 (swizzle),
// so that the 8 rows of an ldmatrix are in different banks.

template <int kD>
__device__ __forceinline__ Word chunk_at(Word tile, int row, int chunk) {
  return tile + static_cast<Word>(row * kD * 2 + ((chunk ^ (row & 7)) << 4));
}

// Starts the copy of kCount rows; rows from `rows` on and columns from `width` on are zero-filled.
template <int kD, int kCount>
__device__ __forceinline__ void fetch(Word tile, const Number* from, Index stride, Index rows,
                                      Index width) {
  constexpr int kChunks = kD / 8;
  WEFT_UNROLL
  for (int i = static_cast<int>(threadIdx.x); i < kCount * kChunks; i += kBlock) {
    const int r = i / kChunks, c = i % kChunks;
    const bool inside = static_cast<Index>(r) < rows && static_cast<Index>(c * 8) < width;
    const Number* p = inside ? from + static_cast<Index>(r) * stride + c * 8 : from;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(chunk_at<kD>(tile, r, c)),
                 "l"(p), "r"(inside ? 16 : 0)
                 : "memory");
  }
}
__device__ __forceinline__ void end_of_fetches() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kLeft>
__device__ __forceinline__ void wait_for_fetches() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

__device__ __forceinline__ void load_matrices(Word (&x)[4], Word at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(at)
               : "memory");
}
__device__ __forceinline__ void load_turned(Word (&x)[4], Word at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(at)
               : "memory");
}

// c[16 x N] += a b^T; a: the warp's 16 rows of a tile, b: N rows of another tile.
template <class E, int kD, int kN>
__device__ __forceinline__ void rows_by_rows(float (&c)[kN / 8][4], Word a, Word b, int lane) {
  const int row = static_cast<int>(threadIdx.x) / kLanes * 16 + lane % 16;
  WEFT_UNROLL
  for (int k = 0; k < kD / 16; ++k) {
    Word x[4];
    load_matrices(x, chunk_at<kD>(a, row, 2 * k + lane / 16));
    WEFT_UNROLL
    for (int n = 0; n < kN / 16; ++n) {
      Word y[4];
      load_matrices(y, chunk_at<kD>(b, 16 * n + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
      multiply_add<E>(c[2 * n], x, y[0], y[1]);
      multiply_add<E>(c[2 * n + 1], x, y[2], y[3]);
    }
  }
}

// c[16 x kD] += a b; a[16 x N]: accumulators of a product in registers, b: N rows of a tile.
template <class E, int kD, int kN>
__device__ __forceinline__ void by_columns(float (&c)[kD / 8][4], const float (&a)[kN / 8][4],
                                           Word b, int lane) {
  WEFT_UNROLL
  for (int k = 0; k < kN / 16; ++k) {
    const Word x[4] = {pack<E>(a[2 * k][0], a[2 * k][1]), pack<E>(a[2 * k][2], a[2 * k][3]),
                       pack<E>(a[2 * k + 1][0], a[2 * k + 1][1]),
                       pack<E>(a[2 * k + 1][2], a[2 * k + 1][3])};
    WEFT_UNROLL
    for (int n = 0; n < kD / 16; ++n) {
      Word y[4];
      load_turned(y, chunk_at<kD>(b, 16 * k + lane % 16, 2 * n + lane / 16));
      multiply_add<E>(c[2 * n], x, y[0], y[1]);
      multiply_add<E>(c[2 * n + 1], x, y[2], y[3]);
    }
  }
}

template <int kTiles>
__device__ __forceinline__ void clear(float (&c)[kTiles][4]) {
  WEFT_UNROLL
  for (int i = 0; i < kTiles; ++i) WEFT_UNROLL
  for (int j = 0; j < 4; ++j) c[i][j] = 0;
}

// Writes the warp's 16 rows; `to` points to the block's first row.
template <class E, int kD>
__device__ __forceinline__ void write_rows(Number* to, const float (&c)[kD / 8][4], Index stride,
                                           Index rows, Index width, int lane) {
  WEFT_UNROLL
  for (int half = 0; half < 2; ++half) {
    const auto row = static_cast<Index>(static_cast<int>(threadIdx.x) / kLanes * 16 + lane / 4) +
                     static_cast<Index>(8 * half);
    if (row >= rows) continue;
    WEFT_UNROLL
    for (int n = 0; n < kD / 8; ++n)
      if (static_cast<Index>(8 * n) < width) {
        const Word word = pack<E>(c[n][2 * half], c[n][2 * half + 1]);
        memcpy(to + row * stride + 8 * n + lane % 4 * 2, &word, sizeof word);
      }
  }
}

// Position of a block's rows. Blocks of a head are consecutive; those with more work run first.
struct Place {
  Index qkv, out, number, first;
  __device__ Place(const Heads& h, bool late_first) {
    const Index blocks = (h.positions + kRows - 1) / kRows, both = blockIdx.x / blocks;
    const Index sample = both / h.heads, head = both % h.heads, block = blockIdx.x % blocks;
    qkv = sample * h.positions * 3 * h.row() + head * h.width;
    out = sample * h.positions * h.row() + head * h.width;
    number = both * h.positions;
    first = (late_first ? blocks - 1 - block : block) * kRows;
  }
};
inline unsigned blocks_of(const Heads& h) {
  return static_cast<unsigned>(h.batch * h.heads * ((h.positions + kRows - 1) / kRows));
}

__device__ __forceinline__ Word shared_memory() {
  extern __shared__ __align__(128) unsigned char attention16_memory[];
  return static_cast<Word>(__cvta_generic_to_shared(attention16_memory));
}
template <int kD>
inline constexpr Word kTile = kRows* kD * 2;  // bytes of a tile of the block's rows
template <int kD>
inline constexpr Word kStage = kPassing<kD>* kD * 2;  // bytes of a streamed tile
// Two tiles of the block, two stages of two streamed tiles.
template <int kD>
inline constexpr Word kMemory = 2 * kTile<kD> + 4 * kStage<kD>;

// ---- kernels --------------------------------------------------------------------------------

template <class E, Index kWidth>
__global__ void __launch_bounds__(kBlock)
    forward(const __grid_constant__ AttentionOf<E, kWidth> k) {
  constexpr int kD = static_cast<int>(kWidth), kN = kPassing<kD>;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const Heads& h = k.h;
  const Place at(h, true);
  const Index stride = 3 * h.row(), rows = rest(h.positions, at.first);
  const Number *q = k.qkv + at.qkv, *keys = q + h.row(), *values = keys + h.row();
  const Word query = shared_memory(), stages = query + kTile<kD>;
  const auto fetch_stage = [&](Index t) {
    const Word to = stages + static_cast<Word>(t % 2) * 2 * kStage<kD>;
    const Index from = t * kN, left = rest(h.positions, from);
    fetch<kD, kN>(to, keys + from * stride, stride, left, h.width);
    fetch<kD, kN>(to + kStage<kD>, values + from * stride, stride, left, h.width);
    end_of_fetches();
  };
  fetch<kD, kRows>(query, q + at.first * stride, stride, rows, h.width);
  fetch_stage(0);

  const Index row0 = at.first + static_cast<Index>(static_cast<int>(threadIdx.x) / kLanes * 16 +
                                                   lane / 4);  // and row0 + 8
  const Index tiles = (least(at.first + kRows, h.positions) + kN - 1) / kN;
  const float factor = k.factor * kLog2E;
  float sums[kD / 8][4], most[2] = {kMasked, kMasked}, sum[2] = {0, 0};
  clear(sums);
  for (Index t = 0; t < tiles; ++t) {
    if (t + 1 < tiles) {
      fetch_stage(t + 1);
      wait_for_fetches<1>();
    } else {
      wait_for_fetches<0>();
    }
    __syncthreads();
    const Word key = stages + static_cast<Word>(t % 2) * 2 * kStage<kD>;
    float score[kN / 8][4];
    clear(score);
    rows_by_rows<E, kD, kN>(score, query, key, lane);
    const Index first_key = t * kN + static_cast<Index>(lane % 4 * 2);
    const bool whole = t * kN + kN - 1 <= at.first;  // all keys are visible to all rows
    float now[2] = {most[0], most[1]};
    WEFT_UNROLL
    for (int n = 0; n < kN / 8; ++n) WEFT_UNROLL
    for (int j = 0; j < 4; ++j) {
      const bool seen = whole || first_key + static_cast<Index>(8 * n + j % 2) <=
                                     row0 + static_cast<Index>(j / 2 * 8);
      score[n][j] = seen ? score[n][j] * factor : kMasked;
      now[j / 2] = fmaxf(now[j / 2], score[n][j]);
    }
    WEFT_UNROLL
    for (int half = 0; half < 2; ++half) {
      now[half] = fmaxf(now[half], __shfl_xor_sync(0xffffffffu, now[half], 1));
      now[half] = fmaxf(now[half], __shfl_xor_sync(0xffffffffu, now[half], 2));
      const float correction = power_of_two(most[half] - now[half]);
      most[half] = now[half];
      sum[half] *= correction;
      WEFT_UNROLL
      for (int d = 0; d < kD / 8; ++d) {
        sums[d][2 * half] *= correction;
        sums[d][2 * half + 1] *= correction;
      }
    }
    WEFT_UNROLL
    for (int n = 0; n < kN / 8; ++n) WEFT_UNROLL
    for (int j = 0; j < 4; ++j) {
      score[n][j] = power_of_two(score[n][j] - most[j / 2]);
      sum[j / 2] += score[n][j];
    }
    by_columns<E, kD, kN>(sums, score, key + kStage<kD>, lane);
    __syncthreads();
  }
  WEFT_UNROLL
  for (int half = 0; half < 2; ++half) {
    sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 1);
    sum[half] += __shfl_xor_sync(0xffffffffu, sum[half], 2);
    const Index row = row0 + static_cast<Index>(8 * half);
    if (lane % 4 == 0 && row < h.positions)
      k.log_sum[at.number + row] = most[half] * kLn2 + logarithm(sum[half]);
    const float share = 1 / sum[half];
    WEFT_UNROLL
    for (int d = 0; d < kD / 8; ++d) {
      sums[d][2 * half] *= share;
      sums[d][2 * half + 1] *= share;
    }
  }
  write_rows<E, kD>(k.out + at.out + at.first * h.row(), sums, h.row(), rows, h.width, lane);
}

// The block's rows are queries; keys and values stream.
template <class E, Index kWidth>
__global__ void __launch_bounds__(kBlock)
    grad_queries(const __grid_constant__ AttentionGradQueriesOf<E, kWidth> k) {
  constexpr int kD = static_cast<int>(kWidth), kN = kPassing<kD>;
  __shared__ float products[kRows];
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const Heads& h = k.h;
  const Place at(h, true);
  const Index stride = 3 * h.row(), rows = rest(h.positions, at.first);
  const Number *q = k.qkv + at.qkv, *keys = q + h.row(), *values = keys + h.row();
  const Number *grad_out = k.grad_out + at.out + at.first * h.row(),
               *out = k.out + at.out + at.first * h.row();
  const Word query = shared_memory(), grad = query + kTile<kD>, stages = grad + kTile<kD>;
  const auto fetch_stage = [&](Index t) {
    const Word to = stages + static_cast<Word>(t % 2) * 2 * kStage<kD>;
    const Index from = t * kN, left = rest(h.positions, from);
    fetch<kD, kN>(to, keys + from * stride, stride, left, h.width);
    fetch<kD, kN>(to + kStage<kD>, values + from * stride, stride, left, h.width);
    end_of_fetches();
  };
  fetch<kD, kRows>(query, q + at.first * stride, stride, rows, h.width);
  fetch<kD, kRows>(grad, grad_out, h.row(), rows, h.width);
  fetch_stage(0);

  {  // dot product of out and its gradient per row, by two threads
    const Index row = threadIdx.x / 2;
    float product = 0;
    if (row < rows)
      for (Index c = threadIdx.x % 2 * 8; c < h.width; c += 16) {
        float x[8], y[8];
        load<E>(x, out + row * h.row() + c, 8);
        load<E>(y, grad_out + row * h.row() + c, 8);
        WEFT_UNROLL
        for (int i = 0; i < 8; ++i) product += x[i] * y[i];
      }
    product += __shfl_xor_sync(0xffffffffu, product, 1);
    if (threadIdx.x % 2 == 0) {
      products[row] = product;
      if (row < rows) k.inner[at.number + at.first + row] = product;
    }
  }
  __syncthreads();
  const int own = static_cast<int>(threadIdx.x) / kLanes * 16 + lane / 4;  // and own + 8
  const Index row0 = at.first + static_cast<Index>(own);
  const float product[2] = {products[own], products[own + 8]};
  float log[2];
  WEFT_UNROLL
  for (int half = 0; half < 2; ++half) {
    const Index row = row0 + static_cast<Index>(8 * half);
    log[half] = row < h.positions ? k.log_sum[at.number + row] * kLog2E : 0.0f;
  }

  const Index tiles = (least(at.first + kRows, h.positions) + kN - 1) / kN;
  float sums[kD / 8][4];
  clear(sums);
  for (Index t = 0; t < tiles; ++t) {
    if (t + 1 < tiles) {
      fetch_stage(t + 1);
      wait_for_fetches<1>();
    } else {
      wait_for_fetches<0>();
    }
    __syncthreads();
    const Word key = stages + static_cast<Word>(t % 2) * 2 * kStage<kD>;
    float score[kN / 8][4], slope[kN / 8][4];
    clear(score);
    clear(slope);
    rows_by_rows<E, kD, kN>(score, query, key, lane);
    rows_by_rows<E, kD, kN>(slope, grad, key + kStage<kD>, lane);
    const Index first_key = t * kN + static_cast<Index>(lane % 4 * 2);
    const bool whole = t * kN + kN - 1 <= at.first;
    WEFT_UNROLL
    for (int n = 0; n < kN / 8; ++n) WEFT_UNROLL
    for (int j = 0; j < 4; ++j) {
      const bool seen = whole || first_key + static_cast<Index>(8 * n + j % 2) <=
                                     row0 + static_cast<Index>(j / 2 * 8);
      const float p = seen ? power_of_two(score[n][j] * (k.factor * kLog2E) - log[j / 2]) : 0.0f;
      score[n][j] = p * (slope[n][j] - product[j / 2]) * k.factor;
    }
    by_columns<E, kD, kN>(sums, score, key, lane);
    __syncthreads();
  }
  write_rows<E, kD>(k.grad_qkv + at.qkv + at.first * stride, sums, stride, rows, h.width, lane);
}

// The block's rows are keys and values; queries and output gradients stream.
template <class E, Index kWidth>
__global__ void __launch_bounds__(kBlock)
    grad_keys(const __grid_constant__ AttentionGradKeysOf<E, kWidth> k) {
  constexpr int kD = static_cast<int>(kWidth), kN = kPassing<kD>;
  __shared__ float logs[2][kN], products[2][kN];
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const Heads& h = k.h;
  const Place at(h, false);
  const Index stride = 3 * h.row(), rows = rest(h.positions, at.first);
  const Number *q = k.qkv + at.qkv, *keys = q + h.row(), *values = keys + h.row();
  const Word key = shared_memory(), value = key + kTile<kD>, stages = value + kTile<kD>;
  // The first tile with queries that see the block's first key.
  const Index begin = at.first / kN, tiles = (h.positions + kN - 1) / kN;
  const auto fetch_stage = [&](Index t) {
    const Word to = stages + static_cast<Word>(t % 2) * 2 * kStage<kD>;
    const Index from = t * kN, left = rest(h.positions, from);
    fetch<kD, kN>(to, q + from * stride, stride, left, h.width);
    fetch<kD, kN>(to + kStage<kD>, k.grad_out + at.out + from * h.row(), h.row(), left, h.width);
    end_of_fetches();
    if (threadIdx.x < kN) {
      const bool inside = threadIdx.x < left;
      logs[t % 2][threadIdx.x] = inside ? k.log_sum[at.number + from + threadIdx.x] * kLog2E : 0.0f;
      products[t % 2][threadIdx.x] = inside ? k.inner[at.number + from + threadIdx.x] : 0.0f;
    }
  };
  fetch<kD, kRows>(key, keys + at.first * stride, stride, rows, h.width);
  fetch<kD, kRows>(value, values + at.first * stride, stride, rows, h.width);
  fetch_stage(begin);

  const Index row0 =
      at.first + static_cast<Index>(static_cast<int>(threadIdx.x) / kLanes * 16 + lane / 4);
  float key_sums[kD / 8][4], value_sums[kD / 8][4];
  clear(key_sums);
  clear(value_sums);
  for (Index t = begin; t < tiles; ++t) {
    if (t + 1 < tiles) {
      fetch_stage(t + 1);
      wait_for_fetches<1>();
    } else {
      wait_for_fetches<0>();
    }
    __syncthreads();
    const Word query = stages + static_cast<Word>(t % 2) * 2 * kStage<kD>;
    float score[kN / 8][4], slope[kN / 8][4];
    clear(score);
    clear(slope);
    rows_by_rows<E, kD, kN>(score, key, query, lane);
    rows_by_rows<E, kD, kN>(slope, value, query + kStage<kD>, lane);
    WEFT_UNROLL
    for (int n = 0; n < kN / 8; ++n) WEFT_UNROLL
    for (int j = 0; j < 4; ++j) {
      const int column = 8 * n + lane % 4 * 2 + j % 2;
      const Index here = t * kN + static_cast<Index>(column);
      const bool seen = here < h.positions && row0 + static_cast<Index>(j / 2 * 8) <= here;
      const float p =
          seen ? power_of_two(score[n][j] * (k.factor * kLog2E) - logs[t % 2][column]) : 0.0f;
      score[n][j] = p;
      slope[n][j] = p * (slope[n][j] - products[t % 2][column]) * k.factor;
    }
    by_columns<E, kD, kN>(value_sums, score, query + kStage<kD>, lane);
    by_columns<E, kD, kN>(key_sums, slope, query, lane);
    __syncthreads();
  }
  Number* to = k.grad_qkv + at.qkv + at.first * stride + h.row();
  write_rows<E, kD>(to, key_sums, stride, rows, h.width, lane);
  write_rows<E, kD>(to + h.row(), value_sums, stride, rows, h.width, lane);
}

template <class E, Index kWidth>
auto kernel_of(const AttentionOf<E, kWidth>*) {
  return &forward<E, kWidth>;
}
template <class E, Index kWidth>
auto kernel_of(const AttentionGradQueriesOf<E, kWidth>*) {
  return &grad_queries<E, kWidth>;
}
template <class E, Index kWidth>
auto kernel_of(const AttentionGradKeysOf<E, kWidth>*) {
  return &grad_keys<E, kWidth>;
}

}  // namespace weft::train::kernels::attention16

namespace weft::train::kernels {

// Loads the 16-bit kernel, and allows it more shared memory than the default limit.
template <template <class, Index> class K, class E, Index kWidth>
requires(sizeof(typename E::Stored) == 2) cudaError_t
    load_for_tensor_cores(const K<E, kWidth>* kernel) {
  return cudaFuncSetAttribute(attention16::kernel_of(kernel),
                              cudaFuncAttributeMaxDynamicSharedMemorySize,
                              attention16::kMemory<static_cast<int>(kWidth)>);
}

// Launches the kernel. Returns false, without a launch, if rows are not aligned to 16 bytes.
template <template <class, Index> class K, class E, Index kWidth>
requires(sizeof(typename E::Stored) == 2) bool launch_on_tensor_cores(const K<E, kWidth>& kernel,
                                                                      cudaStream_t stream) {
  bool fits = kernel.h.width % 8 == 0;
  K<E, kWidth> copy = kernel;
  copy.pointers([&](auto* p) { fits = fits && aligned(p); });
  if (!fits || load_for_tensor_cores(&kernel) != cudaSuccess) return false;
  attention16::kernel_of(&kernel)<<<attention16::blocks_of(kernel.h), attention16::kBlock,
                                    attention16::kMemory<static_cast<int>(kWidth)>, stream>>>(
      kernel);
  return true;
}

}  // namespace weft::train::kernels
