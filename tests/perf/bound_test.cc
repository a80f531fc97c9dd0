// Lower bounds, against the formulas they stand for.
#include "perf/bound.h"

#include <gtest/gtest.h>

#include "coll/cost.h"
#include "perf/explain.h"
#include "perf/names.h"

namespace weft {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

TEST(Bound, AllReduceOverShapedRails) {
  // 4 hosts, 1 rail of 400 Mbit/s, 16 MiB: 2 * 3/4 * 16 MiB at 400 Mbit/s * 1448/1514.
  const double us = rail_bound_us(Collective::kAllReduce, 16 * kMiB, 4, 1, {0.4, true});
  EXPECT_DOUBLE_EQ(us, 1.5 * 16 * kMiB * 8 / (0.4 * (1448.0 / 1514.0) * 1e3));
  EXPECT_NEAR(us / 1e3, 526.3, 0.1);  // ms; Gloo reaches 531 there
  EXPECT_DOUBLE_EQ(rail_bound_us(Collective::kAllReduce, 16 * kMiB, 4, 2, {0.4, true}), us / 2);
}

TEST(Bound, MeasuredRatesArePayloadAlready) {
  const double declared = rail_bound_us(Collective::kBroadcast, kMiB, 2, 1, {1, true});
  const double measured = rail_bound_us(Collective::kBroadcast, kMiB, 2, 1, {1, false});
  EXPECT_DOUBLE_EQ(measured, kMiB * 8 / 1e3);
  EXPECT_DOUBLE_EQ(declared, measured / kTcpPayloadShare);
  // Other headers, another share: RoCE's are shorter.
  const RailRate roce{1, true, kRocePayloadShare};
  EXPECT_DOUBLE_EQ(rail_bound_us(Collective::kBroadcast, kMiB, 2, 1, roce),
                   measured / kRocePayloadShare);
  EXPECT_GT(kRocePayloadShare, kTcpPayloadShare);
}

TEST(Bound, SharesOfTheMessageThatLeaveAHost) {
  EXPECT_DOUBLE_EQ(rail_share(Collective::kAllReduce, 2), 1);
  EXPECT_DOUBLE_EQ(rail_share(Collective::kAllGather, 4), 0.75);
  EXPECT_DOUBLE_EQ(rail_share(Collective::kReduceScatter, 4), 0.75);
  EXPECT_DOUBLE_EQ(rail_share(Collective::kBroadcast, 4), 1);
  EXPECT_DOUBLE_EQ(rail_share(Collective::kBarrier, 4), 0);
  EXPECT_DOUBLE_EQ(rail_share(Collective::kAllReduce, 1), 0);
}

TEST(Bound, UnknownRatesGiveNoBound) {
  EXPECT_EQ(rail_bound_us(Collective::kAllReduce, kMiB, 4, 1, {}), 0);
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

// `weft perf` and `weft explain` must not disagree about what is possible.
TEST(Bound, TheCostModelHasTheSameBoundBetweenHosts) {
  const CostModel model = model_of(0.4, 0, 0, 0, 2);
  for (Collective c : {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                       Collective::kBroadcast})
    EXPECT_NEAR(lower_bound_us(c, shape_of(8, 4, 0, 0), 16 * kMiB, model) /
                    rail_bound_us(c, 16 * kMiB, 4, 2, {0.4, true}),
                1, 1e-9)
        << name(c);
}

}  // namespace
}  // namespace weft
