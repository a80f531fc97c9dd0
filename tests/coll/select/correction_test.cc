// labels: multiproc
// ctest: whole
// `auto` with a profile: every call runs the profile's choice, the same on all ranks, in this job
// and the next.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <set>

#include "coll/api/metrics.h"
#include "coll/runtime/internals.h"
#include "support/jobs/ranks.h"
#include "support/jobs/setting.h"
#include "support/process/temporary_folder.h"

namespace weft {
namespace {

using testing::places;
using testing::run_ranks;
using testing::Setting;

constexpr std::size_t kCount = 40000;  // too large for a board

class Correction : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override { setenv("WEFT_PROFILE", file.c_str(), 1); }
  void TearDown() override { setenv("WEFT_PROFILE", "off", 1); }
  void run(const std::function<void(World&)>& body) {
    WorldOptions options;
    options.transport = GetParam().transport;
    run_ranks(places(GetParam().hosts), options, body);
  }
  // The algorithms that each rank ran, by call.
  std::map<Rank, std::vector<std::string>> ran;
  std::mutex mutex;
  const testing::TemporaryFolder folder;
  const std::string file = folder / "profile.json";

  // Calls all_reduce of kCount elements `times` times and checks the results. asynchronous: this
  // rank does not block in the call.
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

TEST_P(Correction, LearntTimesAreGoneByNowAndInTheNextJob) {
  run([&](World& world) {
    Communicator comm = world.world();
    const std::vector<std::string> names = comm.algorithms(Collective::kAllReduce);
    // The profile claims that the slowest algorithm is the fastest.
    for (const std::string& name : names)
      Internals::learn(comm, Collective::kAllReduce, kCount * 4, name, name == "ring" ? 1 : 100);
    calls(world, 3);
  });
  EXPECT_EQ(ran.size(), static_cast<std::size_t>(ranks_of(GetParam())));
  for (const auto& [r, algorithms] : ran)
    EXPECT_EQ(kinds(algorithms), std::set<std::string>{"ring"}) << "rank " << r;
  ASSERT_TRUE(std::filesystem::exists(file));
  ran.clear();
  run([&](World& world) { calls(world, 3); });
  for (const auto& [r, algorithms] : ran)
    EXPECT_EQ(kinds(algorithms), std::set<std::string>{"ring"}) << "rank " << r;
}

// Only the program's calls run: the library makes no calls to try out an algorithm.
TEST_P(Correction, NothingElseRunsThanWhatWasCalled) {
  constexpr int kCalls = 80;
  run([&](World& world) {
    calls(world, kCalls, true);
    const Metrics metrics = world.metrics();
    for (const auto& call : metrics.calls)
      if (call.collective == Collective::kAllReduce) {
        EXPECT_EQ(call.calls, static_cast<std::uint64_t>(kCalls));
      }
  });
  for (const auto& [r, algorithms] : ran) EXPECT_EQ(algorithms, ran[0]) << "rank " << r;
  EXPECT_EQ(kinds(ran[0]).size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(file)) << "nothing was learnt";
}

INSTANTIATE_TEST_SUITE_P(Over, Correction,
                         ::testing::Values(Setting{"Shm", {4}, "auto"},
                                           Setting{"Mixed", {2, 2}, "auto"},
                                           Setting{"UnequalHostsInOne", {3, 2}, "shm"}),
                         [](const auto& i) { return std::string(i.param.name); });

}  // namespace
}  // namespace weft
