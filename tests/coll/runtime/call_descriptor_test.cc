// The text of a call, and the error for calls with equal headers.
#include "coll/call_descriptor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coll/engine/signature.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(CallDescriptor, InWords) {
  CallDescriptor c;
  c.sequence = 124;
  EXPECT_EQ(title(c), "barrier #124");
  EXPECT_EQ(arguments(c), "no arguments");
  c.collective = Collective::kReduce;
  c.count = 1024;
  c.root = 2;
  EXPECT_EQ(arguments(c), "1024 x float32, sum, root 2");
  c.comm = 7;
  EXPECT_EQ(full_title(c), "reduce #124 of communicator 7");
  c.members = 3;
  c.leader = 1;
  EXPECT_EQ(full_title(c), "reduce #124 of communicator 7 (3 ranks, first 1)");
  c = {};
  c.collective = Collective::kSendRecv;
  c.message = c.sends = true;
  c.root = 5;
  c.count = 96;
  EXPECT_EQ(title(c), "send #0 to rank 5");
  EXPECT_EQ(arguments(c), "96 bytes");
}

TEST(CallDescriptor, CountsOfAnUnevenCallGoInOneWord) {
  CallDescriptor c;
  c.collective = Collective::kAllGather;
  c.is_vector = true;
  c.count = 1000;
  c.digest = 0xabcdef;
  CallDescriptor back = c;
  back.set_word(c.word());
  EXPECT_EQ(back.count, 1000u);
  EXPECT_EQ(back.digest, 0xabcdefu);
  EXPECT_EQ(arguments(back), "1000 x float32 in all (digest of the counts abcdef)");
  EXPECT_EQ(arguments(back, false), "1000 x float32");
}

// Ranks whose schedules do not match passed the same arguments and have the same plan.
TEST(Disagreement, OfEqualHeadsIsAboutTheSchedules) {
  const Call call{.count = 100};
  Head head = signature(Collective::kAllReduce, call, 0, 0, 5);
  add_cut(head, -1, 0x7e829e30, 100);
  seal(head);
  const std::string text = disagreement(2, head, 1, head);
  EXPECT_THAT(text, HasSubstr("all_reduce #5 of 100 x float32, sum: both run it"));
  EXPECT_THAT(text, HasSubstr("rank 1 sent rank 2 a message that its schedule does not expect"));
  EXPECT_THAT(text, Not(HasSubstr("plan 7e829e30")));
}

}  // namespace
}  // namespace weft
