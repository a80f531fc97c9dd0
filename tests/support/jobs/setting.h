// Parameters of a test: the placement of its ranks, and a random seed.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <ostream>
#include <random>
#include <string_view>
#include <vector>

namespace weft::testing {

struct Setting {
  const char* name;
  std::vector<int> hosts;  // ranks on each host
  const char* transport;
};
inline void PrintTo(const Setting& s, std::ostream* os) { *os << s.name; }
inline int ranks_of(const Setting& s) { return std::accumulate(s.hosts.begin(), s.hosts.end(), 0); }

inline bool needs_ucx(const Setting& s) { return std::string_view(s.transport) == "ucx"; }

// WEFT_TEST_SEED, or a new seed; printed, so that a failure can be reproduced.
inline unsigned seed() {
  static const unsigned value = [] {
    const char* text = std::getenv("WEFT_TEST_SEED");
    const unsigned s = text ? static_cast<unsigned>(std::atol(text)) : std::random_device{}();
    std::printf("WEFT_TEST_SEED=%u\n", s);
    return s;
  }();
  return value;
}

}  // namespace weft::testing
