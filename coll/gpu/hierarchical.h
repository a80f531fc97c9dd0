// One operation on device memory whose messages are sent from, and received into, memory that the
// GPU reads and writes: the cards' or pinned host memory (gpu/gpudirect.h). Not installed.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "coll/gpu/lane.h"

namespace weft {

// Who exchanges what: ranks of a host read and write each other's buffers, and those that have the
// same place on their hosts send each other messages, by the cards. Ranks of the group.
struct CardLayout {
  std::vector<std::vector<Rank>> hosts;  // all with as many ranks
  std::size_t host = 0, place = 0;       // this rank's
};

// The memory that it needs: slices under way, each with three areas.
extern const std::size_t kByCardsBytes;

// Of the larger buffer of any rank: the root, where there is one, has the most.
std::size_t most_blocks(const DeviceOperation& op, std::size_t ranks);

// Runs it through `memory`: of this GPU, which all cards reach, or pinned. buffers: of this rank's
// host, in the order of `layout`; others may be at them until all ranks of the host have returned.
// Throws Error when the device fails, and then the job has.
Status run_by_cards(DeviceLane& lane, const DeviceOperation& op, const CardLayout& layout,
                    std::span<const DeviceRecord> records, const MappedBuffers& buffers,
                    std::byte* memory, bool on_device);

}  // namespace weft
