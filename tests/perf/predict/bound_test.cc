// Lower bounds, compared with their formulas.
#include "perf/predict/bound.h"

#include <gtest/gtest.h>

#include "coll/select/cost.h"
#include "perf/cli/names.h"
#include "perf/predict/model_flags.h"

namespace weft {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

Shape on_hosts(int n) { return shape_of(n, n, 0, 0); }  // one rank per host

TEST(Bound, AllReduceOverShapedRails) {
  // 4 hosts, 1 rail of 400 Mbit/s, 16 MiB: 2 * 3/4 * 16 MiB at 400 Mbit/s * 1448/1514.
  const double us = rail_bound_us(Collective::kAllReduce, on_hosts(4), 16 * kMiB, 1, {0.4, true});
  EXPECT_DOUBLE_EQ(us, 1.5 * 16 * kMiB * 8 / (0.4 * (1448.0 / 1514.0) * 1e3));
  EXPECT_NEAR(us / 1e3, 526.3, 0.1);  // ms; Gloo reaches 531 on this network
  EXPECT_DOUBLE_EQ(rail_bound_us(Collective::kAllReduce, on_hosts(4), 16 * kMiB, 2, {0.4, true}),
                   us / 2);
}

TEST(Bound, MeasuredRatesArePayloadAlready) {
  const double declared = rail_bound_us(Collective::kBroadcast, on_hosts(2), kMiB, 1, {1, true});
  const double measured = rail_bound_us(Collective::kBroadcast, on_hosts(2), kMiB, 1, {1, false});
  EXPECT_DOUBLE_EQ(measured, kMiB * 8 / 1e3);
  EXPECT_DOUBLE_EQ(declared, measured / kTcpPayloadShare);
  // RoCE has shorter headers, so a larger payload share.
  const RailRate roce{1, true, kRocePayloadShare};
  EXPECT_DOUBLE_EQ(rail_bound_us(Collective::kBroadcast, on_hosts(2), kMiB, 1, roce),
                   measured / kRocePayloadShare);
  EXPECT_GT(kRocePayloadShare, kTcpPayloadShare);
}

// The share of 1 MiB over one rail of 8 Mb/s payload, which moves a byte per microsecond.
double share(Collective collective, const Shape& shape) {
  return rail_bound_us(collective, shape, kMiB, 1, {0.008, false}) / kMiB;
}

TEST(Bound, SharesOfTheMessageThatLeaveAHost) {
  EXPECT_DOUBLE_EQ(share(Collective::kAllReduce, on_hosts(2)), 1);
  EXPECT_DOUBLE_EQ(share(Collective::kAllGather, on_hosts(4)), 0.75);
  EXPECT_DOUBLE_EQ(share(Collective::kReduceScatter, on_hosts(4)), 0.75);
  EXPECT_DOUBLE_EQ(share(Collective::kBroadcast, on_hosts(4)), 1);
  EXPECT_DOUBLE_EQ(share(Collective::kSendRecv, on_hosts(4)), 1);
  EXPECT_DOUBLE_EQ(share(Collective::kAllToAll, shape_of(8, 4, 0, 0)), 0.75 * 2);
  EXPECT_DOUBLE_EQ(share(Collective::kBarrier, on_hosts(4)), 0);
  EXPECT_DOUBLE_EQ(share(Collective::kAllReduce, on_hosts(1)), 0);
}

// Of 3 ranks on 2 hosts, two are on the first: their blocks need not cross to a root there.
TEST(Bound, BlocksThatARootsHostHasDoNotCross) {
  for (Collective c : {Collective::kGather, Collective::kScatter}) {
    EXPECT_DOUBLE_EQ(share(c, shape_of(3, 2, 0, 0)), 1.0 / 3) << name(c);
    EXPECT_DOUBLE_EQ(share(c, shape_of(3, 2, 0, 2)), 2.0 / 3) << name(c);
  }
}

TEST(Bound, UnknownRatesGiveNoBound) {
  EXPECT_EQ(rail_bound_us(Collective::kAllReduce, on_hosts(4), kMiB, 1, {}), 0);
  EXPECT_EQ(memory_bound_us(Collective::kAllReduce, kMiB, 2, false, {}), 0);
}

TEST(Bound, AllReduceInMemoryReducesItsPartAndCopiesTheRest) {
  // 64 MiB over 2 ranks at 6.8 and 10.9 GB/s: 8.0 ms.
  const double us = memory_bound_us(Collective::kAllReduce, 64 * kMiB, 2, false, {10.9, 6.8});
  EXPECT_DOUBLE_EQ(us, 32 * kMiB / 6.8e3 + 32 * kMiB / 10.9e3);
  EXPECT_NEAR(us / 1e3, 8.0, 0.1);
}

TEST(Bound, ARateIsThatOfTheRanksThatWrite) {
  EXPECT_EQ(writing_ranks(Collective::kGather, 4, false), 1);
  EXPECT_EQ(writing_ranks(Collective::kReduce, 4, false), 1);
  EXPECT_EQ(writing_ranks(Collective::kBroadcast, 4, true), 3);
  EXPECT_EQ(writing_ranks(Collective::kBroadcast, 4, false), 4);
  EXPECT_EQ(writing_ranks(Collective::kAllReduce, 4, true), 4);
}

TEST(Bound, OtherCollectivesInMemory) {
  const MemoryRate rate{10, 5};
  const auto bound = [&](Collective c, int n, bool in_place) {
    return memory_bound_us(c, 4 * kMiB, n, in_place, rate);
  };
  EXPECT_DOUBLE_EQ(bound(Collective::kAllGather, 4, false), 4 * kMiB / 10e3);
  EXPECT_DOUBLE_EQ(bound(Collective::kAllGather, 4, true), 3 * kMiB / 10e3);
  EXPECT_DOUBLE_EQ(bound(Collective::kReduceScatter, 4, false), kMiB / 5e3);
  EXPECT_DOUBLE_EQ(bound(Collective::kSendRecv, 4, false), 4 * kMiB / 10e3);
  EXPECT_EQ(bound(Collective::kBarrier, 4, false), 0);
  EXPECT_EQ(bound(Collective::kAllReduce, 1, true), 0);
}

// `weft perf` and `weft explain` must use the same bound.
TEST(Bound, TheCostModelHasTheSameBoundBetweenHosts) {
  ModelFlags flags;
  flags.collective = "all_reduce";
  flags.ranks = 8;
  flags.hosts = 4;
  flags.rails = 2;
  flags.machine.rail_gbps = 0.4;
  flags.machine.wire = "tcp";
  const CostModel model = call_of(flags, 0).model;
  for (Collective c : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                       Collective::kBroadcast})
    EXPECT_NEAR(lower_bound_us(c, shape_of(8, 4, 0, 0), 16 * kMiB, model) /
                    rail_bound_us(c, shape_of(8, 4, 0, 0), 16 * kMiB, 2, {0.4, true}),
                1, 1e-9)
        << name(c);
}

}  // namespace
}  // namespace weft
