// Finds the blocks that a rank reads and writes, and asks the other ranks for theirs.
// Moves no user data.
#include "coll/gpu/blocks.h"

#include <algorithm>

#include "coll/footprint.h"

namespace weft {

std::vector<DeviceBlock> device_blocks(Collective collective, const Call& c, Rank root, Rank me,
                                       std::size_t n, bool out) {
  const Footprint f = footprint(collective, me, root);
  const Part part = out ? f.out : f.in;
  const bool received = out && collective == Collective::kAllToAll;
  const auto counts = received ? c.recv_counts : c.counts;
  const auto offsets = received ? c.recv_offsets : c.offsets;
  std::vector<DeviceBlock> all;
  for (std::size_t b = 0; b < blocks_in(part, n); ++b) {
    if (!c.is_vector)
      all.push_back({b * c.count, c.count});
    else if (part == Part::kAll)
      all.push_back({offsets[b], counts[b]});
    else
      all.push_back({0, counts[static_cast<std::size_t>(me)]});
  }
  return all;
}

std::size_t extent(std::span<const DeviceBlock> blocks) {
  std::size_t end = 0;
  for (const DeviceBlock& b : blocks)
    if (b.count > 0) end = std::max<std::size_t>(end, b.at + b.count);
  return end;
}

Status ask_for_blocks(DeviceLane& lane, const DeviceOperation& op, std::vector<DeviceBlock>& blocks,
                      bool& as_expected) {
  const Rank me = lane.group().me;
  const std::size_t n = lane.group().ranks.size();
  std::vector<DeviceBlock> mine = device_blocks(op, me, n, false);
  mine.resize(n, mine.size() == 1 ? mine[0] : DeviceBlock{});
  blocks.resize(n);
  static_assert(sizeof(DeviceBlock) == 2 * sizeof(std::uint64_t));
  if (Status s = lane.wire().all_to_all(mine.data(), blocks.data(), 2, DType::kUInt64); !s.ok())
    return s;
  const std::vector<DeviceBlock> outs = device_blocks(op, me, n, true);
  as_expected = true;
  for (std::size_t r = 0; r < n && !outs.empty(); ++r)
    if (!from_root(op.collective()) || static_cast<Rank>(r) == op.root())
      as_expected = as_expected && blocks[r].count == outs[outs.size() == n ? r : 0].count;
  return {};
}

}  // namespace weft
