// Scratch memory of runs, and the memory that ended runs leave to later ones.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "transport/memory/memory.h"

namespace weft {

// Shorter scratch is received through a transport's own slots.
inline constexpr std::size_t kLeastRegistered = 64 << 10;

// Long scratch is registered memory (weft::alloc), so a device that receives into it registers it
// only once.
struct Scratch {
  std::unique_ptr<std::byte[]> heap;
  std::unique_ptr<std::byte[], Free> registered;
  std::size_t bytes = 0;
  std::byte* at() const { return registered ? registered.get() : heap.get(); }
};

Scratch fresh_scratch(std::size_t bytes);

// Keeps unused scratch for later runs. Not thread-safe.
class SpareScratch {
 public:
  Scratch take(std::size_t bytes);  // at least `bytes` long
  void put(Scratch scratch) { spare_.push_back(std::move(scratch)); }

 private:
  std::vector<Scratch> spare_;
};

}  // namespace weft
