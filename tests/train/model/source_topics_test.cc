// Requirements of the source documents that no other test of this folder covers.
// labels: multiproc
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "coll/api/metrics.h"
#include "support/process/shell.h"
#include "support/process/temporary_folder.h"
#include "support/train/train_runs.h"

namespace weft::train {
namespace {

// Each rank sends and receives once per step: 16 steps at 256 ranks, 510 around the ring.
TEST(SourceTopics, HalvingAndDoublingTakes16StepsWhereTheRingTakes510) {
  const auto explain = [](const char* algorithm) {
    return run(fmt::format("{} explain all_reduce -N 256 --hosts 256 --bytes 64M --algo {}",
                           WEFT_BINARY, algorithm))
        .text;
  };
  const auto proved = [](int steps) {
    return fmt::format("proved: {} steps of 256 ranks", 256 * 2 * steps);
  };
  EXPECT_NE(explain("halving_doubling").find(proved(16)), std::string::npos);
  EXPECT_NE(explain("ring").find(proved(510)), std::string::npos);
}

// Bytes between hosts that change the rail, and so pass the spine. Rank 2 k + r is rank r of host
// k, on rail r.
std::uint64_t through_the_spine(const std::string& cross_rail, const std::string& algorithm) {
  TrainOptions o = layout(4, 1, 1);
  o.mesh.algorithm = algorithm;
  WorldOptions options;
  options.cross_rail = cross_rail;
  std::atomic<std::uint64_t> bytes{0}, along{0};
  const Text data = text();
  set_operator_threads(1);
  testing::run_ranks(testing::places({2, 2}, 2), options, [&](World& world) {
    Trainer<float> trainer(world, o, data);
    trainer.step();
    const AxisBytes before = AxisCounter(world, o.mesh).sent();
    trainer.step();
    EXPECT_GT(AxisCounter(world, o.mesh).sent().data, before.data);
    for (const auto& t : world.metrics().traffic) {
      const bool other_host = t.peer / 2 != world.rank() / 2;
      if (other_host) (t.peer % 2 == world.rank() % 2 ? along : bytes) += t.bytes_sent;
    }
  });
  EXPECT_GT(along + bytes, 0u);
  return bytes;
}

TEST(SourceTopics, TheSpineStaysEmpty) {
  EXPECT_EQ(through_the_spine("never", "auto"), 0u);  // first to the rank of that rail
  EXPECT_GT(through_the_spine("allow", "ring"), 0u);
}

// Memory and communication of every step in JSON. Gradients are sent while the backward pass
// computes: exposed time is less than total time, and the losses equal those of a run without
// overlap.
TEST(SourceTopics, StepsAreMonitored) {
  const testing::TemporaryFolder folder;
  const auto train = [&](const char* more) {
    return fmt::format(
        "{} train -N 2 --dp 2 --steps 4 --batch 8 --width 32 --layers 2 --positions 16 --sample 0 "
        "--bucket-bytes 4096 {} ",
        WEFT_BINARY, more);
  };
  const Output output = run(fmt::format(
      "{0} --log {2}/log --trace {2}/run.json && {1} --log {2}/waits && {3} trace merge "
      "{2}/run.rank0.json {2}/run.rank1.json -o {2}/all.json",
      train(""), train("--no-overlap"), folder.path(), WEFT_BINARY));
  EXPECT_EQ(output.exit_code, 0) << output.text;
  std::ifstream log(folder / "log"), waits(folder / "waits");
  int steps = 0;
  double exposed = 0, total = 0;
  for (std::string line, other; std::getline(log, line) && std::getline(waits, other); ++steps) {
    const auto j = nlohmann::json::parse(line);
    for (const char* use : {"weights", "weighted_sums", "second_moment", "activations", "errors",
                            "gradients", "first_moment", "peak"})
      EXPECT_GT(j["memory"][use], 0) << use;
    EXPECT_GE(j["communication_share"], 0);
    EXPECT_LE(j["communication_share"], 1);
    exposed += j["gradients_exposed_s"].get<double>();
    total += j["gradients_total_s"].get<double>();
    EXPECT_GT(j["tokens_per_s"], 0);
    EXPECT_EQ(j["loss"], nlohmann::json::parse(other)["loss"]);
  }
  EXPECT_LT(exposed, total);
  EXPECT_EQ(steps, 4);
  std::ifstream all(folder / "all.json");
  const auto trace = nlohmann::json::parse(all);
  bool ranks[2] = {false, false};
  for (const auto& e : trace["traceEvents"])
    if (e["pid"] == 0 || e["pid"] == 1) ranks[e["pid"].get<int>()] = true;
  EXPECT_TRUE(ranks[0] && ranks[1]);
}

}  // namespace
}  // namespace weft::train
