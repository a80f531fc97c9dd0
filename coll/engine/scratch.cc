#include "coll/engine/scratch.h"

#include <algorithm>

namespace weft {

Scratch fresh_scratch(std::size_t bytes) {
  if (bytes >= kLeastRegistered) return {nullptr, alloc_array<std::byte>(bytes), bytes};
  return {std::make_unique_for_overwrite<std::byte[]>(bytes), nullptr, bytes};
}

Scratch SpareScratch::take(std::size_t bytes) {
  if (spare_.empty()) return fresh_scratch(bytes);
  // The last one may still be in cache. If all are too short, one of them is freed.
  const auto fits = std::find_if(spare_.rbegin(), spare_.rend(),
                                 [=](const Scratch& s) { return s.bytes >= bytes; });
  if (fits != spare_.rend()) std::swap(*fits, spare_.back());
  Scratch found = std::move(spare_.back());
  spare_.pop_back();
  if (found.bytes >= bytes) return found;
  found = {};
  return fresh_scratch(bytes);
}

}  // namespace weft
