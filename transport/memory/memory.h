// Memory that every rank of the machine can read: collectives on it need no copy before the
// reduction. Usable like any other memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace weft {

// Page-aligned, zeroed, shared. bytes may be 0. Throws Error when the kernel refuses, with the
// size asked for. Thread-safe. Nothing of it stays behind when the process dies.
void* alloc(std::size_t bytes);
void free(void* memory) noexcept;  // nullptr is fine; anything not from alloc() aborts

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
