// Ranks that destroy their Worlds together.
// sanitize: address threads
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "coll/runtime/internals.h"
#include "support/jobs/job_around.h"
#include "support/jobs/ranks.h"
#include "support/process/no_threads.h"
#include "topo/base/log.h"
#include "transport/job/bootstrap.h"

namespace weft {
namespace {

// Returns from a gather later than the other ranks.
class LateJob final : public testing::JobAround {
 public:
  LateJob(std::unique_ptr<Job> job, std::atomic<bool>& late)
      : JobAround(std::move(job)), late_(late) {}
  std::vector<std::string> all_gather(std::string_view mine) override {
    auto all = JobAround::all_gather(mine);
    if (late_) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return all;
  }

 private:
  std::atomic<bool>& late_;
};

TEST(WorldEnd, NobodyTakesRailsForDeadWhosePeerIsThroughFirst) {
  const auto lines = std::make_shared<std::ostringstream>();
  log().sinks().push_back(std::make_shared<spdlog::sinks::ostream_sink_mt>(*lines));
  const auto level = log().level();
  log().set_level(spdlog::level::warn);
  auto jobs = local_jobs(2);
  const auto where = testing::places({1, 1}, 2);
  std::atomic<bool> late = false, never = false;
  std::vector<std::thread> ranks;
  for (std::size_t r = 0; r < jobs.size(); ++r)
    ranks.emplace_back([&, r] {
      World world(std::make_unique<LateJob>(std::move(jobs[r]), r == 1 ? late : never), where[r],
                  {.transport = "tcp"});
      EXPECT_TRUE(world.failover());
      EXPECT_TRUE(world.world().barrier().ok());
      late = true;
    });
  for (std::thread& t : ranks) t.join();
  log().sinks().pop_back();
  log().set_level(level);
  EXPECT_THAT(lines->str(), ::testing::Not(::testing::HasSubstr("taken out")));
}

// Reports no failure at the World's first query, and only after `until` returns.
class SlowJob final : public testing::JobAround {
 public:
  using JobAround::JobAround;
  Status failure() const override {
    if (!until || asked_.exchange(true)) return JobAround::failure();
    until();
    return {};
  }
  std::function<void()> until;

 private:
  mutable std::atomic<bool> asked_{false};
};

// Regression: the call needs the mutex that shrink() held while it waited for calls to end.
TEST(WorldEnd, WhoAsksWhyAGatherFailedEndsBeforeShrinkDoes) {
  auto job = std::make_unique<SlowJob>(std::move(local_jobs(1)[0]));
  SlowJob& slow = *job;
  World world(std::move(job), testing::places({1})[0], {});
  std::atomic<bool> asks = false;
  slow.until = [&] {
    asks = true;
    for (;;) try {
        (void)world.rank();
        std::this_thread::yield();
      } catch (const Error&) {
        return;  // shrink() has begun to end the World
      }
  };
  std::thread asker([&] {
    const Status why = Internals::gather_status(world, GatherFailed("nobody came"));
    EXPECT_EQ(why.message(), "the test wants a smaller job");
  });
  while (!asks) std::this_thread::yield();
  job_of(world).report({Code::kTransport, "the test wants a smaller job"});
  EXPECT_EQ(world.shrink()->size(), 1);
  asker.join();
}

// Regression: after one rank's process had ended, the other ranks waited until the deadline.
TEST(WorldEnd, WithoutAThreadForProgressAllHearOfIt) {
  auto jobs = local_jobs(2);
  const auto where = testing::places({2});
  WorldOptions options;
  options.timeout = std::chrono::seconds(60);
  Status heard;
  std::thread other([&, options, here = std::move(jobs[0])]() mutable {
    World world(std::move(here), where[0], options);
    heard = world.world().barrier();
  });
  options.progress_thread = true;
  {
    const testing::NoThreads none;
    EXPECT_THROW(World(std::move(jobs[1]), where[1], options), Error);
  }
  other.join();
  EXPECT_EQ(heard.rank(), 1);
  EXPECT_THAT(heard.to_string(), ::testing::HasSubstr("cannot start the progress thread"));
}

}  // namespace
}  // namespace weft
