// labels: multiproc
// ctest: whole
// Slow ports declared to a World change the choice of all ranks between the same two calls, and can
// be revoked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "coll/engine/plan.h"
#include "support/jobs/communicator_inside.h"
#include "support/jobs/ranks.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using testing::places;
using testing::run_ranks;

// Too large for a board, and not divisible by the number of ranks.
constexpr std::size_t kTold = 50'001;

WorldOptions told_of(const char* slow_ports = "") {
  WorldOptions options;
  options.timeout = std::chrono::seconds(20);
  options.slow_ports = slow_ports;
  return options;
}

// Runs a sum with the algorithm and returns the hash of the plan, which all ranks share.
std::uint64_t plan_of_sum(Communicator& comm, const char* algorithm) {
  comm.set_algorithm(Collective::kAllReduce, algorithm);
  std::vector<std::int64_t> in(kTold), out(kTold), expected(kTold);
  const int n = comm.size();
  for (std::size_t i = 0; i < kTold; ++i) {
    in[i] = static_cast<std::int64_t>(i) * (comm.rank() + 1);
    expected[i] = static_cast<std::int64_t>(i) * n * (n + 1) / 2;
  }
  const Status s = comm.all_reduce(in.data(), out.data(), kTold, DType::kInt64, RedOp::kSum);
  EXPECT_TRUE(s.ok()) << s.to_string();
  EXPECT_EQ(out, expected) << algorithm;
  const auto& settled = CommunicatorInside::of(comm).settled;
  return settled[static_cast<std::size_t>(Collective::kAllReduce)].plan->second->common;
}

// Runs a named algorithm and `auto`; the calls fail if ranks use different plans.
class PlansOfRanks {
 public:
  explicit PlansOfRanks(std::size_t ranks) : of_(ranks) {}
  void add(World& world, Communicator comm) {
    const std::uint64_t hash = plan_of_sum(comm, "hierarchical");
    plan_of_sum(comm, "auto");
    const std::lock_guard lock(mutex_);
    of_[static_cast<std::size_t>(world.rank())].push_back(hash);
  }
  // Rank 0's hashes, after a check that all ranks have the same.
  std::vector<std::uint64_t> all() const {
    for (const auto& one : of_) EXPECT_EQ(one, of_[0]);
    return of_[0];
  }

 private:
  std::mutex mutex_;
  std::vector<std::vector<std::uint64_t>> of_;
};

TEST(ToldPorts, ChangeThePlanBetweenTwoCallsAndBack) {
  PlansOfRanks sums(6);
  run_ranks(places({2, 2, 2}, 2), told_of(), [&](World& world) {
    for (const char* ports : {"", "1:0=0.5", "host1:0=0.5", "2:1=0", "*:1=0.25", ""}) {
      world.set_slow_ports(ports);
      sums.add(world, world.world());
    }
  });
  const auto got = sums.all();
  ASSERT_EQ(got.size(), 6u);
  EXPECT_NE(got[0], got[1]);
  EXPECT_EQ(got[1], got[2]) << "by number and by name";
  EXPECT_NE(got[2], got[3]);
  EXPECT_NE(got[0], got[3]);
  EXPECT_EQ(got[0], got[5]) << "nothing is slow any more";
}

TEST(ToldPorts, ToldFromTheStartAreThoseToldLater) {
  PlansOfRanks told(4), later(4);
  run_ranks(places({2, 2}, 2), told_of("1:1=0.25"),
            [&](World& world) { told.add(world, world.world()); });
  run_ranks(places({2, 2}, 2), told_of(), [&](World& world) {
    Communicator all = world.world();
    later.add(world, all);
    world.set_slow_ports("1:1=0.25");
    later.add(world, all);
  });
  EXPECT_EQ(told.all()[0], later.all()[1]);
  EXPECT_NE(told.all()[0], later.all()[0]);
}

