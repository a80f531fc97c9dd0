// Bytes per axis on every rank of many layouts, against formulas independent of the trainer
// (support/train/train_traffic.h): tensor and pipeline parallelism of all sizes with several
// micro-batches, ZeRO, groups, mixtures, 16-bit elements. ledger_test checks single formulas.
// labels: sim
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "coll/gpu/record.h"
#include "support/fakes/fake_device.h"
#include "support/train/train_on_device_cases.h"
#include "support/train/train_traffic.h"
#include "train/device/context.h"

namespace weft::train {
namespace {

// Sizes divisible by 2, 3, 4, 6 and 8, so that all ranks of an axis send equally much.
TrainOptions divisible(const std::array<int, 3>& sizes, Index micro_batches = 3) {
  TrainOptions o = layout(sizes);
  o.model = {.vocabulary = 144, .positions = 8, .width = 48, .heads = 24, .layers = 4};
  if (sizes[2] > 4) o.model.layers = 8;
  o.mesh.algorithm = "ring";  // only the ring sends 2 (n-1)/n for every size
  o.bucket_bytes = 4u << 20;
  o.micro_batch = 3;
  o.batch = o.micro_batch * micro_batches * static_cast<Index>(o.mesh.data);
  return o;
}

std::string named(const TrainOptions& o) {
  return fmt::format("dp {} tp {} pp {} {} chunks {} zero {} groups of {}{}{}{}{}{}", o.mesh.data,
                     o.mesh.tensor, o.mesh.pipeline, o.schedule, o.chunks, o.zero, o.mesh.shard,
                     o.sequence_parallel ? " sequence" : "", o.recompute ? " recompute" : "",
                     o.seed_style ? " seed" : "", " " + o.embed, o.model.tied ? "" : " untied");
}

// Selects the device before the first World, because a process keeps its device.
class TrafficOfLayouts : public ::testing::Test {
 protected:
  void SetUp() override { use_fake_device(); }
};

template <class T = float>
void expect_traffic(const TrainOptions& o, const testing::TrafficElement& element = {}) {
  set_operator_threads(1);
  const Text data = text();
  std::atomic<std::uint64_t> sent{0}, expected{0};
  testing::run_ranks(testing::places({o.mesh.ranks()}), testing::patient(), [&](World& world) {
    Trainer<T> trainer(world, o, data);
    const testing::StepTraffic step = testing::step_with_traffic(world, trainer);
    const auto want = testing::expected_traffic(o, coordinates(o.mesh, world.rank()), element);
    const std::string what = fmt::format("{}, rank {}", named(o), world.rank());
    // An all-reduce is split at 64 bytes, so ranks may differ slightly; their total is exact.
    EXPECT_NEAR(static_cast<double>(step.sent.data), static_cast<double>(want.sent.data),
                0.002 * static_cast<double>(want.sent.data))
        << what;
    sent += step.sent.data;
    expected += want.sent.data;
    EXPECT_EQ(step.sent.tensor, want.sent.tensor) << what;
    EXPECT_EQ(step.sent.pipeline, want.sent.pipeline) << what;
    EXPECT_EQ(step.sent.other, 0u) << what;
    EXPECT_EQ(step.sent_forward.tensor, want.forward.tensor) << what;
    // With stage 2 gradients of a micro-batch may still be in flight in the next forward pass; with
    // stage 3 weights are.
    if (o.zero < 2) {
      EXPECT_EQ(step.sent_forward.data, 0u) << what;
    }
  });
  EXPECT_EQ(sent, expected) << named(o);
}

TEST_F(TrafficOfLayouts, EveryFactorisationOf8And6) {
  for (const int n : {8, 6})
    for (const auto& sizes : factorisations(n))
      for (int zero = 0; zero <= (sizes[0] > 1 ? 3 : 0); ++zero) {
        TrainOptions o = divisible(sizes);
        o.zero = zero;
        expect_traffic(o);
      }
}

// All forms of tensor parallelism, with several micro-batches.
TEST_F(TrafficOfLayouts, TensorParallel) {
  for (const int t : {2, 4, 8})
    for (const bool recompute : {false, true}) {
      TrainOptions o = divisible({1, t, 1});
      o.recompute = recompute;
      for (const bool seed : {true, false})
        for (const std::string& embed : kEmbeds) {
          o.seed_style = seed;
          o.model.heads = seed ? 6 : 24;
          o.embed = embed;
          expect_traffic(o);
        }
      o.embed = "vocab-parallel";
      o.sequence_parallel = true;
      expect_traffic(o);
    }
}

// Also middle stages, in every schedule: it decides when, not how much, is sent.
TEST_F(TrafficOfLayouts, Pipeline) {
  for (const int p : {2, 3, 4})
    for (const std::string& schedule : pipeline_schedule_names())
      for (const bool tied : {true, false}) {
        TrainOptions o = divisible({1, 1, p}, 12);
        o.schedule = schedule;
        o.chunks = schedule == "interleaved" ? 2 : 1;
        o.model.layers = 8;
        o.model.tied = tied;
        expect_traffic(o);
      }
}

TEST_F(TrafficOfLayouts, GroupsInEveryZeroStage) {
  for (int zero = 1; zero <= 3; ++zero)
    for (const auto& sizes : {std::array{8, 1, 1}, {4, 2, 1}, {4, 1, 2}})
      for (int s = 2; s <= sizes[0]; s *= 2) {
        TrainOptions o = divisible(sizes, 2);
        o.zero = zero;
        o.mesh.shard = s;
        expect_traffic(o);
      }
}

// All three axes together, with other options.
TEST_F(TrafficOfLayouts, Mixtures) {
  for (int zero = 0; zero <= 3; ++zero) {
    TrainOptions o = divisible({2, 2, 2}, 2);
    o.zero = zero;
    o.sequence_parallel = true;
    expect_traffic(o);
    o.recompute = true;
    o.model.tied = false;
    expect_traffic(o);
    o = divisible({2, 2, 2}, 2);
    o.zero = zero;
    o.seed_style = true;
    o.model.heads = 12;
    for (const std::string& embed : kEmbeds) {
      o.embed = embed;
      expect_traffic(o);
    }
    o = divisible({2, 2, 2}, 2);
    o.zero = std::min(zero, 2);  // with stage 3, gathers of weights depend on the schedule
    o.schedule = "interleaved";
    o.chunks = 2;
    expect_traffic(o);
  }
}

// Bytes of the second step, by axis and rank, including those of loss and norm. On a device calls
// are counted when they complete, without a wait: polls until `enough`.
template <class T>
std::vector<AxisBytes> counted_in_a_step(
    const TrainOptions& o, std::vector<AxisBytes>& reported,
    const std::function<bool(Rank, const AxisBytes&)>& enough) {
  set_operator_threads(1);
  const Text data = text();
  std::vector<AxisBytes> all(static_cast<std::size_t>(o.mesh.ranks()));
  reported = all;
  testing::run_ranks(testing::places({o.mesh.ranks()}), testing::patient(), [&](World& world) {
    const auto me = static_cast<std::size_t>(world.rank());
    Trainer<T> trainer(world, o, data);
    const auto settled = [&] {  // until the count is stable
      AxisBytes now = AxisCounter(world, o.mesh).sent();
      for (int quiet = 0; quiet < 100; ++quiet) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const AxisBytes next = AxisCounter(world, o.mesh).sent();
        if (next.data + next.tensor + next.pipeline != now.data + now.tensor + now.pipeline)
          quiet = 0;
        now = next;
      }
      return now;
    };
    trainer.step();
    if constexpr (kOnDevice<T>) rank_device().wait();
    const AxisBytes before = settled();
    world.world().barrier().check();  // before a rank starts the step, which would be counted
    reported[me] = trainer.step().sent;
    if constexpr (kOnDevice<T>) rank_device().wait();
    for (int i = 0; i < 1000; ++i) {
      const AxisBytes now = settled();
      all[me] = {now.data - before.data, now.tensor - before.tensor, now.pipeline - before.pipeline,
                 now.other - before.other};
      if (enough(world.rank(), all[me])) break;
    }
  });
  return all;
}

// On a device, the ranks of a call first exchange their memory handles: one record each.
AxisBytes records_of_calls(const TrainOptions& o, const Coordinates& at) {
  const auto record = [](int ranks, int calls) {
    return static_cast<std::uint64_t>(ranks - 1) * sizeof(DeviceRecord) *
           static_cast<std::uint64_t>(calls);
  };
  const bool first = at.pipeline == 0, last = at.pipeline + 1 == o.mesh.pipeline;
  const bool shared = o.mesh.pipeline > 1 && (first || last);  // the tied embedding is separate
  const int buckets = shared ? 2 : 1, blocks = static_cast<int>(o.model.layers) / o.mesh.pipeline;
  const int micro_batches = static_cast<int>(o.batch / o.micro_batch) / o.mesh.data;
  AxisBytes all;
  all.data = record(o.mesh.data, o.zero == 0 ? buckets : 2 * buckets);
  all.tensor =
      record(o.mesh.tensor, micro_batches * (4 * blocks + (first ? 1 : 0) + (last ? 2 + 1 : 0)));
  all.pipeline = record(2, shared ? 1 : 0);
  return all;
}

// bf16 on the fake device: two bytes per element of activations and weights, four of gradients; the
// numbers of the cross-entropy stay in fp32. Every parameter is aligned to 256 bytes. The bytes of
// loss and norm are those in fp32, where the trainer reports the rest separately.
TEST_F(TrafficOfLayouts, SixteenBitElements) {
  for (const auto& sizes :
       {std::array{2, 1, 1}, {4, 1, 1}, {1, 2, 1}, {1, 4, 1}, {1, 1, 2}, {2, 2, 2}})
    for (int zero = 0; zero <= (sizes[0] > 1 ? 1 : 0); ++zero) {
      TrainOptions o = divisible(sizes, 2);
      o.model = {.vocabulary = 128, .positions = 8, .width = 64, .heads = 4, .layers = 2};
      o.micro_batch = 1;
      o.batch = 2 * static_cast<Index>(sizes[0]);
      o.zero = zero;
      std::vector<AxisBytes> rest, want, none;
      want = counted_in_a_step<float>(o, rest, [](Rank, const AxisBytes&) { return true; });
      for (Rank r = 0; r < o.mesh.ranks(); ++r) {
        const auto i = static_cast<std::size_t>(r);
        const AxisBytes bf16 =
            testing::expected_traffic(o, coordinates(o.mesh, r), {2, 4, 128, 4}).sent;
        const AxisBytes records = records_of_calls(o, coordinates(o.mesh, r));
        want[i].data += bf16.data + records.data - rest[i].data;
        want[i].tensor += bf16.tensor + records.tensor - rest[i].tensor;
        want[i].pipeline += bf16.pipeline + records.pipeline - rest[i].pipeline;
      }
      const auto got =
          counted_in_a_step<OnDevice<Bf16>>(o, none, [&](Rank r, const AxisBytes& now) {
            const AxisBytes& all = want[static_cast<std::size_t>(r)];
            return now.data >= all.data && now.tensor >= all.tensor && now.pipeline >= all.pipeline;
          });
      for (std::size_t r = 0; r < got.size(); ++r) {
        EXPECT_EQ(got[r].data, want[r].data) << named(o) << ", rank " << r;
        EXPECT_EQ(got[r].tensor, want[r].tensor) << named(o) << ", rank " << r;
        EXPECT_EQ(got[r].pipeline, want[r].pipeline) << named(o) << ", rank " << r;
      }
    }
}

}  // namespace
}  // namespace weft::train
