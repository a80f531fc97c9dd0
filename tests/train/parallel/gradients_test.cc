// Gradients themselves: those of many ranks equal those of one process; and the cost of the sum
// over replicas.
// labels: sim
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>

#include "support/train/train_runs.h"
#include "support/train/train_traffic.h"

namespace weft::train {
namespace {

// One SGD step at rate 1, by default without clipping, subtracts the gradient from the weights, so
// that the whole gradient can be read from them, whichever rank has it.
NamedValues gradients(TrainOptions o, double clip = 0) {
  o.optimizer = {.adam = false, .decay = 0, .momentum = 0};
  o.rate = {.peak = 1, .warm_up = 0};
  o.clip = clip;
  NamedValues difference = train<double>(o, 0).weights;
  const NamedValues after = train<double>(o, 1).weights;
  for (auto& [name, values] : difference)
    for (std::size_t i = 0; i < values.size(); ++i) values[i] -= after.at(name)[i];
  return difference;
}

std::string sizes_of(const TrainOptions& o) {
  return fmt::format("dp {} tp {} pp {} zero {} {}", o.mesh.data, o.mesh.tensor, o.mesh.pipeline,
                     o.zero, o.schedule);
}

void expect_gradients(const NamedValues& want, const TrainOptions& o) {
  const double d = distance(want, gradients(o));
  fmt::print("{}: {:.2g}\n", sizes_of(o), d);
  EXPECT_LE(d, 1e-10) << sizes_of(o);
}

TEST(Gradients, OfEveryLayoutAreThoseOfOneProcess) {
  const NamedValues want = gradients(narrow({1, 1, 1}, 8));
  for (const int n : {8, 6})
    for (const auto& sizes : factorisations(n)) expect_gradients(want, narrow(sizes, 8));
  for (int zero = 1; zero <= 3; ++zero) {
    TrainOptions o = narrow({2, 2, 2}, 8);
    o.zero = zero;
    expect_gradients(want, o);
  }
  for (const std::string& schedule : pipeline_schedule_names()) {
    TrainOptions o = narrow({2, 1, 2}, 8);
    o.schedule = schedule;
    o.chunks = schedule == "interleaved" ? 2 : 1;
    expect_gradients(want, o);
  }
}

TEST(Gradients, AreClippedToTheirNorm) {
  for (const auto& sizes : {std::array{1, 1, 1}, {2, 1, 2}}) {
    const TrainOptions o = narrow({sizes[0], sizes[1], sizes[2]}, 8);
    const auto norm_of = [](const NamedValues& gradients) {
      double squares = 0;
      for (const auto& [name, values] : gradients)
        for (const double v : values) squares += v * v;
      return std::sqrt(squares);
    };
    const double whole = norm_of(gradients(o));
    EXPECT_NEAR(norm_of(gradients(o, whole / 10)), whole / 10, whole * 1e-5);
    EXPECT_NEAR(norm_of(gradients(o, whole * 10)), whole, whole * 1e-9);
  }
}

// As in the source documents: eight micro-batches on one rank, and four on each of two. Each of the
// two sends 2 (n-1)/n of the gradients' bytes: their size once.
TEST(Gradients, OfEightMicroBatchesOnTwoRanksOfFour) {
  TrainOptions one = small(), two = layout(2, 1, 1);
  one.batch = two.batch = 8;
  two.mesh.algorithm = "ring";
  const NamedValues want = gradients(one);
  std::size_t elements = 0;
  for (const auto& [name, values] : want) elements += values.size();
  expect_gradients(want, two);
  for (const auto& o : {one, two}) {
    const Text data = text();
    testing::run_ranks(testing::places({o.mesh.data}), {}, [&](World& world) {
      Trainer<double> trainer(world, o, data);
      EXPECT_EQ(trainer.micro_batches(), 8 / o.mesh.data);
      const testing::StepTraffic r = testing::step_with_traffic(world, trainer);
      EXPECT_EQ(r.sent.data, o.mesh.data == 1 ? 0 : elements * sizeof(double));
      EXPECT_EQ(r.sent_forward.data, 0u);
    });
  }
}

}  // namespace
}  // namespace weft::train
