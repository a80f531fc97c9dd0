// Gradients in flight while the backward pass computes: tested by the order of events, not by their
// duration.
// labels: sim
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "support/train/stage_of_replicas.h"
#include "support/train/train_on_device_cases.h"
#include "train/base/threads.h"

namespace weft::train {
namespace {

// Facts of one step on one of two replicas.
struct OverlapSeen {
  double loss = 0, norm = 0, exposed = 0, total = 0;
  std::uint64_t during = 0, all = 0;  // bytes sent during the backward pass; in total
};

OverlapSeen step_with(bool overlap, int zero) {
  OverlapSeen seen;
  set_operator_threads(1);
  testing::run_ranks(testing::places({2}), testing::patient(), [&](World& world) {
    const GptShape shape{.vocabulary = 128, .positions = 16, .width = 32, .heads = 4, .layers = 4};
    testing::Replica<double> replica(
        world, shape, {.zero = zero, .bucket_bytes = 8192, .overlap = overlap, .offload = {}}, 2);
    const int last = static_cast<int>(replica.stage.units().size()) - 1;
    const auto counted = [&] { return AxisCounter(world, replica.mesh.shape).sent().data; };
    const auto sent = [&, begin = counted()] { return counted() - begin; };
    std::uint64_t of_head = 0;
    replica.seeing.see = [&](int unit) {
      if (replica.seeing.forward || unit == last) return;
      // The passes of the blocks and the embedding follow: complete gradients can be sent now.
      // finish() has not been called, so only overlap can send them.
      if (unit != 1 || !overlap) return;
      for (int i = 0; of_head == 0 && i < 60000; ++i) {
        replica.store.poll();
        if (sent() > 0)
          of_head = sent();
        else
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    };
    replica.forward(0);
    EXPECT_EQ(sent(), 0u);  // the forward pass sends nothing
    replica.backward(0);
    const std::uint64_t during = sent();
    EXPECT_EQ(during > 0, overlap) << "ZeRO " << zero;
    replica.store.finish();
    double squares = replica.store.squares();
    if (zero > 0) replica.mesh.data.all_reduce(&squares, 1);
    if (world.rank() != 0) return;
    seen = {replica.stage.take_losses()[0],
            std::sqrt(squares),
            replica.store.exposed_seconds(),
            replica.store.total_seconds(),
            during,
            sent()};
  });
  return seen;
}

TEST(Overlap, BucketsLeaveBeforeTheBackwardPassIsOver) {
  for (int zero = 0; zero <= 2; ++zero) {
    const OverlapSeen with = step_with(true, zero), without = step_with(false, zero);
    fmt::print(
        "ZeRO {}: {} of {} bytes during the backward pass, {:.0f} % of the time on the way "
        "exposed; without overlap {} bytes, {:.0f} %\n",
        zero, with.during, with.all, 100 * with.exposed / with.total, without.during,
        100 * without.exposed / without.total);
    EXPECT_EQ(with.loss, without.loss);
    EXPECT_DOUBLE_EQ(with.norm, without.norm);
    EXPECT_EQ(without.during, 0u);
    EXPECT_GT(with.during, 0u);
    EXPECT_LT(with.exposed, with.total);  // part of it overlapped with compute
  }
}

// Received gradients are added by an operator, which itself polls between its pieces.
TEST(Overlap, WhatHasComeIsAddedOnce) {
  struct LateStore : testing::SeeingStore {
    using SeeingStore::SeeingStore;
    void gradients_done(int unit) override {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // more than the poll interval
      SeeingStore::gradients_done(unit);
    }
  };
  set_operator_threads(1);
  double squares[2] = {};
  for (const bool between : {false, true})
    testing::run_ranks(testing::places({1}), testing::patient(), [&](World& world) {
      const GptShape shape{
          .vocabulary = 128, .positions = 16, .width = 128, .heads = 4, .layers = 2};
      testing::Replica<double> replica(world, shape, {.zero = 2, .offload = {}}, 1);
      LateStore late(replica.store);
      replica.stage.set_store(&late);
      replica.forward(0);
      if (between) set_between_pieces([&] { replica.store.poll(); });
      replica.backward(0);
      set_between_pieces(nullptr);
      replica.store.finish();
      squares[between] = replica.store.squares();
    });
  EXPECT_GT(squares[0], 0);
  EXPECT_EQ(squares[0], squares[1]);
}

// ZeRO 3: the weights of the next unit are prefetched before this one computes.
TEST(Overlap, WeightsOfTheNextUnitAreOnTheirWay) {
  for (const bool overlap : {true, false})
    testing::run_ranks(testing::places({2}), testing::patient(), [&](World& world) {
      const GptShape shape{
          .vocabulary = 128, .positions = 16, .width = 32, .heads = 4, .layers = 4};
      testing::Replica<double> replica(world, shape, {.zero = 3, .overlap = overlap, .offload = {}},
                                       2);
      const auto weights = [] {
        return MemoryLedger::of_this_rank().now[static_cast<std::size_t>(Use::kWeights)];
      };
      const std::size_t own = weights(),
                        block = replica.stage.units()[1].end - replica.stage.units()[1].begin;
      // After a block's weights are released, those of the next block are available only if they
      // were prefetched.
      replica.seeing.see = [&](int unit) {
        if (!replica.seeing.forward || (unit != 1 && unit != 2)) return;
        EXPECT_EQ(weights() - own, overlap ? block * sizeof(double) : 0) << "unit " << unit;
      };
      replica.forward(0);
      replica.backward(0);
      replica.store.finish();
      EXPECT_EQ(weights(), own);
    });
}

// The whole trainer: the same loss curve to the bit, with and without overlap.
TEST(Overlap, LossesAreTheSame) {
  for (const int zero : {0, 1, 2, 3}) {
    TrainOptions o = layout(2, 1, 1);
    o.zero = zero;
    // One micro-batch: without overlap ZeRO 2 and 3 accumulate a rank's micro-batches first.
    o.micro_batch = o.batch / 2;
    const Result with = train<double>(o, 5);
    o.overlap = false;
    const Result without = train<double>(o, 5);
    EXPECT_EQ(with.losses, without.losses) << zero;
    EXPECT_EQ(with.weights, without.weights) << zero;
  }
}

}  // namespace
}  // namespace weft::train
