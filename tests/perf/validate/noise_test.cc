// Noise between flows: a slow port is named, or the verdict is that rates are too noisy; never OK.
#include <gtest/gtest.h>

#include <map>

#include "perf/validate/checks/registry.h"
#include "perf/validate/sim/simulate.h"

namespace weft::fabric {
namespace {

constexpr int kSeeds = 40;

// Verdicts of fleets of four hosts with two ports each. One port, chosen by the seed, has `left` of
// its rate.
std::map<Verdict, int> verdicts(double noise, double left, std::uint64_t first_seed) {
  std::map<Verdict, int> counts;
  for (std::uint64_t seed = first_seed; seed < first_seed + kSeeds; ++seed) {
    SimulateOptions options;
    options.fabric.hosts = 4;
    options.fabric.noise = noise;
    options.fabric.most_flows = 4;
    options.fabric.seed = seed;
    const auto way = seed % 3 == 0   ? FaultWay::kBoth
                     : seed % 3 == 1 ? FaultWay::kTransmit
                                     : FaultWay::kReceive;
    const Port port{static_cast<int>(seed % 4), static_cast<int>(seed / 4 % 2)};
    if (left < 1)
      options.fabric.faults = {{FaultKind::kRate, FaultPlace::kPort, way, port, {}, left}};
    const Simulated run = simulate_fleet(options);
    const Judgement judgement = judge({run.facts,
                                       run.hosts,
                                       run.conducted.samples,
                                       run.conducted.causes,
                                       {},
                                       {},
                                       {},
                                       run.conducted.plan.left_out});
    ++counts[verdict_of(judgement.findings)];
  }
  return counts;
}

TEST(Noise, ASlowPortIsNeverOk) {
  for (const double noise : {0.01, 0.03, 0.1}) {
    SCOPED_TRACE(noise);
    EXPECT_LE(verdicts(noise, 0.9, 301)[Verdict::kOk], kSeeds / 20);
    EXPECT_LE(verdicts(noise, 0.85, 401)[Verdict::kOk], kSeeds / 20);
  }
}

TEST(Noise, LittleIsOkAndMuchIsUnknown) {
  EXPECT_EQ(verdicts(0.01, 1, 501)[Verdict::kOk], kSeeds);
  EXPECT_GE(verdicts(0.03, 1, 501)[Verdict::kOk], kSeeds - 2) << "further rounds make up for it";
  EXPECT_GE(verdicts(0.1, 1, 501)[Verdict::kUnknown], kSeeds - 2);
}

}  // namespace
}  // namespace weft::fabric
