// One rank of a host tells of a rail that failed, and of its return.
#include "coll/runtime/rail_voice.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "support/ranks.h"
#include "transport/job/bootstrap.h"

namespace weft {
namespace {

// Of two hosts with two ranks each, two rails.
class RailVoices : public ::testing::Test {
 protected:
  void make(bool one_machine = true) {
    auto places = testing::places({2, 2}, 2);
    if (!one_machine)
      for (std::size_t r = 0; r < places.size(); ++r) places[r].machine = std::to_string(r);
    const Topology topology(places);
    jobs_ = local_jobs(4);
    voices_.resize(4);
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < 4; ++r)
      threads.emplace_back(
          [&, r] { voices_[r] = std::make_unique<RailVoice>(*jobs_[r], topology); });
    for (auto& t : threads) t.join();
  }
  bool out(Rank rank, int rail, bool seen_here = true) {
    return voices_[static_cast<std::size_t>(rank)]->out(rail, seen_here);
  }
  bool back(Rank rank, int rail) { return voices_[static_cast<std::size_t>(rank)]->back(rail); }
  std::vector<std::unique_ptr<Job>> jobs_;
  std::vector<std::unique_ptr<RailVoice>> voices_;
};

TEST_F(RailVoices, OneOfAHostTellsOnce) {
  make();
  for (int again = 0; again < 3; ++again) {
    EXPECT_TRUE(out(1, 0)) << "the first, whoever it is";
    EXPECT_FALSE(out(0, 0));
    EXPECT_FALSE(out(0, 0)) << "its other lane";
    EXPECT_TRUE(out(0, 1)) << "another rail";
    EXPECT_TRUE(out(2, 0)) << "another host noticed it by itself";
    EXPECT_FALSE(out(3, 0));
    EXPECT_FALSE(back(0, 0));
    EXPECT_FALSE(back(1, 0));
    EXPECT_TRUE(back(0, 0)) << "the last";
    EXPECT_TRUE(back(0, 1));
    EXPECT_FALSE(back(3, 0));
    EXPECT_TRUE(back(2, 0));
  }
}

TEST_F(RailVoices, WhoWasToldSaysNothing) {
  make();
  EXPECT_TRUE(out(0, 0));
  EXPECT_FALSE(out(2, 0, false));
  EXPECT_FALSE(out(3, 0)) << "the other host has said so";
  EXPECT_FALSE(back(2, 0));
  EXPECT_FALSE(back(3, 0)) << "and says so of the return";
  EXPECT_TRUE(back(0, 0));
}

TEST_F(RailVoices, WithoutSharedMemoryEachTells) {
  make(false);
  EXPECT_TRUE(out(0, 0));
  EXPECT_FALSE(out(0, 0));
  EXPECT_TRUE(out(1, 0));
  EXPECT_FALSE(back(0, 0));
  EXPECT_TRUE(back(0, 0));
}

}  // namespace
}  // namespace weft
