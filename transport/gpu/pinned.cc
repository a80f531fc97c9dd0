// The staging pool: caches, hands out and frees memory. This file is independent of the staged
// data.
#include "transport/gpu/pinned.h"

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "topo/base/mutex.h"
#include "transport/gpu/device_region.h"
#include "transport/gpu/gates.h"
#include "transport/memory/memory.h"

namespace weft {

struct PooledMemory::Block {
  Block(Device& of, int on, std::size_t length) : device(of), gpu(on), bytes(length) {
    if (gpu != kPinned) {
      region = std::make_unique<DeviceRegion>(device, gpu, bytes);
      memory = region->data();
      return;
    }
    memory = static_cast<std::byte*>(weft::alloc(bytes));
    try {
      device.pin(memory, bytes);
    } catch (...) {
      weft::free(memory);
      throw;
    }
  }
  ~Block() {
    if (region) return;
    device.unpin(memory);
    weft::free(memory);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  bool serves(int on, std::size_t wanted) const {
    return gpu == on && bytes >= wanted && bytes / 2 <= wanted;
  }

  Device& device;
  const int gpu;
  const std::size_t bytes;
  std::byte* memory = nullptr;
  std::unique_ptr<DeviceRegion> region;
  bool shared = false;
  std::chrono::steady_clock::time_point used = {};  // last time of give_back()
};

struct PooledMemory::Pool {
  Mutex mutex;
  std::vector<std::unique_ptr<Block>> kept WEFT_GUARDED_BY(mutex), abandoned WEFT_GUARDED_BY(mutex);
  std::atomic<std::size_t> shared{0};
};

// Never destroyed, since at exit the device may be destroyed first.
PooledMemory::Pool& PooledMemory::pool() {
  static Pool* const p = new Pool;
  return *p;
}

PooledMemory::PooledMemory() noexcept = default;
PooledMemory::~PooledMemory() { give_back(); }
PooledMemory::PooledMemory(PooledMemory&& other) noexcept = default;
PooledMemory& PooledMemory::operator=(PooledMemory&& other) noexcept {
  std::swap(block_, other.block_);
  return *this;
}

PooledMemory::PooledMemory(Device& device, int gpu, std::size_t bytes,
                           const std::atomic<std::size_t>* waiting) {
  bytes = rounded(bytes);
  {
    Pool& p = pool();
    const MutexLock lock(p.mutex);
    auto best = p.kept.end();
    for (auto it = p.kept.begin(); it != p.kept.end(); ++it)
      if ((*it)->serves(gpu, bytes) && (best == p.kept.end() || (*it)->bytes < (*best)->bytes))
        best = it;
    if (best != p.kept.end()) {
      block_ = std::move(*best);
      p.kept.erase(best);
      return;
    }
  }
  if (waiting) settle(*waiting);
  block_ = std::make_unique<Block>(device, gpu, bytes);
}

std::size_t PooledMemory::rounded(std::size_t bytes) noexcept {
  constexpr std::size_t kGrain = std::size_t{64} << 10;
  return (std::max<std::size_t>(bytes, 1) + kGrain - 1) / kGrain * kGrain;
}

bool PooledMemory::pooled(int gpu, std::size_t bytes) noexcept {
  Pool& p = pool();
  const MutexLock lock(p.mutex);
  return std::ranges::any_of(p.kept,
                             [&](const auto& block) { return block->serves(gpu, rounded(bytes)); });
}

std::byte* PooledMemory::get() const { return block_ ? block_->memory : nullptr; }
std::size_t PooledMemory::size() const { return block_ ? block_->bytes : 0; }

void PooledMemory::give_back() noexcept {
  if (!block_) return;
  Pool& p = pool();
  const MutexLock lock(p.mutex);
  block_->used = std::chrono::steady_clock::now();
  p.kept.push_back(std::move(block_));
}

void PooledMemory::abandon() noexcept {
  if (!block_) return;
  Pool& p = pool();
  const MutexLock lock(p.mutex);
  p.abandoned.push_back(std::move(block_));
}

void PooledMemory::share() noexcept {
  if (!std::exchange(block_->shared, true)) pool().shared += block_->bytes;
}
std::size_t PooledMemory::shared_bytes() noexcept { return pool().shared; }

void PooledMemory::trim() noexcept {
  std::vector<std::unique_ptr<Block>> gone;
  Pool& p = pool();
  const MutexLock lock(p.mutex);
  const auto since = std::chrono::steady_clock::now() - kIdle;
  std::size_t pinned = 0;
  for (auto& block : p.kept)
    if ((block->gpu != kPinned && !block->shared) ||
        (block->gpu == kPinned && (pinned += block->bytes) > kKept && block->used < since))
      gone.push_back(std::move(block));
  std::erase(p.kept, nullptr);
}

}  // namespace weft
