#include "train/cli/train_resume.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace weft::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Checkpoint saved_by(const TrainOptions& options, const Text& text,
                    const LossScaler& scaler = LossScaler()) {
  return {.step = 3,
          .extra = describe_run(options, text, scaler, "float"),
          .path = "save/step-00000003"};
}

TEST(TrainResume, TheLossScaleGoesOn) {
  LossScaler scaler(2048, 3);
  scaler.step(std::numeric_limits<double>::infinity());
  scaler.step(1);
  scaler.step(1);
  TrainOptions o;
  o.loss_scale = 4096;
  const Checkpoint c = saved_by(o, Text("abc", "text"), scaler);
  LossScaler next(4096, 3);
  restore(c, next);
  EXPECT_EQ(next.scale(), 1024);
  EXPECT_EQ(next.skipped(), 1);
  EXPECT_TRUE(next.step(1));
  EXPECT_EQ(next.scale(), 2048);  // the third good step
}

// A run without loss scaling in between keeps the scale, and saves its own skipped steps.
TEST(TrainResume, SkippedStepsCountOnWhereNothingIsScaled) {
  const TrainOptions o;
  const Text text("abc", "text");
  LossScaler scaled(2048), plain(o.loss_scale), next(4096);
  scaled.step(std::numeric_limits<double>::infinity());
  restore(saved_by(o, text, scaled), plain);
  plain.skip();
  restore(saved_by(o, text, plain), next);
  EXPECT_EQ(next.skipped(), 2);
  EXPECT_EQ(next.scale(), 1024);
  LossScaler never(o.loss_scale), other(4096);
  restore(saved_by(o, text, never), other);
  EXPECT_EQ(other.scale(), 4096);
}

TEST(TrainResume, OnlyWhatMakesAnotherCurveIsADifference) {
  const Text text("abc", "text");
  TrainOptions o;
  const Checkpoint c = saved_by(o, text);
  EXPECT_THAT(differences(c, o, text, "float"), IsEmpty());
  o.mesh.data = 2, o.zero = 3, o.schedule = "gpipe", o.micro_batch = 2, o.recompute = true;
  EXPECT_THAT(differences(c, o, text, "float"), IsEmpty());
  EXPECT_THAT(
      differences(c, o, text, "bf16"),
      ElementsAre("--type is bf16, but save/step-00000003 was written with float: the curve "
                  "is not that of one run"));
  o.seed = 7;
  EXPECT_THAT(differences(c, o, Text("abd", "other"), "float"),
              ElementsAre("--seed is 7, but save/step-00000003 was written with 1: the curve is "
                          "not that of one run",
                          HasSubstr("--data is other (")));
}

// The rate's curve covers all steps: with more steps it is farther from its end again.
TEST(TrainResume, MoreStepsAreNamedWhereTheRateJumps) {
  const Text text("abc", "text");
  TrainOptions o;
  o.rate = {.peak = 1e-3, .warm_up = 10, .steps = 100, .floor = 1e-4};
  Checkpoint c = saved_by(o, text);
  o.rate.steps = 200;
  EXPECT_THAT(differences(c, o, text, "float"), IsEmpty());  // still in warm-up
  c.step = 100;
  EXPECT_THAT(differences(c, o, text, "float"),
              ElementsAre("--steps is 200, but save/step-00000003 was written with 100: the "
                          "learning rate goes from 0.0001 to 0.000587"));
}

// Checkpoints of earlier versions contain fewer options or none.
TEST(TrainResume, OlderCheckpointsSayLess) {
  const Text text("abc", "text");
  const TrainOptions o;
  const Checkpoint old{.step = 1, .extra = {{"options", "batch 16 adam true seed 1"}}, .path = "a"};
  LossScaler scaler(1024);
  for (const Checkpoint& c :
       {old, Checkpoint{}, Checkpoint{.step = 1, .extra = {{"seed", 3}}, .path = "b"}}) {
    restore(c, scaler);
    EXPECT_EQ(scaler.scale(), 1024);
  }
  EXPECT_THAT(differences(old, o, text, "float"),
              ElementsAre(HasSubstr("--batch is 8, but a was written with 16")));
  EXPECT_THAT(differences({}, o, text, "float"), IsEmpty());
}

}  // namespace
}  // namespace weft::train
