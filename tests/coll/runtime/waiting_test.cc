// While a rank searches for the cause of a late call, or reports it, its other calls progress.
// sanitize: address threads
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

#include "support/jobs/job_around.h"
#include "support/jobs/ranks.h"

namespace weft {
namespace {

// Delays the query and the first report until another call of this rank has ended.
class SlowToHear final : public testing::JobAround {
 public:
  SlowToHear(std::unique_ptr<Job> job, std::atomic<int>& calls)
      : JobAround(std::move(job)), calls_(calls) {}
  std::vector<std::string> inquire(std::chrono::milliseconds limit) override {
    asked = moves();
    return JobAround::inquire(limit);
  }
  void report(const Status& failure, const Scope& scope) noexcept override {
    if (!std::exchange(tells_, true)) told = moves();
    JobAround::report(failure, scope);
  }
  std::atomic<bool> asked{false}, told{false};

 private:
  bool moves() const {
    const int before = calls_;
    for (int i = 0; i < 5000 && calls_ == before; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return calls_ != before;
  }
  std::atomic<int>& calls_;
  bool tells_ = false;
};

TEST(Waiting, OtherCallsMoveWhileRanksAreAskedAndTold) {
  auto jobs = local_jobs(2);
  const auto where = testing::places({2});
  WorldOptions options;
  options.timeout = std::chrono::milliseconds(100);
  std::atomic<int> calls = 0;
  auto slow = std::make_unique<SlowToHear>(std::move(jobs[0]), calls);
  SlowToHear& job = *slow;
  jobs[0] = std::move(slow);
  std::atomic<bool> asked = false, told = false;
  std::vector<std::thread> ranks;
  for (std::size_t r = 0; r < 2; ++r)
    ranks.emplace_back([&, r] {
      World world(std::move(jobs[r]), where[r], options);
      Communicator all = world.world(), other = all.duplicate();
      if (r == 1) {
        while (other.barrier().ok()) continue;  // until rank 0 ends its World
        return;
      }
      Status status;
      std::atomic<bool> over = false;
      std::thread late([&] {
        status = all.barrier();  // rank 1 never calls it
        over = true;
      });
      while (!over && other.barrier().ok()) ++calls;
      late.join();
      EXPECT_TRUE(other.barrier().ok()) << "the failure is that of the other communicator";
      EXPECT_EQ(status.code(), Code::kTimeout) << status.to_string();
      asked = job.asked.load();
      told = job.told.load();
    });
  for (std::thread& t : ranks) t.join();
  EXPECT_TRUE(asked) << "calls stood still while the other ranks were asked";
  EXPECT_TRUE(told) << "calls stood still while the other ranks were told";
}

}  // namespace
}  // namespace weft
