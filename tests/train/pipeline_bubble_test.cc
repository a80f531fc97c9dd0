// labels: multiproc
// Bubbles measured on real processes, printed beside simulator and formula. Times are not asserted:
// the machine may be busy. pipeline_runtime_test asserts the order of what is done.
#include "train/pipeline_bubble.h"

#include <gtest/gtest.h>

#include "support/processes.h"
#include "support/ranks.h"

namespace weft::train {
namespace {

TEST(PipelineBubble, MeasuredBesideTheFormula) {
  constexpr int kRanks = 4;
  const auto where = testing::places({kRanks});
  BubbleOptions options;
  options.op_us = 1000;
  testing::Shared<int> wrong(kRanks);
  testing::Processes job(kRanks, std::chrono::seconds(30), [&](const JobSpec& spec) {
    World world(connect(spec), where[static_cast<std::size_t>(spec.rank)], {});
    const auto rows = measure_bubbles(world.world(), options);
    if (spec.rank == 0) std::printf("%s", to_text(rows).c_str());
    if (rows.size() != 6 + 6 + 4 + 6) ++wrong[spec.rank];
    for (const BubbleRow& r : rows) {
      if (r.measured <= 0 || r.measured >= 1) ++wrong[spec.rank];
      if (r.formula >= 0 && std::abs(r.formula - r.simulated) > 1e-9) ++wrong[spec.rank];
    }
    return 0;
  });
  ASSERT_TRUE(job.wait(std::chrono::seconds(60)));
  for (Rank r = 0; r < kRanks; ++r) {
    EXPECT_EQ(job.code(r), 0);
    EXPECT_EQ(wrong[r], 0);
  }
}

}  // namespace
}  // namespace weft::train
