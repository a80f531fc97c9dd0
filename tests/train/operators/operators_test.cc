// Every operator against finite differences in fp64, and fp32 against fp64.
#include "train/operators/operators.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "support/train/train_device_cases.h"
#include "topo/base/status.h"

namespace weft::train {
namespace {

using Vector = std::vector<double>;

Vector random(std::size_t n, unsigned seed) {
  std::mt19937 dice(seed);
  std::normal_distribution<double> normal;
  Vector v(n);
  for (double& x : v) x = normal(dice);
  return v;
}
double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// d <out(x), g> / dx is `gradient`, for every element of x.
void expect_gradient(Vector& x, const Vector& gradient, const std::function<double()>& value) {
  ASSERT_EQ(x.size(), gradient.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double h = 1e-6, before = x[i];
    x[i] = before + h;
    const double up = value();
    x[i] = before - h;
    const double down = value();
    x[i] = before;
    EXPECT_NEAR(gradient[i], (up - down) / (2 * h), 1e-7 * (1 + std::abs(gradient[i])))
        << "element " << i;
  }
}

TEST(Operators, Linear) {
  const Index rows = 3, in = 4, out = 5;
  Vector x = random(rows * in, 1), w = random(out * in, 2), b = random(out, 3);
  const Vector g = random(rows * out, 4);
  const auto value = [&] {
    Vector y(rows * out);
    linear(y.data(), x.data(), w.data(), b.data(), rows, in, out);
    return dot(y, g);
  };
  Vector gx(rows * in), gw(out * in), gb(out);
  linear_grad_input(gx.data(), g.data(), w.data(), rows, in, out);
  linear_grad_weight(gw.data(), gb.data(), g.data(), x.data(), rows, in, out);
  expect_gradient(x, gx, value);
  expect_gradient(w, gw, value);
  expect_gradient(b, gb, value);
  const Vector once = gw;
  linear_grad_weight(gw.data(), gb.data(), g.data(), x.data(), rows, in, out);
  for (std::size_t i = 0; i < gw.size(); ++i) EXPECT_NEAR(gw[i], 2 * once[i], 1e-12);
}

// A single row (inference) equals the same row among others, for any number of threads.
TEST(Operators, LinearOfOneRow) {
  const std::pair<Index, Index> shapes[] = {{1, 1}, {7, 300}, {768, 517}, {300, 1000}};
  for (const auto& [in, out] : shapes) {
    const Vector x = random(2 * in, 1), w = random(out * in, 2), b = random(out, 3);
    Vector two(2 * out), one(out), again(out);
    linear(two.data(), x.data(), w.data(), b.data(), 2, in, out);
    linear(one.data(), x.data() + in, w.data(), b.data(), 1, in, out);
    set_operator_threads(3);
    linear(again.data(), x.data() + in, w.data(), b.data(), 1, in, out);
    set_operator_threads(1);
    EXPECT_EQ(one, again) << in << " x " << out;
    for (Index o = 0; o < out; ++o) EXPECT_NEAR(one[o], two[out + o], 1e-12 * in) << o;
    linear(one.data(), x.data() + in, w.data(), static_cast<const double*>(nullptr), 1, in, out);
    for (Index o = 0; o < out; ++o) EXPECT_NEAR(one[o] + b[o], two[out + o], 1e-12 * in) << o;
  }
}

TEST(Operators, LayerNorm) {
  const Index rows = 3, width = 5;
  Vector x = random(rows * width, 1), gain = random(width, 2), bias = random(width, 3);
  const Vector g = random(rows * width, 4);
  Vector mean(rows), rstd(rows);
  const auto value = [&] {
    Vector y(rows * width);
    layer_norm(y.data(), mean.data(), rstd.data(), x.data(), gain.data(), bias.data(), rows, width);
    return dot(y, g);
  };
  value();
  Vector gx(rows * width), gg(width), gb(width);
  layer_norm_grad(gx.data(), gg.data(), gb.data(), g.data(), x.data(), mean.data(), rstd.data(),
                  gain.data(), rows, width);
  expect_gradient(x, gx, value);
  expect_gradient(gain, gg, value);
  expect_gradient(bias, gb, value);
}

TEST(Operators, CausalAttention) {
  const AttentionShape s{2, 4, 2, 3};
  Vector qkv = random(s.rows() * 3 * s.width(), 1);
  const Vector g = random(s.rows() * s.width(), 2);
  Vector log_sum(s.numbers()), out(s.rows() * s.width());
  const auto value = [&] {
    attention(out.data(), log_sum.data(), qkv.data(), s);
    return dot(out, g);
  };
  value();
  Vector grad(qkv.size());
  attention_grad(grad.data(), g.data(), out.data(), log_sum.data(), qkv.data(), s);
  expect_gradient(qkv, grad, value);
  // No later position influences an earlier one.
  value();
  const double first = out[0];
  for (Index i = 3 * s.width(); i < 4 * 3 * s.width(); ++i) qkv[i] += 1;
  value();
  EXPECT_EQ(out[0], first);
}

// More positions than one block of rows.
TEST(Operators, AttentionInBlocksIsThatOfTheFormulas) {
  testing::expect_attention<double>(
      1e-12, [](double x) { return x; }, 128);
  testing::expect_attention<float>(
      2e-5, [](double x) { return static_cast<double>(static_cast<float>(x)); }, 128);
}

TEST(Operators, Gelu) {
  Vector x = random(40, 1);
  const Vector g = random(40, 2);
  const auto value = [&] {
    Vector y(x.size());
    gelu(y.data(), x.data(), x.size());
    return dot(y, g);
  };
  Vector grad(x.size());
  gelu_grad(grad.data(), g.data(), x.data(), x.size());
  expect_gradient(x, grad, value);
}

TEST(Operators, EmbeddingInShards) {
  const Index rows = 5, width = 3, vocabulary = 6;
  const std::vector<Token> tokens{0, 5, 2, 2, 3};
  Vector table = random(vocabulary * width, 1);
  const Vector g = random(rows * width, 2);
  const auto value = [&] {  // two shards, summed like in an all-reduce
    Vector y(rows * width), part(rows * width);
    embed(y.data(), table.data(), tokens.data(), 0, 3, rows, width);
    embed(part.data(), table.data() + 3 * width, tokens.data(), 3, 3, rows, width);
    add(y.data(), part.data(), y.size());
    return dot(y, g);
  };
  Vector grad(table.size());
  embed_grad(grad.data(), g.data(), tokens.data(), 0, 3, rows, width);
  embed_grad(grad.data() + 3 * width, g.data(), tokens.data(), 3, 3, rows, width);
  expect_gradient(table, grad, value);
}

TEST(Operators, CrossEntropyInShards) {
  const Index rows = 3, n = 4;  // two shards of 2
  const std::vector<Token> targets{3, 0, 2};
  Vector logits = random(rows * n, 1);
  std::vector<Vector> shard(2);
  Vector sums(rows);
  const auto value = [&] {
    Vector maximum(rows, -1e300), target(rows), m(rows), s(rows), t(rows);
    sums.assign(rows, 0);
    for (Index k = 0; k < 2; ++k) {
      shard[k].clear();
      for (Index r = 0; r < rows; ++r)
        for (Index i = 0; i < 2; ++i) shard[k].push_back(logits[r * n + 2 * k + i]);
      row_maximum(m.data(), shard[k].data(), rows, Index{2});
      for (Index r = 0; r < rows; ++r) maximum[r] = std::max(maximum[r], m[r]);
    }
    for (Index k = 0; k < 2; ++k) {
      row_exp(shard[k].data(), s.data(), t.data(), maximum.data(), targets.data(), 2 * k, 2, rows);
      add(sums.data(), s.data(), rows);
      add(target.data(), t.data(), rows);
    }
    double loss = 0;
    for (Index r = 0; r < rows; ++r) loss += std::log(sums[r]) - target[r];
    return loss * 0.25;
  };
  value();
  Vector grad(rows * n);
  for (Index k = 0; k < 2; ++k) {
    cross_entropy_grad<double>(shard[k].data(), nullptr, sums.data(), targets.data(), 2 * k, 2,
                               rows, 0.25);
    for (Index r = 0; r < rows; ++r)
      for (Index i = 0; i < 2; ++i) grad[r * n + 2 * k + i] = shard[k][r * 2 + i];
  }
  expect_gradient(logits, grad, value);
}

// The formulas of the papers, for one element.
TEST(Operators, Optimizers) {
  double w = 2, m = 0, v = 0;
  const double g = 0.5;
  AdamW how{.rate = 0.1, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8, .decay = 0.01, .step = 1};
  // The scaled gradient is 1.
  update_weights(&w, &m, &v, &g, 1, {.how = how, .gradient_scale = 2.0});
  EXPECT_NEAR(m, 0.1, 1e-15);
  EXPECT_NEAR(v, 0.01, 1e-15);
  EXPECT_NEAR(w, 2 * (1 - 0.001) - 0.1 * 1 / (1 + 1e-8), 1e-12);
  double x = 1, moment = 0.2;
  update_weights(&x, &moment, nullptr, &g, 1,
                 {.adam = false, .how = {.rate = 0.1, .decay = 0.0}, .momentum = 0.5});
  EXPECT_NEAR(moment, 0.6, 1e-15);
  EXPECT_NEAR(x, 0.94, 1e-15);
}

// fp32 uses our own exp and tanh.
TEST(Operators, Fp32AgreesWithFp64) {
  const Index rows = 64, n = 100;
  Vector logits = random(rows * n, 1);
  for (double& x : logits) x *= 8;
  logits[5] = 60;
  std::vector<float> single(logits.begin(), logits.end());
  const std::vector<Token> targets(rows, 7);
  Vector maximum(rows), sum(rows), target(rows), y(rows * n);
  std::vector<float> fmaximum(rows), fsum(rows), ftarget(rows), fy(rows * n);
  gelu(y.data(), logits.data(), y.size());
  gelu(fy.data(), single.data(), fy.size());
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(fy[i], y[i], 1e-6 * (1 + std::abs(y[i])));
  row_maximum(maximum.data(), logits.data(), rows, n);
  row_maximum(fmaximum.data(), single.data(), rows, n);
  row_exp(logits.data(), sum.data(), target.data(), maximum.data(), targets.data(), 0, n, rows);
  row_exp(single.data(), fsum.data(), ftarget.data(), fmaximum.data(), targets.data(), 0, n, rows);
  for (Index r = 0; r < rows; ++r) EXPECT_NEAR(fsum[r] / sum[r], 1, 1e-5);
}

// More memory than any machine has: the error has the size, and how to reduce it.
TEST(Tensor, OutOfMemorySaysHowMuch) {
  try {
    Tensor<double> t(std::size_t{1} << 61, Use::kActivations);
    ADD_FAILURE() << "there is memory";
  } catch (const Error& e) {
    EXPECT_EQ(std::string(e.what()).find(
                  "out of memory: a tensor of 2305843009213693952 numbers needs 18446744073.7 GB"),
              0u)
        << e.what();
  }
}

}  // namespace
}  // namespace weft::train
