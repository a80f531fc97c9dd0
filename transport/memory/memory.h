// Ordinary memory that every rank of the machine can also read: collectives on such memory need no
// copy before the reduction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace weft {

// Returns `bytes` of page-aligned, zeroed, shared memory; bytes may be 0. Throws Error naming the
// size when the kernel refuses. Thread-safe. The memory goes when the process dies.
void* alloc(std::size_t bytes);
void free(void* memory) noexcept;  // takes nullptr; aborts on a pointer not from alloc()

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
