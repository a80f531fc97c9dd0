// Runs a task on device memory between hosts. Its messages leave from, and arrive in, memory
// that the GPU reads and writes: its own, which NICs reach, or pinned host memory (gpudirect.h).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "coll/gpu/lane.h"

namespace weft {

// Who exchanges with whom: ranks of a host read and write each other's buffers, and ranks with the
// same place on their hosts send each other messages, by NICs. Ranks are ranks of the group.
struct NicLayout {
  std::vector<std::vector<Rank>> hosts;  // all with as many ranks
  std::size_t host = 0, place = 0;       // this rank's
};

// Bytes of memory that run_gpu_hierarchical() needs: slices under way, each with three areas.
extern const std::size_t kHierarchicalBytes;

// Returns the blocks of the largest buffer of any rank: that of the root, if there is a root.
std::size_t most_blocks(const DeviceOperation& op, std::size_t ranks);

// Runs the task through `memory`: this GPU's, which all NICs reach, or pinned host memory.
// buffers: those of this host's ranks, in the order of `layout`; these ranks may use them until all
// of them have returned. Throws Error when the device fails, as the job has.
Status run_gpu_hierarchical(DeviceLane& lane, const DeviceOperation& op, const NicLayout& layout,
                            std::span<const DeviceRecord> records, const MappedBuffers& buffers,
                            std::byte* memory, bool on_device);

}  // namespace weft
