// Host memory that all ranks of the machine can read, so that collectives need no copy before the
// reduction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace weft {

// Returns `bytes` (may be 0) of page-aligned, zeroed shared memory. Throws Error with the size if
// the allocation fails. Thread-safe. The memory is released when the process dies.
void* alloc(std::size_t bytes);
void free(void* memory) noexcept;  // nullptr is allowed; aborts on a pointer not from alloc()

struct Free {
  void operator()(void* p) const noexcept { weft::free(p); }
};

// auto data = weft::alloc_array<float>(count);
template <class T>
std::unique_ptr<T[], Free> alloc_array(std::size_t count) {
  const std::size_t bytes = count > SIZE_MAX / sizeof(T) ? SIZE_MAX : count * sizeof(T);
  return std::unique_ptr<T[], Free>(static_cast<T*>(alloc(bytes)));
}

}  // namespace weft
