// One loss curve for every layout of ranks, within 1e-10 in fp64, and the same weights at its end:
// over 50 steps for every factorisation, over 10 for the other ways to run one.
// labels: sim
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "support/train/train_runs.h"

namespace weft::train {
namespace {

// Of the largest weight of a tensor. AdamW divides each gradient by its own size: of one that is
// nearly zero the rounding counts, so weights part more than losses do (1e-11 is usual). One update
// that is missing or misplaced is 1e-3.
constexpr double kWeightsApart = 1e-8;

void expect_same(const Result& one, const Result& other, double tolerance,
                 const std::string& what) {
  const double losses = loss_distance(one.losses, other.losses);
  const double weights = distance(one.weights, other.weights);
  EXPECT_LE(losses, tolerance) << what;
  EXPECT_LE(weights, kWeightsApart) << what;
  fmt::print("{}: losses {:.2g}, weights {:.2g}\n", what, losses, weights);
}

constexpr int kCurveSteps = 50, kShortSteps = 10;

const Result& alone(int steps = kShortSteps) {
  static std::map<int, Result> runs;
  if (!runs.contains(steps)) runs[steps] = train<double>(small(), steps);
  return runs[steps];
}

const Result& narrow_alone(Index layers) {
  static std::map<Index, Result> runs;
  if (!runs.contains(layers)) runs[layers] = train<double>(narrow({1, 1, 1}, layers), kShortSteps);
  return runs[layers];
}

TEST(Layouts, TheLossFalls) {
  EXPECT_GT(alone(kCurveSteps).losses.front(), 5);
  EXPECT_LT(alone(kCurveSteps).losses.back(), 0.8 * alone(kCurveSteps).losses.front());
  for (const Index layers : {4u, 8u})
    EXPECT_LT(narrow_alone(layers).losses.back(), narrow_alone(layers).losses.front());
}

std::string name(const TrainOptions& o) {
  return fmt::format("dp {} tp {} pp {} order {} {} chunks {} zero {} groups of {}{}{}",
                     o.mesh.data, o.mesh.tensor, o.mesh.pipeline, o.mesh.order, o.schedule,
                     o.chunks, o.zero, o.mesh.shard, o.sequence_parallel ? " sequence" : "",
                     fmt::format(" {}{}", o.embed, o.seed_style ? " seed" : ""));
}
void expect_curve(const TrainOptions& o, int steps = kShortSteps) {
  expect_same(alone(steps), train<double>(o, steps), 1e-10, name(o));
}

TEST(Layouts, EveryFactorisationOf8And6) {
  for (const int n : {8, 6})
    for (const auto& sizes : factorisations(n)) expect_curve(layout(sizes), kCurveSteps);
}

void expect_narrow_curve(const TrainOptions& o) {
  expect_same(narrow_alone(o.model.layers), train<double>(o, kShortSteps), 1e-10, name(o));
}

// Alone with middle stages, and with replicas of split layers.
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
  for (const int n : {8, 6})
    for (const auto& sizes : factorisations(n))
      for (int zero = 1; zero <= 3 && sizes[0] > 1; ++zero) {
        TrainOptions o = narrow(sizes);
        o.zero = zero;
        expect_narrow_curve(o);
      }
}

// With stages 2 and 3 gradients and weights travel between the passes of a schedule.
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

// MiCS: groups of two among four replicas, and among eight ranks of two stages.
TEST(Layouts, EveryZeroStageInGroups) {
  for (int zero = 1; zero <= 3; ++zero)
    for (const auto& sizes : {std::array{4, 1, 1}, {4, 1, 2}}) {
      TrainOptions o = narrow(sizes);
      o.zero = zero;
      o.mesh.shard = 2;
      expect_narrow_curve(o);
    }
}

// Two stages of a rank: gradients of each go on between the groups when those of the group are
// there, which is not in one order on all ranks.
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

TEST(Layouts, EveryOrderOfTheAxes) {
  for (const char* order :
       {"tp,dp,pp", "tp,pp,dp", "dp,tp,pp", "dp,pp,tp", "pp,tp,dp", "pp,dp,tp"}) {
    TrainOptions o = narrow({2, 2, 2});
    o.mesh.order = order;
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
  o.embed = "replicated";
  expect_curve(o);
  o = layout(2, 2, 2);
  o.overlap = false;
  expect_curve(o);
  o.micro_batch = 3;
  expect_curve(o);
}

// Embedding and head on the first rank of each tensor-parallel group alone: in one stage, where
// they are one tensor, and in two; the parts of ZeRO differ between the ranks.
TEST(Layouts, AnOwnerOfTheEmbeddingBroadcasts) {
  for (const auto& sizes : {std::array{1, 4, 1}, {2, 2, 1}, {1, 2, 4}, {2, 2, 2}})
    for (int zero = 0; zero <= (sizes[0] > 1 ? 3 : 0); ++zero) {
      TrainOptions o = narrow(sizes);
      o.embed = "owner";
      o.zero = zero;
      expect_narrow_curve(o);
    }
  TrainOptions o = layout(2, 2, 2);
  o.embed = "owner";
  o.recompute = true;
  expect_curve(o);
  TrainOptions one = narrow({1, 1, 1}), four = narrow({1, 2, 2});
  one.model.tied = four.model.tied = false;
  four.embed = "owner";
  expect_same(train<double>(one, kShortSteps), train<double>(four, kShortSteps), 1e-10, name(four));
}

// Heads that the ranks can split: two of width 12, and one alone, which no other form splits.
TrainOptions few_heads(const std::array<int, 3>& sizes, Index heads) {
  TrainOptions o = narrow(sizes);
  o.model.heads = heads;
  return o;
}

TEST(Layouts, TensorParallelAsTheSourceDocumentsDrawIt) {
  for (const Index heads : {1u, 2u}) {
    const Result one = train<double>(few_heads({1, 1, 1}, heads), kShortSteps);
    for (const auto& sizes : {std::array{1, 2, 1}, {1, 3, 1}, {1, 4, 1}, {1, 6, 1}, {2, 2, 2}})
      for (const bool recompute : {false, true}) {
        TrainOptions o = few_heads(sizes, heads);
        o.seed_style = true;
        o.recompute = recompute;
        o.zero = sizes[0] > 1 ? 2 : 0;
        o.embed = recompute ? "replicated" : "vocab-parallel";
        if (sizes[0] == 1 && sizes[1] == 2) o.embed = "owner";
        expect_same(one, train<double>(o, kShortSteps), 1e-10, name(o));
      }
  }
}

// What is gathered is used: with another block of any gather the loss is another one. A block's
// forward pass gathers Q, K, what attention gives, and both results of the feed-forward network;
// its backward pass gathers Q and K, which the next step's loss shows.
TEST(Layouts, ACorruptGatherChangesTheLoss) {
  constexpr int kForward = 5, kBackward = 2;
  set_operator_threads(1);
  const Text data = text();
  TrainOptions o = few_heads({1, 2, 1}, 2);
  o.seed_style = true;
  o.micro_batch = o.batch;
  const int layers = static_cast<int>(o.model.layers);
  const auto losses = [&](int corrupted) {
    std::array<double, 2> all{};
    testing::run_ranks(testing::places({2}), {}, [&](World& world) {
      Trainer<double> trainer(world, o, data);
      int gathers = 0;
      trainer.mesh().tensor.after_gather = [&](void* blocks, std::size_t bytes) {
        if (world.rank() != 0 || gathers++ != corrupted) return;
        auto* of_rank_1 = static_cast<double*>(blocks) + bytes / sizeof(double);
        for (std::size_t i = 0; i < bytes / sizeof(double); ++i)
          of_rank_1[i] += 0.1 * static_cast<double>(i % 7);
      };
      for (double& loss : all) {
        const double now = trainer.step().loss;
        if (world.rank() == 0) loss = now;
      }
      if (world.rank() == 0) {
        EXPECT_EQ(gathers, 2 * layers * (kForward + kBackward));
      }
    });
    return all;
  };
  const auto right = losses(-1);
  for (int gather = 0; gather < layers * (kForward + kBackward); ++gather) {
    const auto wrong = losses(gather);
    if (gather < layers * kForward)
      EXPECT_GT(std::abs(wrong[0] - right[0]), 1e-9) << "gather " << gather;
    else
      EXPECT_EQ(wrong[0], right[0]) << "gather " << gather;
    EXPECT_GT(std::abs(wrong[1] - right[1]), 1e-9) << "gather " << gather;
  }
}

// The copies of a tied embedding in the first and the last stage, whose replicas add up gradients
// in another order for every chunk of a bucket, are one tensor for all that: also where each
// replica has a part of it.
TEST(Layouts, TiedCopiesHaveTheSameBits) {
  set_operator_threads(1);
  const Text data = text();
  for (const int zero : {0, 1, 2, 3})
    for (const int group : {0, 3})
      for (const int chunks : {1, 2}) {
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

TEST(Layouts, OptionsThatCannotBeAreNamed) {
  const auto refused = [](const TrainOptions& o, const char* why) {
    try {
      const Text data = text();
      testing::run_ranks(testing::places({1}), {}, [&](World& world) {
        EXPECT_THROW(
            {
              try {
                Trainer<float> trainer(world, o, data);
              } catch (const Error& e) {
                EXPECT_NE(std::string(e.what()).find(why), std::string::npos) << e.what();
                throw;
              }
            },
            Error);
      });
    } catch (const Error&) {
    }
  };
  TrainOptions o = small();
  o.mesh.data = 2;
  refused(o, "--dp 2 x --tp 1 x --pp 1 = 2, but the job has 1 ranks");
  o = small();
  o.batch = 7, o.micro_batch = 2;
  refused(o, "--batch 7");
  o = small();
  o.mesh.order = "dp,dp,pp";
  refused(o, "--order dp,dp,pp");
  for (const char* more : {"tp,dp,pp,tp", "tp,dp,pp,rails"}) {
    o.mesh.order = more;
    refused(o, fmt::format("--order {}", more).c_str());
  }
  o = small();
  o.deterministic = true, o.zero = 2, o.chunks = 2, o.schedule = "interleaved";
  refused(o, "use --untied or --zero 1");
  o = small();
  o.chunks = 2, o.schedule = "interleaved";
  refused(o, "--chunks 2 with --pp 1");
}

// A scale that fp32 cannot hold: steps are skipped and the scale halves until they are not, then
// the curve is that without scaling (a power of two changes no digit).
TEST(Layouts, LossScaling) {
  TrainOptions o = layout(2, 1, 1);
  const Result one = train<float>(o, 5);
  o.loss_scale = 0x1p134;
  set_operator_threads(1);
  const Text data = text();
  testing::run_ranks(testing::places({2}), {}, [&](World& world) {
    Trainer<float> trainer(world, o, data);
    const StepReport r = trainer.step();
    EXPECT_TRUE(r.skipped);
    int skipped = 1;
    while (trainer.step().skipped) ASSERT_LT(++skipped, 60);
    EXPECT_GT(skipped, 1);
  });
  // The first update is AdamW's first, however many steps were skipped: by about the rate.
  o.optimizer.decay = 0;
  testing::run_ranks(testing::places({2}), {}, [&](World& world) {
    Trainer<float> trainer(world, o, data);
    const auto before = trainer.collect();
    StepReport r;
    for (int i = 0; i < 60 && (i == 0 || r.skipped); ++i) r = trainer.step();
    ASSERT_FALSE(r.skipped);
    const auto after = trainer.collect();
    double most = 0;
    for (const auto& [name, values] : before)
      for (std::size_t i = 0; i < values.size(); ++i)
        most = std::max(most, std::abs(double{after.at(name)[i]} - values[i]));
    if (world.rank() == 0) {
      EXPECT_NEAR(most, r.rate, 0.01 * r.rate);
    }
  });
  o.optimizer.decay = TrainOptions().optimizer.decay;
  o.loss_scale = 0x1p10;
  const Result scaled = train<float>(o, 5);
  EXPECT_EQ(one.losses, scaled.losses);
}

// A step that is skipped where nothing is scaled is no update either.
TEST(Layouts, TheFirstUpdateAfterASkippedStepIsAdamsFirst) {
  TrainOptions o = layout(2, 1, 1);
  o.optimizer.decay = 0;
  o.rate.warm_up = 0;
  set_operator_threads(1);
  const Text data = text();
  testing::run_ranks(testing::places({2}), {}, [&](World& world) {
    Trainer<float> trainer(world, o, data);
    const auto first_position = [&](float value) {
      for (auto& piece : trainer.pieces())
        if (piece.logical.name == "wpe" && piece.begin == 0) std::swap(*piece.data, value);
      trainer.restored();
      return value;
    };
    const float before = first_position(INFINITY);
    EXPECT_TRUE(trainer.step().skipped);
    first_position(before);
    const auto weights = trainer.collect();
    const StepReport r = trainer.step();
    ASSERT_FALSE(r.skipped);
    const auto after = trainer.collect();
    double most = 0;
    for (const auto& [name, values] : weights)
      for (std::size_t i = 0; i < values.size(); ++i)
        most = std::max(most, std::abs(double{after.at(name)[i]} - values[i]));
    if (world.rank() == 0) {
      EXPECT_NEAR(most, r.rate, 0.01 * r.rate);
    }
  });
}

// A rank with another value is named, on every rank, and nobody waits: not even for an update that
// would be another one there.
TEST(Layouts, RanksThatDifferAreNamed) {
  struct Difference {
    std::function<void(TrainOptions&)> make;
    const char* name;
  };
  using O = TrainOptions;
  const Difference all[] = {
      {[](O& o) { o.model.vocabulary = 300; }, "vocabulary 300, rank 0 has 264"},
      {[](O& o) { o.model.positions = 4; }, "positions 4, rank 0 has 8"},
      {[](O& o) { o.model.width = 24; }, "width 24, rank 0 has 48"},
      {[](O& o) { o.model.heads = 12; }, "heads 12, rank 0 has 24"},
      {[](O& o) { o.model.layers = 4; }, "layers 4, rank 0 has 8"},
      {[](O& o) { o.model.tied = false; }, "tied false, rank 0 has true"},
      {[](O& o) { o.mesh.data = 1; }, "dp 1, rank 0 has 3"},
      {[](O& o) { o.mesh.tensor = 2; }, "tp 2, rank 0 has 1"},
      {[](O& o) { o.mesh.pipeline = 2; }, "pp 2, rank 0 has 1"},
      {[](O& o) { o.mesh.order = "dp,tp,pp"; }, "order dp,tp,pp, rank 0 has tp,dp,pp"},
      {[](O& o) { o.mesh.shard = 3; }, "shard 3, rank 0 has 0"},
      {[](O& o) { o.mesh.algorithm = "ring"; }, "algo ring, rank 0 has auto"},
      {[](O& o) { o.batch = 12; }, "batch 12, rank 0 has 24"},
      {[](O& o) { o.micro_batch = 2; }, "micro-batch 2, rank 0 has 1"},
      {[](O& o) { o.schedule = "gpipe"; }, "schedule gpipe, rank 0 has 1f1b"},
      {[](O& o) { o.chunks = 2; }, "chunks 2, rank 0 has 1"},
      {[](O& o) { o.zero = 1; }, "zero 1, rank 0 has 0"},
      {[](O& o) { o.bucket_bytes = 4; }, "bucket 4, rank 0 has 20000"},
      {[](O& o) { o.overlap = false; }, "overlap false, rank 0 has true"},
      {[](O& o) { o.deterministic = true; }, "deterministic true, rank 0 has false"},
      {[](O& o) { o.recompute = true; }, "recompute true, rank 0 has false"},
      {[](O& o) { o.sequence_parallel = true; }, "sequence true, rank 0 has false"},
      {[](O& o) { o.parameter_server = true; }, "server true, rank 0 has false"},
      {[](O& o) { o.embed = "owner"; }, "embed owner, rank 0 has vocab-parallel"},
      {[](O& o) { o.seed_style = true; }, "seed-style true, rank 0 has false"},
      {[](O& o) { o.offload = "/tmp"; }, "offload folder, rank 0 has nowhere"},
      {[](O& o) { o.clip = 2; }, "clip 2, rank 0 has 1"},
      {[](O& o) { o.loss_scale = 2; }, "loss-scale 2, rank 0 has 0"},
      {[](O& o) { o.seed = 2; }, "seed 2, rank 0 has 1"},
      {[](O& o) { o.rate.peak = 0.5; }, "lr 0.5, rank 0 has 0.003"},
      {[](O& o) { o.rate.warm_up = 5; }, "warm-up 5, rank 0 has 4"},
      {[](O& o) { o.rate.start = 0.5; }, "start 0.5, rank 0 has 0"},
      {[](O& o) { o.rate.steps = 9; }, "steps 9, rank 0 has 0"},
      {[](O& o) { o.rate.floor = 0.5; }, "floor 0.5, rank 0 has 0"},
      {[](O& o) { o.optimizer.adam = false; }, "adam false, rank 0 has true"},
      {[](O& o) { o.optimizer.decay = 0.5; }, "decay 0.5, rank 0 has 0.1"},
      {[](O& o) { o.optimizer.beta1 = 0.5; }, "beta1 0.5, rank 0 has 0.9"},
      {[](O& o) { o.optimizer.beta2 = 0.5; }, "beta2 0.5, rank 0 has 0.95"},
      {[](O& o) { o.optimizer.epsilon = 0.5; }, "epsilon 0.5, rank 0 has 1e-08"},
      {[](O& o) { o.optimizer.momentum = 0.5; }, "momentum 0.5, rank 0 has 0.9"},
  };
  const Text data = text();
  for (const Difference& difference : all) {
    std::atomic<int> named{0};
    TrainOptions other = layout(3, 1, 1);
    difference.make(other);
    testing::run_ranks(testing::places({3}), {}, [&](World& world) {
      try {
        agree(world, describe(world.rank() == 2 ? other : layout(3, 1, 1)));
      } catch (const UsageError& e) {
        EXPECT_EQ(e.what(), fmt::format("rank 2 has {}; give every rank the same options and data",
                                        difference.name));
        ++named;
      }
    });
    EXPECT_EQ(named, 3) << difference.name;
  }
}

// Element types and texts are no options; the trainer compares them too.
TEST(Layouts, RanksOfAnotherTypeOrTextAreNamed) {
  const Text data = text(), other("another text, long enough", "other");
  std::atomic<int> named{0};
  testing::run_ranks(testing::places({2}), {}, [&](World& world) {
    const TrainOptions o = layout(2, 1, 1);
    try {
      if (world.rank() == 1)
        Trainer<double>(world, o, data);
      else
        Trainer<float>(world, o, data);
    } catch (const UsageError& e) {
      EXPECT_EQ(std::string(e.what()).find("rank 1 has type cpu-double, rank 0 has cpu-float"), 0u)
          << e.what();
      ++named;
    }
  });
  testing::run_ranks(testing::places({2}), {}, [&](World& world) {
    try {
      Trainer<float>(world, layout(2, 1, 1), world.rank() == 1 ? other : data);
    } catch (const UsageError& e) {
      EXPECT_EQ(std::string(e.what()).find("rank 1 has text "), 0u) << e.what();
      ++named;
    }
  });
  EXPECT_EQ(named, 4);
}

// In the middle of a pipeline too, where no sample is read.
TEST(Layouts, ATextThatIsTooShortIsRefusedOnEveryRank) {
  const Text eight("12345678", "eight");
  std::atomic<int> refused{0};
  testing::run_ranks(testing::places({4}), {}, [&](World& world) {
    try {
      Trainer<float>(world, layout(1, 1, 4), eight);
    } catch (const UsageError& e) {
      EXPECT_STREQ(e.what(),
                   "eight has 8 bytes, fewer than --positions 8 and one more; pass a longer text "
                   "with --data, or fewer --positions");
      ++refused;
    }
  });
  EXPECT_EQ(refused, 4);
}

}  // namespace
}  // namespace weft::train
