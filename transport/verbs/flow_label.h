// Flow labels of queue pairs, and with them UDP source ports: what ECMP tells flows apart by.
#pragma once

#include <algorithm>
#include <cstdint>

#include "topo/topology.h"

namespace weft {

// Of queue pair `lane` of a pair of ranks. The same at both ends; different for each of the pair's
// queue pairs, and so are their source ports: labels that follow each other differ in the bits that
// a port takes over. Never 0, which would mean none. Other pairs begin elsewhere.
constexpr std::uint32_t flow_label(Rank a, Rank b, int lane) {
  constexpr std::uint64_t kLabels = (1u << 20) - 1;  // without 0
  std::uint64_t x = (static_cast<std::uint64_t>(std::min(a, b)) << 32 |
                     static_cast<std::uint64_t>(std::max(a, b))) *
                    0x9e3779b97f4a7c15u;
  x = (x ^ x >> 29) * 0x94d049bb133111ebu;
  return static_cast<std::uint32_t>(((x >> 32) + static_cast<std::uint64_t>(lane)) % kLabels) + 1;
}

// The UDP source port that Linux and its drivers make of a label.
constexpr std::uint16_t udp_source_port(std::uint32_t label) {
  return static_cast<std::uint16_t>(0xc000 | ((label & 0x3fff) ^ (label >> 14 & 0x3f)));
}

}  // namespace weft
