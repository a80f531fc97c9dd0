// Which slot has the message of a tag: for what is sent and not acknowledged, a few dozen messages
// per peer. In one array (linear probing, at most half full), as every message comes and goes here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace weft {

class TagTable {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  // kNone where there is none.
  std::uint32_t find(std::uint64_t tag) const { return entries_[place_of(tag)].slot; }
  // In the place of the one it had.
  void set(std::uint64_t tag, std::uint32_t slot) {
    Entry& entry = entries_[place_of(tag)];
    const bool fresh = entry.slot == kNone;
    entry = {tag, slot};
    if (fresh && ++count_ * 2 > entries_.size()) grow();
  }
  void erase(std::uint64_t tag) {
    std::size_t gap = place_of(tag);
    if (entries_[gap].slot == kNone) return;
    --count_;
    // Those behind it that would be looked for from before the gap move up.
    for (std::size_t i = next(gap); entries_[i].slot != kNone; i = next(i)) {
      const std::size_t from_home = (i - home(entries_[i].tag)) & (entries_.size() - 1);
      if (from_home < ((i - gap) & (entries_.size() - 1))) continue;
      entries_[gap] = entries_[i];
      gap = i;
    }
    entries_[gap].slot = kNone;
  }
  // f(tag, slot)
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
  // Where the tag is, or would be.
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

  std::vector<Entry> entries_ = std::vector<Entry>(16);  // a power of two
  std::size_t count_ = 0;
};

}  // namespace weft
