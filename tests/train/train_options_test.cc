// Invalid options and texts, and ranks that differ in them, are reported on every rank.
// labels: sim
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>

#include "support/train/train_runs.h"

namespace weft::train {
namespace {

TEST(Options, OptionsThatCannotBeAreNamed) {
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
  o.deterministic = true, o.zero = 2, o.chunks = 2, o.schedule = "interleaved";
  refused(o, "use --untied or --zero 1");
  o = small();
  o.chunks = 2, o.schedule = "interleaved";
  refused(o, "--chunks 2 with --pp 1");
}

// A rank with a different value is reported on every rank without deadlock, even if only the update
// would differ.
TEST(Options, RanksThatDifferAreNamed) {
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

// Element types and texts are not options; the trainer compares them too.
TEST(Options, RanksOfAnotherTypeOrTextAreNamed) {
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

// Also in the middle of a pipeline, where no sample is read.
TEST(Options, ATextThatIsTooShortIsRefusedOnEveryRank) {
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
