// One operation on device memory whose messages are sent and received by the cards
// (device_gpudirect.h). Not installed.
#pragma once

#include <cstddef>
#include <span>

#include "coll/device_lane.h"

namespace weft {

// What it needs on the GPU: slices under way, each with three areas.
extern const std::size_t kByCardsBytes;

// Of the larger buffer of any rank: the root, where there is one, has the most.
std::size_t most_blocks(const DeviceOperation& op, std::size_t ranks);

// Runs it through `memory`, which all cards reach. Throws Error when the device fails, and then the
// job has.
Status run_by_cards(DeviceLane& lane, const DeviceOperation& op,
                    std::span<const DeviceRecord> records, std::byte* memory);

}  // namespace weft
