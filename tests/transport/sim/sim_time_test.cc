// The simulated fabric against formulas: the time of one message, and the effect of contention.
// Times are exact, in picoseconds.
// labels: sim
#include <gtest/gtest.h>

#include "transport/sim_bench.h"

namespace weft {
namespace {

using namespace testing::simulated;

TEST(SimTime, OneMessageTakesLatencyPlusBytesOverRate) {
  for (const std::size_t bytes : {0, 1, 4096, 1 << 20}) {
    const auto n = static_cast<std::int64_t>(bytes);
    Bench b(fabric_of(2, 2));
    b.message(0, 1, 1, bytes);  // same host
    b.message(0, 2, 2, bytes);  // same rail
    b.message(1, 2, 3, bytes);  // rail 1 to rail 0
    b.run();
    EXPECT_EQ((b.at[{0, 1}]), n * kLocalByte);
    EXPECT_EQ((b.at[{1, 1}]), kLocal + n * kLocalByte);
    EXPECT_EQ((b.at[{0, 2}]), n * kRailByte);
    EXPECT_EQ((b.at[{2, 2}]), kRail + n * kRailByte);
    EXPECT_EQ((b.at[{1, 3}]), n * kRailByte);
    // Both end at rank 2's NIC: message 2 arrives 3 us before message 3, which passes the spine.
    EXPECT_EQ((b.at[{2, 3}]), std::max(kSpine + n * kSpineByte, kRail + 2 * n * kRailByte));
  }
}

TEST(SimTime, MessagesOfOnePortWaitForEachOther) {
  Bench b(fabric_of(2, 1));
  constexpr int kCount = 10;
  for (int i = 1; i <= kCount; ++i) b.message(0, 1, i, 10000);
  b.run();
  for (int i = 1; i <= kCount; ++i) {
    EXPECT_EQ((b.at[{0, i}]), i * 10000 * kRailByte);
    EXPECT_EQ((b.at[{1, i}]), kRail + i * 10000 * kRailByte);
  }
  const SimStatistics s = b.fabric.statistics();
  EXPECT_EQ(s.messages, kCount);
  EXPECT_EQ(s.rail_bytes, std::vector<std::uint64_t>{kCount * 10000});
  EXPECT_EQ(s.host_tx_bytes, (std::vector<std::uint64_t>{kCount * 10000, 0}));
  ASSERT_EQ(s.ports.size(), 2u);
  EXPECT_EQ(s.ports[0].name, "host 0 rail 0 tx");
  EXPECT_EQ(s.ports[1].name, "host 1 rail 0 rx");
  EXPECT_EQ(s.ports[0].bytes, kCount * 10000u);
  EXPECT_EQ(s.ports[0].busy_us, kCount * 10000 * kRailByte / 1e6);
}

TEST(SimTime, IncastIsLimitedByTheReceiver) {
  Bench b(fabric_of(5, 1));
  for (int i = 1; i < 5; ++i) b.message(i, 0, i, 10000);
  b.run();
  for (int i = 1; i < 5; ++i) {
    EXPECT_EQ((b.at[{i, i}]), 10000 * kRailByte);  // each has its own tx port
    EXPECT_EQ((b.at[{0, i}]), kRail + i * 10000 * kRailByte);
  }
}

TEST(SimTime, RanksOfAHostOnOneRailShareItsNic) {
  SimFabricOptions o = fabric_of(2, 2);
  o.rail_of_rank = {0, 0, 0, 0};
  Bench b(o);
  b.message(0, 2, 1, 10000);
  b.message(1, 3, 2, 10000);
  b.run();
  EXPECT_EQ((b.at[{2, 1}]), kRail + 10000 * kRailByte);
  EXPECT_EQ((b.at[{3, 2}]), kRail + 2 * 10000 * kRailByte);
}

TEST(SimTime, CrossRailFlowsOfTwoHostsShareTheSpine) {
  SimFabricOptions o = fabric_of(3, 4);
  Bench b(o);
  for (int i = 0; i < 4; ++i) b.message(i, 4 + (i + 1) % 4, i + 1, 10000);
  b.message(8, 5, 9, 10000);  // from another host: a separate spine port
  b.run();
  for (int i = 0; i < 4; ++i) {
    const std::int64_t spine = kSpine + (i + 1) * 10000 * kSpineByte;
    // Rank 5's NIC receives messages 1 and 9 at the same time, one after the other.
    if (i > 0) {
      EXPECT_EQ((b.at[{4 + (i + 1) % 4, i + 1}]), spine);
    }
  }
  EXPECT_EQ((b.at[{5, 1}]), kSpine + 10000 * kSpineByte);
  EXPECT_EQ((b.at[{5, 9}]), kSpine + 10000 * kSpineByte);  // 2 x 80 ps = 160 ps per byte
  const SimStatistics s = b.fabric.statistics();
  EXPECT_EQ(s.cross_rail_bytes, 50000u);
  EXPECT_EQ(s.ports[0].name, "spine host 0 -> host 1");
}

TEST(SimTime, ASlowRailIsSlowByItsScale) {
  SimFabricOptions o = fabric_of(2, 2);
  o.rail_scale = {1, 0.25};
  Bench b(o);
  b.message(0, 2, 1, 10000);
  b.message(1, 3, 2, 10000);
  b.run();
  EXPECT_EQ((b.at[{2, 1}]), kRail + 10000 * kRailByte);
  EXPECT_EQ((b.at[{3, 2}]), kRail + 4 * 10000 * kRailByte);
}

// Regression: more picoseconds than fit in 64 bits gave a time that was too short.
TEST(SimTime, EndsBeforeItOverflows) {
  SimFabricOptions o = fabric_of(2, 1);
  o.rail.gbps = 1e-9;
  Bench b(o);
  for (int i = 1; i <= 20; ++i) b.message(0, 1, i, 64 << 20);
  EXPECT_THROW(b.run(), Error);
}

TEST(SimTime, HeadersAndPayloadShareCountOnTheWireOnly) {
  SimFabricOptions o = fabric_of(2, 2);
  o.payload_share = 0.5;
  o.header_bytes = 100;
  Bench b(o);
  b.message(0, 1, 1, 10000);
  b.message(0, 2, 2, 10000);
  b.run();
  EXPECT_EQ((b.at[{1, 1}]), kLocal + 10000 * kLocalByte);
  EXPECT_EQ((b.at[{2, 2}]), kRail + (2 * 10000 + 100) * kRailByte);
}

TEST(SimTime, LargeMessagesWaitForTheReceiveSmallOnesDoNot) {
  SimFabricOptions o = fabric_of(2, 1);
  o.eager_below = 1000;
  Bench b(o);
  b.send(0, 1, 1, 1000);
  b.send(0, 1, 2, 999);
  b.run_until_us(50);
  EXPECT_EQ(b.at.count({0, 1}), 0u);
  EXPECT_EQ((b.at[{0, 2}]), 999 * kRailByte);
  EXPECT_EQ(b.fabric.now_ps(), 50 * kUs);
  b.recv(1, 0, 1, 1000);
  b.recv(1, 0, 2, 999);
  b.run();
  EXPECT_EQ((b.at[{1, 2}]), 50 * kUs);  // the message had already arrived
  EXPECT_EQ((b.at[{0, 1}]), 50 * kUs + 1000 * kRailByte);
  EXPECT_EQ((b.at[{1, 1}]), 50 * kUs + kRail + 1000 * kRailByte);
}

TEST(SimTime, CoresAreChargedAndShared) {
  SimFabricOptions o = fabric_of(3, 1);
  o.cpu_of_rank = {0, 0, 1};  // ranks 0 and 1 on one core
  o.post_us = 2;
  o.send_us_per_byte = 0.0001;  // 100 ps
  o.complete_us = 3;
  o.copy_us_per_byte = 0.0002;
  o.reduce_us_per_byte = 0.0005;
  Bench b(o);
  b.post(2, Transfer::Kind::kView, 0, 1, 1000);
  b.post(2, Transfer::Kind::kRecv, 1, 2, 1000);
  b.send(0, 2, 1, 1000);
  b.send(1, 2, 2, 1000);
  b.run();
  const std::int64_t issue = 2 * kUs + 1000 * 100;
  const std::int64_t wire = 1000 * kRailByte;
  const std::int64_t reduce = 3 * kUs + 1000 * 500;
  const std::int64_t copy = 3 * kUs + 1000 * 200;
  EXPECT_EQ((b.at[{0, 1}]), issue + wire);
  EXPECT_EQ((b.at[{1, 2}]), 2 * issue + wire);
  EXPECT_EQ((b.at[{2, 1}]), issue + kRail + wire + reduce);
  EXPECT_EQ((b.at[{2, 2}]), std::max(issue + reduce, 2 * issue) + kRail + wire + copy);
}

}  // namespace
}  // namespace weft
