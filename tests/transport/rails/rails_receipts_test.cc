// Receipts of long messages that are delayed to share a packet with the next one.
// labels: sim
#include <gtest/gtest.h>

#include "transport/rails_job.h"

namespace weft {
namespace {

using testing::rails::Job;
using testing::rails::Setting;

constexpr int kMessages = 400;
constexpr std::size_t kSlice = 16 << 10;

TEST(RailsReceipts, SlicesInARowShareThem) {
  for (const double apart_us : {40.0, 300.0, 1500.0}) {
    SCOPED_TRACE(::testing::Message() << apart_us << " us apart");
    Job job(Setting{});
    for (int i = 0; i < kMessages; ++i) job.message(0, 1, 0, kSlice, i * apart_us, 0);
    ASSERT_TRUE(job.run(5e6));
    job.check();
    EXPECT_LT(job.of(1).counters().receipts, kMessages * 6 / 10);
  }
}

// An immediate receipt of a long slice is worth the extra packet.
TEST(RailsReceipts, LongSlicesHaveTheirOwn) {
  Job job(Setting{});
  for (int i = 0; i < kMessages; ++i) job.message(0, 1, 0, 4 * kSlice, i * 300.0, 0);
  ASSERT_TRUE(job.run(5e6));
  job.check();
  EXPECT_GT(job.of(1).counters().receipts, kMessages * 9 / 10);
}

// A receipt is delayed until the next message, but that message's sender waits for it.
TEST(RailsReceipts, ASenderThatWaitsForThemIsSeldomHeldUp) {
  const auto ends_us = [](double recv_us) {
    Job job(Setting{});
    job.message(0, 1, 0, kSlice, 0, 0);
    for (int i = 1; i < kMessages; ++i) job.message(0, 1, 0, kSlice, Job::kChained, recv_us);
    EXPECT_TRUE(job.run(5e6));
    job.check();
    return job.now_us();
  };
  const double each_by_itself = ends_us(Job::kChained), all_expected = ends_us(0);
  EXPECT_LT(all_expected, 1.1 * each_by_itself);
}

// One operation ends, another continues, and the rank leaves. Every other receipt is delayed.
TEST(RailsReceipts, WhoGoesAwayTellsThemFirst) {
  for (const bool tells : {false, true}) {
    int held = 0;
    for (const int before : {38, 39}) {
      Job job(Setting{});
      for (int i = 0; i < before; ++i) job.message(0, 1, 0, kSlice, i * 1000, 0);
      job.message(0, 1, 0, kSlice, 1e6, 0);
      const double away_us = before * 1000 - 800;
      job.at_time(away_us, [&] {
        if (tells) job.of(1).tell_receipts();
      });
      job.rests(1, away_us, 1e6);
      job.at_time(0.9e6, [&] { held += !job.of(0).in_use().empty(); });
      ASSERT_TRUE(job.run(5e6));
      job.check();
    }
    EXPECT_EQ(held, tells ? 0 : 1);
  }
}

}  // namespace
}  // namespace weft
