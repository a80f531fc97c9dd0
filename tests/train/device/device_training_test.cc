// labels: sim
// Training on the fake device: ranks are threads that share one GPU, with real collectives on its
// memory. The loss curves equal the CPU's.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "support/fakes/fake_device.h"
#include "support/train/train_on_device_cases.h"
#include "train/device/context.h"
#include "train/pipeline/runtime.h"

namespace weft::train {
namespace {

class DeviceTraining : public ::testing::Test {
 protected:
  void SetUp() override { use_fake_device(); }
};

TEST_F(DeviceTraining, Alone) { testing::expect_layout(testing::tiny(1, 1, 1), "alone"); }
TEST_F(DeviceTraining, TwoByTwoByTwo) {
  testing::expect_layout(testing::tiny(2, 2, 2), "dp 2 tp 2 pp 2");
}
TEST_F(DeviceTraining, ZeroInAllStages) {
  for (const int zero : {1, 2, 3}) {
    TrainOptions o = testing::tiny(4, 1, 1);
    o.zero = zero;
    o.mesh.shard = zero == 2 ? 2 : 0;
    testing::expect_layout(o, "zero " + std::to_string(zero));
  }
}
TEST_F(DeviceTraining, OtherWays) {
  TrainOptions o = testing::tiny(1, 2, 2);
  o.sequence_parallel = true;
  o.recompute = true;
  o.schedule = "zero-bubble";
  testing::expect_layout(o, "sequence parallel, recompute, zero-bubble");
  o = testing::tiny(1, 2, 1);
  o.embed = "owner";
  o.model.tied = false;
  o.micro_batch = 2;
  testing::expect_layout(o, "untied, an owner of the head");
}
TEST_F(DeviceTraining, SeedStyle) {
  TrainOptions o = testing::tiny(1, 2, 2);
  o.seed_style = true;
  testing::expect_layout(o, "seed style, tp 2 pp 2");
  o = testing::tiny(1, 4, 1);
  o.seed_style = true;
  o.embed = "owner";
  testing::expect_layout(o, "seed style, tp 4, owner");
}
// GPUs that cannot reach each other: gradients are staged through pinned memory.
TEST_F(DeviceTraining, BetweenHosts) {
  TrainOptions o = testing::tiny(2, 2, 1);
  const auto want = train<double>(testing::tiny(1, 1, 1), 3);
  testing::expect_curve(want, train<OnDevice<Fp64>>(o, 3, testing::patient(), {2, 2}), 1e-10, 1e-8,
                        "two hosts");
}

TEST_F(DeviceTraining, Bf16FollowsFp32) {
  testing::expect_half<Bf16>(testing::tiny(1, 1, 1), 0.02);
}
TEST_F(DeviceTraining, Bf16InAllLayouts) {
  TrainOptions o = testing::tiny(2, 2, 2);
  o.zero = 1;
  testing::expect_half<Bf16>(o, 0.02);
}
TEST_F(DeviceTraining, Fp16WithLossScaling) {
  TrainOptions o = testing::tiny(2, 1, 1);
  o.loss_scale = 1024;
  testing::expect_half<Fp16>(o, 0.02);
}
TEST_F(DeviceTraining, OverflowIsSkipped) { testing::expect_overflow_is_skipped(); }

TEST_F(DeviceTraining, GoesOnFromPieces) {
  testing::expect_pieces_go_on<Fp64>(1e-12);
  testing::expect_pieces_go_on<Bf16>(1e-12);
}

// A step blocks on the device when it needs a value: the losses, the norm and, with replicas, the
// end of the gradients. The number of waits does not depend on the micro-batches.
TEST_F(DeviceTraining, WaitsForTheDeviceDoNotGrowWithTheMicroBatches) {
  const Text data = text();
  for (const auto& layout : {std::pair<std::array<int, 3>, int>{{1, 1, 1}, 0},
                             {{1, 1, 2}, 0},
                             {{1, 2, 2}, 0},
                             {{2, 1, 2}, 3}})
    for (const Index micro_batches : {2, 8}) {
      const std::array<int, 3> sizes = layout.first;
      TrainOptions o = testing::tiny(sizes[0], sizes[1], sizes[2]);
      o.zero = layout.second;
      o.batch = micro_batches * static_cast<Index>(sizes[0]);
      testing::run_ranks(testing::places({o.mesh.ranks()}), testing::patient(), [&](World& world) {
        DeviceContext& context = DeviceContext::of_this_rank();
        Trainer<OnDevice<Bf16>> trainer(world, o, data);
        trainer.step();
        const std::size_t before = context.waits();
        trainer.step();
        const std::size_t of_losses = trainer.mesh().last_stage() ? 1 : 0;
        const std::size_t of_gradients = sizes[0] > 1 ? 1 : 0;
        EXPECT_EQ(context.waits() - before, 1 + of_gradients + of_losses) << fmt::format(
            "{} x {} x {}, {} micro-batches", sizes[0], sizes[1], sizes[2], micro_batches);
      });
    }
}

// While the device is held before micro-batch 1, the samples of micro-batch 2 are copied to it.
TEST_F(DeviceTraining, TheNextSamplesComeWhileThisMicroBatchComputes) {
  FakeDevice& device = use_fake_device();
  const Text data = text();
  testing::run_ranks(testing::places({1}), testing::patient(), [&](World& world) {
    TrainOptions o = testing::tiny(1, 1, 1);
    DeviceContext& context = DeviceContext::of_this_rank();
    Trainer<OnDevice<Fp32>> trainer(world, o, data);
    trainer.step();
    std::atomic<std::uint32_t> word{0};
    int before = 0, copied = 0;
    trainer.pipeline().on_action = [&](const PipelineAction& action, bool begins) {
      if (action.op != PipeOp::kForward || action.microbatch != 1) return;
      if (begins) {
        context.wait();
        context.mark(context.transfer()).wait();  // wait for the samples of this micro-batch
        before = device.copies_done(context.gpu());
        device.hold(context.compute(), &word);
        return;
      }
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      const DeviceMark transferred = context.mark(context.transfer());
      while (!transferred.passed() && std::chrono::steady_clock::now() < deadline)
        std::this_thread::yield();
      copied = device.copies_done(context.gpu()) - before;
      EXPECT_FALSE(context.mark(context.compute()).passed());
      word = 1;
    };
    trainer.step();
    EXPECT_EQ(copied, 2);                     // tokens and targets
    ASSERT_GE(trainer.brought().size(), 7u);  // the end of the last one may be unobserved
    for (const BroughtSamples& b : trainer.brought()) EXPECT_LT(b.begin_ns, b.end_ns);
  });
}

// A model frees all its memory.
TEST_F(DeviceTraining, MemoryIsGivenBack) {
  testing::run_ranks(testing::places({1}), {}, [&](World& world) {
    const Text data = text();
    DeviceContext& context = DeviceContext::of_this_rank();
    const std::size_t before = context.used();
    {
      Trainer<OnDevice<Bf16>> trainer(world, testing::tiny(1, 1, 1), data);
      trainer.step();
      const std::size_t first = context.used();
      trainer.step();
      EXPECT_EQ(context.used(), first);
    }
    // The workspace of products stays allocated.
    EXPECT_LE(context.used() - before, DeviceContext::kProductScratch);
    EXPECT_EQ(MemoryLedger::of_this_rank().total, 0u);
  });
}

// Forwards its input with stream-ordered copies; kept() is the samples in the first stage, the
// result in the last.
class Relay : public Stage<OnDevice<Fp32>> {
 public:
  using T = OnDevice<Fp32>;
  Relay(std::size_t in, std::size_t out, const std::vector<float>& samples)
      : in_(in), out_(out), kept_(std::max(in, out), Use::kWorkspace) {
    rank_device().upload(kept_.data(), samples.data(), samples.size() * sizeof(float));
  }
  std::size_t input_count() const override { return in_; }
  std::size_t output_count() const override { return out_; }
  Tensor<T> forward(int, Tensor<T> in) override { return hand_on(in, in_, out_); }
  Tensor<T> backward_input(int, Tensor<T> in) override { return hand_on(in, out_, in_); }
  void backward_weight(int) override {}
  std::vector<Parameter<T>>& parameters() override { return none_; }
  const T* kept() const { return kept_.data(); }

