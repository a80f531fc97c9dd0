// The rounds in which all pairs are measured.
#include <gtest/gtest.h>

#include <set>

#include "perf/pair/pair_session.h"

namespace weft {
namespace {

TEST(PairRounds, CoverEveryPairOnceAndShareNoRank) {
  for (int n = 1; n <= 33; ++n) {
    std::set<std::pair<Rank, Rank>> seen;
    for (const auto& round : pair_rounds(n)) {
      std::set<Rank> busy;
      for (const auto& [a, b] : round) {
        EXPECT_LT(a, b);
        EXPECT_LT(b, n);
        EXPECT_TRUE(busy.insert(a).second && busy.insert(b).second) << "n = " << n;
        EXPECT_TRUE(seen.insert({a, b}).second) << "n = " << n;
      }
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(n) * (n - 1) / 2);
  }
}

}  // namespace
}  // namespace weft
