// Tiles of 16-bit numbers for tensor cores (device/cuda_attention16.h): a block of four warps has
// 64 rows of one head; tiles of other rows stream through shared memory in two stages (cp.async),
// and warps load fragments for PTX's mma.m16n8k16 from there (ldmatrix).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "train/device/kernel.h"

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

}  // namespace weft::train::kernels::attention16
