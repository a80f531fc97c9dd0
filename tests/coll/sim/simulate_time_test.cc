// The engine on the simulated fabric: times by formula, traffic of each rail, and failures.
// labels: sim
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "coll/schedules.h"
#include "coll/sim/simulate.h"
#include "coll/simulated.h"
#include "topo/base/status.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using testing::is_vector;
using testing::run_with_data;
using testing::uniform;

// ---- times by formula ------------------------------------------------------------------------

constexpr double kAlpha = 3, kUsPerByte = 1e-4;  // 80 Gb/s: 100 ps per byte

SimFabricOptions ideal(const Shape& shape) {
  SimFabricOptions options = fabric_of(shape);
  options.rail = options.host = {kAlpha, 80};
  options.carry_data = false;
  return options;
}

// One round for any size.
Tuning one_round() {
  Tuning t;
  t.host_rounds_per_message = t.rail_rounds_per_message = 1;
  t.host_slice_max = t.rail_slice_max = std::size_t{1} << 30;
  return t;
}

double time_of(Collective collective, const char* algorithm, const Shape& shape,
               std::size_t count) {
  return simulate(*find_algorithm(collective, algorithm), shape, count, DType::kFloat32,
                  ideal(shape), one_round())
      .time_us;
}

TEST(SimulatedTime, RingAllReduceIsTwoPassesOfNeighbours) {
  for (const int n : {2, 3, 4, 8, 13}) {
    const std::size_t chunk = 16384;  // elements
    EXPECT_DOUBLE_EQ(
        time_of(Collective::kAllReduce, "ring", uniform(n, 1), chunk * static_cast<std::size_t>(n)),
        2 * (n - 1) * (kAlpha + 4 * chunk * kUsPerByte));
  }
}

TEST(SimulatedTime, RingAllGatherAndReduceScatterAreOnePass) {
  for (const int n : {2, 5, 8})
    for (const auto collective : {Collective::kAllGather, Collective::kReduceScatter})
      EXPECT_DOUBLE_EQ(time_of(collective, "ring", uniform(n, 1), 65536),
                       (n - 1) * (kAlpha + 262144 * kUsPerByte));
}

TEST(SimulatedTime, RecursiveDoublingIsTheLogarithmOfRanks) {
  EXPECT_DOUBLE_EQ(time_of(Collective::kAllReduce, "recursive_doubling", uniform(8, 1), 65536),
                   3 * (kAlpha + 262144 * kUsPerByte));
}

TEST(SimulatedTime, HalvingDoublingMovesAsLittleAsARing) {
  // 1/2 + 1/4 + 1/8 of the message, and back.
  EXPECT_DOUBLE_EQ(time_of(Collective::kAllReduce, "halving_doubling", uniform(8, 1), 65536),
                   6 * kAlpha + 2 * 7 / 8.0 * 262144 * kUsPerByte);
}

TEST(SimulatedTime, DirectBroadcastWaitsAtTheRootsPort) {
  EXPECT_DOUBLE_EQ(time_of(Collective::kBroadcast, "direct", uniform(5, 1), 65536),
                   kAlpha + 4 * 262144 * kUsPerByte);
}

TEST(SimulatedTime, BarriersTakeLatencies) {
  EXPECT_DOUBLE_EQ(time_of(Collective::kBarrier, "direct", uniform(6, 1), 0), kAlpha);
  EXPECT_DOUBLE_EQ(time_of(Collective::kBarrier, "dissemination", uniform(8, 1), 0), 3 * kAlpha);
  EXPECT_DOUBLE_EQ(time_of(Collective::kBarrier, "dissemination", uniform(9, 1), 0), 4 * kAlpha);
}

// Rounds overlap the stages: a long message approaches the bandwidth bound.
TEST(SimulatedTime, RoundsOverlap) {
  const Shape shape = uniform(4, 2);
  SimFabricOptions options = ideal(shape);
  options.host.gbps = 800;
  const std::size_t bytes = 256u << 20;
  const SimResult r = simulate(*find_algorithm(Collective::kAllReduce, "hierarchical"), shape,
                               bytes / 4, DType::kFloat32, options);
  EXPECT_GT(r.rounds, 8u);
  const double bound = 2 * 3 / 4.0 * static_cast<double>(bytes) / 2 * kUsPerByte;
  EXPECT_GE(r.time_us, bound);
  EXPECT_LT(r.time_us, 1.05 * bound);
  EXPECT_THAT(r.limiting, HasSubstr("rail"));
}

