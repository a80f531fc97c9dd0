// labels: multiproc
// The spiral: its golden run, and the same result for every kind of synchronization.
#include "train/spiral/spiral.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "support/jobs/processes.h"
#include "support/jobs/ranks.h"

namespace weft::train {
namespace {

using ::testing::HasSubstr;

// Returns the results of all ranks, on `hosts` hosts.
std::vector<SpiralResult> train(int ranks, const SpiralOptions& options, int hosts = 1,
                                const WorldOptions& world_options = {}) {
  std::vector<SpiralResult> results(static_cast<std::size_t>(ranks));
  const std::vector<int> per_host(static_cast<std::size_t>(hosts), ranks / hosts);
  testing::run_ranks(testing::places(per_host), world_options, [&](World& world) {
    results[static_cast<std::size_t>(world.rank())] = run_spiral(world.world(), options);
  });
  return results;
}

double difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

TEST(Spiral, GoldenRun) {
  SpiralOptions o;
  o.report_every = 5000;
  const auto result = train(1, o)[0];
  ASSERT_EQ(result.curve.size(), 3u);
  EXPECT_NEAR(result.curve[0].loss, std::log(3.0), 1e-3);  // untrained
  EXPECT_EQ(std::lround(100 * result.curve[1].accuracy), 97);
  EXPECT_EQ(std::lround(100 * result.curve[2].accuracy), 98);
  std::printf("%s", to_text(result, o).c_str());
}

TEST(Spiral, GradientsAreFiniteDifferences) {
  SpiralOptions o;
  o.hidden = 7;
  o.points_per_arm = 5;
  SpiralNet net(o);
  for (double& w : net.weights) w *= 30;  // away from zero
  for (std::size_t i = 0; i < net.size(); ++i)
    net.weights[i] += 0.01 * static_cast<double>(1 + i % 5);
  const SpiralData data = make_spiral(o);
  std::vector<double> gradient(net.size()), ignored(net.size());
  net.add_gradient(data, 0, data.size(), data.size(), gradient);
  net.add_regularisation(gradient);
  const auto loss = [&] {
    return net.add_gradient(data, 0, data.size(), data.size(), ignored) +
           net.add_regularisation(ignored);
  };
  for (std::size_t i = 0; i < net.size(); ++i) {
    const double kept = net.weights[i], step = 1e-6;
    net.weights[i] = kept + step;
    const double above = loss();
    net.weights[i] = kept - step;
    const double below = loss();
    net.weights[i] = kept;
    EXPECT_NEAR(gradient[i], (above - below) / (2 * step), 1e-8) << i;
  }
}

TEST(Spiral, EverySynchronisationHasOneResult) {
  SpiralOptions o;
  o.iterations = 400;
  const auto one = train(1, o)[0].weights;
  for (const int workers : {2, 4}) {
    std::map<std::string, std::vector<double>> all;
    for (const char* algorithm : {"ring", "halving_doubling", "hierarchical", "auto"}) {
      SpiralOptions a = o;
      a.algorithm = algorithm;
      const auto results = train(workers, a, 2);
      for (const auto& r : results) EXPECT_EQ(r.weights, results[0].weights) << algorithm;
      all[algorithm] = results[0].weights;
    }
    o.sync = "ps";
    const auto results = train(workers + 1, o);
    for (const auto& r : results) EXPECT_EQ(r.weights, results[0].weights);
    all["ps"] = results[0].weights;
    o.sync = "allreduce";
    for (const auto& [name, weights] : all)
      EXPECT_LE(difference(weights, one), 5e-15) << name << ", " << workers << " workers";
  }
}

// Each worker's operations are proportional to its samples, with any synchronization.
TEST(Spiral, WorkersShareTheOperations) {
  SpiralOptions o;
  o.iterations = 20;
  const std::uint64_t all = train(1, o)[0].operations;
  EXPECT_GT(all, 0u);
  for (const int workers : {2, 4}) {
    const auto n = static_cast<std::uint64_t>(workers);
    o.sync = "allreduce";
    for (const auto& r : train(workers, o)) EXPECT_EQ(n * r.operations, all) << workers;
    o.sync = "ps";
    const auto results = train(workers + 1, o);
    for (std::size_t r = 1; r < results.size(); ++r)
      EXPECT_EQ(n * results[r].operations, all) << workers;
  }
}

TEST(Spiral, EverySynchronisationHasTheSameBitsWhereWeftIsDeterministic) {
  SpiralOptions o;
  o.iterations = 100;
  WorldOptions deterministic;
  deterministic.deterministic = true;
  for (const int workers : {2, 4}) {
    o.sync = "ps";
    const auto server = train(workers + 1, o)[0].weights;
    o.sync = "allreduce";
    for (const char* algorithm : {"ring", "halving_doubling", "hierarchical", "auto"}) {
      o.algorithm = algorithm;
      EXPECT_EQ(train(workers, o, 2, deterministic)[0].weights, server) << algorithm;
    }
    o.algorithm = "auto";
  }
}

TEST(Spiral, RefusesWhatCannotBe) {
  const auto said = [](int ranks, const std::function<void(SpiralOptions&, Rank)>& change) {
    std::vector<std::string> texts(static_cast<std::size_t>(ranks));
    testing::run_ranks(testing::places({ranks}), {}, [&](World& world) {
      SpiralOptions o;
      o.iterations = 1;
      change(o, world.rank());
      try {
        run_spiral(world.world(), o);
      } catch (const Error& e) {
        texts[static_cast<std::size_t>(world.rank())] = e.what();
      }
    });
    return texts;
  };
  using ::testing::Each;
  EXPECT_THAT(said(1, [](auto& o, Rank) { o.sync = "ps"; }), Each(HasSubstr("2 ranks or more")));
  EXPECT_THAT(said(1, [](auto& o, Rank) { o.sync = "gossip"; }), Each(HasSubstr("ps-async")));
  EXPECT_THAT(said(1, [](auto& o, Rank) { o.arms = 17; }), Each(HasSubstr("2 to 16 arms")));
  EXPECT_THAT(said(2, [](auto& o, Rank r) { o.points_per_arm += r; }),
              Each(HasSubstr("other options")));
}

// ---- the parameter server, with workers as processes

struct Seen {
  std::uint64_t updates, counted, stalest, fast_last, slow_last;
  int most_ahead;
  double accuracy;
};

Seen serve_processes(int workers, SpiralOptions o) {
  const auto where = testing::places({workers + 1});
  testing::Shared<Seen> seen(1);
  testing::Processes job(workers + 1, std::chrono::seconds(30), [&](const JobSpec& spec) {
    World world(connect(spec), where[static_cast<std::size_t>(spec.rank)], {});
    const SpiralResult r = run_spiral(world.world(), o);
    if (spec.rank == 0) {
      const auto& s = r.server;
      seen[0] = {s.updates,
                 std::accumulate(s.staleness.begin(), s.staleness.end(), std::uint64_t{0}),
                 s.staleness.size() - 1,
                 s.workers[0].last,
                 s.workers.back().last,
                 s.most_ahead,
                 r.curve.back().accuracy};
      std::printf("%s", to_text(r, o).c_str());
    }
    return 0;
  });
  EXPECT_TRUE(job.wait(std::chrono::seconds(60)));
  for (Rank r = 0; r <= workers; ++r) EXPECT_EQ(job.code(r), 0);
  return seen[0];
}

TEST(ParameterServer, SynchronousIsNeverStale) {
  SpiralOptions o;
  o.sync = "ps";
  o.iterations = 200;
  const Seen seen = serve_processes(3, o);
  EXPECT_EQ(seen.updates, 200u);
  EXPECT_EQ(seen.counted, 600u);
  EXPECT_EQ(seen.stalest, 0u);
}

TEST(ParameterServer, StalenessIsBoundedWithAStraggler) {
  constexpr int kWorkers = 3;
  for (const int staleness : {0, 1, 4}) {
    SpiralOptions o;
    o.sync = "ps-async";
    o.iterations = 150;
    o.staleness = staleness;
    o.straggler_us = 2000;
    const Seen seen = serve_processes(kWorkers, o);
    EXPECT_EQ(seen.updates, 150u * kWorkers);
    EXPECT_EQ(seen.counted, 150u * kWorkers);
    EXPECT_LE(seen.most_ahead, staleness + 1);
    EXPECT_LE(seen.stalest, static_cast<std::uint64_t>((kWorkers - 1) * (2 * staleness + 1)));
  }
}

// The server waits for a straggler, whose gradient is the last of each iteration.
TEST(ParameterServer, AStragglerComesLast) {
  SpiralOptions o;
  o.sync = "ps";
  o.iterations = 40;
  o.straggler_us = 20000;
  const Seen seen = serve_processes(3, o);
  EXPECT_EQ(seen.updates, 40u);
  EXPECT_GT(seen.slow_last, seen.fast_last);
}

TEST(ParameterServer, AsynchronousLearnsToo) {
  SpiralOptions o;
  o.sync = "ps-async";
  o.iterations = 4000;
  const Seen seen = serve_processes(2, o);
  EXPECT_GE(seen.accuracy, 0.93);
}

}  // namespace
}  // namespace weft::train
