// Slices of what travels between hosts: where they begin, and that they fit where they are sent
// from.
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "coll/gpu/lane.h"
#include "coll/gpu/nic_slices.h"
#include "support/device/device_cards.h"

namespace weft {
namespace {

NicLayout layout_of(Rank hosts, Rank places) {
  NicLayout layout;
  for (Rank h = 0; h < hosts; ++h) {
    layout.hosts.emplace_back();
    for (Rank p = 0; p < places; ++p) layout.hosts.back().push_back(h * places + p);
  }
  return layout;
}

struct Slices : NicSlices {
  Slices(const DeviceOperation& op, const NicLayout& layout) : NicSlices(op, layout, nullptr) {}
  using NicSlices::at;
  using NicSlices::kAreasBytes;
  using NicSlices::length;
  using NicSlices::slices;
  using NicSlices::stride;
};

// The kernels take vectors of 16 bytes, of operands that are equally far from a boundary of them:
// all slices of a buffer that begins at one do, however many hosts there are.
TEST(NicSlicesTest, BeginAtWholeVectorsAndFit) {
  for (const Rank hosts : {2, 3, 5, 7, 24, 127, 128})
    for (const Collective collective : testing::kGpuHierarchical)
      for (const DType type : kAllDTypes) {
        if (hosts > 60 && collective == Collective::kAllToAll) continue;  // two places: 128 blocks
        DeviceOperation op;
        op.collective = collective;
        op.call.count = std::size_t{5} << 20;
        op.call.type = type;
        const NicLayout layout = layout_of(hosts, 2);
        const Slices s(op, layout);
        ASSERT_GT(s.slices(), 1u) << name(collective) << " " << name(type);
        for (std::size_t k = 0; k < s.slices(); ++k)
          ASSERT_EQ(s.at(k, 0) * size_of(type) % 16, 0u)
              << name(collective) << " of " << name(type) << ", " << hosts << " hosts, slice " << k;
        const std::size_t blocks = !by_blocks(collective) ? 1
                                   : collective == Collective::kAllToAll
                                       ? static_cast<std::size_t>(hosts) * 2
                                       : static_cast<std::size_t>(hosts);
        EXPECT_LE(blocks * s.stride(0), Slices::kAreasBytes / 3);
        EXPECT_GT(blocks * s.length(0) * size_of(type), Slices::kPieceBytes / 2);
      }
}

}  // namespace
}  // namespace weft
