// The slots of connections, and the completion queues of their queue pairs, by place. Registered
// memory contains the staging of some places, from which this rank sends, and then their rings,
// which peers fill. The class does not depend on peers, queue pairs or the contents of slots.
#pragma once

#include <fmt/format.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>

#include "topo/base/status.h"
#include "transport/verbs/device.h"
#include "transport/verbs/greeting.h"
#include "transport/verbs/ring.h"

namespace weft {

class VerbsSlots final {
 public:
  // What one queue pair uses.
  struct Part {
    VerbsCq& queue;
    std::byte* staging;  // registered copy of each slot of the peer
    std::byte* ring;     // slots that the peer fills
    std::uint32_t lkey, rkey;
  };

  // Registers nothing yet. Throws Error if the device has no completion queue for one place.
  VerbsSlots(const VerbsDevice& device, const VerbsShape& shape)
      : device_(device), slot_bytes_(shape.slot_bytes) {
    const VerbsSettings& s = device.settings();
    entries_ = s.qps * (VerbsRecvCredits::recv_depth(s.slots, s.windows) + s.send_depth);
    const int most = device.limits().max_cqe;
    if (entries_ > most)
      throw Error(fmt::format(
          "verbs: {}: a connection needs a completion queue of {} entries, and the device has {}; "
          "lower WEFT_VERBS_SEND_DEPTH, WEFT_VERBS_SLOTS or WEFT_VERBS_QPS",
          device.where(), entries_, most));
    planned_ = std::min(shape.places, most / entries_);
  }

  int planned() const { return planned_; }  // places
  // The size that this rank offers, or that all ranks have agreed on.
  std::size_t slot_bytes() const { return slot_bytes_; }
  void agree(std::size_t slot_bytes) { slot_bytes_ = slot_bytes; }
  std::deque<VerbsCq>& queues() { return queues_; }

  // Registers slots for more places. The first completion queue has room for all planned places, a
  // later one for its own. Throws Error.
  void add(int places, bool own_queue) {
    const VerbsSettings& s = device_.settings();
    if (own_queue)
      queues_.emplace_back(device_, (queues_.empty() ? planned_ : places) * entries_, true);
    Arena more;
    more.places = places;
    more.queue = own_queue ? &queues_.back() : &queues_.front();
    const std::size_t bytes = 2 * verbs_half(s, places, slot_bytes_);
    const bool huge = s.huge_pages && bytes >= kHugePage;
    const std::size_t page = huge ? kHugePage : kSmallPage;
    const std::size_t whole = (bytes + page - 1) / page * page;
    more.bytes = {static_cast<std::byte*>(std::aligned_alloc(page, whole)), &std::free};
    if (!more.bytes)
      throw Error(fmt::format("verbs: {}: no memory for {} bytes of slots; lower WEFT_VERBS_SLOTS",
                              device_.where(), bytes));
    if (huge) madvise(more.bytes.get(), whole, MADV_HUGEPAGE);  // a hint, before the first touch
    std::memset(more.bytes.get(), 0, whole);
    more.memory = std::make_unique<VerbsMemory>(device_, more.bytes.get(), bytes,
                                                IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    arenas_.push_back(std::move(more));
  }

  // The part of queue pair `pair` of a place.
  Part of(int place, int pair) {
    auto at = arenas_.begin();
    for (; place >= at->places; ++at) place -= at->places;
    const VerbsSettings& s = device_.settings();
    std::byte* const staging = at->bytes.get() + static_cast<std::size_t>((place * s.qps + pair)) *
                                                     static_cast<std::size_t>(s.slots) *
                                                     slot_bytes_;
    return {*at->queue, staging, staging + verbs_half(s, at->places, slot_bytes_),
            at->memory->lkey(), at->memory->rkey()};
  }

 private:
  static constexpr std::size_t kSmallPage = 4096, kHugePage = 2u << 20;
  struct Arena {
    int places = 0;
    VerbsCq* queue = nullptr;
    std::unique_ptr<std::byte, void (*)(void*)> bytes{nullptr, nullptr};
    std::unique_ptr<VerbsMemory> memory;
  };
  const VerbsDevice& device_;
  int entries_ = 0;  // of a completion queue, for each place
  int planned_ = 0;
  std::size_t slot_bytes_;
  std::deque<VerbsCq> queues_;
  std::deque<Arena> arenas_;  // destroyed before the queues
};

}  // namespace weft
