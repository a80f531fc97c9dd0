// Cuts that are small relative to the noise: further rounds decide, and the report promises no
// more.
#include "perf/validate/locate/suspects.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "perf/validate/conduct/conduct.h"
#include "perf/validate/conduct/next_round.h"
#include "perf/validate/locate/locate.h"
#include "perf/validate/sim/simulate.h"

namespace weft::fabric {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

// Four hosts with two shaped ports each: two or three flows per direction of a port, and 2.5 % of
// noise between flows, like the Soft-RoCE lab.
SimOptions noisy_lab(std::uint64_t seed) {
  SimOptions options;
  options.hosts = 4;
  options.rate_gbps = 0.08;
  options.noise = 0.025;
  options.most_flows = 4;
  options.seed = seed;
  return options;
}

int runs_that_name(FaultPlace place, FaultWay way, double left, int runs) {
  int right = 0;
  for (int seed = 1; seed <= runs; ++seed) {
    SimulateOptions options;
    options.fabric = noisy_lab(static_cast<std::uint64_t>(seed));
    SimFault fault{FaultKind::kRate, place, way, {seed % 4, seed % 2}, {}, left};
    if (place == FaultPlace::kPath) fault.peer = {(seed + 1) % 4, seed % 2};
    options.fabric.faults = {fault};
    right += simulate_fleet(options).right();
  }
  return right;
}

TEST(Suspects, ACutOfTenPercentIsNamedInNoise) {
  EXPECT_GE(runs_that_name(FaultPlace::kPort, FaultWay::kTransmit, 0.9, 60), 57);
  EXPECT_GE(runs_that_name(FaultPlace::kPort, FaultWay::kReceive, 0.9, 60), 57);
  EXPECT_GE(runs_that_name(FaultPlace::kPort, FaultWay::kBoth, 0.9, 60), 57);
}

TEST(Suspects, APathThatIsCutIsNamedInNoise) {
  EXPECT_GE(runs_that_name(FaultPlace::kPath, FaultWay::kBoth, 0.85, 60), 57);
}

TEST(Suspects, NoiseAloneIsNoCause) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SimFabric fabric(noisy_lab(seed));
    EXPECT_THAT(conduct(fabric, {}, {}).causes, IsEmpty()) << "seed " << seed;
  }
}

// Rates of four hosts on one rail; host 2 sends at a share of the others' rate.
Samples rates(double share, double noise) {
  Samples samples;
  samples.rounds.push_back({Probe::kRate, {}});
  std::mt19937_64 random(3);
  for (int from = 0; from < 4; ++from)
    for (int to = 0; to < 4; ++to) {
      if (from == to) continue;
      FlowSample sample;
      sample.flow = {{from, 0}, {to, 0}};
      sample.window_gbps.assign(
          9, 0.08 * std::normal_distribution<>(1, noise)(random) * (from == 2 ? share : 1));
      samples.flows.push_back(sample);
    }
  return samples;
}

TEST(Suspects, AreTestedUntilTheyAreNamedOrDismissed) {
  const std::vector<FleetHost> hosts = SimFabric(noisy_lab(1)).hosts();
  EXPECT_THAT(suspects_of_rate(hosts, rates(0.96, 0.002), {}, {}), IsEmpty())
      << "without noise, 4 % less is no fault for certain";
  const Samples samples = rates(0.9, 0.02);
  const auto slow = suspects_of_rate(hosts, samples, {}, {});
  ASSERT_THAT(slow, SizeIs(1));
  EXPECT_EQ(slow[0].place, CausePlace::kTransmit);
  EXPECT_EQ(slow[0].port, (Port{2, 0}));
  EXPECT_THAT(suspects_of_rate(hosts, samples, slow, {}), IsEmpty()) << "a cause explains the end";
  const auto round = next_round(hosts, samples, {}, {}, 4);
  ASSERT_TRUE(round);
  EXPECT_EQ(round->probe, Probe::kRate);
  ASSERT_THAT(round->flows, SizeIs(1));
  EXPECT_EQ(round->flows[0].from, (Port{2, 0}));
}

// One of 20,000 packets was lost: too few losses to name the port, and too many to exclude it.
TEST(Suspects, OfLossAreThoseThatMayLoseMoreThanIsAllowed) {
  const std::vector<FleetHost> hosts = SimFabric(noisy_lab(1)).hosts();
  const auto suspects = [&](std::uint64_t lost, std::uint64_t packets) {
    Samples samples = rates(1, 0.01);
    samples.rounds[0].probe = Probe::kLowLoad;
    for (FlowSample& sample : samples.flows) {
      const bool bad = sample.flow.from.host == 2 && sample.flow.to.host == 0;
      sample.packets = packets;
      sample.retransmits = bad ? lost : 0;
    }
    return suspects_of_loss(hosts, samples, {}, false, {});
  };
  const auto few = suspects(1, 10'000);
  ASSERT_THAT(few, SizeIs(2)) << "the sender or the receiver";
  EXPECT_THAT(std::vector({few[0].port, few[1].port}),
              ::testing::UnorderedElementsAre(Port{2, 0}, Port{0, 0}));
  EXPECT_THAT(suspects(1, 100'000'000), IsEmpty()) << "dismissed by all that arrived";
  EXPECT_THAT(suspects(0, 100), IsEmpty());
}

// If all flows waited for a core, rates are unknown, and the report promises none.
TEST(Conduct, PromisesTheRateCutThatItsNoiseShows) {
  SimOptions options;
  options.hosts = 4;
  SimFabric sound(options);
  const double quiet = conduct(sound, {}, {}).plan.smallest_rate_cut;
  EXPECT_GT(quiet, 1 - Thresholds{}.warn_rate) << "a smaller cut is no fault";
  EXPECT_LT(quiet, 0.1);
  options.noise = 0.08;
  SimFabric noisy(options);
  EXPECT_GT(conduct(noisy, {}, {}).plan.smallest_rate_cut, 1.3 * quiet);
  for (int host = 0; host < options.hosts; ++host)
    options.faults.push_back(
        {FaultKind::kSlowCpu, FaultPlace::kHost, FaultWay::kBoth, {host, 0}, {}, 0.1});
  SimFabric slow(options);
  EXPECT_EQ(conduct(slow, {}, {}).plan.smallest_rate_cut, 0);
}

}  // namespace
}  // namespace weft::fabric
