// Attention in 16 bits on tensor cores: the kernels of kernels_attention.h, with the same
// parameters and results. A block computes 64 rows of one head; tiles of keys and values (or
// queries) stream (device/cuda_tiles16.h). FlashAttention-2 (Dao, arXiv 2307.08691); each number
// has one writer and one summation order, so repeated passes have the same bits. Needs a GPU: other
// tests run kernels_attention.h, and CudaOperators.Attention compares both with fp64.
#pragma once

#include <cuda_runtime.h>

#include "train/device/cuda_tiles16.h"
#include "train/device/kernels_attention.h"

namespace weft::train::kernels::attention16 {

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
                                                   lane / 4);  // the thread also computes row0 + 8
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
