// Limits on the memory for unexpected messages, per peer and for all transports of a process.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "topo/base/environment.h"

namespace weft {

// Returns WEFT_UNEXPECTED_BYTES, the maximum memory for a peer's unexpected messages including
// book-keeping; 1 GiB if unset. Throws Error if the value is not a number or out of range.
inline std::size_t unexpected_limit() {
  constexpr const char* kName = "WEFT_UNEXPECTED_BYTES";
  if (!is_set(kName)) return std::size_t{1} << 30;
  return static_cast<std::size_t>(required_number(kName, 1 << 12, std::int64_t{1} << 50));
}

// Returns WEFT_UNEXPECTED_TOTAL_BYTES, the maximum memory for the unexpected messages of all peers;
// 8 GiB if unset. Throws Error as unexpected_limit() does.
inline std::size_t unexpected_total_limit() {
  constexpr const char* kName = "WEFT_UNEXPECTED_TOTAL_BYTES";
  if (!is_set(kName)) return std::size_t{8} << 30;
  return static_cast<std::size_t>(required_number(kName, 1 << 12, std::int64_t{1} << 50));
}

// Counts the memory of one peer's unexpected messages, and of all peers in the process.
class UnexpectedMemory {
 public:
  UnexpectedMemory() = default;
  UnexpectedMemory(UnexpectedMemory&& other) noexcept : bytes_(std::exchange(other.bytes_, 0)) {}
  UnexpectedMemory& operator=(UnexpectedMemory&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~UnexpectedMemory() { add(std::size_t{0} - bytes_); }
  // `bytes` may be negative, as a value modulo 2^64.
  void add(std::size_t bytes) {
    bytes_ += bytes;
    of_process_.fetch_add(bytes, std::memory_order_relaxed);
  }
  std::size_t bytes() const { return bytes_; }
  static std::size_t of_process() { return of_process_.load(std::memory_order_relaxed); }

 private:
  std::size_t bytes_ = 0;
  static inline std::atomic<std::size_t> of_process_{0};
};

// Returns the error text for a peer whose unexpected messages exceed the limit.
inline std::string too_far_ahead(std::size_t limit) {
  return fmt::format(
      "its unexpected messages exceed {} bytes, or those of all ranks exceed {}; raise "
      "WEFT_UNEXPECTED_BYTES (or WEFT_UNEXPECTED_TOTAL_BYTES), or let it run less far ahead",
      limit, unexpected_total_limit());
}

}  // namespace weft
