// Which parts of its buffers a rank reads and writes in an operation on device memory; of blocks of
// different sizes, where those of the other ranks lie. Not installed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "coll/gpu/lane.h"

namespace weft {

// Elements of a user's buffer.
struct DeviceBlock {
  std::uint64_t at = 0, count = 0;
};

// Of `out` or of `in`: in the order of ranks where there are several; one, all, or none.
std::vector<DeviceBlock> device_blocks(const DeviceOperation& op, Rank me, std::size_t n, bool out);
// The elements from the buffer's begin to the end of the last one; 0: all are empty.
std::size_t extent(std::span<const DeviceBlock> blocks);

// Of a vector operation: asks every rank which part of its `in` it has for this one. as_expected:
// all are as long as this rank's arguments say (of an all_to_all_v only the two ends know).
Status ask_for_blocks(DeviceLane& lane, const DeviceOperation& op, std::vector<DeviceBlock>& blocks,
                      bool& as_expected);

}  // namespace weft
