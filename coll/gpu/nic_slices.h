// Cuts a task between hosts into slices, and says which part of a slice belongs to which rank
// and where the part lies in the memory that messages leave from (gpu/hierarchical.cc).
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>

#include "coll/gpu/hierarchical.h"
#include "coll/gpu/kernels.h"
#include "coll/schedule/footprint.h"

namespace weft {

class NicSlices {
 public:
  static constexpr std::size_t kUnderWay = 5;
  // The most bytes of a slice's larger buffer. The cut follows from the call alone, so all ranks of
  // a place cut alike.
  static constexpr std::size_t kPieceBytes = std::size_t{2} << 20;
  // Areas, blocks, slices and shares begin at multiples of this many bytes.
  static constexpr std::size_t kGrain = 256;
  static_assert(kPieceBytes / kDeviceOperands >= kGrain);
  // A slice has three areas: its input, the operands that come for a reduction, its result. Each
  // area holds up to a slice, and a grain for every block.
  static constexpr std::size_t kAreasBytes = 3 * (kPieceBytes + kDeviceOperands * kGrain);
  static constexpr std::size_t kBytes = kUnderWay * kAreasBytes;

 protected:
  NicSlices(const DeviceOperation& op, const NicLayout& layout, std::byte* memory)
      : op_(op),
        layout_(layout),
        hosts_(layout.hosts.size()),
        places_(layout.hosts[0].size()),
        me_(layout.host),
        root_(place_of(op.root).first),
        root_place_(place_of(op.root).second),
        element_(size_of(op.call.type)),
        use_(footprint(op.collective)),
        reduces_(reduces(op.collective)),
        rooted_(rooted(op.collective)),
        wide_(use_.in == Part::kAll && use_.out == Part::kAll ? places_ : 1),
        memory_(memory) {
    std::size_t widest = 1;
    if (by_blocks(op.collective)) {
      count_ = op.call.count;
      widest = hosts_ * wide_;
    } else {  // a message that the places share out
      const auto [from, to] = cut(op.call.count, layout.place, places_);
      first_ = from;
      count_ = to - from;
    }
    // A slice is whole grains: one that began off a vector's boundary would go by single elements.
    const std::size_t grain = kGrain / element_;
    slice_ = std::min(count_, kPieceBytes / (widest * element_) / grain * grain);
  }

  std::size_t slices() const { return count_ == 0 ? 0 : (count_ + slice_ - 1) / slice_; }

  // The rank at a place of a host.
  Rank rank_at(std::size_t host, std::size_t place) const { return layout_.hosts[host][place]; }
  std::pair<std::size_t, std::size_t> place_of(Rank rank) const {
    for (std::size_t h = 0; h < layout_.hosts.size(); ++h)
      for (std::size_t p = 0; p < layout_.hosts[h].size(); ++p)
        if (layout_.hosts[h][p] == rank) return {h, p};
    return {0, 0};  // the collective has no root
  }

  // The elements of slice k in a block.
  std::size_t length(std::size_t k) const { return std::min(slice_, count_ - k * slice_); }
  std::byte* area(std::size_t k, std::size_t which) const {
    return memory_ + k % kUnderWay * kAreasBytes + which * (kAreasBytes / 3);
  }
  std::size_t stride(std::size_t k) const { return whole_grains(length(k) * element_); }
  std::byte* read(std::size_t k, std::size_t block = 0) const {
    return area(k, 0) + block * stride(k);
  }
  std::byte* result(std::size_t k, std::size_t block = 0) const {
    return area(k, 2) + block * stride(k);
  }
  // Where slice k of a user's block begins.
  std::size_t at(std::size_t k, Rank block) const {
    return static_cast<std::size_t>(block) * op_.call.count + first_ + k * slice_;
  }
  // Returns the bounds of share i of `shares` of `count` elements: from, to.
  std::pair<std::size_t, std::size_t> cut(std::size_t count, std::size_t i,
                                          std::size_t shares) const {
    const std::size_t grain = kGrain / element_, grains = (count + grain - 1) / grain;
    return {std::min(count, grains * i / shares * grain),
            std::min(count, grains * (i + 1) / shares * grain)};
  }
  // The element of slice k, a slice of one block, at which host i's share begins.
  std::size_t begin(std::size_t k, std::size_t i, std::size_t shares) const {
    return cut(length(k), i, shares).first;
  }
  std::size_t share(std::size_t k, std::size_t i, std::size_t shares) const {
    const auto [from, to] = cut(length(k), i, shares);
    return to - from;
  }
  // The operand that host h sent for the reduction.
  std::byte* operand(std::size_t k, std::size_t h) const {
    const bool shared = !by_blocks(op_.collective);
    const std::size_t bytes = (shared ? share(k, me_, hosts_) : length(k)) * element_;
    return area(k, 1) + h * whole_grains(bytes);
  }

  // The part of a broadcast that host h, which is not the root's host, passes on.
  std::byte* passed_on(std::size_t k, std::size_t h) const {
    return result(k) + begin(k, h - (h > root_), hosts_ - 1) * element_;
  }
  std::size_t passed(std::size_t k, std::size_t h) const {
    return share(k, h - (h > root_), hosts_ - 1);
  }

  const DeviceOperation& op_;
  const NicLayout& layout_;
  const std::size_t hosts_, places_, me_, root_, root_place_, element_;  // me_, root_: hosts
  const Footprint use_;                                                  // of the root
  const bool reduces_, rooted_;
  const std::size_t wide_;  // blocks between this rank and one host
  bool to_root() const { return rooted_ && !from_root(op_.collective); }

 private:
  static std::size_t whole_grains(std::size_t bytes) {
    return (bytes + kGrain - 1) / kGrain * kGrain;
  }

  std::byte* const memory_;
  std::size_t first_ = 0, count_ = 0;  // elements of a block that are this rank's to send
  std::size_t slice_;
};

}  // namespace weft
