// A companion communicator fails with the communicator that it serves, whatever its ranks.
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
  // By membership alone, ranks 1 and 3 would not be affected by rank 2 or by rank 0's communicator.
  EXPECT_FALSE(concerns(dead, some));
  EXPECT_FALSE(concerns(ended, some));
  some.whole = &whole;
  EXPECT_TRUE(concerns(dead, some));
  EXPECT_TRUE(concerns(ended, some));
  // A failure of another communicator, or of a rank outside both, ends neither of the two.
  EXPECT_FALSE(concerns({Scope::Ends::kGroup, 0, 8}, some));
  EXPECT_FALSE(concerns({Scope::Ends::kGroup, 1, 7}, some));
  EXPECT_FALSE(concerns({Scope::Ends::kRank, 4}, some));
}

}  // namespace
}  // namespace weft
