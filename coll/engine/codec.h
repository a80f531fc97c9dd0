// Block quantization: float values as blocks of bytes, each with a scale.
//
// A message of `count` values is cut into blocks of kCodecBlock, the last one shorter. A block is
// its scale, a float, followed by one byte per value. All functions are pure and thread-safe, and
// their results depend on nothing but the values: not on the processor or alignment.
//
// decoded - x| <= codec_error(codec) * max(M, kCodecLeast), M the largest |x| of the block. If a
// block has a NaN or an infinity, all of its decoded values are NaN.
#pragma once

#include <cstddef>

#include "coll/types.h"

namespace weft {

// Short blocks, since gradients of one tensor vary widely: with 256, int8 lost 3 % of the loss.
inline constexpr std::size_t kCodecBlock = 64;
// Blocks whose values are all below this are quantized as if this were the largest one.
inline constexpr float kCodecLeast = 0x1p-100f;

constexpr std::size_t coded_bytes(std::size_t count) {
  return count + (count + kCodecBlock - 1) / kCodecBlock * sizeof(float);
}

// The largest error of one quantization, relative to the largest value of the block: half a step of
// 1/127 (int8) or of 1/8, e4m3's step between powers of two (fp8); plus the rounding of scales.
constexpr double codec_error(Codec codec) {
  return (codec == Codec::kInt8 ? 1.0 / 254 : 1.0 / 16) + 0x1p-20;
}

// Elements of a message of `count` that each of n ranks reduces: whole blocks, or less than one.
constexpr std::size_t coded_part(std::size_t count, std::size_t n) {
  const std::size_t part = (count + n - 1) / n;
  return part < kCodecBlock ? part : (part + kCodecBlock - 1) / kCodecBlock * kCodecBlock;
}

// Writes coded_bytes(count) bytes: x, or x + carry if carry is not null. If error is not null, sets
// error[i] to the value minus its decoded value, or to 0 in a block with a NaN or an infinity.
// error may be x or carry; nothing else may overlap.
void encode(Codec codec, std::byte* to, const float* x, const float* carry, float* error,
            std::size_t count) noexcept;
// to[i] = the sum of the i-th values of n encoded messages, n >= 1, in this order, in fp32.
void decode_sum(Codec codec, float* to, const std::byte* const* from, int n,
                std::size_t count) noexcept;
inline void decode(Codec codec, float* to, const std::byte* from, std::size_t count) noexcept {
  decode_sum(codec, to, &from, 1, count);
}

}  // namespace weft