// ---- rails ---------------------------------------------------------------------------------

TEST(SimulatedRails, EachCarriesItsShareAndNoByteTooMany) {
  const Shape shape = uniform(4, 2);
  const std::size_t bytes = 8u << 20;
  SimFabricOptions options = ideal(shape);
  const SimResult r = simulate(*find_algorithm(Collective::kAllReduce, "hierarchical"), shape,
                               bytes / 4, DType::kFloat32, options);
  const std::uint64_t per_host = 2 * 3 * bytes / 4;
  EXPECT_EQ(r.traffic.host_tx_bytes, std::vector<std::uint64_t>(4, per_host));
  EXPECT_EQ(r.traffic.rail_bytes, std::vector<std::uint64_t>(2, 4 * per_host / 2));
}

TEST(SimulatedRails, ASlowRailCarriesLess) {
  for (const char* algorithm : {"hierarchical", "hierarchical_hd"}) {
    Shape shape = uniform(4, 2);
    SimFabricOptions options = ideal(shape);
    options.host.gbps = 800;
    options.rail_scale = {1, 0.5};
    const Algorithm& a = *find_algorithm(Collective::kAllReduce, algorithm);
    const std::size_t count = 4u << 20;
    const SimResult equal = simulate(a, shape, count, DType::kFloat32, options);
    EXPECT_EQ(equal.traffic.rail_bytes[0], equal.traffic.rail_bytes[1]);
    EXPECT_THAT(equal.limiting, HasSubstr("rail 1"));
    shape.rail_weight = {1, 0.5};
    const SimResult weighted = simulate(a, shape, count, DType::kFloat32, options);
    const auto slow = static_cast<double>(weighted.traffic.rail_bytes[1]);
    const auto fast = static_cast<double>(weighted.traffic.rail_bytes[0]);
    EXPECT_NEAR(slow / (slow + fast), 1 / 3.0, 0.01);
    EXPECT_LT(weighted.time_us, 0.75 * equal.time_us);
    options.carry_data = true;
    run_with_data(a, shape, 30011, DType::kFloat32, options);
  }
}

// With a slow or dead port, every rank gets the right bytes, and the host's other ports carry the
// rest. Schedules that do not know of it wait for the port.
TEST(SimulatedRails, ASlowPortCarriesLess) {
  for (const char* algorithm : {"hierarchical", "hierarchical_hd", "hierarchical_hd4"})
    for (const double factor : {0.5, 0.25, 0.0}) {
      Shape shape = uniform(5, 3);
      SimFabricOptions options = ideal(shape);
      options.host.gbps = 2000;
      const Algorithm& a = *find_algorithm(Collective::kAllReduce, algorithm);
      const std::size_t count = 4u << 20;
      const double equal = simulate(a, shape, count, DType::kFloat32, options).time_us;
      options.slow_ports = {{.host = 2, .rail = 1, .factor = factor}};
      const double unknown = simulate(a, shape, count, DType::kFloat32, options).time_us;
      EXPECT_GT(unknown, 1.6 * equal) << algorithm;
      shape.slow_ports = {{.host = 2, .local = 1, .rate = factor}};
      const double known = simulate(a, shape, count, DType::kFloat32, options).time_us;
      EXPECT_LT(known, (factor > 0 ? 1.3 : 1.5) * equal) << algorithm << " " << factor;
      EXPECT_GT(known, 0.95 * equal) << algorithm << " " << factor;
      options.carry_data = true;
      for (const std::size_t n : {0, 1, 2, 17, 1021, 30011})
        run_with_data(a, shape, n, DType::kFloat32, options);
    }
}

// ---- failures ------------------------------------------------------------------------------

