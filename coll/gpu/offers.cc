// Messages between GPUs of a host: the sender offers its bytes in place, and the receiver maps and
// copies them. This file is independent of how offers travel.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "coll/gpu/messages.h"
#include "topo/base/log.h"

namespace weft {

namespace {
// A GPU allocates memory in units of this size.
constexpr std::size_t kLeastRoom = std::size_t{2} << 20;
}  // namespace

static_assert(sizeof(DeviceAddress) <= sizeof(MessageTask::Offer));

bool DeviceMessages::may_offer(const MessagePart& leg) const {
  return leg.message.sends && leg.gpu >= 0 && !leg.own && leg.bytes() > 0 &&
         core_.links.offers_messages(group_.ranks[static_cast<std::size_t>(leg.message.peer)]);
}

// Used if the memory itself cannot be offered: its stream, or its caller, continues before the
// receiver arrives, or other processes cannot map it. Without room: through host memory.
void DeviceMessages::take_gpu_room(MessagePart& leg, bool ordered) {
  if (leg.gpu_room || !may_offer(leg)) return;
  const std::size_t bytes = leg.bytes();
  if (!ordered && bytes > kEagerBytes) {
    leg.address =
        device_address(device_, leg.message.data, bytes, device_.residence(leg.message.data));
    if (leg.address->exported.bytes > 0) return;
  }
  // Few sizes, since memory that peers have mapped is never freed.
  const std::size_t room = std::bit_ceil(std::max(bytes, kLeastRoom));
  if (!PooledMemory::pooled(leg.gpu, room) && PooledMemory::shared_bytes() + room > kGpuRooms)
    return;
  try {
    leg.gpu_room =
        PooledMemory(device_, leg.gpu, room, lane_thread ? nullptr : &waiting_streams_of(&core_));
    leg.gpu_room.share();
    leg.address =
        device_address(device_, leg.gpu_room.get(), bytes, device_.residence(leg.gpu_room.get()));
  } catch (const Error& e) {
    log().debug("weft: a message goes through host memory: {}", e.what());
  }
}

// Returns false if the message cannot be offered.
bool DeviceMessages::take_aside(MessagePart& leg, bool ordered) {
  take_gpu_room(leg, ordered);
  if (!leg.address || leg.address->exported.bytes == 0) return false;
  leg.offered = true;
  if (leg.gpu_room)
    copy(leg, 0, 0, leg.gpu_room.get(), static_cast<const std::byte*>(leg.message.data));
  else
    leg.ready = leg.slices;
  return true;
}

void DeviceMessages::fetch(MessagePart& leg, bool now) {
  leg.fetching = true;
  const void* from = nullptr;
  try {
    from = device_peers().acquire(device_, *leg.address, leg.gpu, now);
  } catch (const Error& e) {
    if (!std::exchange(told_, true))
      log().info("weft: rank {}: messages of device memory go through host memory: {}",
                 core_.job->rank(), e.what());
  }
  if (!from) {
    leg.declined = true;
    return;
  }
  leg.mapped = true;
  copy(leg, 0, 1, static_cast<std::byte*>(leg.message.data), static_cast<const std::byte*>(from));
}

// Makes offers, and handles answers and the offers of peers; true: something changed.
bool DeviceMessages::look_at_offer(MessagePart& leg) {
  MessageTask& op = *leg.op;
  if (leg.message.sends) {
    if (!leg.offered) return false;
    if (!op.under_way() && leg.ready == leg.slices) {
      MessageTask::Offer offer{};
      std::memcpy(offer.data(), &*leg.address, sizeof(DeviceAddress));
      op.offer(offer);
      return true;
    }
    if (op.answer() != MessageTask::Answer::kDeclined) return false;
    leg.offered = false;
    leg.declined = true;
    leg.ready = 0;
    return true;
  }
  if (!leg.offered && op.offered()) {
    leg.address.emplace();
    std::memcpy(&*leg.address, op.offered()->data(), sizeof(DeviceAddress));
    return leg.offered = true;
  }
  if (!leg.fetching || !op.offered()) return false;
  if (leg.declined) {
    leg.declined = false;
    op.answer(MessageTask::Answer::kDeclined);
    return true;
  }
  if (leg.taken < leg.slices) return false;
  op.answer(MessageTask::Answer::kTaken);
  return true;
}

}  // namespace weft
