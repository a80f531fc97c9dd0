// Registered memory, kept while that is safe.
//
// Registering pins pages and takes microseconds, so it should be done once per buffer. But a
// registration belongs to pages, not to addresses: memory that is unmapped and mapped again at the
// same place has other pages, and its old key writes into the void. Only for memory of weft::alloc,
// and for a DeviceRegion, is it known for certain when it goes: each has a serial number that is
// never used again, and that is what registrations are kept by. Other memory is registered for one
// transfer, never for another one. (docs/decisions/0017 says what else was thought of.)
//
// Knows nothing of verbs: Memory is what a registration is, and `make` makes one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <unordered_map>
#include <utility>

#include "transport/gpu/device_region.h"
#include "transport/memory/shared_region.h"

namespace weft {

struct CacheCounts {
  std::uint64_t hits = 0, misses = 0, evictions = 0, once = 0;
};

// Used by one thread at a time.
template <class Memory>
class RegistrationCache {
 public:
  enum class Use { kRead, kWrite };  // by the device
  // May throw; what it throws comes out of acquire().
  using Make = std::function<Memory(void* data, std::size_t bytes, Use use)>;

  // Keeps at most so many registrations, of so many bytes together, beside those in use.
  RegistrationCache(Make make, std::size_t most_entries, std::size_t most_bytes)
      : make_(std::move(make)), most_entries_(most_entries), most_bytes_(most_bytes) {}

 private:
  struct Entry {
    Memory memory;
    RegionRef region;  // serial 0: for one transfer
    std::size_t bytes = 0;
    int users = 0;
  };

  // Registrations of transfers that are over, which nothing uses any more. A device needs them no
  // more either, but rdma_rxe of Linux 6.1 still looks at them when it repeats what was
  // acknowledged meanwhile, and then ends the connection (seen now and then where packets overtake
  // each other).
  static constexpr std::size_t kOverAtMost = 64;

 public:
  // A registration in use. Must be gone before the cache.
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

  // A registration that covers [data, data + bytes).
  Lease acquire(void* data, std::size_t bytes, Use use) {
    RegionRef ref = find_region(data, bytes);
    if (ref.serial == 0) ref = find_device_region(data, bytes);
    const std::size_t whole = bytes_now(ref);
    if (whole == 0 || whole > most_bytes_ || most_entries_ == 0) {
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

  std::size_t entries() const { return kept_.size(); }
  std::size_t bytes() const { return kept_bytes_; }
  const CacheCounts& counts() const { return counts_; }

 private:
  void release(typename std::list<Entry>::iterator entry) {
    --entry->users;
    if (entry->region.serial == 0) {
      over_.splice(over_.end(), once_, entry);
      while (over_.size() > kOverAtMost) over_.pop_front();
    } else if (kept_.size() > most_entries_ || kept_bytes_ > most_bytes_) {
      shrink_to(most_entries_, most_bytes_);  // more were in use than may be kept
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
  // Memory that was freed since: its pages are pinned for nothing.
  void drop_freed() {
    for (auto it = kept_.begin(); it != kept_.end();) {
      const auto at = it++;
      if (at->users == 0 && bytes_now(at->region) == 0) drop(at);
    }
  }
  // The least recently used go first; what is in use stays.
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
  std::size_t most_entries_, most_bytes_;
  std::list<Entry> kept_;  // most recently used first
  std::list<Entry> once_;
  std::list<Entry> over_;  // oldest first
  std::unordered_map<std::uint64_t, typename std::list<Entry>::iterator> by_serial_;
  std::size_t kept_bytes_ = 0;
  CacheCounts counts_;
};

}  // namespace weft
