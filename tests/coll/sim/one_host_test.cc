// Simulations of one host, one rail or a few rounds in place of all, compared with the full
// simulation.
// labels: sim
#include "coll/sim/one_host.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "coll/schedules.h"
#include "coll/sim/simulate.h"

namespace weft {
namespace {

using testing::full_name;
using testing::is_vector;
using testing::round_robin;
using testing::uniform;

SimFabricOptions with_cores(const Shape& shape) {
  SimFabricOptions options = fabric_of(shape);
  options.rail = {5, 400};
  options.spine = {8, 400};
  options.host = {1, 3600};
  options.post_us = options.complete_us = 0.3;
  options.reduce_us_per_byte = options.copy_us_per_byte = 1e-4;
  options.carry_data = false;
  return options;
}

std::size_t count_of(const Algorithm& a, const Shape& shape, std::size_t bytes) {
  return bytes / 4 / (by_blocks(a.collective) ? static_cast<std::size_t>(shape.nranks) : 1);
}

// "hosts" or "rails" if one is simulated in place of all; "" if not.
std::string stands_for_all(Collective c, const char* name, const Shape& shape,
                           const SimFabricOptions& options) {
  const Algorithm& a = *find_algorithm(c, name);
  const auto one = one_host_of(a, shape, count_of(a, shape, 1 << 20), DType::kFloat32, options);
  return !one ? "" : one->alike() == Alike::kHosts ? "hosts" : "rails";
}

// If one host or rail represents all, its time equals the full simulation's, except for effects of
// the order of messages that arrive at the same time.
TEST(OneHost, TakesTheTimeOfAll) {
  std::set<std::string> compared;
  for (const Shape& shape : {uniform(4, 1), uniform(4, 2), uniform(3, 4), uniform(8, 4)})
    for (const Algorithm& a : algorithms())
      for (const std::size_t bytes : {192, 96 << 10, 768 << 10, 12 << 20}) {
        if (!a.applies(shape)) continue;
        const std::size_t count = count_of(a, shape, bytes);
        const SimFabricOptions options = with_cores(shape);
        const auto one_host = one_host_of(a, shape, count, DType::kFloat32, options);
        if (!one_host) continue;
        compared.insert(full_name(a));
        const SimResult all = simulate(a, shape, count, DType::kFloat32, options);
        const SimResult one =
            simulate_one_host(a, shape, count, DType::kFloat32, options, *one_host);
        const std::string what = full_name(a) + " over " + std::to_string(shape.hosts.size()) +
                                 " hosts, " + std::to_string(bytes) + " bytes";
        const bool ties = a.name == "direct" || a.name == "flat";
        EXPECT_NEAR(one.time_us, all.time_us, all.time_us * (ties ? .03 : 1e-6)) << what;
        EXPECT_EQ(one.traffic.messages, all.traffic.messages) << what;
        EXPECT_NEAR(one.busy_share, all.busy_share, .03) << what;
        EXPECT_EQ(one.scratch_bytes, all.scratch_bytes) << what;
        EXPECT_EQ(one.traffic.rail_bytes, all.traffic.rail_bytes) << what;
        EXPECT_EQ(one.traffic.host_bytes, all.traffic.host_bytes) << what;
        EXPECT_EQ(one.traffic.cross_rail_bytes, all.traffic.cross_rail_bytes) << what;
        EXPECT_EQ(one.traffic.host_tx_bytes, all.traffic.host_tx_bytes) << what;
      }
  for (const char* name :
       {"all_reduce hierarchical", "all_reduce hierarchical_hd", "all_reduce hierarchical_hd4",
        "all_reduce hierarchical_hd4", "all_reduce ring", "all_gather hierarchical",
        "reduce_scatter hierarchical", "all_to_all pairwise"})
    EXPECT_TRUE(compared.contains(name)) << name;
}

// This requires that all hosts are equal and have the same schedule and events.
TEST(OneHost, StandsForEqualHostsOnly) {
  const auto hierarchical = [](const Shape& shape, const SimFabricOptions& options) {
    return stands_for_all(Collective::kAllReduce, "hierarchical", shape, options);
  };
  const Shape shape = uniform(4, 2);
  const SimFabricOptions options = with_cores(shape);
  EXPECT_EQ(hierarchical(shape, options), "hosts");
  for (const Shape& other : {is_vector({2, 2, 1, 2}), round_robin(4, 2), uniform(1, 8)})
    EXPECT_EQ(hierarchical(other, with_cores(other)), "");
  SimFabricOptions skewed = options, cut = options, slow = options, carries = options,
                   slow_rail = options;
  skewed.skew_us = 1;
  cut.failures.push_back({.at_us = 1, .host = 0, .rail = 0});
  slow.host_scale = {1, 1, .5, 1};
  EXPECT_EQ(hierarchical(shape, slow), "rails");
  slow_rail.rail_scale = {1, .5};
  EXPECT_EQ(hierarchical(shape, slow_rail), "hosts");
  slow_rail.host_scale = slow.host_scale;
  carries.carry_data = true;
  for (const SimFabricOptions& o : {skewed, cut, slow_rail, carries})
    EXPECT_EQ(hierarchical(shape, o), "");
  // Tree ranks have different roles; halved blocks arrive in another order on each host; cross-rail
  // traffic contends on the spine.
  EXPECT_EQ(stands_for_all(Collective::kBroadcast, "tree", shape, options), "");
  const Shape four = uniform(4, 8), five = uniform(5, 4);
  EXPECT_EQ(stands_for_all(Collective::kReduceScatter, "hierarchical_hd4", four, with_cores(four)),
            "rails");
  EXPECT_EQ(stands_for_all(Collective::kAllReduce, "hierarchical_hd", five, with_cores(five)),
            "rails");
  EXPECT_EQ(stands_for_all(Collective::kAllReduce, "halving_doubling", five, with_cores(five)), "");
}

// Chunks that differ by an element or a cache line change the time of a rail.
TEST(OneHost, OneRailTakesAboutTheTimeOfUnequalChunks) {
  for (const Shape& shape : {uniform(5, 4), uniform(7, 3)})
    for (const char* name : {"hierarchical_hd", "hierarchical_hd4"}) {
      const Algorithm& a = *find_algorithm(Collective::kAllReduce, name);
      const std::size_t count = (3u << 20) + 1;
      const SimFabricOptions options = with_cores(shape);
      const auto one = one_host_of(a, shape, count, DType::kFloat32, options);
      ASSERT_TRUE(one && one->alike() == Alike::kRails) << name;
      const SimResult all = simulate(a, shape, count, DType::kFloat32, options);
      const SimResult rail = simulate_one_host(a, shape, count, DType::kFloat32, options, *one);
      EXPECT_NEAR(rail.time_us, all.time_us, all.time_us * .005) << name;
      EXPECT_EQ(rail.traffic.messages, all.traffic.messages) << name;
      EXPECT_NEAR(rail.traffic.rail_bytes[1], all.traffic.rail_bytes[1],
                  all.traffic.rail_bytes[1] * .001);
    }
}

// Later rounds take about as long as the first ones.
TEST(FewRounds, TakeAboutTheTimeOfAll) {
  const Shape shape = uniform(4, 2);
  for (const auto& [c, name] : {std::pair{Collective::kAllReduce, "hierarchical_hd"},
                                {Collective::kAllReduce, "hierarchical"},
                                {Collective::kBroadcast, "hierarchical"},
                                {Collective::kReduce, "hierarchical"}}) {
    const Algorithm& a = *find_algorithm(c, name);
    SimFabricOptions options = with_cores(shape);
    for (const bool slow : {false, true}) {
      if (slow) options.slow_ports = {{1, 0, .5}};
      const std::size_t count = std::size_t{64} << 20;
      const SimResult few = simulate_few_rounds(a, shape, count, DType::kFloat32, options);
      const SimResult all = simulate(a, shape, count, DType::kFloat32, options);
      const std::string what = full_name(a);
      EXPECT_LT(few.simulated_rounds, few.rounds) << what;
      EXPECT_EQ(few.rounds, all.rounds) << what;
      EXPECT_NEAR(few.time_us, all.time_us, all.time_us * .15) << what;
      EXPECT_NEAR(few.traffic.messages, all.traffic.messages, all.traffic.messages * .01) << what;
    }
  }
}

// An event happens in one round only; a few rounds are all simulated.
TEST(FewRounds, AreAllWhereSomethingHappensOrTheyAreFew) {
  const Shape shape = uniform(4, 2);
  const Algorithm& a = *find_algorithm(Collective::kAllReduce, "hierarchical_hd");
  SimFabricOptions options = with_cores(shape);
  options.slowdowns = {{10, 0, .5}};
  const SimResult slows = simulate_few_rounds(a, shape, 16 << 20, DType::kFloat32, options);
  EXPECT_EQ(slows.simulated_rounds, slows.rounds);
  options.slowdowns.clear();
  const SimResult few = simulate_few_rounds(a, shape, 1 << 14, DType::kFloat32, options);
  EXPECT_EQ(few.simulated_rounds, few.rounds);
  EXPECT_EQ(few.time_us, simulate(a, shape, 1 << 14, DType::kFloat32, options).time_us);
}

// One rail of 1,016 ranks and 1 GiB takes fewer simulation events than the job has messages.
TEST(FewRounds, OfOneRailAreLittleWork) {
  const Shape shape = uniform(127, 8);
  const SimFabricOptions options = with_cores(shape);
  const Algorithm& a = *find_algorithm(Collective::kAllReduce, "hierarchical_hd4");
  const std::size_t count = std::size_t{1} << 28;
  const auto one = one_host_of(a, shape, count, DType::kFloat32, options);
  ASSERT_TRUE(one);
  const SimResult r = simulate_few_rounds(a, shape, count, DType::kFloat32, options, &*one);
  EXPECT_LT(r.traffic.events, r.traffic.messages);
}

// The recording of the first rank's ports has all their traffic.
TEST(OneHost, AWatchedRankDoesTheSame) {
  const Shape shape = uniform(4, 2);
  SimFabricOptions options = with_cores(shape);
  options.watch = 0;
  const Algorithm& a = *find_algorithm(Collective::kAllReduce, "hierarchical_hd");
  const SimResult all = simulate(a, shape, 1 << 20, DType::kFloat32, options);
  const SimResult one =
      simulate_one_host(a, shape, 1 << 20, DType::kFloat32, options,
                        *one_host_of(a, shape, 1 << 20, DType::kFloat32, options));
  for (const SimResult* r : {&all, &one}) {
    std::uint64_t left = 0;
    for (const SimService& s : r->traffic.watched)
      left += s.at == std::string("rail tx") ? s.bytes : 0;
    EXPECT_EQ(left, all.traffic.rail_bytes[0] / shape.hosts.size());
  }
  ASSERT_EQ(one.traffic.watched.size(), all.traffic.watched.size());
  EXPECT_EQ(one.traffic.watched.back().to_us, all.traffic.watched.back().to_us);
}

// Simulating 8,192 ranks costs as much as simulating 8.
TEST(OneHost, IsAsMuchWorkAsOneHost) {
  const Shape shape = uniform(1024, 8);
  const Algorithm& a = *find_algorithm(Collective::kAllReduce, "hierarchical_hd");
  const SimFabricOptions options = with_cores(shape);
  const auto one_host = one_host_of(a, shape, 1 << 22, DType::kFloat32, options);
  ASSERT_TRUE(one_host);
  const SimResult r = simulate_one_host(a, shape, 1 << 22, DType::kFloat32, options, *one_host);
  // Only messages of the first host cause events.
  EXPECT_LT(r.traffic.events, 8 * r.traffic.messages / 1024);
}

}  // namespace
}  // namespace weft
