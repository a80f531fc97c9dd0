#include "coll/device_rooms.h"

#include <algorithm>
#include <list>
#include <map>
#include <mutex>

#include "topo/log.h"
#include "topo/status.h"
#include "transport/device_region.h"

namespace weft {
namespace {

constexpr std::size_t kRoomGrain = std::size_t{64} << 10;

}  // namespace

struct DeviceRoom::Chunk {
  Chunk(Device& device, int of_gpu, std::size_t bytes)
      : gpu(of_gpu),
        region(device, of_gpu, bytes),
        address(device_address(device, region.data(), bytes, device.residence(region.data()))) {}
  const int gpu;
  const DeviceRegion region;
  const DeviceAddress address;
  std::map<std::size_t, std::size_t> used;  // where a room begins, and ends
};

struct DeviceRoom::Pool {
  std::mutex mutex;
  std::list<Chunk> chunks;
};

// Never destroyed, as the device.
DeviceRoom::Pool& DeviceRoom::pool() {
  static Pool* const p = new Pool;
  return *p;
}

// The first gap that is long enough.
bool DeviceRoom::fit_in(Chunk& chunk) {
  std::size_t at = 0;
  for (const auto& [begin, end] : chunk.used) {
    if (begin - at >= bytes_) break;
    at = end;
  }
  if (chunk.region.size() - at < bytes_) return false;
  chunk.used[at] = at + bytes_;
  chunk_ = &chunk;
  at_ = at;
  return true;
}

DeviceRoom::DeviceRoom(Device& device, int gpu, std::size_t bytes)
    : bytes_((bytes + kRoomGrain - 1) / kRoomGrain * kRoomGrain) {
  Pool& p = pool();
  const std::lock_guard lock(p.mutex);
  std::size_t sum = 0;
  for (Chunk& chunk : p.chunks) {
    if (chunk.gpu != gpu) continue;
    if (fit_in(chunk)) return;
    sum += chunk.region.size();
  }
  if (sum + bytes_ > kMostBytes) return;
  // Few long ones, as a room is never in two of them.
  const std::size_t wanted = std::max({bytes_, kLeastBytes, sum});
  try {
    (void)fit_in(p.chunks.emplace_back(device, gpu, std::min(wanted, kMostBytes - sum)));
  } catch (const Error& e) {
    log().info("weft: a message passes host memory: {}", e.what());
  }
}

std::byte* DeviceRoom::get() const { return chunk_->region.data() + at_; }

DeviceAddress DeviceRoom::address() const {
  DeviceAddress address = chunk_->address;
  address.at += at_;
  return address;
}

void DeviceRoom::give_back() noexcept {
  if (!chunk_) return;
  const std::lock_guard lock(pool().mutex);
  chunk_->used.erase(at_);
  chunk_ = nullptr;
}

}  // namespace weft
