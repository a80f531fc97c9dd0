// 8-bit gradients: after 300 steps the loss is within 1 % of fp32's, and --compress is rejected in
// unsupported combinations.
// labels: sim
// sanitize: long
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "support/train/train_runs.h"
#include "transport/launch/failures.h"

namespace weft::train {
namespace {

TrainOptions with(const std::string& compress) {
  TrainOptions o = narrow({4, 1, 1}, 1);
  o.rate.peak = 1e-3;
  o.compress = compress;
  return o;
}

// Mean of the last ten steps, because each step has different samples.
double last_loss(const TrainOptions& o) {
  const auto losses = train<float>(o, 300).losses;
  EXPECT_LT(losses.back(), 0.8 * losses.front());
  return std::accumulate(losses.end() - 10, losses.end(), 0.0) / 10;
}

TEST(CompressedGradients, LossAfter300StepsIsThatOfFp32Within1Percent) {
  const double want = last_loss(with("none"));
  for (const char* codec : {"int8", "fp8"}) {
    const double got = last_loss(with(codec));
    fmt::print("{}: {:.5f}, fp32: {:.5f}\n", codec, got, want);
    EXPECT_NE(got, want) << codec << " was not used";
    EXPECT_NEAR(got, want, 0.01 * want) << codec;
  }
}

TEST(CompressedGradients, RefusedWhereGradientsAreNotAllReduced) {
  const auto refused = [](const TrainOptions& o) { EXPECT_THROW(check(o), UsageError); };
  check(with("int8"));
  TrainOptions o = with("int8");
  o.zero = 1;
  refused(o);
  o = with("fp8");
  o.deterministic = true;
  refused(o);
  o = with("int8");
  o.parameter_server = true;
  refused(o);
}

}  // namespace
}  // namespace weft::train
