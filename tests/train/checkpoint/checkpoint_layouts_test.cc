// labels: multiproc
// Checkpoints of the trainer itself: saved in one layout, resumed in every other.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include "support/process/temporary_folder.h"
#include "support/train/train_runs.h"
#include "train/checkpoint/checkpoint.h"

namespace weft::train {
namespace {

struct SavedWay {
  const char* name;
  TrainOptions options;
};

std::vector<SavedWay> saved_ways() {
  std::vector<SavedWay> all{{"one", layout(1, 1, 1)},
                            {"pp 4", layout(1, 1, 4)},
                            {"dp 2 tp 2 pp 2", layout(2, 2, 2)},
                            {"pp 2 interleaved", layout(1, 1, 2)},
                            {"tp 2 pp 2 zero-bubble, sequence", layout(1, 2, 2)},
                            {"dp 4 ZeRO 3", layout(4, 1, 1)},
                            {"dp 3 tp 2 ZeRO 1", layout(3, 2, 1)}};
  all[3].options.schedule = "interleaved";
  all[3].options.chunks = 2;
  all[4].options.schedule = "zero-bubble";
  all[4].options.sequence_parallel = true;
  all[5].options.zero = 3;
  all[6].options.zero = 1;
  return all;
}

// Runs steps up to `end`, from the checkpoint of step `begin` unless it is 0; then saves one if
// `save`.
std::vector<double> steps_from_a_checkpoint(TrainOptions o, const std::string& folder, int begin,
                                            int end, bool save) {
  o.model.layers = 4;
  o.batch = 12;
  set_operator_threads(1);
  std::vector<double> all;
  const Text data = text();
  testing::run_ranks(testing::places({o.mesh.ranks()}), {}, [&](World& world) {
    Trainer<double> trainer(world, o, data);
    Communicator comm = world.world().duplicate();
    if (begin > 0) {
      const Checkpoint loaded = load_checkpoint(comm, folder, trainer.pieces());
      if (loaded.step != begin) throw Error(fmt::format("step {} was loaded", loaded.step));
      trainer.set_steps_done(loaded.step);
      trainer.restored();
    }
    while (trainer.steps_done() < end) {
      const StepReport r = trainer.step();
      if (world.rank() == 0) all.push_back(r.loss);
    }
    if (save) save_checkpoint(comm, folder, end, trainer.pieces());
  });
  return all;
}

// The first loss after a load depends on the weights, the second on an update with the loaded
// moments. A checkpoint does not depend on the loading layout, so each layout loads from two
// others. Checkpoint.LoadsIntoEveryOtherLayout tests every pair.
TEST(CheckpointLayouts, EveryLayoutGoesOnFromTwoOthers) {
  const auto whole = steps_from_a_checkpoint(layout(1, 1, 1), "", 0, 5, false);
  ASSERT_EQ(whole.size(), 5u);
  const auto ways = saved_ways();
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const SavedWay& from = ways[i];
    const testing::TemporaryFolder folder;
    steps_from_a_checkpoint(from.options, folder.path(), 0, 3, true);
    // Every element is written once, also those of a tied embedding, which two stages have.
    std::uintmax_t bytes = 0;
    for (const auto& file : std::filesystem::directory_iterator(folder / "step-00000003"))
      if (file.path().extension() == ".shard") bytes += file.file_size();
    GptShape shape = from.options.model;
    shape.layers = 4;
    EXPECT_EQ(bytes, 3 * parameter_count(shape) * sizeof(double)) << from.name;
    for (const std::size_t further : {1, 3}) {
      const SavedWay& to = ways[(i + further) % ways.size()];
      const auto rest = steps_from_a_checkpoint(to.options, folder.path(), 3, 5, false);
      ASSERT_EQ(rest.size(), 2u) << from.name << " -> " << to.name;
      for (std::size_t i = 0; i < 2; ++i)
        EXPECT_NEAR(rest[i] / whole[3 + i], 1, 1e-10)
            << from.name << " -> " << to.name << ", step " << 4 + i;
    }
  }
}

// The test above would fail if the moments were not loaded, or the weights of another step.
TEST(CheckpointLayouts, ALossSaysWhetherTheStateWasLoaded) {
  const auto whole = steps_from_a_checkpoint(layout(1, 1, 1), "", 0, 5, false);
  const testing::TemporaryFolder folder;
  const Text data = text();
  steps_from_a_checkpoint(layout(1, 1, 1), folder.path(), 0, 3, true);
  TrainOptions o = layout(1, 1, 1);
  o.model.layers = 4;
  o.batch = 12;
  testing::run_ranks(testing::places({1}), {}, [&](World& world) {
    Trainer<double> trainer(world, o, data);
    auto pieces = trainer.pieces();
    load_checkpoint(world.world(), folder.path(), pieces);
    for (auto& piece : pieces)
      if (piece.logical.name.ends_with("/m")) std::fill_n(piece.data, piece.count, 0.0);
    trainer.set_steps_done(3);
    trainer.restored();
    EXPECT_NEAR(trainer.step().loss / whole[3], 1, 1e-10);
    EXPECT_GT(std::abs(trainer.step().loss / whole[4] - 1), 1e-6);
  });
}

}  // namespace
}  // namespace weft::train
