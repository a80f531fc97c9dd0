// A map from a tag (or another number) to a slot, for a few dozen messages in flight: one array
// with linear probing, at most half full, since every message is inserted and erased.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace weft {

class TagTable {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  // Returns the slot of the tag, or kNone.
  std::uint32_t find(std::uint64_t tag) const { return entries_[place_of(tag)].slot; }
  // Sets the tag's slot, replacing any earlier slot.
  void set(std::uint64_t tag, std::uint32_t slot) {
    if (insert(tag, slot) != kNone) entries_[place_of(tag)].slot = slot;
  }
  // Sets the tag's slot if the tag has no slot. Returns the existing slot, or kNone.
  std::uint32_t insert(std::uint64_t tag, std::uint32_t slot) {
    Entry& entry = entries_[place_of(tag)];
    if (entry.slot != kNone) return entry.slot;
    entry = {tag, slot};
    if (++count_ * 2 > entries_.size()) grow();  // at least one entry stays free
    return kNone;
  }
  void erase(std::uint64_t tag) {
    std::size_t gap = place_of(tag);
    if (entries_[gap].slot == kNone) return;
    --count_;
    // Later entries whose probe sequence contains the gap move into it.
    for (std::size_t i = next(gap); entries_[i].slot != kNone; i = next(i)) {
      const std::size_t from_home = (i - home(entries_[i].tag)) & (entries_.size() - 1);
      if (from_home < ((i - gap) & (entries_.size() - 1))) continue;
      entries_[gap] = entries_[i];
      gap = i;
    }
    entries_[gap].slot = kNone;
  }
  // Calls f(tag, slot) for each entry, in no order.
  template <class F>
  void for_each(F f) const {
    for (const Entry& entry : entries_)
      if (entry.slot != kNone) f(entry.tag, entry.slot);
  }

 private:
  struct Entry {
    std::uint64_t tag = 0;
    std::uint32_t slot = kNone;
  };
  std::size_t next(std::size_t i) const { return (i + 1) & (entries_.size() - 1); }
  std::size_t home(std::uint64_t tag) const {
    return (tag * 0x9e3779b97f4a7c15u >> 32) & (entries_.size() - 1);
  }
  // Returns the index of the tag's entry, or of the free entry that the tag would use.
  std::size_t place_of(std::uint64_t tag) const {
    std::size_t i = home(tag);
    while (entries_[i].slot != kNone && entries_[i].tag != tag) i = next(i);
    return i;
  }
  void grow() {
    const std::vector<Entry> before =
        std::exchange(entries_, std::vector<Entry>(entries_.size() * 2));
    for (const Entry& entry : before)
      if (entry.slot != kNone) entries_[place_of(entry.tag)] = entry;
  }

  std::vector<Entry> entries_ = std::vector<Entry>(1);  // a power of two
  std::size_t count_ = 0;
};

}  // namespace weft
