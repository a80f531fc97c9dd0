// Flow labels of queue pairs. They determine the UDP source ports, by which ECMP separates flows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "topo/topology.h"

namespace weft {

// Returns the label of queue pair `lane` between two ranks. Both ends compute the same label. The
// queue pairs of two ranks have different labels and different source ports, for consecutive labels
// differ in the bits that form the port. Never 0, which means no label.
constexpr std::uint32_t flow_label(Rank a, Rank b, int lane) {
  constexpr std::uint64_t kLabels = (1u << 20) - 1;  // without 0
  std::uint64_t x = (static_cast<std::uint64_t>(std::min(a, b)) << 32 |
                     static_cast<std::uint64_t>(std::max(a, b))) *
                    0x9e3779b97f4a7c15u;
  x = (x ^ x >> 29) * 0x94d049bb133111ebu;
  return static_cast<std::uint32_t>(((x >> 32) + static_cast<std::uint64_t>(lane)) % kLabels) + 1;
}

// Returns the UDP source port that Linux and its drivers derive from a label.
constexpr std::uint16_t udp_source_port(std::uint32_t label) {
  return static_cast<std::uint16_t>(0xc000 | ((label & 0x3fff) ^ (label >> 14 & 0x3f)));
}

}  // namespace weft
