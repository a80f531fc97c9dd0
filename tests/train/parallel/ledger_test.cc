// Bytes per axis, as counted by weft, equal the formulas of docs/training/what-travels.md exactly;
// also memory by category.
//
// labels: sim
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include "coll/api/metrics.h"
#include "support/fakes/fake_device.h"
#include "support/jobs/ranks.h"
#include "support/train/train_traffic.h"
#include "train/trainer.h"

namespace weft::train {
namespace {

using Bytes = std::uint64_t;

// bsh of a micro-batch is 2 x 16 x 64.
TrainOptions ring_layout(int dp, int tp, int pp) {
  TrainOptions o;
  o.model = {.vocabulary = 256, .positions = 16, .width = 64, .heads = 8, .layers = 4};
  o.mesh.data = dp;
  o.mesh.tensor = tp;
  o.mesh.pipeline = pp;
  o.mesh.algorithm = "ring";  // only the ring sends 2 (n-1)/n for every size
  o.micro_batch = 2;
  o.batch = static_cast<Index>(2 * dp);
  return o;
}
Bytes bsh(const TrainOptions& o) {
  return o.micro_batch * o.model.positions * o.model.width * sizeof(float);
}
Bytes parameters(const TrainOptions& o) { return parameter_count(o.model) * sizeof(float); }

// Runs one step; calls see(rank's report, trainer) on every rank.
void step(const TrainOptions& o,
          const std::function<void(const testing::StepTraffic&, Trainer<float>&)>& see) {
  set_operator_threads(1);
  const Text text(fmt::format("{:x>500}the quick brown fox", ""), "made up");
  testing::run_ranks(testing::places({o.mesh.ranks()}), {}, [&](World& world) {
    Trainer<float> trainer(world, o, text);
    trainer.step();
    see(testing::step_with_traffic(world, trainer), trainer);
  });
}

TEST(ByteLedger, FormulasOfThe124MModel) {
  for (const auto& [n, bytes] :
       {std::pair<Bytes, Bytes>{2, 248879616}, {4, 373319424}, {8, 435539328}})
    EXPECT_EQ(2 * (n - 1) * (2 * parameter_count({50257, 1024, 768, 12, 12, true})) / n, bytes);
}

TEST(ByteLedger, DataParallel) {
  for (const int n : {2, 4, 8})
    for (int zero = 0; zero <= 2; ++zero) {
      TrainOptions o = ring_layout(n, 1, 1);
      o.zero = zero;
      const Bytes want = 2 * static_cast<Bytes>(n - 1) * parameters(o) / static_cast<Bytes>(n);
      step(o, [&](const auto& r, auto&) {
        EXPECT_EQ(r.sent.data, want) << "n " << n << " ZeRO " << zero;
        EXPECT_EQ(r.sent_forward.data, 0u);  // the forward pass sends nothing
        EXPECT_EQ(r.sent.tensor + r.sent.pipeline + r.sent.other, 0u);
      });
    }
}

// Gradients of all micro-batches are sent once; with ZeRO 2 and 3 after each micro-batch.
TEST(ByteLedger, MicroBatches) {
  const Bytes n = 4, m = 3;
  for (int zero = 0; zero <= 3; ++zero) {
    TrainOptions o = ring_layout(4, 1, 1);
    o.zero = zero;
    o.batch *= m;
    const Bytes once = (n - 1) * parameters(o) / n;
    // The final norm keeps its weights from forward to backward: gathered once, not twice.
    const Bytes norm = (n - 1) * 2 * o.model.width * sizeof(float) / n;
    const Bytes want = zero < 2 ? 2 * once : zero == 2 ? (m + 1) * once : m * (3 * once - norm);
    step(o, [&](const auto& r, auto&) { EXPECT_EQ(r.sent.data, want) << "ZeRO " << zero; });
  }
}

// MiCS: inside groups of s, plus 2 (r-1)/r of a part between the r groups.
TEST(ByteLedger, ShardGroups) {
  for (const int s : {2, 4}) {
    TrainOptions o = ring_layout(8, 1, 1);
    o.zero = 1;
    o.mesh.shard = s;
    const Bytes group = static_cast<Bytes>(s), r = 8 / group, psi = parameters(o);
    const Bytes want = 2 * (group - 1) * psi / group + 2 * (r - 1) * (psi / group) / r;
    step(o, [&](const auto& report, auto&) { EXPECT_EQ(report.sent.data, want) << s; });
  }
}

// 8 (t-1)/t bsh per layer, half of it in the forward pass. At the ends: the embedding, the gradient
// of the head's input, three numbers per row. Nothing for weight gradients.
TEST(ByteLedger, TensorParallel) {
  for (const int tp : {2, 4, 8})
    for (const bool recompute : {false, true}) {
      TrainOptions o = ring_layout(1, tp, 1);
      o.recompute = recompute;
      const Bytes t = static_cast<Bytes>(tp), row = bsh(o) / o.model.width;
      const Bytes forward = 2 * (t - 1) * (o.model.layers * 2 * bsh(o) + bsh(o) + 3 * row) / t;
      const Bytes backward =
          2 * (t - 1) * (o.model.layers * (recompute ? 4 : 2) * bsh(o) + bsh(o)) / t;
      step(o, [&](const auto& r, auto&) {
        EXPECT_EQ(r.sent_forward.tensor, forward) << "t " << t;
        EXPECT_EQ(r.sent.tensor, forward + backward) << "t " << t;
        EXPECT_EQ(r.sent.data + r.sent.pipeline + r.sent.other, 0u);
      });
    }
}

// The source documents' form: 8 (t-1)/t bsh forward and 12 backward, against 4 and 4.
TEST(ByteLedger, TensorParallelAsInTheSourceDocuments) {
  for (const bool seed : {false, true}) {
    TrainOptions o = ring_layout(1, 4, 1);
    o.seed_style = seed;
    const Bytes t = 4, row = bsh(o) / o.model.width;
    const Bytes ends = 2 * (t - 1) * (bsh(o) + 3 * row) / t;
    step(o, [&](const auto& r, auto&) {
      EXPECT_EQ(r.sent_forward.tensor,
                (seed ? 8 : 4) * (t - 1) * o.model.layers * bsh(o) / t + ends);
      EXPECT_EQ(r.sent.tensor - r.sent_forward.tensor,
                (seed ? 12 : 4) * (t - 1) * o.model.layers * bsh(o) / t + 2 * (t - 1) * bsh(o) / t);
    });
  }
}

// The same bytes, plus the gradients of norms, biases and positions, which are partial sums.
TEST(ByteLedger, SequenceParallel) {
  TrainOptions o = ring_layout(1, 4, 1);
  o.sequence_parallel = true;
  const Bytes t = 4, row = bsh(o) / o.model.width, h = o.model.width;
  const Bytes activations = 2 * (t - 1) * (o.model.layers * 4 * bsh(o) + 2 * bsh(o) + 3 * row) / t;
  const Bytes vectors = (o.model.layers * 6 + 2 + o.model.positions) * h * sizeof(float);
  step(o, [&](const auto& r, auto&) {
    EXPECT_EQ(r.sent.tensor, activations + 2 * (t - 1) * vectors / t);
  });
}

// bsh each way per boundary and micro-batch; v times as much with v stages per rank. The tied
// embedding's gradient between first and last stage: 2 (2-1)/2 V h.
TEST(ByteLedger, Pipeline) {
  for (const int chunks : {1, 2}) {
    TrainOptions o = ring_layout(1, 1, 2);
    o.schedule = chunks == 1 ? "1f1b" : "interleaved";
    o.chunks = chunks;
    const Bytes m = 4, v = static_cast<Bytes>(chunks);
    o.batch *= m;
    const Bytes tied = o.model.vocabulary * o.model.width * sizeof(float);
    step(o, [&](const auto& r, Trainer<float>& trainer) {
      const Bytes messages = trainer.mesh().first_stage() ? v + (v - 1) : (v - 1) + v;
      EXPECT_EQ(r.sent.pipeline, m * messages * bsh(o) + tied);
      EXPECT_EQ(r.sent.data + r.sent.tensor + r.sent.other, 0u);
    });
  }
}

// Three hosts of two ranks, two rails: tensor parallelism inside hosts, pipelines along a rail.
// Every peer receives the bytes of its axis, and its share of loss and norm; a peer that differs in
// both coordinates receives only that share.
TEST(ByteLedger, AxesKeepToTheirLinks) {
  TrainOptions o = ring_layout(1, 2, 3);
  set_operator_threads(1);
  const Text text(fmt::format("{:x>500}the quick brown fox", ""), "made up");
  testing::run_ranks(testing::places({2, 2, 2}, 2), {}, [&](World& world) {
    const Coordinates me = coordinates(o.mesh, world.rank());
    const auto sent = [&] {
      std::vector<Bytes> bytes(static_cast<std::size_t>(world.size()));
      for (const auto& t : world.metrics().traffic)
        bytes[static_cast<std::size_t>(t.peer)] += t.bytes_sent;
      return bytes;
    };
    Trainer<float> trainer(world, o, text);
    trainer.step();
    const std::vector<Bytes> before = sent();
    const StepReport step = trainer.step();
    const std::vector<Bytes> after = sent();
    EXPECT_EQ(step.sent.other, 0u);
    // The tied embedding's gradient: 2 (2-1)/2 of this rank's half of the vocabulary.
    const Bytes tied = o.model.vocabulary / 2 * o.model.width * sizeof(float);
    // A loss, a sum of squares and the seconds of six ranks, once to each of two peers; and the
    // times of the pipeline's actions.
    constexpr Bytes kNumbers = 2 * (1 + 1 + 6) * sizeof(double);
    for (Rank r = 0; r < world.size(); ++r) {
      if (r == world.rank()) continue;
      const Coordinates peer = coordinates(o.mesh, r);
      const int apart = std::abs(peer.pipeline - me.pipeline);
      const Bytes want = apart == 0                 ? step.sent.tensor
                         : peer.tensor != me.tensor ? 0
                         : apart == 1               ? bsh(o)
                                                    : tied;
      const Bytes got = after[static_cast<std::size_t>(r)] - before[static_cast<std::size_t>(r)];
      EXPECT_GE(got, want) << world.rank() << " to " << r;
      EXPECT_LE(got, want + kNumbers) << world.rank() << " to " << r;
    }
    for (const auto& t : world.metrics().traffic) {
      const Coordinates peer = coordinates(o.mesh, t.peer);
      if (peer.pipeline == me.pipeline)
        EXPECT_EQ(t.link, "shm");
      else if (peer.tensor == me.tensor)
        EXPECT_EQ(t.link.substr(0, 6), fmt::format("rail {}", me.tensor)) << t.link;
      else  // on either rail; these bytes are counted above
        EXPECT_EQ(t.link.substr(0, 5), "rail ") << t.link;
    }
  });
}

// The size of metrics is O(ranks): a step reads them only if bytes are requested, and a pipeline
// action never does.
TEST(ByteLedger, NobodyCountsUnlessAsked) {
  for (const bool asked : {true, false}) {
    TrainOptions o = ring_layout(1, 1, 2);
    o.count_bytes = asked;
    set_operator_threads(1);
    const Text text(fmt::format("{:x>500}the quick brown fox", ""), "made up");
    testing::run_ranks(testing::places({2}), {}, [&](World& world) {
      Trainer<float> trainer(world, o, text);
      EXPECT_EQ(trainer.pipeline().on_action, nullptr);
      EXPECT_EQ(trainer.step().sent.pipeline > 0, asked);
    });
  }
}

// Per parameter 4 bytes of weights, 4 of gradients and 8 of moments; sharded parts are 1/n.
TEST(MemoryLedger, OfEveryZeroStage) {
  const int n = 4;
  for (int zero = 0; zero <= 3; ++zero) {
    TrainOptions o = ring_layout(n, 1, 1);
    o.zero = zero;
    const std::size_t psi = parameters(o), part = psi / n;
    step(o, [&](const auto&, auto&) {
      const auto& now = MemoryLedger::of_this_rank().now;
      const auto of = [&](Use use) { return now[static_cast<std::size_t>(use)]; };
      EXPECT_EQ(of(Use::kWeights), zero < 3 ? psi : part);
      EXPECT_EQ(of(Use::kGradients), zero < 2 ? psi : 0);
      EXPECT_EQ(of(Use::kRemoteGradients), zero < 2 ? 0 : part);
      EXPECT_EQ(of(Use::kSecondMoment), zero < 1 ? psi : part);
      EXPECT_EQ(of(Use::kFirstMoment), zero < 1 ? psi : part);
      EXPECT_EQ(
          of(Use::kWeightedSums) + of(Use::kActivations) + of(Use::kErrors) + of(Use::kWorkspace),
          0u);
    });
  }
}

// z of a micro-batch: q, k, v and inputs of GELU of each block, and the logits. y: inputs of a
// block, of its two halves and of its four products, a number per row and head of attention, two
// statistics per norm; the head's input and norm. The second micro-batch reuses the memory of the
// first.
TEST(MemoryLedger, WeightedSumsAndActivationsApart) {
  TrainOptions o = ring_layout(1, 1, 1);
  o.batch *= 2;
  const std::size_t bytes = sizeof(float), rows = o.micro_batch * o.model.positions;
  const std::size_t h = o.model.width, layers = o.model.layers;
  step(o, [&](const auto&, auto&) {
    const auto& peak = MemoryLedger::of_this_rank().peak;
    EXPECT_EQ(peak[static_cast<std::size_t>(Use::kWeightedSums)],
              (layers * 7 * rows * h + rows * o.model.vocabulary) * bytes);
    const std::size_t block = 4 * rows * h + 5 * rows * h + rows * o.model.heads + 4 * rows;
    EXPECT_EQ(peak[static_cast<std::size_t>(Use::kActivations)],
              (layers * block + 2 * rows * h + 2 * rows) * bytes);
  });
}

// 16 bits: weights 2, gradients 2, gradient sums 4, master weights 4, moments 8. With ZeRO 2 and 3,
// 16-bit gradients exist only while a unit computes.
template <class E>
void expect_state_bytes(int zero, double whole, double part) {
  set_operator_threads(1);
  TrainOptions o = ring_layout(2, 1, 1);
  o.zero = zero;
  // The size of every parameter is a multiple of 256 bytes, the alignment of parameters.
  o.model = {.vocabulary = 256, .positions = 16, .width = 128, .heads = 8, .layers = 2};
  const Text text(fmt::format("{:x>500}the quick brown fox", ""), "made up");
  testing::run_ranks(testing::places({2}), {}, [&](World& world) {
    Trainer<OnDevice<E>> trainer(world, o, text);
    trainer.step();
    const double n = static_cast<double>(parameter_count(o.model));
    double state = 0;
    for (const Use use : {Use::kWeights, Use::kGradients, Use::kRemoteGradients, Use::kFirstMoment,
                          Use::kSecondMoment, Use::kMasterWeights})
      state += static_cast<double>(MemoryLedger::of_this_rank().now[static_cast<std::size_t>(use)]);
    EXPECT_EQ(state, n * (whole + part / 2)) << "ZeRO " << zero;
  });
}

class MemoryOf16Bits : public ::testing::Test {
 protected:
  void SetUp() override { use_fake_device(); }
};

TEST_F(MemoryOf16Bits, TwentyBytesPerParameter) {
  expect_state_bytes<Bf16>(0, 20, 0);
  expect_state_bytes<Fp16>(1, 8, 12);
  expect_state_bytes<Bf16>(2, 2, 16);
  expect_state_bytes<Bf16>(3, 0, 18);
}

// The sum of the categories equals the allocator's count within 1 %.
TEST(MemoryLedger, IsWhatTheAllocatorSays) {
  TrainOptions o = ring_layout(1, 1, 1);
  o.model.width = 256;
  const auto allocated = [] {
    const auto info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  const Text text(fmt::format("{:x>500}the quick brown fox", ""), "made up");
  testing::run_ranks(testing::places({1}), {}, [&](World& world) {
    const std::size_t before = allocated();
    Trainer<float> trainer(world, o, text);
    trainer.step();
    const auto& ledger = MemoryLedger::of_this_rank();
    std::size_t sum = 0;
    for (const std::size_t bytes : ledger.now) sum += bytes;
    EXPECT_EQ(sum, ledger.total);
    EXPECT_GT(sum, 40u << 20);
    if (allocated() == 0) GTEST_SKIP() << "missing capability: mallinfo2(), without a sanitizer";
    EXPECT_NEAR(static_cast<double>(sum), static_cast<double>(allocated() - before),
                0.01 * static_cast<double>(sum));
  });
}

}  // namespace
}  // namespace weft::train
