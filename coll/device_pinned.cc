#include "coll/device_pinned.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "transport/memory.h"

namespace weft {
namespace {

constexpr std::size_t kPinnedGrain = std::size_t{64} << 10;

struct Block {
  std::byte* memory;
  std::size_t bytes;
};

struct Pool {
  std::mutex mutex;
  std::vector<Block> kept;
};

// Never destroyed: at the end of the process the device may be gone before.
Pool& pool() {
  static Pool* const p = new Pool;
  return *p;
}

}  // namespace

Pinned::Pinned(Device& device, std::size_t bytes) {
  bytes = (std::max<std::size_t>(bytes, 1) + kPinnedGrain - 1) / kPinnedGrain * kPinnedGrain;
  {
    Pool& p = pool();
    const std::lock_guard lock(p.mutex);
    auto best = p.kept.end();
    for (auto it = p.kept.begin(); it != p.kept.end(); ++it)
      if (it->bytes >= bytes && it->bytes / 2 <= bytes &&
          (best == p.kept.end() || it->bytes < best->bytes))
        best = it;
    if (best != p.kept.end()) {
      memory_ = best->memory;
      bytes_ = best->bytes;
      p.kept.erase(best);
      return;
    }
  }
  auto* const memory = static_cast<std::byte*>(weft::alloc(bytes));
  try {
    device.pin(memory, bytes);
  } catch (...) {
    weft::free(memory);
    throw;
  }
  memory_ = memory;
  bytes_ = bytes;
}

void Pinned::give_back() noexcept {
  if (!memory_) return;
  Pool& p = pool();
  const std::lock_guard lock(p.mutex);
  p.kept.push_back({std::exchange(memory_, nullptr), bytes_});
}

void Pinned::trim(Device& device) noexcept {
  std::vector<Block> gone;
  {
    Pool& p = pool();
    const std::lock_guard lock(p.mutex);
    std::size_t sum = 0;
    std::erase_if(p.kept, [&](const Block& b) {
      if ((sum += b.bytes) <= kKept) return false;
      gone.push_back(b);
      return true;
    });
  }
  for (const Block& b : gone) {
    device.unpin(b.memory);
    weft::free(b.memory);
  }
}

}  // namespace weft