 private:
  Tensor<T> hand_on(const Tensor<T>& in, std::size_t nin, std::size_t nout) {
    if (nin > 0) rank_device().copy(kept_.data(), in.data(), nin * sizeof(T));
    Tensor<T> out(nout, Use::kActivations);
    if (nout > 0) rank_device().copy(out.data(), kept_.data(), nout * sizeof(T));
    return out;
  }
  std::size_t in_, out_;
  Tensor<T> kept_;
  std::vector<Parameter<T>> none_;
};

// Between hosts the same messages pass through host memory, and the sent byte counts are equal.
TEST_F(DeviceTraining, StageMessagesBetweenGpusOfAHostPassNoHostMemory) {
  constexpr int kMicroBatches = 5;
  for (const std::vector<int>& hosts : {std::vector<int>{2}, std::vector<int>{1, 1}})
    for (const std::size_t count : {1, 333, 700'001}) {
      std::vector<float> samples(count);
      std::iota(samples.begin(), samples.end(), 1.0f);
      testing::run_ranks(testing::places(hosts), testing::patient(), [&](World& world) {
        const bool first = world.rank() == 0;
        DeviceContext& context = DeviceContext::make(world.rank());
        Relay relay(first ? 0 : count, first ? count : 0, first ? samples : std::vector<float>());
        PipelineRuntime<Relay::T> pipeline(make_pipeline_schedule("1f1b", {2, kMicroBatches, 1}),
                                           world.world(), {&relay});
        context.wait();
        ASSERT_TRUE(world.world().barrier().ok());
        const std::size_t before = fake_device()->host_copies();
        ASSERT_TRUE(world.world().barrier().ok());
        EXPECT_EQ(pipeline.run().bytes_sent, kMicroBatches * count * sizeof(float));
        context.wait();
        ASSERT_TRUE(world.world().barrier().ok());
        const std::size_t copies = fake_device()->host_copies() - before;
        ASSERT_TRUE(world.world().barrier().ok());
        EXPECT_EQ(copies > 0, hosts.size() > 1) << copies;
        std::vector<float> got(count);
        context.download(got.data(), relay.kept(), count * sizeof(float));
        EXPECT_EQ(got, samples) << count;
      });
    }
}

}  // namespace
}  // namespace weft::train
