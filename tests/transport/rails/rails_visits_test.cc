// Rails polls only lanes with pending messages.
// labels: sim
#include <gtest/gtest.h>

#include <numeric>

#include "transport/rails_job.h"

namespace weft {
namespace {

using testing::rails::Job;
using testing::rails::Setting;

// After one message to each of many peers, only one peer continues: the lanes of the others are not
// polled.
TEST(RailsVisits, AreToPeersWithSomethingUnderWay) {
  constexpr int kPeers = 31, kMessages = 400;
  Setting setting;
  setting.host_of_rank.resize(kPeers + 1);
  std::iota(setting.host_of_rank.begin(), setting.host_of_rank.end(), 0);
  Job job(setting);
  for (Rank p = 1; p <= kPeers; ++p) {
    job.message(0, p, 0, 5000, p * 100, 0);
    job.message(p, 0, 1, 100, p * 100, 0);
  }
  for (int i = 0; i < kMessages; ++i) job.message(0, 1, 0, 20'000, 0.5e6 + i * 1000, 0);
  std::uint64_t before = 0, after = 0;
  job.at_time(0.4e6, [&] { before = job.of(0).counters().visits; });
  job.at_time(0.9e6, [&] { after = job.of(0).counters().visits; });
  ASSERT_TRUE(job.run(5e6));
  job.check();
  EXPECT_GT(before, 2u * kPeers) << "at first each is looked at";
  EXPECT_GT(after - before, kMessages / 2u) << "that of the one is";
  // One poll per ms of that peer's two lanes, and some more for receipts.
  EXPECT_LT(after - before, 4u * kMessages);
}

}  // namespace
}  // namespace weft
