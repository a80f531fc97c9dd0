// The host whose messages arrive corrupted is named, unless the messages are ambiguous.
#include "perf/validate/wrong_pairs.h"

#include <gtest/gtest.h>

namespace weft::fabric {
namespace {

using Counts = std::vector<std::vector<int>>;

Counts square(std::size_t hosts, int value) {
  Counts counts(hosts, std::vector<int>(hosts, value));
  for (std::size_t h = 0; h < hosts; ++h) counts[h][h] = 0;
  return counts;
}

TEST(WrongPairs, ASenderAndAReceiverAreNamed) {
  Counts wrong = square(4, 0);
  wrong[1] = {2, 0, 1, 3};
  const WrongHost sender = most_wrong(wrong, square(4, 60));
  EXPECT_EQ(sender.host, 1);
  EXPECT_TRUE(sender.sends);
  EXPECT_EQ(sender.wrong, 6);
  EXPECT_EQ(sender.messages, 180);
  wrong = square(4, 0);
  for (const std::size_t from : {0, 1, 3}) wrong[from][2] = 2;
  const WrongHost receiver = most_wrong(wrong, square(4, 60));
  EXPECT_EQ(receiver.host, 2);
  EXPECT_FALSE(receiver.sends);
}

TEST(WrongPairs, NobodyIsNamedWithoutReason) {
  EXPECT_EQ(most_wrong(square(4, 0), square(4, 60)).host, -1) << "nothing is wrong any more";
  EXPECT_EQ(most_wrong(square(4, 2), square(4, 60)).host, -1) << "all are wrong alike";
  Counts two = square(2, 0);
  two[0][1] = 9;
  EXPECT_EQ(most_wrong(two, square(2, 60)).host, -1) << "two ends share every message";
  Counts few = square(4, 0);
  few[1] = {1, 0, 1, 0};
  EXPECT_EQ(most_wrong(few, square(4, 60)).host, -1) << "two events are chance";
  Counts several = square(4, 4);
  several[1] = {9, 0, 9, 9};
  EXPECT_EQ(most_wrong(several, square(4, 60)).host, -1) << "most came from other hosts";
}

}  // namespace
}  // namespace weft::fabric
