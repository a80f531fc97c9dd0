// The outline of schedules, against values computed by hand.
#include "coll/engine/outline.h"

#include <gtest/gtest.h>

#include "coll/engine/plan.h"
#include "coll/schedules.h"

namespace weft {
namespace {

using testing::uniform;

Outline outline(Collective collective, const char* name, const Shape& shape, bool split) {
  return outline_of(find_algorithm(collective, name)->build(shape), collective, shape, split);
}

TEST(Outline, OfHalvingAndDoublingAlongARail) {
  // 8 ranks per host; halving sends 16, 8, 4, 2, 1 chunks along the rail, doubling returns them.
  const Outline o = outline(Collective::kAllReduce, "hierarchical_hd", uniform(32, 8), false);
  EXPECT_EQ(o.per_host, 8);
  EXPECT_EQ(o.rail_hops, 10);
  EXPECT_EQ(o.host_hops, 2);
  EXPECT_EQ(o.rail_messages, 2 * 10);
  EXPECT_EQ(o.host_messages, 2 * (7 + 7));
  EXPECT_EQ(o.rail_chunks, 2 * 31);
  EXPECT_EQ(o.host_chunks, 2 * 7 * 32);
  EXPECT_EQ(o.scratch_chunks, 31);  // one per arriving chunk
}

TEST(Outline, OfARing) {
  const Outline o = outline(Collective::kAllReduce, "ring", uniform(6, 1), false);
  EXPECT_EQ(o.rail_hops, 10);
  EXPECT_EQ(o.rail_messages, 20);
  EXPECT_EQ(o.rail_chunks, 10);
  EXPECT_EQ(o.scratch_chunks, kArrivalsAhead);  // arrivals from the only neighbor reuse the credits
}

// In the block layout every message is one chunk, and a rank keeps the chunks that it forwards.
TEST(Outline, OfBlocks) {
  const Outline o = outline(Collective::kReduceScatter, "hierarchical_hd", uniform(4, 2), true);
  EXPECT_EQ(o.rail_messages, 2 * 3);
  EXPECT_EQ(o.host_messages, 2 * 4);
  EXPECT_EQ(o.scratch_chunks, 3 + 3);  // three sums of other ranks' blocks, three arrivals
}

// In the packed layout a step over several chunks is one message, and a rank has a copy of the
// round.
TEST(Outline, OfPackedBlocks) {
  const Outline o = outline(Collective::kReduceScatter, "hierarchical_hd", uniform(4, 2), false);
  EXPECT_EQ(o.rail_messages, 2 * 2);
  EXPECT_EQ(o.host_messages, 2);
  EXPECT_EQ(o.copied_first, 8);
  EXPECT_EQ(o.copied_chunks, 8 + 1);
  EXPECT_EQ(o.scratch_chunks, 8 + 3);
  const Outline joined = outline(Collective::kAllGather, "hierarchical", uniform(4, 2), false);
  EXPECT_EQ(joined.host_messages, 2);
  EXPECT_EQ(joined.copied_first, 1);
  EXPECT_EQ(joined.copied_chunks, 1 + 8);
}

// A rank holds few forwarded sums at a time; hosts and rails work in parallel.
TEST(Outline, OfARingThatSharesPlaces) {
  const Outline o = outline(Collective::kReduceScatter, "hierarchical", uniform(32, 8), true);
  EXPECT_EQ(o.rail_messages, 2 * 31);
  EXPECT_EQ(o.host_messages, 2 * 7 * 32);
  EXPECT_EQ(o.scratch_chunks, 3 + kArrivalsAhead);
  EXPECT_TRUE(o.together);
  EXPECT_FALSE(
      outline(Collective::kReduceScatter, "hierarchical_hd", uniform(32, 8), true).together);
}

}  // namespace
}  // namespace weft
