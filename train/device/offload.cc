// The queue from pinned memory to the file. This file does not know tensors.
#include "train/device/offload.h"

#include <algorithm>

#include "topo/base/log.h"
#include "topo/base/status.h"
#include "train/device/context.h"
#include "train/parallel/offload.h"

namespace weft::train {
namespace {

// Pinned memory on the way to a file: enough for copies to run while a write is under way.
constexpr std::size_t kOnTheWay = std::size_t{64} << 20;

}  // namespace

DeviceOffload::DeviceOffload(const std::string& where) {
  if (where != kHost) file_ = std::make_unique<OffloadFile>(where);
}

DeviceOffload::~DeviceOffload() {
  DeviceContext& context = DeviceContext::of_this_rank();
  try {
    context.wait();           // copies may still write to what is given back
  } catch (const Error& e) {  // the GPU failed before; what failed was reported then
    log().debug("weft train: offload: {}", e.what());
  }
  for (auto& [place, stay] : stays_) {
    if (stay.arrived != nullptr) context.give_back(stay.arrived);
    if (stay.memory != nullptr) context.unpinned(stay.memory);
  }
}

// Until no more than `most` bytes are on the way, also what has not arrived yet.
void DeviceOffload::write_what_arrived(std::size_t most) {
  DeviceContext& context = DeviceContext::of_this_rank();
  while (!queue_.empty()) {
    const std::uint64_t place = queue_.front();
    Stay& stay = stays_.at(place);
    if (queued_ > most)
      context.wait_for(stay.arrived);
    else if (!context.device().reached(stay.arrived))
      return;
    stay.at = file_->write(stay.memory, stay.bytes);
    context.unpinned(stay.memory);
    stay.memory = nullptr;
    leave_queue(place, stay);
  }
}

void DeviceOffload::leave_queue(std::uint64_t place, Stay& stay) {
  if (stay.arrived == nullptr) return;
  queue_.erase(std::find(queue_.begin(), queue_.end(), place));
  queued_ -= stay.bytes;
  DeviceContext::of_this_rank().give_back(stay.arrived);
  stay.arrived = nullptr;
}

std::uint64_t DeviceOffload::write(const void* from, std::size_t bytes) {
  DeviceContext& context = DeviceContext::of_this_rank();
  Stay stay;
  stay.memory = context.pinned(bytes);
  stay.bytes = bytes;
  context.copy(stay.memory, from, bytes);
  const std::uint64_t place = next_++;
  if (file_) {
    stay.arrived = context.mark(context.compute());
    queue_.push_back(place);
    queued_ += bytes;
  }
  stays_.emplace(place, stay);
  moved_ += bytes;
  if (file_) write_what_arrived(kOnTheWay);
  return place;
}

void DeviceOffload::read(std::uint64_t place, void* to, std::size_t bytes) {
  Stay stay = stays_.at(place);
  leave_queue(place, stay);
  DeviceContext& context = DeviceContext::of_this_rank();
  if (stay.memory == nullptr) {
    stay.memory = context.pinned(bytes);
    file_->read(stay.at, stay.memory, bytes);
  }
  stays_.erase(place);
  context.upload_pinned(to, stay.memory, bytes);
  moved_ += bytes;
}

void DeviceOffload::release(std::uint64_t place, std::size_t bytes) {
  Stay stay = stays_.at(place);
  leave_queue(place, stay);
  if (stay.memory == nullptr)
    file_->release(stay.at, bytes);
  else
    DeviceContext::of_this_rank().unpin_in_order(stay.memory);
  stays_.erase(place);
}

}  // namespace weft::train
