// Buffers of the shm transport: slots that peers read, and bounce buffers for received data.
#include <cstring>

#include "transport/shm/transport.h"

namespace weft::shm {

int ShmTransport::take_slot(std::size_t bytes, std::size_t left) noexcept {
  for (const bool again : {false, true}) {
    for (int c = 0; c < kSlotClasses; ++c) {
      if (bytes > kSlots[c].bytes || free_slots_[c].size() <= left) continue;
      const int slot = free_slots_[c].back();  // LIFO: the slot may be in cache
      free_slots_[c].pop_back();
      slot_refs_[static_cast<std::size_t>(slot)] = 1;
      return slot;
    }
    if (!again)
      for (Peer* const p : near_) collect_acks(*p);
  }
  return -1;
}

void ShmTransport::drop_slot(int slot) noexcept {
  if (--slot_refs_[static_cast<std::size_t>(slot)] > 0) return;
  int c = 0;
  for (int first = 0; slot >= first + kSlots[c].count; first += kSlots[c++].count) {
  }
  free_slots_[c].push_back(slot);
}

std::byte* ShmTransport::slot_data(int slot) const noexcept {
  int c = 0, first = 0;
  for (; slot >= first + kSlots[c].count; first += kSlots[c++].count) {
  }
  return arena_.data() + slot_base_[c] +
         kSlots[c].stride() * static_cast<std::size_t>(slot - first);
}

int ShmTransport::slot_at(const void* data) const noexcept {
  const auto* p = static_cast<const std::byte*>(data);
  if (p < arena_.data() + layout_.slots || p >= arena_.data() + layout_.bytes) return -1;
  const auto offset = static_cast<std::size_t>(p - arena_.data());
  int first = 0;
  for (int c = 0; c < kSlotClasses; first += kSlots[c++].count) {
    const std::size_t end =
        slot_base_[c] + kSlots[c].stride() * static_cast<std::size_t>(kSlots[c].count);
    if (offset < end)
      return first + static_cast<int>((offset - slot_base_[c]) / kSlots[c].stride());
  }
  return -1;
}

// stage() leaves one slot of each class for queued messages: see send_backlog().
void* ShmTransport::stage(std::size_t bytes) noexcept {
  const int slot = take_slot(bytes, 1);
  return slot < 0 ? nullptr : slot_data(slot);
}

void ShmTransport::unstage(void* staged) noexcept { drop_slot(slot_at(staged)); }

bool ShmTransport::mapped(const void* data, std::size_t bytes) const noexcept {
  return find_region(data, bytes).serial != 0;
}

// Returns a slot with a copy of the bytes and a reference for one more cell; -1 if none is free.
int ShmTransport::fill_slot(const void* data, std::size_t bytes) noexcept {
  if (data == last_data_ && bytes == last_bytes_) {
    ++slot_refs_[static_cast<std::size_t>(last_slot_)];
    return last_slot_;
  }
  const int slot = take_slot(bytes);
  if (slot < 0) return -1;
  std::memcpy(slot_data(slot), data, bytes);
  if (last_slot_ >= 0) drop_slot(last_slot_);
  last_slot_ = slot;
  last_data_ = data;
  last_bytes_ = bytes;
  ++slot_refs_[static_cast<std::size_t>(slot)];  // one for the batch, one for the cell
  return slot;
}

std::byte* ShmTransport::bounce(std::size_t bytes, int& index) noexcept {
  for (auto it = free_bounces_.rbegin(); it != free_bounces_.rend(); ++it) {
    if (bounces_[static_cast<std::size_t>(*it)].bytes < bytes) continue;
    index = *it;
    free_bounces_.erase(std::next(it).base());
    return bounces_[static_cast<std::size_t>(index)].memory.get();
  }
  index = static_cast<int>(bounces_.size());
  bounces_.push_back({std::make_unique_for_overwrite<std::byte[]>(bytes), bytes});
  return bounces_.back().memory.get();
}

}  // namespace weft::shm
