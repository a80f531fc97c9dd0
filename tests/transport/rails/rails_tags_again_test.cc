// Tags wrap around: they are reused after many operations, long after their previous message.
// labels: sim
#include <gtest/gtest.h>

#include <vector>

#include "transport/rails_job.h"

namespace weft {
namespace {

using testing::rails::Job;
using testing::rails::Setting;

void some(Job& job, int n, std::size_t bytes, double from_us) {
  for (int i = 0; i < n; ++i) job.message(0, 1, 0, bytes, from_us + i * 1000, from_us + i * 1000);
}

void ends_well(Job& job) {
  const bool over = job.run(60e6);
  if (::testing::Test::HasFailure()) return;
  if (!over) job.print();
  ASSERT_TRUE(over);
  job.check();
}

// Short messages use another rail while their own rail is down. The few receipts of that other rail
// must not stay unsent: the sender would retransmit the messages much later, when their tags belong
// to other messages.
TEST(RailsTagsAgain, WhatWentOverARailForAWhileIsNotSentAgainMuchLater) {
  for (const int few : {1, 5, 12, 29}) {
    SCOPED_TRACE(::testing::Message() << few << " messages on the other rail");
    Setting s;
    s.tags = 512;
    s.options.stripes = [](Rank, int) { return std::vector<int>{0, 1}; };
    Job job(s);
    some(job, 20, 30'000, 1000);
    job.at_time(100'000, [&] { job.rails().fabric().cut(1, 0); });
    some(job, 20, 30'000, 110'000);
    some(job, few, 100, 2'000'000);  // over rail 1
    job.at_time(2'500'000, [&] { job.rails().fabric().mend(1, 0); });
    some(job, 600, 100, 5'000'000);  // over rail 0
    job.at_time(6'000'000, [&] { job.rails().fabric().cut(1, 1); });
    some(job, 20, 30'000, 6'000'000);
    some(job, 600, 100, 8'000'000);
    ASSERT_NO_FATAL_FAILURE(ends_well(job));
    EXPECT_EQ(job.of(0).counters().taken_out, 2u);
    EXPECT_EQ(job.of(0).counters().taken_back, 1u);
  }
}

// A few short messages among many long ones: their receipts must not wait for more.
TEST(RailsTagsAgain, AFewShortMessagesAreNotSentAgainMuchLater) {
  for (const int few : {1, 5, 29}) {
    SCOPED_TRACE(::testing::Message() << few << " short messages");
    Setting s;
    s.tags = 512;
    Job job(s);
    some(job, few, 100, 1000);
    some(job, 600, 30'000, 1'000'000);
    job.at_time(1'900'000, [&] { EXPECT_TRUE(job.of(0).settled()) << "its copies are kept"; });
    job.at_time(2'000'000, [&] { job.rails().fabric().cut(1, 0); });
    some(job, 20, 30'000, 2'100'000);
    some(job, 600, 100, 3'000'000);
    ASSERT_NO_FATAL_FAILURE(ends_well(job));
    EXPECT_EQ(job.of(0).counters().taken_out, 1u);
  }
}

// One-way traffic: the receiver must get confirmations of its receipts. Otherwise, after a rail's
// failure, it claims to have received later messages with the same tags.
TEST(RailsTagsAgain, WhatWasReceivedLongAgoIsNotTakenForWhatWasLost) {
  for (int lost = 0; lost < 10; ++lost) {
    SCOPED_TRACE(::testing::Message() << "message " << lost);
    Setting s;
    s.tags = 512;
    Job job(s);
    some(job, 300, 100, 1000);
    some(job, 400, 30'000, 1'000'000);  // from the 213th on with tags of the first ones
    job.at_time(1'300'010 + lost * 1000, [&] { job.rails().fabric().cut(1, 0); });
    ASSERT_NO_FATAL_FAILURE(ends_well(job));
    EXPECT_EQ(job.of(0).counters().taken_out, 1u);
  }
}

// A rank that only sends may run ahead by a whole cycle of tags, so that several messages of one
// tag are pending. Each has its own receipt.
TEST(RailsTagsAgain, SeveralMessagesOfATagMayBeUnderWay) {
  Setting s;
  s.tags = 16;
  Job job(s);
  for (int i = 0; i < 64; ++i) job.message(0, 1, 0, 100, 1000 + i * 10, 100'000 + i * 100);
  job.at_time(900'000, [&] { EXPECT_TRUE(job.of(0).settled()) << "copies are kept"; });
  job.at_time(1'000'000, [&] { job.rails().fabric().cut(1, 0); });
  some(job, 64, 30'000, 1'000'000);
  some(job, 64, 100, 2'000'000);
  ASSERT_NO_FATAL_FAILURE(ends_well(job));
}

// While the sender did not poll, more messages have arrived than one datagram can list.
TEST(RailsTagsAgain, WhatHasComeIsNotSentAgainHoweverMuchItIs) {
  constexpr int kMessages = 7000;
  Setting s;
  Job job(s);
  for (int i = 0; i < kMessages; ++i) job.message(0, 1, 0, 8, 1000 + i, 100'000 + i);
  job.rests(0, 50'000, 3'000'000);
  job.at_time(1'000'000, [&] { job.rails().fabric().cut(1, 0); });
  some(job, 20, 100, 4'000'000);
  ASSERT_NO_FATAL_FAILURE(ends_well(job));
  EXPECT_EQ(job.of(0).counters().taken_out, 1u);
  EXPECT_EQ(job.of(0).counters().replayed, 0u);
}

// When their rail fails, they are retransmitted in order.
TEST(RailsTagsAgain, SeveralMessagesOfATagGoAgainInTheirOrder) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Setting s;
    s.seed = seed;
    s.tags = 16;
    Job job(s);
    for (int i = 0; i < 60; ++i) job.message(0, 1, 0, 100, i, i);  // to free slots in any order
    for (int i = 0; i < 64; ++i) job.message(0, 1, 0, 100, 100'000 + i * 1000, 300'000 + i * 100);
    job.at_time(130'000, [&] { job.rails().fabric().cut(1, 0); });
    ASSERT_NO_FATAL_FAILURE(ends_well(job));
    EXPECT_EQ(job.of(0).counters().taken_out, 1u);
  }
}

}  // namespace
}  // namespace weft
