// The steady clock as plain numbers.
#pragma once

#include <chrono>

namespace weft {

// Seconds since a moment in the past that all threads of a host share. Thread-safe.
inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
// The same clock in microseconds. Thread-safe.
inline double now_us() { return now_s() * 1e6; }

}  // namespace weft
