// Maps the buffers of other ranks of this machine, and unmaps them. This file is independent of
// what the task does with the buffers.
#include "coll/gpu/mapped.h"

#include <fmt/format.h>

#include <algorithm>

#include "coll/footprint.h"

namespace weft {

MappedBuffers::MappedBuffers(DeviceLane& lane, const DeviceOperation& op,
                             std::span<const DeviceRecord> records, std::vector<Rank> members)
    : members_(std::move(members)),
      element_(size_of(op.call.type)),
      ins_(members_.size()),
      outs_(members_.size()) {
  const int gpu = std::max(op.mine.in.gpu, op.mine.out.gpu);
  const bool is_vector = op.call.is_vector;
  if (is_vector && gpu < 0) return;  // a rank without elements writes nothing
  const auto map = [&](const DeviceAddress& address, Rank rank, const char* which) {
    if (rank == lane.group().me) return const_cast<void*>(*which == 'i' ? op.call.in : op.call.out);
    if (address.gpu < 0 && is_vector) return static_cast<void*>(nullptr);
    if (address.gpu < 0)
      throw Error(fmt::format("{} of rank {} is not device memory", which, rank));
    // A replayed graph has no other time to map.
    void* const at = device_peers().acquire(lane.device(), address, gpu,
                                            lane.kind() == DeviceLane::Kind::kGraphs);
    if (at)
      acquired_.emplace_back(&address, gpu);
    else
      later_ = true;
    return at;
  };
  try {
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const Rank rank = members_[i];
      const DeviceRecord& record = records[static_cast<std::size_t>(rank)];
      const Footprint use = footprint(op.collective(), rank, op.root());
      // In place: a second mapping costs nothing.
      if (use.in != Part::kNothing) ins_[i] = map(record.in, rank, "in");
      if (use.out != Part::kNothing && (!is_vector || rank == lane.group().me))
        outs_[i] = map(record.out, rank, "out");
    }
  } catch (const Error& e) {
    why_not_ = e.what();
  }
}

MappedBuffers::~MappedBuffers() {
  for (const auto& [address, gpu] : acquired_) device_peers().release(*address, gpu);
}

}  // namespace weft
