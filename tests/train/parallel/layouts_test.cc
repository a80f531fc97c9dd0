// The same loss curve for every layout of ranks, within 1e-10 in fp64, and the same final weights:
// over 50 steps for one layout with all axes, over 10 for others. Independent options are combined
// in turn.
// labels: sim
// unsanitized: Layouts.Every*FactorisationOf8And6
#include <gtest/gtest.h>

#include <array>
#include <mutex>
#include <string>
#include <vector>

#include "support/train/curves.h"

namespace weft::train {
namespace {

TEST(Layouts, TheLossFalls) {
  EXPECT_GT(alone(kCurveSteps).losses.front(), 5);
  EXPECT_LT(alone(kCurveSteps).losses.back(), 0.8 * alone(kCurveSteps).losses.front());
  for (const Index layers : {4u, 8u})
    EXPECT_LT(narrow_alone(layers).losses.back(), narrow_alone(layers).losses.front());
}

TEST(Layouts, EveryFactorisationOf8And6) {
  expect_curve(layout(2, 2, 2), kCurveSteps);
  for (const int n : {8, 6})
    for (const auto& sizes : factorisations(n)) expect_narrow_curve(narrow(sizes, 8));
}

// Without other axes, with middle stages, and with replicas of sharded layers.
TEST(Layouts, EverySchedule) {
  for (const std::string& schedule : pipeline_schedule_names())
    for (const auto& sizes : {std::array{1, 1, 4}, {2, 2, 2}}) {
      TrainOptions o = narrow(sizes, sizes[2] == 4 ? 8 : 4);
      o.schedule = schedule;
      o.chunks = schedule == "interleaved" ? 2 : 1;
      expect_narrow_curve(o);
    }
}

TEST(Layouts, EveryScheduleComputesActivationsAgain) {
  for (const std::string& schedule : pipeline_schedule_names()) {
    TrainOptions o = narrow({1, 2, 2}, 4);
    o.schedule = schedule;
    o.chunks = schedule == "interleaved" ? 2 : 1;
    o.recompute = true;
    expect_narrow_curve(o);
  }
}

TEST(Layouts, EveryZeroStageInEveryFactorisationOf8And6) {
  int turn = 0;
  for (const int n : {8, 6})
    for (const auto& sizes : factorisations(n))
      for (int zero = 1; zero <= 3 && sizes[0] > 1; ++zero) {
        if (sizes != std::array{2, 2, 2} && turn++ % 4 != 0) continue;
        TrainOptions o = narrow(sizes);
        o.zero = zero;
        expect_narrow_curve(o);
      }
}

// With stages 2 and 3, gradients and weights are sent between the passes of a schedule.
TEST(Layouts, ZeroInEverySchedule) {
  for (const std::string& schedule : pipeline_schedule_names())
    for (const int zero : {2, 3}) {
      TrainOptions o = narrow({2, 1, 2});
      o.schedule = schedule;
      o.chunks = schedule == "interleaved" ? 2 : 1;
      o.zero = zero;
      expect_narrow_curve(o);
    }
}

// MiCS: groups of two among four replicas, and among eight ranks in two stages.
TEST(Layouts, EveryZeroStageInGroups) {
  for (int zero = 1; zero <= 3; ++zero)
    for (const auto& sizes : {std::array{4, 1, 1}, {4, 1, 2}}) {
      TrainOptions o = narrow(sizes);
      o.zero = zero;
      o.mesh.shard = 2;
      expect_narrow_curve(o);
    }
}

// Two model chunks per rank: all-reduces between groups start when the group's sum is complete, and
// this order differs between ranks.
TEST(Layouts, EveryZeroStageInGroupsWithTwoStagesOfARank) {
  for (int zero = 1; zero <= 3; ++zero) {
    TrainOptions o = narrow({4, 1, 2});
    o.schedule = "interleaved";
    o.chunks = 2;
    o.zero = zero;
    o.mesh.shard = 2;
    o.bucket_bytes = 1000;
    expect_narrow_curve(o);
  }
}

TEST(Layouts, OtherWays) {
  TrainOptions o = layout(2, 2, 2);
  o.sequence_parallel = true;
  expect_curve(o);
  o.zero = 2;
  o.recompute = true;
  expect_curve(o);
  o = layout(1, 4, 1);
  o.embed = "owner";
  expect_curve(o);
  o = layout(2, 2, 2);
  o.overlap = false;
  expect_curve(o);
  o.micro_batch = 3;
  expect_curve(o);
}

// The copies of a tied embedding in the first and the last stage stay equal, although their
// replicas add gradients in another order for every chunk of a bucket; also if each replica has a
// part.
TEST(Layouts, TiedCopiesHaveTheSameBits) {
  set_operator_threads(1);
  const Text data = text();
  for (const int zero : {0, 1, 2, 3})
    for (const int group : {0, 3})
      for (const int chunks : {1, 2}) {
        if ((zero + group + chunks) % 2 == 0) continue;  // every pair of two options
        TrainOptions o = narrow({group == 0 ? 3 : 6, 1, 2});
        o.mesh.algorithm = "ring";
        o.mesh.shard = group;
        o.zero = zero;
        o.chunks = chunks;
        o.schedule = chunks == 1 ? "1f1b" : "interleaved";
        std::mutex mutex;
        std::array<std::vector<float>, 2> copies;
        for (auto& copy : copies) copy.resize(o.model.vocabulary * o.model.width);
        testing::run_ranks(testing::places({o.mesh.ranks()}), {}, [&](World& world) {
          Trainer<float> trainer(world, o, data);
          for (int i = 0; i < 5; ++i) trainer.step();
          const std::lock_guard lock(mutex);
          auto& copy = copies.at(static_cast<std::size_t>(trainer.mesh().at.pipeline));
          for (const auto& piece : trainer.pieces())
            if (piece.logical.name == "wte")
              std::copy_n(piece.data, piece.count,
                          copy.begin() + static_cast<std::ptrdiff_t>(piece.begin));
        });
        EXPECT_EQ(copies[0], copies[1]) << name(o);
      }
}

TEST(Layouts, UntiedHead) {
  TrainOptions one = small(), eight = layout(2, 2, 2);
  one.model.tied = eight.model.tied = false;
  expect_same(train<double>(one, kShortSteps), train<double>(eight, kShortSteps), 1e-10,
              name(eight));
}

}  // namespace
}  // namespace weft::train
