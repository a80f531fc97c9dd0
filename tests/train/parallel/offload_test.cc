// Offloading: data in a file returns unchanged; training has the same bits, with less memory.
#include "train/operators/offload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>

#include "support/jobs/ranks.h"
#include "train/trainer.h"

namespace weft::train {
namespace {

TEST(Offload, BringsBackWhatWasPut) {
  Offload<float> offload(::testing::TempDir());
  auto& ledger = MemoryLedger::of_this_rank();
  const std::size_t before = ledger.total;
  for (int round = 0; round < 3; ++round)
    for (std::uint64_t key = 0; key < 4; ++key) {
      std::vector<Tensor<float>> list;
      list.emplace_back(1000, Use::kActivations);
      list.emplace_back();
      list.emplace_back(7 + key, Use::kErrors);
      for (auto& t : list)
        std::iota(t.data(), t.data() + t.count(), static_cast<float>(100 * key + t.count()));
      offload.put(key, list);
      EXPECT_TRUE(list.empty());
      EXPECT_EQ(ledger.total, before);
      if (key % 2 == 0 && round < 2) continue;  // overwritten by the next put
      std::vector<Tensor<float>> again;
      offload.get(key, again);
      ASSERT_EQ(again.size(), 3u);
      EXPECT_TRUE(again[1].empty());
      EXPECT_EQ(again[2].use(), Use::kErrors);
      for (auto& t : again)
        for (std::size_t i = 0; i < t.count(); ++i)
          ASSERT_EQ(t[i], static_cast<float>(100 * key + t.count() + i));
    }
  std::vector<Tensor<float>> untouched;
  untouched.emplace_back(3, Use::kErrors);
  offload.get(1, untouched);  // no such key
  EXPECT_EQ(untouched.size(), 1u);
}

TEST(Offload, NamesTheFolder) {
  try {
    Offload<float> offload("/nowhere");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("/nowhere: No such file or directory"));
  }
}

struct Result {
  std::vector<double> losses;
  std::size_t activations, optimizer;
  std::uint64_t moved;
};

Result train(int ranks, const std::string& folder, bool recompute, const std::string& schedule) {
  TrainOptions o;
  o.model = {.vocabulary = 256, .positions = 16, .width = 32, .heads = 4, .layers = 6};
  o.batch = 8;
  o.micro_batch = 1;
  o.mesh.pipeline = ranks;
  o.schedule = schedule;
  o.recompute = recompute;
  o.offload = folder;
  std::string bytes;
  for (int i = 0; i < 2000; ++i) bytes += static_cast<char>('a' + (i * i / 5) % 26);
  const Text text(bytes, "made up");
  set_operator_threads(1);
  Result run{};
  testing::run_ranks(testing::places({ranks}), {}, [&](World& world) {
    auto& ledger = MemoryLedger::of_this_rank();
    Trainer<double> trainer(world, o, text);
    for (int i = 0; i < 4; ++i) {
      const StepReport r = trainer.step();
      if (world.rank() == 0) {
        run.losses.push_back(r.loss);
        run.moved = r.offloaded;
      }
    }
    if (world.rank() != 0) return;
    run.activations = ledger.peak[static_cast<std::size_t>(Use::kActivations)];
    run.optimizer = ledger.now[static_cast<std::size_t>(Use::kFirstMoment)];
  });
  return run;
}

TEST(Offload, TrainingIsTheSameWithLessMemory) {
  for (const char* schedule : {"gpipe", "zero-bubble"})
    for (const bool recompute : {false, true})
      for (const int ranks : {1, 2}) {
        const Result here = train(ranks, "", recompute, schedule);
        const Result away = train(ranks, ::testing::TempDir(), recompute, schedule);
        EXPECT_EQ(here.losses, away.losses);
        EXPECT_EQ(here.moved, 0u);
        EXPECT_GT(away.moved, 0u);
        EXPECT_GT(here.optimizer, 0u);
        EXPECT_EQ(away.optimizer, 0u);
        if (std::string(schedule) == "gpipe" && !recompute) {
          // One of eight micro-batches, and only one of its layers.
          EXPECT_LT(away.activations, here.activations / 4) << ranks;
        }
      }
}

}  // namespace
}  // namespace weft::train
