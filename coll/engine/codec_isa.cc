// The loops of block quantization, written plainly so that the compiler vectorizes them. CMake
// compiles this file once per instruction set, like kernels_isa.cc.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include "coll/engine/codec.h"
#include "coll/engine/kernels_table.h"

#ifndef WEFT_ISA
#define WEFT_ISA base
#endif
#define WEFT_CAT2(a, b) a##b
#define WEFT_CAT(a, b) WEFT_CAT2(a, b)

namespace weft {
namespace {

constexpr std::uint32_t kInfinity = 0x7f800000u;

std::uint32_t bits(float f) { return std::bit_cast<std::uint32_t>(f); }
float from_bits(std::uint32_t u) { return std::bit_cast<float>(u); }

// A decoded value is value(code) times the scale of its block.
struct Int8 {
  static constexpr float kMost = 127;
  static std::uint8_t code(float v) {
    // The addition rounds to an integer, which is in the lowest bits of the sum.
    return static_cast<std::uint8_t>(bits(v + 0x1.8p23f));
  }
  static float value(std::uint8_t code) { return static_cast<std::int8_t>(code); }
};

// 1 sign, 4 exponent and 3 mantissa bits; the exponent's bias is 7; there are no infinities.
struct Fp8 {
  static constexpr float kMost = 448;
  static std::uint8_t code(float v) {
    const std::uint32_t magnitude = bits(v) & 0x7fffffffu;
    const std::uint32_t normal =
        ((magnitude + 0x7ffffu + ((magnitude >> 20) & 1)) >> 20) - (120u << 3);
    // Multiples of 2^-9, the spacing of floats from 2^14 on.
    const std::uint32_t tiny = bits(from_bits(magnitude) + 0x1p14f) - bits(0x1p14f);
    return static_cast<std::uint8_t>((magnitude < bits(0x1p-6f) ? tiny : normal) |
                                     (bits(v) >> 24 & 0x80u));
  }
  static float value(std::uint8_t code) {
    const std::uint32_t magnitude = code & 0x7fu, sign = (code & 0x80u) << 24;
    const float normal = from_bits((magnitude << 20) + (120u << 23));
    const float tiny = static_cast<float>(static_cast<std::int32_t>(magnitude)) * 0x1p-9f;
    return from_bits(bits(magnitude < 8 ? tiny : normal) | sign);
  }
};

template <class Code>
void encode_block(std::byte* to, const float* x, const float* carry, float* error,
                  std::size_t count) {
  alignas(64) float t[kCodecBlock];
  alignas(64) std::uint8_t codes[kCodecBlock];
  if (carry)
    for (std::size_t i = 0; i < count; ++i) t[i] = x[i] + carry[i];
  else
    std::memcpy(t, x, count * sizeof(float));
  std::uint32_t top = 0;
  for (std::size_t i = 0; i < count; ++i) top = std::max(top, bits(t[i]) & 0x7fffffffu);
  float scale = std::numeric_limits<float>::quiet_NaN();
  if (top >= kInfinity) {
    std::memset(codes, 0, count);
    if (error) std::memset(error, 0, count * sizeof(float));
  } else {
    // Rounded down, so that the largest value does not decode to an infinity.
    scale = std::max(from_bits(top), kCodecLeast) * (1 / Code::kMost * (1 - 0x1p-22f));
    const float inverse = 1 / scale;
    for (std::size_t i = 0; i < count; ++i) codes[i] = Code::code(t[i] * inverse);
    if (error)
      for (std::size_t i = 0; i < count; ++i) error[i] = t[i] - Code::value(codes[i]) * scale;
  }
  std::memcpy(to, &scale, sizeof scale);
  std::memcpy(to + sizeof scale, codes, count);
}

template <class Code>
void encode(std::byte* to, const float* x, const float* carry, float* error, std::size_t count) {
  for (std::size_t at = 0; at < count; at += kCodecBlock) {
    encode_block<Code>(to, x + at, carry ? carry + at : nullptr, error ? error + at : nullptr,
                       std::min(kCodecBlock, count - at));
    to += sizeof(float) + kCodecBlock;
  }
}

template <class Code>
void decode_sum(float* to, const std::byte* const* from, int n, std::size_t count) {
  alignas(64) float sum[kCodecBlock];
  for (std::size_t at = 0, byte = 0; at < count; at += kCodecBlock) {
    const std::size_t m = std::min(kCodecBlock, count - at);
    for (int k = 0; k < n; ++k) {
      float scale = 0;
      std::memcpy(&scale, from[k] + byte, sizeof scale);
      const auto* codes = reinterpret_cast<const std::uint8_t*>(from[k] + byte + sizeof scale);
      if (k == 0)
        for (std::size_t i = 0; i < m; ++i) sum[i] = Code::value(codes[i]) * scale;
      else
        for (std::size_t i = 0; i < m; ++i) sum[i] += Code::value(codes[i]) * scale;
    }
    std::memcpy(to + at, sum, m * sizeof(float));
    byte += sizeof(float) + kCodecBlock;
  }
}

}  // namespace

const CodecTable WEFT_CAT(codecs_, WEFT_ISA)[] = {{encode<Int8>, decode_sum<Int8>},
                                                  {encode<Fp8>, decode_sum<Fp8>}};

}  // namespace weft
