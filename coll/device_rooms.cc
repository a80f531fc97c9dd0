#include "coll/device_rooms.h"

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "topo/log.h"
#include "topo/status.h"

namespace weft {

struct DeviceRoom::Pool {
  std::mutex mutex;
  std::vector<std::unique_ptr<Block>> spare;
  std::map<int, std::size_t> bytes;  // of each GPU, in use or not
  bool wanted = false;               // somebody got none
};

// Never destroyed, as the device.
DeviceRoom::Pool& DeviceRoom::pool() {
  static Pool* const p = new Pool;
  return *p;
}

DeviceRoom::DeviceRoom(Device& device, int gpu, std::size_t bytes) {
  // Messages of about the same length take the same rooms.
  const std::size_t grain = std::max(std::bit_floor(bytes) / 4, std::size_t{2} << 20);
  bytes = (bytes + grain - 1) / grain * grain;
  Pool& p = pool();
  const std::lock_guard lock(p.mutex);
  auto best = p.spare.end();
  for (auto it = p.spare.begin(); it != p.spare.end(); ++it)
    if ((*it)->gpu == gpu && (*it)->region.size() >= bytes &&
        (best == p.spare.end() || (*it)->region.size() < (*best)->region.size()))
      best = it;
  if (best != p.spare.end()) {
    block_ = std::move(*best);
    p.spare.erase(best);
    return;
  }
  std::size_t& sum = p.bytes[gpu];
  if (sum + bytes > kMostBytes) {
    p.wanted = true;
    return;
  }
  try {
    block_.reset(new Block{{device, gpu, bytes}, gpu, {}});
  } catch (const Error& e) {
    log().info("weft: a message passes host memory: {}", e.what());
    p.wanted = true;
    return;
  }
  sum += bytes;
  std::byte* const data = block_->region.data();
  block_->address = device_address(device, data, bytes, device.residence(data));
}

void DeviceRoom::give_back() noexcept {
  if (!block_) return;
  Pool& p = pool();
  const std::lock_guard lock(p.mutex);
  p.spare.push_back(std::move(block_));
}

void DeviceRoom::trim(bool all) noexcept {
  std::vector<std::unique_ptr<Block>> gone;
  Pool& p = pool();
  const std::lock_guard lock(p.mutex);
  if (!std::exchange(p.wanted, false) && !all) return;
  gone.swap(p.spare);
  for (const auto& block : gone) p.bytes[block->gpu] -= block->region.size();
}

}  // namespace weft
