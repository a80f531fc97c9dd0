// A cache of memory registrations. The cache does not depend on verbs: Memory is the type of a
// registration, and `make` makes one.
//
// A registration pins pages and takes microseconds, so weft makes one per buffer. But a
// registration belongs to pages, not to addresses: memory that is unmapped and mapped again at the
// same address has other pages, and the old key writes to the old ones. Only for weft::alloc and
// DeviceRegion does weft know when memory is freed: each such region has a serial number that is
// never reused, the cache's key. Other memory is registered for one transfer, or, if the transfer
// names the buffer of a call, as a whole until the call is over. docs/decisions/0017 lists the
// alternatives.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <unordered_map>
#include <utility>

#include "transport/gpu/device_region.h"
#include "transport/memory/shared_region.h"
#include "transport/transport.h"

namespace weft {

struct CacheCounts {
  std::uint64_t hits = 0, misses = 0, evictions = 0, once = 0;
};

// One thread uses a cache at a time.
template <class Memory>
class RegistrationCache {
 public:
  enum class Use { kRead, kWrite };  // the device's use of the memory
  // Makes a registration. acquire() lets its exceptions pass.
  using Make = std::function<Memory(void* data, std::size_t bytes, Use use)>;

  // The cache keeps at most `most_entries` registrations of `most_bytes` together; those in use may
  // exceed both. keeps_over: the last registrations of finished transfers are kept, too. No correct
  // device needs them, but rdma_rxe of Linux 6.1 reads them when it resends packets that were
  // acknowledged meanwhile, and ends the connection if they are gone (seen occasionally if packets
  // are reordered).
  RegistrationCache(Make make, std::size_t most_entries, std::size_t most_bytes,
                    bool keeps_over = false)
      : make_(std::move(make)),
        most_entries_(most_entries),
        most_bytes_(most_bytes),
        over_at_most_(keeps_over ? kOverAtMost : 0) {}

 private:
  struct Entry {
    Memory memory;
    RegionRef region;  // serial 0: not kept
    std::size_t bytes = 0;
    int users = 0;
    std::uint64_t buffer = 0;  // serial number, until end_buffer(); 0: for one transfer
  };
  static constexpr std::size_t kOverAtMost = 64;

 public:
  // A registration in use. The lease must end before the cache.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept
        : cache_(std::exchange(other.cache_, nullptr)), entry_(other.entry_) {}
    Lease& operator=(Lease&& other) noexcept {
      std::swap(cache_, other.cache_);
      std::swap(entry_, other.entry_);
      return *this;
    }
    ~Lease() {
      if (cache_) cache_->release(entry_);
    }
    const Memory& memory() const { return entry_->memory; }
    explicit operator bool() const { return cache_ != nullptr; }

   private:
    friend class RegistrationCache;
    Lease(RegistrationCache* cache, typename std::list<Entry>::iterator entry)
        : cache_(cache), entry_(entry) {}
    RegistrationCache* cache_ = nullptr;
    typename std::list<Entry>::iterator entry_;
  };

  // Leases a registration that covers [data, data + bytes), and all of `buffer` if that contains
  // the data and can be registered. Throws what Make throws.
  Lease acquire(void* data, std::size_t bytes, Use use, const UserBuffer* buffer = nullptr) {
    RegionRef ref = find_region(data, bytes);
    if (ref.serial == 0) ref = find_device_region(data, bytes);
    const std::size_t whole = bytes_now(ref);
    if (whole == 0 || whole > most_bytes_ || most_entries_ == 0) {
      if (Lease shared = of_buffer(data, bytes, buffer)) return shared;
      ++counts_.once;
      once_.push_front({make_(data, bytes, use), {}, bytes, 1});
      return {this, once_.begin()};
    }
    const auto known = by_serial_.find(ref.serial);
    if (known != by_serial_.end()) {
      ++counts_.hits;
      kept_.splice(kept_.begin(), kept_, known->second);
      ++known->second->users;
      return {this, known->second};
    }
    ++counts_.misses;
    drop_freed();
    shrink_to(most_entries_ - 1, most_bytes_ - whole);
    void* begin = static_cast<std::byte*>(data) - ref.offset;
    kept_.push_front({make_(begin, whole, Use::kWrite), ref, whole, 1});
    by_serial_.emplace(ref.serial, kept_.begin());
    kept_bytes_ += whole;
    return {this, kept_.begin()};
  }

  // Ends the registration of this buffer after its last lease.
  void end_buffer(std::uint64_t serial) {
    const auto found = std::ranges::find(once_, serial, &Entry::buffer);
    if (found == once_.end()) return;
    found->buffer = 0;
    if (found->users == 0) is_over(found);
  }

  std::size_t entries() const { return kept_.size(); }
  std::size_t bytes() const { return kept_bytes_; }
  const CacheCounts& counts() const { return counts_; }

 private:
  Lease of_buffer(void* data, std::size_t bytes, const UserBuffer* buffer) {
    if (!buffer || data < buffer->data ||
        static_cast<std::byte*>(data) + bytes >
            static_cast<std::byte*>(buffer->data) + buffer->bytes)
      return {};
    auto found = std::ranges::find(once_, buffer->serial, &Entry::buffer);
    if (found == once_.end()) {
      try {
        const Use use = buffer->written ? Use::kWrite : Use::kRead;
        once_.push_front(
            {make_(buffer->data, buffer->bytes, use), {}, buffer->bytes, 0, buffer->serial});
      } catch (const Error&) {
        return {};  // the data alone may fit the limit of locked memory
      }
      ++counts_.once;
      found = once_.begin();
    }
    ++found->users;
    return {this, found};
  }
  void is_over(typename std::list<Entry>::iterator entry) {
    over_.splice(over_.end(), once_, entry);
    while (over_.size() > over_at_most_) over_.pop_front();
  }
  void release(typename std::list<Entry>::iterator entry) {
    --entry->users;
    if (entry->region.serial == 0) {
      if (entry->users == 0 && entry->buffer == 0) is_over(entry);
    } else if (kept_.size() > most_entries_ || kept_bytes_ > most_bytes_) {
      shrink_to(most_entries_, most_bytes_);  // leases exceeded the limits
    }
  }
  void drop(typename std::list<Entry>::iterator entry) {
    kept_bytes_ -= entry->bytes;
    by_serial_.erase(entry->region.serial);
    kept_.erase(entry);
    ++counts_.evictions;
  }
  static std::size_t bytes_now(const RegionRef& ref) {
    return ref.serial >= kFirstDeviceRegion ? device_region_bytes(ref) : region_bytes(ref);
  }
  // Drops registrations of freed memory, whose pages they still pin.
  void drop_freed() {
    for (auto it = kept_.begin(); it != kept_.end();) {
      const auto at = it++;
      if (at->users == 0 && bytes_now(at->region) == 0) drop(at);
    }
  }
  // Drops the least recently used registrations first; keeps those in use.
  void shrink_to(std::size_t entries, std::size_t bytes) {
    for (auto it = kept_.end(); it != kept_.begin();) {
      if (kept_.size() <= entries && kept_bytes_ <= bytes) return;
      const auto at = --it;
      if (at->users > 0) continue;
      ++it;
      drop(at);
    }
  }

  Make make_;
  std::size_t most_entries_, most_bytes_, over_at_most_;
  std::list<Entry> kept_;  // most recently used first
  std::list<Entry> once_;
  std::list<Entry> over_;  // oldest first
  std::unordered_map<std::uint64_t, typename std::list<Entry>::iterator> by_serial_;
  std::size_t kept_bytes_ = 0;
  CacheCounts counts_;
};

}  // namespace weft