std::string error_of(Collective collective, const std::vector<Schedule>& schedules,
                     const SimFabricOptions& options) {
  try {
    simulate(collective, schedules, 65536, DType::kFloat32, options);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(SimulatedFailure, ALostStepIsADeadlockAndNamesWhoWaitsForWhom) {
  const Shape shape = uniform(4, 1);
  auto schedules = testing::build_all(*find_algorithm(Collective::kAllReduce, "ring"), shape);
  EXPECT_EQ(error_of(Collective::kAllReduce, schedules, ideal(shape)), "");
  auto& steps = schedules[2].steps;
  for (std::size_t i = steps.size(); i-- > 0;)
    if (steps[i].op == Op::kSend) {
      steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
  const std::string error = error_of(Collective::kAllReduce, schedules, ideal(shape));
  EXPECT_THAT(error, HasSubstr("deadlock"));
  EXPECT_THAT(error, HasSubstr("rank 3 waits for rank 2"));
}

TEST(SimulatedFailure, ACircleIsADeadlock) {
  const Shape shape = uniform(2, 1);
  std::vector<Schedule> schedules(2);
  for (Rank r = 0; r < 2; ++r) {
    schedules[r] = {.rank = r, .nranks = 2, .nchunks = 1, .steps = {}, .block = {}, .weight = {}};
    schedules[r].recv(1 - r, {0, 1});
    schedules[r].send(1 - r, {0, 1});
  }
  EXPECT_THAT(error_of(Collective::kBroadcast, schedules, ideal(shape)),
              HasSubstr("rank 0 waits for rank 1"));
}

TEST(SimulatedFailure, ACutLinkIsNamed) {
  const Shape shape = uniform(3, 2);
  SimFabricOptions options = ideal(shape);
  options.failures = {{.at_us = 10, .host = 1, .rail = 1}};
  EXPECT_THAT(
      error_of(Collective::kAllReduce,
               testing::build_all(*find_algorithm(Collective::kAllReduce, "hierarchical"), shape),
               options),
      HasSubstr("link of host 1, rail 1"));
}

// A slowdown in the middle costs less than one from the start; late ranks cost their delay.
TEST(SimulatedFailure, SlowRailsHostsAndLateRanksCostTime) {
  const Shape shape = uniform(4, 2);
  const Algorithm& a = *find_algorithm(Collective::kAllReduce, "hierarchical_hd");
  const auto us = [&](const auto& change) {
    SimFabricOptions options = ideal(shape);
    options.post_us = options.complete_us = 0.3;
    change(options);
    return simulate(a, shape, 1 << 22, DType::kFloat32, options).time_us;
  };
  const double fine = us([](SimFabricOptions&) {});
  const auto slow_from = [&](double at_us) {
    return us([&](SimFabricOptions& o) { o.slowdowns = {{at_us, 1, 0.25}}; });
  };
  const double late = slow_from(fine / 2), early = slow_from(0);
  EXPECT_GT(late, 1.3 * fine);
  EXPECT_GT(early, 1.3 * late);
  EXPECT_DOUBLE_EQ(slow_from(10 * fine), fine);
  EXPECT_GT(us([](SimFabricOptions& o) { o.host_scale = {1, 0.1, 1, 1}; }), 1.05 * fine);
  const double skewed = us([&](SimFabricOptions& o) { o.skew_us = fine; });
  EXPECT_GT(skewed, 1.2 * fine);
  EXPECT_LE(skewed, 2.1 * fine);
  EXPECT_THROW(us([](SimFabricOptions& o) { o.slowdowns = {{0, 7, 0.5}}; }), Error);
}

// Reductions and copies take core time, also along rails.
TEST(SimulatedTime, CoresReduceAndCopy) {
  const Shape shape = uniform(2, 1);
  const auto us = [&](Collective c, const char* name, double reduce, double copy,
                      bool rail_copies) {
    SimFabricOptions options = ideal(shape);
    options.reduce_us_per_byte = reduce;
    options.copy_us_per_byte = copy;
    options.rail_copies = rail_copies;
    return simulate(*find_algorithm(c, name), shape, 1 << 16, DType::kFloat32, options).time_us;
  };
  const double free = us(Collective::kAllReduce, "flat", 0, 0, true);
  EXPECT_GT(us(Collective::kAllReduce, "flat", 1e-3, 0, true), free + 100);
  EXPECT_GT(us(Collective::kAllReduce, "flat", 0, 1e-3, true), free + 100);
  EXPECT_DOUBLE_EQ(us(Collective::kAllReduce, "flat", 0, 1e-3, false), free);
}

TEST(SimulatedFailure, WhatDoesNotFitIsRefused) {
  const Algorithm& a = *find_algorithm(Collective::kAllGather, "hierarchical");
  const Shape shape = is_vector({2, 1});
  EXPECT_THROW(simulate(*find_algorithm(Collective::kBarrier, "hierarchical"), shape, 0, DType::kFloat32, ideal(shape)), Error);
  SimFabricOptions options = ideal(uniform(2, 2));
  options.carry_data = true;  // without buffers
  EXPECT_THROW(simulate(a, uniform(2, 2), 4, DType::kFloat32, options), Error);
  EXPECT_THROW(simulate(a, uniform(2, 2), 4, DType::kFloat32, ideal(uniform(3, 1))), Error);
}

}  // namespace
}  // namespace weft
