// Tests Links in isolation: the link that a pair of ranks uses, and the rails that a long message
// uses.
#include "coll/runtime/links.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "support/jobs/ranks.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

// Two hosts of two ranks, with two rails; the links of rank 1, which shares memory with rank 0.
class LinksOfRank1 : public ::testing::Test {
 protected:
  LinksOfRank1() {
    links_.place(1, topology_);
    links_.shm_link = 0;
    links_.first_rail_link = 1;
    links_.shm_peer = {1, 1, 0, 0};
    links_.has_device = {1, 1, 0, 1};
  }
  const Topology topology_{testing::places({2, 2}, 2)};
  WorldOptions options_;
  Links links_{options_};
};

TEST_F(LinksOfRank1, BothEndsTakeTheRailOfTheLowerRank) {
  EXPECT_EQ(links_.link_to(0), 0);
  EXPECT_EQ(links_.link_to(2), 1 + topology_.rail(1));
  EXPECT_EQ(links_.link_of(0, 3), 1 + topology_.rail(0));
  EXPECT_NE(topology_.rail(0), topology_.rail(1));
  EXPECT_EQ(links_.rail_name(0), "");
  EXPECT_EQ(links_.rail_name(2), ", rail 1");
}

TEST_F(LinksOfRank1, ALongMessageUsesAllNearRailsAndItsOwnFirst) {
  EXPECT_THAT(links_.stripes(1, 2, 1), ElementsAre(1, 0));
  EXPECT_THAT(links_.stripes(2, 1, 1), ElementsAre(1, 0)) << "both ends alike";
  options_.spread = false;
  EXPECT_THAT(links_.stripes(1, 2, 1), ElementsAre(1));
}

TEST_F(LinksOfRank1, MessagesAreOfferedOnlyBetweenGpusOfAHostWithoutChecks) {
  EXPECT_TRUE(links_.offers_messages(0));
  EXPECT_FALSE(links_.offers_messages(3)) << "no shared memory";
  options_.integrity = true;
  EXPECT_FALSE(links_.offers_messages(0));
}

TEST_F(LinksOfRank1, ThoseInUseArePolledInOrderAndOnce) {
  FairMutex mutex;
  const CoreLock lock(mutex);
  for (const std::uint8_t link : {2, 0, 2, 1}) links_.use(link);
  EXPECT_THAT(links_.polled, ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace weft
