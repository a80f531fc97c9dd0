// The GPT with an asynchronous parameter server: one worker equals training on one rank; with
// several workers, staleness is bounded.
// labels: sim
#include "train/server/async_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "support/train/train_runs.h"

namespace weft::train {
namespace {

struct AsyncRun {
  std::vector<double> losses;
  ServerReport report;
};

AsyncRun run_async(int ranks, const TrainOptions& o, int steps, int staleness) {
  set_operator_threads(1);
  AsyncRun run;
  const Text data = text();
  testing::run_ranks(testing::places({ranks}), {}, [&](World& world) {
    const ServerReport report =
        train_asynchronously<double>(world, o, data, steps, staleness, [&](int step, double loss) {
          EXPECT_EQ(static_cast<std::size_t>(step), run.losses.size() + 1);
          run.losses.push_back(loss);
        });
    if (world.rank() == 0) run.report = report;
  });
  return run;
}

TEST(AsyncServer, OneWorkerTrainsAsOneRank) {
  const TrainOptions o = narrow({1, 1, 1});
  const auto want = train<double>(o, 6);
  const AsyncRun got = run_async(2, o, 6, 0);
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (std::size_t s = 0; s < want.losses.size(); ++s)
    EXPECT_NEAR(got.losses[s] / want.losses[s], 1, 1e-12) << s;
  EXPECT_THAT(got.report.staleness, ::testing::ElementsAre(6u));
}

TEST(AsyncServer, StalenessIsBoundedWithAStraggler) {
  constexpr int kWorkers = 2, kSteps = 15;
  for (const int staleness : {0, 2}) {
    TrainOptions o = narrow({1, 1, 1});
    o.straggler_us = 1000;
    const AsyncRun run = run_async(kWorkers + 1, o, kSteps, staleness);
    const auto& counts = run.report.staleness;
    EXPECT_EQ(run.report.updates, static_cast<std::uint64_t>(kWorkers * kSteps));
    EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}),
              static_cast<std::uint64_t>(kWorkers * kSteps));
    EXPECT_LE(counts.size() - 1, static_cast<std::size_t>((kWorkers - 1) * (2 * staleness + 1)));
    EXPECT_LE(run.report.most_ahead, staleness + 1);
    ASSERT_EQ(run.losses.size(), static_cast<std::size_t>(kSteps));
    EXPECT_LT(run.losses.back(), run.losses.front());
  }
}

TEST(AsyncServer, RefusesWhatCannotBe) {
  const auto said = [](int ranks, TrainOptions o) {
    std::string text;
    const Text data = train::text();
    testing::run_ranks(testing::places({ranks}), {}, [&](World& world) {
      try {
        train_asynchronously<double>(world, o, data, 1, 0, [](int, double) {});
      } catch (const Error& e) {
        if (world.rank() == 0) text = e.what();
      }
    });
    return text;
  };
  TrainOptions o = narrow({1, 1, 1});
  EXPECT_THAT(said(1, o), ::testing::HasSubstr("-N 2 or more"));
  o.zero = 1;
  EXPECT_THAT(said(2, o), ::testing::HasSubstr("--zero out"));
  o.zero = 0;
  o.micro_batch = o.batch;
  EXPECT_THAT(said(3, o), ::testing::HasSubstr("2 workers"));
}

}  // namespace
}  // namespace weft::train
