// The virtual-time model on traces of a few nodes: its times are sums that a reader can verify.
// ctest: alone
#include "perf/replay/virtual_play.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "perf/replay/costs.h"
#include "perf/replay/heartbeat.h"
#include "support/process/read_file.h"
#include "support/process/temporary_folder.h"
#include "topo/base/status.h"

namespace weft::replay {
namespace {

TraceNode computes(std::uint64_t id, double us, std::vector<std::uint64_t> after = {}) {
  TraceNode node;
  node.id = id;
  node.compute_us = us;
  node.after_ids = std::move(after);
  return node;
}

TraceNode calls(std::uint64_t id, std::uint64_t bytes, std::vector<std::uint64_t> after = {},
                const char* group = "") {
  TraceNode node;
  node.kind = NodeKind::kCollective;
  node.id = id;
  node.bytes = bytes;
  node.group_name = group;
  node.after_ids = std::move(after);
  return node;
}

TraceNode moves(std::uint64_t id, NodeKind kind, Rank peer, std::vector<std::uint64_t> after = {}) {
  TraceNode node;
  node.kind = kind;
  node.id = id;
  node.peer = peer;
  node.bytes = 10;
  node.after_ids = std::move(after);
  return node;
}

RankTrace file(int rank, Program nodes) {
  RankTrace trace;
  trace.file = "test";
  trace.rank = rank;
  trace.nodes = std::move(nodes);
  return trace;
}

// A call takes a microsecond per byte.
CallCost by_bytes(const TraceNode& node, const std::vector<Rank>&) {
  return {static_cast<double>(node.bytes), true};
}

TEST(VirtualPlay, ACallIsHiddenByTheComputationBesideIt) {
  const Program program = {calls(1, 100), computes(2, 60), calls(3, 50, {1, 2})};
  const JobTrace trace = assemble("test", {file(0, program)}, 4);
  const Played played = play_virtually(trace, by_bytes);
  EXPECT_DOUBLE_EQ(played.step_us, 150);
  EXPECT_DOUBLE_EQ(played.compute_us, 60);
  ASSERT_EQ(played.rows.size(), 2u);
  EXPECT_EQ(played.rows[1].key.bytes, 100u);
  EXPECT_DOUBLE_EQ(played.rows[1].time_us, 100);
  EXPECT_DOUBLE_EQ(played.rows[1].exposed_us, 40);
  EXPECT_DOUBLE_EQ(played.rows[0].exposed_us, 50);
  EXPECT_DOUBLE_EQ(played.rows[0].share_of_step + played.rows[1].share_of_step, 90.0 / 150);
  EXPECT_EQ(played.rows[0].calls, 1);
}

TEST(VirtualPlay, ComputationIsScaled) {
  const JobTrace trace = assemble("test", {file(0, {computes(1, 60), calls(2, 50, {1})})}, 2);
  EXPECT_DOUBLE_EQ(play_virtually(trace, by_bytes, 2).step_us, 170);
  EXPECT_DOUBLE_EQ(play_virtually(trace, by_bytes, 0).step_us, 50);
}

TEST(VirtualPlay, CallsAtTheSameTimeShareTheLinks) {
  const JobTrace trace = assemble("test", {file(0, {calls(1, 30), calls(2, 100)})}, 2);
  const Played played = play_virtually(trace, by_bytes);
  EXPECT_DOUBLE_EQ(played.step_us, 130);
  EXPECT_DOUBLE_EQ(played.rows[0].time_us, 60) << "half of the links";
}

TEST(VirtualPlay, ACallBeginsWhenItsLastRankIsThere) {
  const JobTrace trace =
      assemble("test", {file(0, {calls(1, 10)}), file(1, {computes(1, 70), calls(2, 10, {1})})});
  const Played played = play_virtually(trace, by_bytes);
  EXPECT_DOUBLE_EQ(played.step_us, 80);
  EXPECT_DOUBLE_EQ(played.rows[0].time_us, (80 + 10) / 2.0);
}

TEST(VirtualPlay, MessagesMeetInTheirOrder) {
  const JobTrace trace =
      assemble("test", {file(0, {moves(1, NodeKind::kSend, 1), moves(2, NodeKind::kRecv, 1, {1})}),
                        file(1, {moves(1, NodeKind::kRecv, 0), computes(2, 5, {1}),
                                 moves(3, NodeKind::kSend, 0, {2})})});
  EXPECT_DOUBLE_EQ(play_virtually(trace, by_bytes).step_us, 25);
}

JobTrace eager(std::vector<RankTrace> files) {
  for (RankTrace& each : files) each.sends_are_eager = true;
  return assemble("test", std::move(files));
}

TEST(VirtualPlay, SendsOfChakraWaitForNobody) {
  const auto rank = [](int r) {
    return file(r, {moves(1, NodeKind::kSend, 1 - r), computes(2, 3, {1}),
                    moves(3, NodeKind::kRecv, 1 - r, {2})});
  };
  const Played played = play_virtually(eager({rank(0), rank(1)}), by_bytes);
  EXPECT_DOUBLE_EQ(played.step_us, 20) << "two messages share the links of both ranks";
  EXPECT_DOUBLE_EQ(played.rows[0].time_us, 20) << "the send is under way beside the computation";
  EXPECT_DOUBLE_EQ(played.rows[1].time_us, 17);
}

TEST(VirtualPlay, MessagesMeetByTheirTags) {
  const auto tagged = [](TraceNode node, int tag) {
    node.tag = tag;
    return node;
  };
  const JobTrace trace = eager({file(0, {tagged(moves(1, NodeKind::kSend, 1), 5), computes(2, 7),
                                         tagged(moves(3, NodeKind::kSend, 1, {2}), 6)}),
                                file(1, {tagged(moves(1, NodeKind::kRecv, 0), 6),
                                         tagged(moves(2, NodeKind::kRecv, 0, {1}), 5)})});
  EXPECT_DOUBLE_EQ(play_virtually(trace, by_bytes).step_us, 20) << "they overlap from 7 to 13";
  EXPECT_THAT(
      [&] {
        (void)eager({file(0, {tagged(moves(1, NodeKind::kSend, 1), 5)}),
                     file(1, {tagged(moves(1, NodeKind::kRecv, 0), 6)})});
      },
      ::testing::ThrowsMessage<Error>(::testing::HasSubstr("and tag")));
}

TEST(VirtualPlay, GroupsThatWaitForEachOtherAreNamed) {
  const std::map<std::string, std::vector<Rank>> groups = {{"a", {0, 1}}, {"b", {0, 1}}};
  EXPECT_THAT(
      [&] {
        (void)assemble("test",
                       {file(0, {calls(1, 8, {}, "a"), calls(2, 8, {1}, "b")}),
                        file(1, {calls(1, 8, {}, "b"), calls(2, 8, {1}, "a")})},
                       0, groups);
      },
      ::testing::ThrowsMessage<Error>(::testing::HasSubstr("waits for the other ranks of group")));
}

// Two hosts of two ranks each and one rail, which both pairs of ranks use at once.
TEST(CallCosts, GroupsThatUseTheSameRailShareIt) {
  SimFlags flags;
  flags.hosts = 2;
  flags.rails = 1;
  TraceNode node = calls(1, 64 << 20);
  const auto us_of = [&](std::vector<std::vector<Rank>> lists) {
    JobTrace trace;
    trace.ranks = 4;
    trace.groups = {{"pairs", std::move(lists)}};
    CallCosts costs(trace, fabric_of_flags(flags, 4));
    return costs(node, {0, 2}).us;
  };
  EXPECT_NEAR(us_of({{0, 2}, {1, 3}}) / us_of({{0, 2}}), 2, 0.2);
  EXPECT_NEAR(us_of({{0, 2}, {1}, {3}}) / us_of({{0, 2}}), 1, 1e-9);
}

// The text must not depend on how late the heartbeat's thread runs.
TEST(Heartbeat, SaysWhatIsDoneAndHowFarItIs) {
  const weft::testing::TemporaryFolder folder;
  std::FILE* out = std::fopen((folder / "out").c_str(), "w");
  ASSERT_NE(out, nullptr);
  {
    Heartbeat heartbeat(true, out, std::chrono::milliseconds(1));
    heartbeat.phase("plays", 3);
    heartbeat.done_one();
    while (read_file(folder / "out").find("weft replay: plays: 1 of 3\n") == std::string::npos)
      std::this_thread::yield();
  }
  std::fclose(out);
}

}  // namespace
}  // namespace weft::replay
