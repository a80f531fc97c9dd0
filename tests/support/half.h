// fp16 conversion with integers, for compilers without _Float16 (clang 14 on x86).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace weft::testing {

inline float half_to_float(std::uint16_t h) {
  const int exponent = h >> 10 & 31, digits = h & 1023;
  const float size = exponent == 0    ? std::ldexp(static_cast<float>(digits), -24)
                     : exponent == 31 ? (digits == 0 ? INFINITY : NAN)
                                      : std::ldexp(1024.0f + digits, exponent - 25);
  return h >> 15 != 0 ? -size : size;
}

// Rounds to nearest even. A mantissa that rounds up to 2048 carries into the exponent.
inline std::uint16_t float_to_half(float f) {
  const int sign = std::signbit(f) ? 0x8000 : 0;
  const float size = std::fabs(f);
  if (std::isnan(f)) return static_cast<std::uint16_t>(sign | 0x7e00);
  if (size >= 65520) return static_cast<std::uint16_t>(sign | 0x7c00);
  const int exponent = size < 0x1p-14f ? -14 : std::ilogb(size);
  const int units = static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent)));
  return static_cast<std::uint16_t>(sign | (((exponent + 14) << 10) + units));
}

}  // namespace weft::testing
