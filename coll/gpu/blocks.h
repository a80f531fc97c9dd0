// Which parts of its buffers a rank reads and writes in a task on device memory and, in a vector
// collective, where the blocks of the other ranks lie.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "coll/gpu/lane.h"

namespace weft {

// A range of elements of a user's buffer.
struct DeviceBlock {
  std::uint64_t at = 0, count = 0;
};

// Returns the blocks of `out` or of `in`: none, one, or those of all ranks in order.
std::vector<DeviceBlock> device_blocks(Collective collective, const Call& call, Rank root, Rank me,
                                       std::size_t n, bool out);
inline std::vector<DeviceBlock> device_blocks(const DeviceOperation& op, Rank me, std::size_t n,
                                              bool out) {
  return device_blocks(op.collective(), op.call, op.root(), me, n, out);
}
// Returns the elements from the buffer's start to the end of the last block; 0: all are empty.
std::size_t extent(std::span<const DeviceBlock> blocks);

// In a vector collective, asks every rank for the part of its `in` that this rank receives.
// as_expected: all parts have the lengths that this rank's arguments give (in an all_to_all_v, only
// the sender and the receiver of a part pass its length).
Status ask_for_blocks(DeviceLane& lane, const DeviceOperation& op, std::vector<DeviceBlock>& blocks,
                      bool& as_expected);

}  // namespace weft
