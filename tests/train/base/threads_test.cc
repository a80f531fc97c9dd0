// The pipelines of a mesh, and operator threads: every piece runs once, and results have the same
// bits with any number of threads.
#include "train/base/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/process/no_threads.h"
#include "topo/base/status.h"
#include "train/mesh/mesh.h"
#include "train/operators/operators.h"

namespace weft::train {
namespace {

TEST(Mesh, APipelineHasOneRankOfEachStageAndOtherwiseItsOwnPlace) {
  const MeshShape shape{.data = 3, .tensor = 2, .pipeline = 4};
  for (Rank r = 0; r < shape.ranks(); ++r) {
    const Coordinates mine = coordinates(shape, r);
    EXPECT_EQ(mine.tensor + 2 * mine.data + 6 * mine.pipeline, r);
    const std::vector<Rank> pipeline = pipeline_of(shape, r);
    ASSERT_EQ(pipeline.size(), 4u);
    EXPECT_EQ(pipeline[static_cast<std::size_t>(mine.pipeline)], r);
    for (int stage = 0; stage < 4; ++stage) {
      const Coordinates at = coordinates(shape, pipeline[static_cast<std::size_t>(stage)]);
      EXPECT_EQ(at.pipeline, stage);
      EXPECT_EQ(at.data, mine.data);
      EXPECT_EQ(at.tensor, mine.tensor);
    }
  }
}

class Parallel : public ::testing::Test {
 protected:
  ~Parallel() override { set_operator_threads(1); }
};

TEST_F(Parallel, EveryPieceOnce) {
  for (const int threads : {1, 2, 5}) {
    set_operator_threads(threads);
    for (int round = 0; round < 300; ++round) {
      const auto pieces = static_cast<std::size_t>(round % 17);
      std::vector<std::atomic<int>> times(pieces);
      std::atomic<bool> worker_is_one{true};
      in_pieces(pieces, [&](std::size_t i, std::size_t worker) {
        ++times[i];
        if (worker >= static_cast<std::size_t>(threads)) worker_is_one = false;
      });
      for (const auto& t : times) ASSERT_EQ(t, 1);
      ASSERT_TRUE(worker_is_one);
    }
  }
}

// Regression: it terminated the process if some helper threads had already started.
TEST_F(Parallel, WithoutThreadsAnErrorThatNamesTheLimit) {
  set_operator_threads(4);
  const auto piece = [](std::size_t, std::size_t) {};
  {
    const testing::NoThreads none;
    try {
      in_pieces(8, piece);
      FAIL() << "there are no threads";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("pids.max"), std::string::npos) << e.what();
    }
  }
  in_pieces(8, piece);
}

TEST_F(Parallel, PiecesOfAPieceAreALoop) {
  set_operator_threads(3);
  std::atomic<int> sum{0};
  in_pieces(8, [&](std::size_t, std::size_t) {
    const auto me = std::this_thread::get_id();
    in_pieces(5, [&](std::size_t, std::size_t worker) {
      EXPECT_EQ(std::this_thread::get_id(), me);
      EXPECT_EQ(worker, 0u);
      ++sum;
    });
  });
  EXPECT_EQ(sum, 40);
}

TEST_F(Parallel, RanksThatAreThreadsHaveTheirOwnHelpers) {
  set_operator_threads(2);
  std::vector<std::thread> ranks;
  std::atomic<int> sum{0};
  for (int r = 0; r < 4; ++r)
    ranks.emplace_back([&] {
      for (int round = 0; round < 200; ++round)
        in_ranges(100, 10, [&](std::size_t begin, std::size_t end) {
          sum += static_cast<int>(end - begin);
        });
    });
  for (auto& t : ranks) t.join();
  EXPECT_EQ(sum, 4 * 200 * 100);
}

// Called on the registering thread only, not recursively, and not after it was unset.
TEST_F(Parallel, SomethingIsCalledBetweenPieces) {
  const auto work = [] {
    in_pieces(4, [](std::size_t, std::size_t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  };
  const auto me = std::this_thread::get_id();
  for (const int threads : {1, 2}) {
    set_operator_threads(threads);
    int calls = 0;
    set_between_pieces([&] {
      EXPECT_EQ(std::this_thread::get_id(), me);
      ++calls;
      work();
    });
    for (int i = 0; i < 5; ++i) work();
    EXPECT_LE(calls, 20);
    if (threads == 1) {  // with helpers: only after the caller's own pieces
      EXPECT_EQ(calls, 20);
    }
    set_between_pieces(nullptr);
    const int before = calls;
    work();
    EXPECT_EQ(calls, before);
  }
}

std::vector<float> random_floats(std::size_t n, unsigned seed) {
  std::mt19937 dice(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& x : v) x = normal(dice);
  return v;
}

// Runs a layer's operators, forward and backward, at sizes that are split into pieces.
std::vector<float> everything() {
  const Index rows = 192, in = 320, out = 700, heads = 5;
  const auto x = random_floats(rows * in, 1), w = random_floats(out * in, 2),
             b = random_floats(out, 3);
  std::vector<float> y(rows * out), gx(rows * in), gw(out * in), gb(out), gelu_y(rows * out);
  linear(y.data(), x.data(), w.data(), b.data(), rows, in, out);
  gelu(gelu_y.data(), y.data(), y.size());
  gelu_grad(y.data(), gelu_y.data(), y.data(), y.size());
  linear_grad_input(gx.data(), y.data(), w.data(), rows, in, out);
  linear_grad_weight(gw.data(), gb.data(), y.data(), x.data(), rows, in, out);
  std::vector<float> normal(rows * in), mean(rows), rstd(rows), gain(in, 1), zero(in), ggain(in),
      gbias(in);
  layer_norm(normal.data(), mean.data(), rstd.data(), gx.data(), gain.data(), zero.data(), rows,
             in);
  layer_norm_grad(gx.data(), ggain.data(), gbias.data(), normal.data(), x.data(), mean.data(),
                  rstd.data(), gain.data(), rows, in);
  const AttentionShape s{3, rows / 3, heads, in / heads};
  const auto qkv = random_floats(rows * 3 * in, 4);
  std::vector<float> attended(rows * in), log_sum(s.numbers()), gqkv(qkv.size());
  attention(attended.data(), log_sum.data(), qkv.data(), s);
  attention_grad(gqkv.data(), attended.data(), attended.data(), log_sum.data(), qkv.data(), s);
  std::vector<float> m(gw.size()), v(gw.size()), weights = w;
  update_weights(weights.data(), m.data(), v.data(), gw.data(), gw.size(), {.how = {.rate = 1e-3}});
  double squares = 0;
  add_squares(&squares, gw.data(), gw.size());
  std::vector<float> all{static_cast<float>(squares)};
  for (const auto* part : {&y, &gx, &gw, &gb, &ggain, &gbias, &attended, &gqkv, &weights})
    all.insert(all.end(), part->begin(), part->end());
  return all;
}

TEST_F(Parallel, OperatorsHaveTheSameBitsWithAnyNumberOfThreads) {
  const auto one = everything();
  for (const int threads : {2, 3, 8}) {
    set_operator_threads(threads);
    for (int k = 0; k < 3; ++k) EXPECT_EQ(everything(), one) << threads;
  }
}

}  // namespace
}  // namespace weft::train
