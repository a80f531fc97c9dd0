// The queue from pinned memory to the file. Does not depend on tensors.
#include "train/device/offload.h"

#include <algorithm>

#include "topo/base/log.h"
#include "topo/base/status.h"
#include "train/device/context.h"
#include "train/operators/offload.h"

namespace weft::train {
namespace {

// Maximum pinned memory queued for the file: enough to overlap copies with a write.
constexpr std::size_t kOnTheWay = std::size_t{64} << 20;

}  // namespace

DeviceOffload::DeviceOffload(const std::string& where) {
  if (where != kHost) file_ = std::make_unique<OffloadFile>(where);
}

DeviceOffload::~DeviceOffload() {
  try {
    DeviceContext::of_this_rank().wait();  // pending copies may still write to memory freed below
  } catch (const Error& e) {               // already reported when the GPU failed
    log().debug("weft train: offload: {}", e.what());
  }
}

// Writes copied blocks to the file; waits for copies while more than `most` bytes are queued.
void DeviceOffload::write_what_arrived(std::size_t most) {
  for (; !queue_.empty(); queue_.pop_front()) {
    Stay& stay = stays_.at(queue_.front());
    if (queued_ > most)
      stay.arrived.wait();
    else if (!stay.arrived.passed())
      return;
    stay.at = file_->write(stay.memory.get(), stay.bytes);
    stay.memory.reset();
    stay.arrived = {};
    queued_ -= stay.bytes;
  }
}

std::uint64_t DeviceOffload::write(const void* from, std::size_t bytes) {
  DeviceContext& context = DeviceContext::of_this_rank();
  const std::uint64_t place = next_++;
  Stay& stay = stays_[place];
  stay.memory = context.pinned(bytes);
  stay.bytes = bytes;
  context.copy(stay.memory.get(), from, bytes);
  moved_ += bytes;
  if (file_) {
    stay.arrived = context.mark(context.compute());
    queue_.push_back(place);
    queued_ += bytes;
    write_what_arrived(kOnTheWay);
  }
  return place;
}

DeviceOffload::Stay DeviceOffload::take(std::uint64_t place) {
  if (const auto queued = std::find(queue_.begin(), queue_.end(), place); queued != queue_.end()) {
    queue_.erase(queued);
    queued_ -= stays_.at(place).bytes;
  }
  return std::move(stays_.extract(place).mapped());
}

void DeviceOffload::read(std::uint64_t place, void* to, std::size_t bytes) {
  Stay stay = take(place);
  DeviceContext& context = DeviceContext::of_this_rank();
  if (!stay.memory) {
    stay.memory = context.pinned(bytes);
    file_->read(stay.at, stay.memory.get(), bytes);
  }
  context.upload_pinned(to, std::move(stay.memory), bytes);
  moved_ += bytes;
}

void DeviceOffload::release(std::uint64_t place, std::size_t bytes) {
  Stay stay = take(place);
  if (stay.memory)
    DeviceContext::of_this_rank().unpin_in_order(std::move(stay.memory));
  else
    file_->release(stay.at, bytes);
}

}  // namespace weft::train
