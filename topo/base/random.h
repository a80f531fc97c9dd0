// Pseudo-random numbers that are equal on every machine.
#pragma once

#include <cstdint>

namespace weft {

// Mixes 64 bits: similar inputs give unrelated outputs. S. Vigna, "splitmix64", 2015.
inline std::uint64_t splitmix64(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace weft
