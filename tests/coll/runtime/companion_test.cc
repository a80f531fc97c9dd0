// A companion communicator fails with the communicator that it serves, whichever ranks it has.
#include <gtest/gtest.h>

#include "coll/runtime/core.h"

namespace weft {
namespace {

TEST(Companion, OfSomeRanksFailsWithTheWhole) {
  GroupState whole, some;
  whole.ranks = {0, 1, 2, 3};
  whole.number = some.number = 7;
  some.ranks = {1, 3};
  const Scope dead{Scope::Ends::kRank, 2}, ended{Scope::Ends::kGroup, 0, 7};
  // Ranks 1 and 3 alone would neither miss rank 2 nor be the communicator of rank 0.
  EXPECT_FALSE(concerns(dead, some));
  EXPECT_FALSE(concerns(ended, some));
  some.whole = &whole;
  EXPECT_TRUE(concerns(dead, some));
  EXPECT_TRUE(concerns(ended, some));
  // Another communicator, or a rank of none of the two, ends neither.
  EXPECT_FALSE(concerns({Scope::Ends::kGroup, 0, 8}, some));
  EXPECT_FALSE(concerns({Scope::Ends::kGroup, 1, 7}, some));
  EXPECT_FALSE(concerns({Scope::Ends::kRank, 4}, some));
}

}  // namespace
}  // namespace weft