// Ports name hosts of the job; a communicator may have only some of them.
TEST(ToldPorts, OfACommunicatorAreThoseOfItsHosts) {
  run_ranks(places({2, 2, 2}, 2), told_of("0:0=0.5"), [&](World& world) {
    const bool out = world.rank() < 2;
    Communicator last = world.world().split(out ? Communicator::kNoColor : 0, world.rank());
    std::vector<std::uint64_t> plans;
    for (const char* ports : {"0:0=0.5", "", "1:0=0.5", "2:0=0.5"}) {
      world.set_slow_ports(ports);
      if (!out) plans.push_back(plan_of_sum(last, "hierarchical"));
    }
    if (out) return;
    EXPECT_EQ(plans[0], plans[1]) << "host 0 is none of its hosts";
    EXPECT_NE(plans[1], plans[2]);
    EXPECT_NE(plans[2], plans[3]);
  });
}

// After shrink(), the remaining hosts have other numbers.
TEST(ToldPorts, OfHostsThatAreLeftStayAfterShrink) {
  run_ranks(places({2, 2, 2}, 2), told_of("0:0=0.5,1:1=0.25"), [&](World& world) {
    if (world.rank() == 2) world.abort("host 0 goes");
    std::int64_t one = 1, sum = 0;
    while (world.world().all_reduce(&one, &sum, 1, DType::kInt64, RedOp::kSum).ok()) continue;
    if (world.rank() < 2) return;
    const auto next = world.shrink();
    ASSERT_EQ(next->size(), 4);
    Communicator all = next->world();
    const std::uint64_t kept = plan_of_sum(all, "hierarchical");
    next->set_slow_ports("0:1=0.25");
    EXPECT_EQ(plan_of_sum(all, "hierarchical"), kept);
    next->set_slow_ports("");
    EXPECT_NE(plan_of_sum(all, "hierarchical"), kept);
  });
}

// The measured rates depend on this machine; tests/lab/measured_ports_lab_test.cc measures ports of
// known rates.
TEST(ToldPorts, ThatAreMeasuredAreThoseOfAllRanks) {
  PlansOfRanks found(6);
  std::mutex mutex;
  std::set<std::string> texts;
  run_ranks(places({2, 2, 2}, 2), told_of("measure"), [&](World& world) {
    const std::string text = world.measure_slow_ports();
    found.add(world, world.world());
    world.set_slow_ports(text);
    found.add(world, world.world());
    const std::lock_guard lock(mutex);
    texts.insert(text);
  });
  EXPECT_EQ(texts.size(), 1u);
  EXPECT_EQ(found.all()[0], found.all()[1]) << "the text says what was set";
}

TEST(ToldPorts, ThatRanksDisagreeOnChangeNothing) {
  PlansOfRanks sums(4);
  run_ranks(places({2, 2}, 2), told_of("1:0=0.5"), [&](World& world) {
    const auto error_of = [&](const std::string& ports) -> std::string {
      try {
        world.set_slow_ports(ports);
      } catch (const Error& e) {
        return e.what();
      }
      return "no error";
    };
    sums.add(world, world.world());
    EXPECT_THAT(error_of(world.rank() == 3 ? "1:1=0.5" : ""), HasSubstr("ranks pass different"));
    EXPECT_THAT(error_of("2:0=0.5"), HasSubstr("set_slow_ports 2:0=0.5: give HOST:RAIL="));
    sums.add(world, world.world());
  });
  EXPECT_EQ(sums.all()[0], sums.all()[1]);
}

TEST(ToldPorts, ThatMakeNoSenseFailOnAllRanks) {
  auto jobs = local_jobs(2);
  const auto where = places({1, 1});
  std::vector<std::thread> ranks;
  for (std::size_t r = 0; r < jobs.size(); ++r)
    ranks.emplace_back([&, r] {
      try {
        const World world(std::move(jobs[r]), where[r], told_of("1:7=0.5"));
        ADD_FAILURE() << "no error";
      } catch (const Error& e) {
        EXPECT_THAT(e.what(), HasSubstr("WEFT_SLOW_PORTS 1:7=0.5: give HOST:RAIL=FRACTION"));
      }
    });
  for (auto& t : ranks) t.join();
}

}  // namespace
}  // namespace weft
