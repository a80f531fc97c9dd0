// Checks every operator of a device backend: against the CPU's in fp64 on the same input, and by
// finite differences in fp64.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "support/train/naive_attention.h"
#include "train/device/kernels_attention.h"
#include "train/operators/operators.h"

namespace weft::testing {

using train::Index;
using train::Token;
using train::Use;
using train::Wide;
using Numbers = std::vector<double>;

inline Numbers random_numbers(std::size_t n, unsigned seed) {
  std::mt19937 dice(seed);
  std::normal_distribution<double> normal;
  Numbers v(n);
  for (double& x : v) x = normal(dice);
  return v;
}

// Values in memory that operators on T can access.
template <class T>
struct Placed {
  train::Tensor<T> tensor;
  explicit Placed(const Numbers& from) : tensor(from.size(), Use::kWorkspace) { set(from); }
  explicit Placed(std::size_t n) : Placed(Numbers(n)) {}
  void set(const Numbers& from) {
    const std::vector<train::HostOf<T>> host(from.begin(), from.end());
    train::from_host(tensor.data(), host.data(), host.size());
  }
  Numbers get() const {
    std::vector<train::HostOf<T>> host(tensor.count());
    train::to_host(host.data(), tensor.data(), host.size());
    return Numbers(host.begin(), host.end());
  }
  T* data() { return tensor.data(); }
};

// The concatenated outputs of an operator.
struct Results {
  std::vector<std::pair<std::string, Numbers>> all;
  void add(std::string name, const Numbers& numbers) { all.push_back({std::move(name), numbers}); }
};

// Runs every operator once on T; `round` makes values that all types represent.
template <class T>
Results run_operators(Index rows, Index width, const std::function<double(double)>& round) {
  using P = Placed<T>;
  using W = Placed<Wide<T>>;
  using namespace train;
  Results r;
  unsigned seed = 1;
  const auto given = [&](Index n) {
    Numbers v = random_numbers(n, seed++);
    for (double& x : v) x = round(x);
    return v;
  };
  {
    const Index out = width + 3;
    P x(given(rows * width)), w(given(out * width)), b(given(out)), y(rows * out);
    linear(y.data(), x.data(), w.data(), b.data(), rows, width, out);
    r.add("linear", y.get());
    linear<T>(y.data(), x.data(), w.data(), nullptr, rows, width, out);
    r.add("linear without bias", y.get());
    P g(given(rows * out)), gx(rows * width), gw(given(out * width)), gb(given(out));
    linear_grad_input(gx.data(), g.data(), w.data(), rows, width, out);
    linear_grad_weight(gw.data(), gb.data(), g.data(), x.data(), rows, width, out);
    r.add("linear_grad_input", gx.get());
    r.add("linear_grad_weight", gw.get());
    r.add("linear_grad_weight bias", gb.get());
  }
  {
    P x(given(rows * width)), gain(given(width)), bias(given(width)), y(rows * width);
    W mean(rows), rstd(rows);
    layer_norm(y.data(), mean.data(), rstd.data(), x.data(), gain.data(), bias.data(), rows, width);
    r.add("layer_norm", y.get());
    r.add("mean", mean.get());
    r.add("rstd", rstd.get());
    P g(given(rows * width)), gx(given(rows * width)), gg(given(width)), gb(given(width));
    layer_norm_grad(gx.data(), gg.data(), gb.data(), g.data(), x.data(), mean.data(), rstd.data(),
                    gain.data(), rows, width);
    r.add("layer_norm_grad", gx.get());
    r.add("layer_norm_grad gain", gg.get());
    r.add("layer_norm_grad bias", gb.get());
  }
  {
    const AttentionShape s{2, rows, 3, 8};
    P qkv(given(s.rows() * 3 * s.width())), out(s.rows() * s.width());
    W kept(s.numbers());
    attention(out.data(), kept.data(), qkv.data(), s);
    r.add("attention", out.get());
    r.add("attention log_sum", kept.get());
    P g(given(s.rows() * s.width())), grad(s.rows() * 3 * s.width());
    attention_grad(grad.data(), g.data(), out.data(), kept.data(), qkv.data(), s);
    r.add("attention_grad", grad.get());
  }
  {
    const Index n = rows * width + 1;
    P x(given(n)), y(n), g(given(n)), gx(n);
    gelu(y.data(), x.data(), n);
    gelu_grad(gx.data(), g.data(), x.data(), n);
    r.add("gelu", y.get());
    r.add("gelu_grad", gx.get());
    add(y.data(), g.data(), n);
    r.add("add", y.get());
    scale(g.data(), 0.5, n);
    r.add("scale", g.get());
  }
  {
    const Index vocabulary = 11, many = rows * 40;  // some tokens in more than one segment
    std::vector<Token> tokens(many);
    for (Index i = 0; i < many; ++i) tokens[i] = static_cast<Token>(i * i % 13 % vocabulary);
    P table(given(5 * width)), out(many * width), g(given(many * width)), gt(given(5 * width));
    embed(out.data(), table.data(), tokens.data(), Index{3}, Index{5}, many, width);
    embed_grad(gt.data(), g.data(), tokens.data(), Index{3}, Index{5}, many, width);
    r.add("embed", out.get());
    r.add("embed_grad", gt.get());
    P positions(given(7 * width)), gp(given(7 * width)), few(given(4 * width));
    add_positions(out.data(), positions.data(), Index{2}, Index{7}, many, width);
    add_positions_grad(gp.data(), g.data(), Index{2}, Index{7}, many, width);
    r.add("add_positions", out.get());
    r.add("add_positions_grad", gp.get());
    add_positions_grad(gp.data(), few.data(), Index{6}, Index{7}, Index{4}, width);
    r.add("add_positions_grad of few", gp.get());
  }
  {
    P x(given(rows * width)), y(given(rows * width)), b(given(width)), out(rows * width);
    add_residual(out.data(), x.data(), y.data(), b.data(), rows, width);
    add_columns(b.data(), y.data(), rows, width);
    r.add("add_residual", out.get());
    r.add("add_columns", b.get());
  }
  {
    P x(given(rows * width)), out(given(rows * (width + 3)));
    copy_columns(out.data() + 2, width + 3, x.data() + 1, width, rows, width - 1);
    r.add("copy_columns", out.get());
  }
  for (const bool whole : {true, false}) {
    std::vector<Token> targets(rows);
    for (Index i = 0; i < rows; ++i) targets[i] = static_cast<Token>(i * 7 % width);
    P logits(given(rows * width));
    // With one rank, the reduction is the identity.
    Tensor<LossSum<T>> loss(1, Use::kWorkspace);
    cross_entropy(logits.data(), targets.data(), 0, width, rows, whole, 0.25, loss.data(),
                  [](auto*, Index, RedOp) {});
    double sum = 0;
    to_host(&sum, loss.data(), 1);
    r.add(whole ? "cross_entropy" : "cross_entropy in steps", {sum});
    r.add("cross_entropy gradient", logits.get());
  }
  {
    const Index n = rows * width + 5;
    P x(given(n)), y(given(3));
    SquareSum<T> sum;
    sum.add(x.data(), n);
    sum.add(y.data(), 3);
    r.add("sum of squares", {sum.value()});
    ExactSquares<T> exact;
    exact.see(x.data(), n);
    exact.see(y.data(), 3);
    const double largest = exact.largest();
    const int shift = ExactSum::shift(largest);
    exact.add(x.data(), n, shift);
    exact.add(y.data(), 3, shift);
    r.add("largest", {largest});
    r.add("exact sum of squares", {exact.sum().value(shift)});
  }
  for (const bool adam : {true, false}) {
    const Index n = rows * width + 3;
    const Numbers start = given(n), slope = given(n);
    P w(start), g(slope);
    W master(start), sums(slope), m(given(n)), v(n);  // master and sums: for 16 bits
    Update u{adam, {.rate = 0.01, .beta2 = 0.99, .decay = 0.1, .step = 3}, 0.9, 0.5};
    for (int step = 0; step < 2; ++step)
      if constexpr (kHasMaster<T>) {
        using Sum = std::conditional_t<kOnDevice<T>, OnDevice<Fp32>, float>;
        update_weights(reinterpret_cast<Sum*>(master.data()), m.data(), v.data(),
                       reinterpret_cast<Sum*>(sums.data()), n, u);
        narrow(w.data(), master.data(), n);
      } else {
        update_weights(w.data(), m.data(), v.data(), g.data(), n, u);
      }
    r.add(adam ? "adamw" : "sgd", kHasMaster<T> ? master.get() : w.get());
    r.add("weights", w.get());
    r.add("moments", m.get());
  }
  return r;
}

// The norm's partial sums equal the CPU's bit for bit; one NaN makes the norm infinite.
template <class E>
void expect_exact_squares() {
  using T = train::OnDevice<E>;
  using V = typename E::Value;
  const Index n = 40000;  // more than the lanes of all teams take at once
  Numbers numbers = random_numbers(n, 7);
  for (Index i = 0; i < n; i += 3) numbers[i] *= 1e-3;
  Placed<T> x(numbers);
  const Numbers stored = x.get();
  const std::vector<V> here(stored.begin(), stored.end());
  train::ExactSquares<T> got;
  got.see(x.data(), n);
  const double largest = train::largest_of(here.data(), n);
  EXPECT_EQ(got.largest(), largest);
  const int shift = train::ExactSum::shift(largest);
  train::ExactSum want;
  want.add_squares(here.data(), n, shift);
  got.add(x.data(), 12345, shift);  // split at an arbitrary position
  got.add(x.data() + 12345, n - 12345, shift);
  EXPECT_EQ(got.sum().high, want.high);
  EXPECT_EQ(got.sum().low, want.low);
  for (const double none : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
    numbers[n - 2] = none;
    x.set(numbers);
    train::ExactSquares<T> broken;
    broken.see(x.data(), n);
    EXPECT_EQ(broken.largest(), HUGE_VAL);
  }
}

// Largest difference from the CPU's fp64, relative to the largest element of each result.
template <class E>
void expect_as_on_the_processor(double tolerance) {
  using Codec = train::kernels::Codec<E>;
  const auto round = [](double x) {
    return static_cast<double>(Codec::widen(Codec::narrow(static_cast<typename E::Value>(x))));
  };
  // Widths that are and are not multiples of 16 bytes; more rows than a slab and than a warp.
  for (const auto& [rows, width] : {std::pair<Index, Index>{3, 5}, {40, 64}, {7, 300}}) {
    const Results want = run_operators<double>(rows, width, round);
    const Results got = run_operators<train::OnDevice<E>>(rows, width, round);
    ASSERT_EQ(want.all.size(), got.all.size());
    for (std::size_t i = 0; i < want.all.size(); ++i) {
      const auto& [name, numbers] = want.all[i];
      EXPECT_LE(apart(numbers, got.all[i].second), tolerance)
          << name << " of " << rows << " x " << width;
    }
  }
}

// Attention of T against the formulas, for positions around tile edges and head sizes up to
// `widest`, odd ones too; nothing is written past the ends of the results.
template <class T>
void expect_attention(double tolerance, const std::function<double(double)>& round, Index widest) {
  using namespace train;
  unsigned seed = 1;
  for (const Index positions : {1, 7, 64, 65, 129, 300})
    for (const Index width : {8, 15, 33, 64, 80, 128}) {
      if (width > widest || (positions == 300 && width != 15)) continue;
      const AttentionShape s{2, positions, positions > 65 ? Index{1} : Index{3}, width};
      Numbers from = random_numbers(s.rows() * 3 * s.width(), seed++),
              grad = random_numbers(s.rows() * s.width(), seed++);
      for (Numbers* each : {&from, &grad})
        for (double& x : *each) x = round(x);
      const auto want = naive_attention(from, grad, s);
      Numbers guard(from.size() + 16, 7.0);
      Placed<T> qkv(from), g(grad), out(Numbers(grad.size() + 16, 7.0)), grad_qkv(guard);
      Placed<Wide<T>> log_sum(Numbers(s.numbers() + 16, 7.0));
      attention(out.data(), log_sum.data(), qkv.data(), s);
      attention_grad(grad_qkv.data(), g.data(), out.data(), log_sum.data(), qkv.data(), s);
      const auto expect = [&](const char* what, const Numbers& wanted, const Numbers& got) {
        EXPECT_LE(apart(wanted, got), tolerance) << what << ", " << positions << " x " << width;
        for (std::size_t i = wanted.size(); i < got.size(); ++i) EXPECT_EQ(got[i], 7.0) << what;
      };
      expect("out", want.out, out.get());
      expect("log_sum", want.log_sum, log_sum.get());
      expect("gradient", want.grad_qkv, grad_qkv.get());
    }
}
template <class E>
void expect_attention_on_device(double tolerance) {
  using Codec = train::kernels::Codec<E>;
  const auto round = [](double x) {
    return static_cast<double>(Codec::widen(Codec::narrow(static_cast<typename E::Value>(x))));
  };
  expect_attention<train::OnDevice<E>>(tolerance, round, train::kernels::kWidestHead);
}

// ---- finite differences -----------------------------------------------------------------------

using Fp = train::OnDevice<train::Fp64>;

inline double dot(const Numbers& a, const Numbers& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Checks that d value() / dx is `gradient` for every element of x.
inline void expect_gradient(const char* what, Placed<Fp>& x, const Numbers& gradient,
                            const std::function<double()>& value) {
  Numbers at = x.get();
  ASSERT_EQ(at.size(), gradient.size());
  for (std::size_t i = 0; i < at.size(); ++i) {
    const double h = 1e-6, before = at[i];
    at[i] = before + h;
    x.set(at);
    const double up = value();
    at[i] = before - h;
    x.set(at);
    const double down = value();
    at[i] = before;
    EXPECT_NEAR(gradient[i], (up - down) / (2 * h), 1e-7 * (1 + std::abs(gradient[i])))
        << what << ", element " << i;
  }
  x.set(at);
}

inline void expect_finite_differences() {
  using namespace train;
  using P = Placed<Fp>;
  using W = Placed<Wide<Fp>>;
  const Index rows = 3, width = 5;
  {
    const Index out = 4;
    P x(random_numbers(rows * width, 1)), w(random_numbers(out * width, 2)),
        b(random_numbers(out, 3)), y(rows * out);
    const Numbers g = random_numbers(rows * out, 4);
    P grad(g), gx(rows * width), gw(out * width), gb(out);
    const auto value = [&] {
      linear(y.data(), x.data(), w.data(), b.data(), rows, width, out);
      return dot(y.get(), g);
    };
    linear_grad_input(gx.data(), grad.data(), w.data(), rows, width, out);
    linear_grad_weight(gw.data(), gb.data(), grad.data(), x.data(), rows, width, out);
    expect_gradient("linear, x", x, gx.get(), value);
    expect_gradient("linear, w", w, gw.get(), value);
    expect_gradient("linear, bias", b, gb.get(), value);
  }
  {
    P x(random_numbers(rows * width, 1)), gain(random_numbers(width, 2)),
        bias(random_numbers(width, 3)), y(rows * width);
    const Numbers g = random_numbers(rows * width, 4);
    P grad(g), gx(rows * width), gg(width), gb(width);
    W mean(rows), rstd(rows);
    const auto value = [&] {
      layer_norm(y.data(), mean.data(), rstd.data(), x.data(), gain.data(), bias.data(), rows,
                 width);
      return dot(y.get(), g);
    };
    value();
    layer_norm_grad(gx.data(), gg.data(), gb.data(), grad.data(), x.data(), mean.data(),
                    rstd.data(), gain.data(), rows, width);
    expect_gradient("layer_norm, x", x, gx.get(), value);
    expect_gradient("layer_norm, gain", gain, gg.get(), value);
    expect_gradient("layer_norm, bias", bias, gb.get(), value);
  }
  {
    const AttentionShape s{2, 4, 2, 3};
    P qkv(random_numbers(s.rows() * 3 * s.width(), 1)), out(s.rows() * s.width());
    W kept(s.numbers());
    const Numbers g = random_numbers(s.rows() * s.width(), 2);
    P grad(g), gqkv(s.rows() * 3 * s.width());
    const auto value = [&] {
      attention(out.data(), kept.data(), qkv.data(), s);
      return dot(out.get(), g);
    };
    value();
    attention_grad(gqkv.data(), grad.data(), out.data(), kept.data(), qkv.data(), s);
    expect_gradient("attention", qkv, gqkv.get(), value);
  }
  {
    P x(random_numbers(20, 1)), y(20), gx(20);
    const Numbers g = random_numbers(20, 2);
    P grad(g);
    gelu_grad(gx.data(), grad.data(), x.data(), 20);
    expect_gradient("gelu", x, gx.get(), [&] {
      gelu(y.data(), x.data(), 20);
      return dot(y.get(), g);
    });
  }
  {
    const std::vector<Token> tokens{0, 5, 2, 2, 3};
    P table(random_numbers(6 * width, 1)), positions(random_numbers(2 * width, 2)), y(5 * width),
        gt(6 * width), gp(2 * width);
    const Numbers g = random_numbers(5 * width, 3);
    P grad(g);
    const auto value = [&] {
      embed(y.data(), table.data(), tokens.data(), Index{0}, Index{6}, Index{5}, width);
      add_positions(y.data(), positions.data(), Index{1}, Index{2}, Index{5}, width);
      return dot(y.get(), g);
    };
    embed_grad(gt.data(), grad.data(), tokens.data(), Index{0}, Index{6}, Index{5}, width);
    add_positions_grad(gp.data(), grad.data(), Index{1}, Index{2}, Index{5}, width);
    expect_gradient("embed", table, gt.get(), value);
    expect_gradient("add_positions", positions, gp.get(), value);
  }
  for (const bool whole : {true, false}) {
    const std::vector<Token> targets{3, 0, 2};
    const Numbers start = random_numbers(rows * 4, 1);
    P logits(start), work(start);
    const auto run = [&] {
      work.set(logits.get());
      Tensor<LossSum<Fp>> loss(1, Use::kWorkspace);
      cross_entropy(work.data(), targets.data(), 0, 4, rows, whole, 1.0, loss.data(),
                    [](auto*, Index, RedOp) {});
      double sum = 0;
      to_host(&sum, loss.data(), 1);
      return sum;
    };
    run();
    expect_gradient(whole ? "cross_entropy" : "cross_entropy in steps", logits, work.get(), run);
  }
}

}  // namespace weft::testing
