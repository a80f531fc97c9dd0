// The steady clock as numbers.
#pragma once

#include <chrono>

namespace weft {

// Returns the seconds since a fixed past time, the same for all threads of a host. Thread-safe.
inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
// Returns now_s() in microseconds. Thread-safe.
inline double now_us() { return now_s() * 1e6; }

}  // namespace weft
