// labels: multiproc
// ctest: whole
// `auto` with a profile that is wrong: ranks try rivals together and agree, whatever they measured.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "coll/choice.h"
#include "coll/metrics.h"
#include "support/ranks.h"
#include "support/setting.h"
#include "support/temporary_folder.h"

namespace weft {
namespace {

using testing::places;
using testing::run_ranks;
using testing::Setting;

constexpr std::size_t kCount = 40000;  // more than a board takes

class Correction : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    setenv("WEFT_PROFILE", file.c_str(), 1);
  }
  void TearDown() override { setenv("WEFT_PROFILE", "off", 1); }
  void run(const std::function<void(World&)>& body) {
    WorldOptions options;
    options.transport = GetParam().transport;
    run_ranks(places(GetParam().hosts), options, body);
  }
  // What each rank ran, call by call.
  std::map<Rank, std::vector<std::string>> ran;
  std::mutex mutex;
  const testing::TemporaryFolder folder;
  const std::string file = folder / "profile.json";

  // all_reduce of kCount elements with the right result, so many times. asynchronous: this rank
  // does not wait in the call.
  void calls(World& world, int times, bool asynchronous = false) {
    Communicator comm = world.world();
    std::vector<std::int32_t> in(kCount), out(kCount);
    std::vector<std::string> mine;
    std::int32_t want = 0;
    for (Rank r = 0; r < comm.size(); ++r) want += r + 1;
    for (int i = 0; i < times; ++i) {
      for (std::size_t k = 0; k < kCount; k += 997) in[k] = (comm.rank() + 1) * (i + 1);
      Status s;
      if (asynchronous)
        s = comm.all_reduce_async(in.data(), out.data(), kCount, DType::kInt32, RedOp::kSum).wait();
      else
        s = comm.all_reduce(in.data(), out.data(), kCount, DType::kInt32, RedOp::kSum);
      s.check();
      mine.push_back(comm.last_algorithm());
      for (std::size_t k = 0; k < kCount; k += 997) ASSERT_EQ(out[k], want * (i + 1)) << i;
    }
    const std::lock_guard lock(mutex);
    ran[comm.rank()] = mine;
  }
};

std::set<std::string> kinds(const std::vector<std::string>& v) { return {v.begin(), v.end()}; }

TEST_P(Correction, TriesRivalsOnAllRanksAlikeAndKeepsWhatItLearnt) {
  constexpr int kCalls = 200;
  run([&](World& world) { calls(world, kCalls); });
  ASSERT_EQ(ran.size(), static_cast<std::size_t>(ranks_of(GetParam())));
  for (const auto& [r, algorithms] : ran) EXPECT_EQ(algorithms, ran[0]) << "rank " << r;
  // Nothing is tried at first, then rivals are.
  EXPECT_EQ(kinds({ran[0].begin(), ran[0].begin() + Trial::kBefore - 1}).size(), 1u);
  EXPECT_GT(kinds(ran[0]).size(), 1u);
  ASSERT_TRUE(std::filesystem::exists(file));
  // The next job begins with the times of this one: with one algorithm, for long. What it measures
  // of its links may let the model pick one that nobody has tried yet: then it has no time of it.
  const auto tried = kinds(ran[0]);
  ran.clear();
  run([&](World& world) {
    calls(world, kCalls);
    if (world.rank() != 0) return;
    for (const auto& pick : world.metrics().picks) {
      if (pick.bytes < kCount * 4) continue;
      EXPECT_GT(pick.measured, 0u);
    }
  });
  if (tried.contains(ran[0].front())) {
    EXPECT_EQ(kinds(ran[0]).size(), 1u) << ::testing::PrintToString(kinds(ran[0]));
  }
}

TEST_P(Correction, ARankThatDoesNotWaitIsAgainstAChangeAndHarmless) {
  run([&](World& world) { calls(world, 200, world.rank() == 1); });
  for (const auto& [r, algorithms] : ran) EXPECT_EQ(algorithms, ran[0]) << "rank " << r;
  EXPECT_EQ(ran[0].front(), ran[0].back());
}

// Calls that may come in any order, as all are the same.
TEST_P(Correction, ThreadsOfOneCommunicatorDoNotComeBetween) {
  constexpr int kThreads = 3, kCalls = 70;
  run([&](World& world) {
    Communicator comm = world.world();
    for (const std::size_t count : {kCount, 2 * kCount}) {
      std::vector<std::thread> threads;
      for (int t = 0; t < kThreads; ++t)
        threads.emplace_back([=]() mutable {
          const std::vector<std::int32_t> in(count, 1), want(count, comm.size());
          std::vector<std::int32_t> out(count);
          for (int i = 0; i < kCalls; ++i) {
            const Status s =
                comm.all_reduce(in.data(), out.data(), count, DType::kInt32, RedOp::kSum);
            ASSERT_TRUE(s.ok()) << "call " << i << ": " << s.to_string();
            ASSERT_EQ(out, want) << "call " << i;
          }
        });
      for (auto& t : threads) t.join();
    }
  });
}

TEST_P(Correction, OffTriesNothing) {
  setenv("WEFT_PROFILE", "off", 1);
  run([&](World& world) { calls(world, 200); });
  EXPECT_EQ(kinds(ran[0]).size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST_P(Correction, OffStaysOffInTheWorldThatAShrinkMakes) {
  setenv("WEFT_PROFILE", "off", 1);
  run([&](World& world) {
    if (world.rank() == 1) world.abort("once more");
    while (world.world().barrier().ok()) {
    }
    const std::unique_ptr<World> next = world.shrink();
    calls(*next, 200);
  });
  ASSERT_EQ(ran.size(), static_cast<std::size_t>(ranks_of(GetParam())));
  EXPECT_EQ(kinds(ran[0]).size(), 1u) << ::testing::PrintToString(kinds(ran[0]));
}

class LongCorrection : public Correction {};  // 1,500 calls: one setting is enough

TEST_P(LongCorrection, AProfileThatIsWrongIsLearntAnew) {
  // The slowest algorithm claims to be the fastest.
  const auto claim = [&](World& world, const char* name, double us) {
    Communicator comm = world.world();
    comm.learn(Collective::kAllReduce, kCount * 4, name, us);
  };
  run([&](World& world) {
    for (const char* name : {"direct", "halving_doubling", "recursive_doubling", "flat", "tree"})
      claim(world, name, 100);
    claim(world, "ring", 1);
    calls(world, 1500);
  });
  EXPECT_EQ(kinds({ran[0].begin(), ran[0].begin() + 1000}), std::set<std::string>{"ring"});
  EXPECT_GT(kinds(ran[0]).size(), 1u);
  for (const auto& [r, algorithms] : ran) EXPECT_EQ(algorithms, ran[0]) << "rank " << r;
}

INSTANTIATE_TEST_SUITE_P(Over, Correction,
                         ::testing::Values(Setting{"Shm", {4}, "auto"},
                                           Setting{"Mixed", {2, 2}, "auto"},
                                           Setting{"UnequalHostsInOne", {3, 2}, "shm"}),
                         [](const auto& i) { return std::string(i.param.name); });

INSTANTIATE_TEST_SUITE_P(Over, LongCorrection, ::testing::Values(Setting{"Shm", {4}, "auto"}),
                         [](const auto& i) { return std::string(i.param.name); });

}  // namespace
}  // namespace weft
