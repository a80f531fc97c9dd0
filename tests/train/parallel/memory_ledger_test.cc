// The memory ledger against the allocator in the middle of a step, on several ranks together: bytes
// allocated by malloc since before the model, within 1 %.
// labels: sim
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <barrier>

#include "support/train/stage_of_replicas.h"
#include "support/train/train_on_device_cases.h"
#include "support/train/train_runs.h"

namespace weft::train {
namespace {

// Of all threads, because ranks are threads.
std::size_t given_out() {
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

std::size_t of_use(Use use) {
  return MemoryLedger::of_this_rank().now[static_cast<std::size_t>(use)];
}

TEST(MemoryLedgerInAStep, IsWhatTheAllocatorSays) {
  constexpr int kRanks = 2, kMicroBatches = 2;
  if (given_out() == 0) GTEST_SKIP() << "missing capability: mallinfo2(), without a sanitizer";
  set_operator_threads(1);
  const GptShape shape{.vocabulary = 256, .positions = 32, .width = 192, .heads = 4, .layers = 4};
  for (const int zero : {0, 3}) {
    std::barrier all(kRanks);
    std::atomic<std::size_t> sum{0}, before{0};
    std::atomic<int> samples{0};
    testing::run_ranks(testing::places({kRanks}), testing::patient(), [&](World& world) {
      // Excludes buffers that weft caches: a first model allocates them before the measurement.
      const auto step = [&](testing::Replica<float>& replica) {
        for (int m = 0; m < kMicroBatches; ++m) replica.forward(m);
        for (int m = 0; m < kMicroBatches; ++m) replica.backward(m);
        replica.store.finish();
      };
      const DataParallelOptions options{
          .zero = zero, .bucket_bytes = 1u << 20, .micro_batches = kMicroBatches, .offload = {}};
      std::size_t activations = 0, errors = 0;
      {
        testing::Replica<float> first(world, shape, options, 4);
        step(first);
      }
      all.arrive_and_wait();
      if (world.rank() == 0) before = given_out();
      all.arrive_and_wait();

      testing::Replica<float> replica(world, shape, options, 4);
      const auto compare = [&](const std::string& when) {
        all.arrive_and_wait();
        sum += MemoryLedger::of_this_rank().total;
        all.arrive_and_wait();
        if (world.rank() == 0) {
          const double ledger = static_cast<double>(sum);
          EXPECT_NEAR(static_cast<double>(given_out() - before), ledger, 0.01 * ledger)
              << "ZeRO " << zero << ", " << when;
          ++samples;
          sum = 0;
        }
        all.arrive_and_wait();
      };
      replica.seeing.see = [&](int unit) {
        compare(
            fmt::format("{} of unit {}", replica.seeing.forward ? "forward" : "backward", unit));
        activations = std::max(activations, of_use(Use::kActivations));
        errors = std::max(errors, of_use(Use::kErrors));
      };
      compare("before the step");
      step(replica);
      compare("after the step");
      // Not vacuous: at least bsh for each block of each micro-batch.
      const std::size_t bsh = 4 * shape.positions * shape.width * sizeof(float);
      EXPECT_GT(activations, kMicroBatches * shape.layers * bsh);
      EXPECT_GT(errors, 0u);
    });
    EXPECT_EQ(samples, 2 + kMicroBatches * (5 + 6));  // the head keeps its weights
  }
}

// A stage reads the received tensor itself, and returns the message: a pipeline copies as many
// bytes as a single stage, none of them for messages.
TEST(MemoryLedgerInAStep, MessagesBetweenStagesAreNotCopied) {
  set_operator_threads(1);
  const Text data = text();
  const auto copied = [&](int stages, const std::string& schedule) {
    TrainOptions o = narrow({1, 1, stages});
    if (stages > 1) o.schedule = schedule;
    std::atomic<std::size_t> sum{0};
    testing::run_ranks(testing::places({stages}), testing::patient(), [&](World& world) {
      Trainer<double> trainer(world, o, data);
      const std::size_t before = MemoryLedger::of_this_rank().copied;
      trainer.step();
      sum += MemoryLedger::of_this_rank().copied - before;
    });
    return sum.load();
  };
  const std::size_t alone = copied(1, "");
  EXPECT_GT(alone, 0u);
  for (const int stages : {2, 4})
    for (const char* schedule : {"1f1b", "gpipe", "zero-bubble"})
      EXPECT_EQ(copied(stages, schedule), alone) << stages << " stages, " << schedule;
}

}  // namespace
}  // namespace weft::train
