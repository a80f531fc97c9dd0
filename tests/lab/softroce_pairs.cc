// `weft perf bw` and `lat` over verbs: the output of the checks in the boot of softroce_test.cc.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/lab/softroce_boot.h"

namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using weft::testing::CheckResult;
using weft::testing::Guest;

TEST_F(Guest, PairsInEveryModeCarryEveryByte) {
  for (const char* op : {"write", "send", "read"}) {
    for (const char* test : {"bw_", "lat_"}) {
      const std::string name = std::string(test) + op;
      expect_good_pair(name);
      const auto report = json(name);
      ASSERT_TRUE(report.is_object()) << name;
      EXPECT_EQ(report["schema"], "weft.pair/1");
      EXPECT_THAT(report["pairs"][0]["path"].get<std::string>(), HasSubstr("RoCE v2 IPv4"));
      const auto& sizes = report["pairs"][0]["sizes"];
      ASSERT_EQ(sizes.size(), 4U) << name;
      for (const auto& size : sizes) {
        const bool bandwidth = name.starts_with("bw");
        EXPECT_EQ(size["at_client"]["messages"], bandwidth ? 100 : 50) << name << size;
        EXPECT_GT(size[bandwidth ? "average_MBps" : "typical_us"].get<double>(), 0) << name;
      }
    }
  }
}

TEST_F(Guest, QueuePairsListsBothWaysAndEvents) {
  expect_good_pair("bw_queues");
  expect_good_pair("bw_events");
  const auto queues = json("bw_queues")["pairs"][0]["sizes"][0];
  EXPECT_EQ(queues["at_client"]["messages"], 200);
  EXPECT_EQ(queues["at_server"]["messages"], 200);
}

TEST_F(Guest, WhatIsUsedIsToldAndNotWhatIsAskedFor) {
  expect_good_pair("bw_deep");
  EXPECT_EQ(json("bw_deep")["pairs"][0]["tx_depth"], 1000);
  EXPECT_THAT(result("bw_deep").text, Not(HasSubstr("under way")));
  expect_good_pair("bw_deeper");
  const int depth = json("bw_deeper")["pairs"][0]["tx_depth"];
  EXPECT_LT(depth, 32768) << "more than rdma_rxe has";
  EXPECT_THAT(result("bw_deeper").text, HasSubstr(fmt::format("-t 32768: {} under way", depth)));
  expect_good_pair("lat_moderated");
  const auto moderated = json("lat_moderated")["pairs"][0];
  EXPECT_EQ(moderated["inline_bytes"], 0);
  EXPECT_EQ(moderated["sizes"][0]["at_client"]["messages_per_completion"], 5);
  const auto usual = json("lat_write")["pairs"][0];
  EXPECT_EQ(usual["inline_bytes"], 220);
  EXPECT_EQ(usual["sizes"][0]["at_client"]["messages_per_completion"], 32);
}

// The fake GPU's memory, which no kernel registers.
TEST_F(Guest, MemoryOfAGpuThatTheDeviceDoesNotReachIsNamedWithARemedy) {
  const CheckResult r = result("bw_cuda");
  EXPECT_NE(r.code, 0);
  EXPECT_THAT(r.text, AllOf(HasSubstr("--use_cuda 0: "), HasSubstr("nvidia_peermem"),
                            HasSubstr("open kernel modules")));
}

TEST_F(Guest, WrongDataIsSeenInEveryMode) {
  for (const char* op : {"write", "send", "read"})
    for (const char* test : {"bw_", "lat_"}) {
      const std::string name = std::string("wrong_") + test + op;
      const CheckResult r = result(name);
      EXPECT_EQ(r.code, 2) << name << r.text;
      EXPECT_EQ(result(name + "_server").code, 2) << name;
      EXPECT_THAT(r.text, ContainsRegex("# 4096 bytes, rank [01] \\([a-z]+\\): WRONG DATA: .*byte "
                                        "2047 is 0x.., expected 0x.."))
          << name;
    }
}

TEST_F(Guest, ATestMayLastSeconds) {
  expect_good_pair("bw_duration");
  expect_good_pair("lat_duration");
  EXPECT_THAT(result("bw_duration").text, AllOf(HasSubstr("Gb/sec"), HasSubstr("MTU 1024")));
  const auto size = json("bw_duration")["pairs"][0]["sizes"][0]["at_client"];
  EXPECT_GE(size["seconds"].get<double>(), 0.9);
  EXPECT_LE(size["worst_100ms"].get<double>(), size["average"].get<double>());
  EXPECT_GE(size["best_100ms"].get<double>(), size["average"].get<double>());
}

TEST_F(Guest, LossShowsInTheCounters) {
  expect_good_pair("bw_loss");
  // 2 % of 1000 packets: the chance that none is lost is below 1 in 10^8.
  EXPECT_THAT(result("bw_loss").text, ContainsRegex("server: rail 0 host server \\(rxe_h1r0\\): "
                                                    ".*out_of_seq_request \\+[0-9]"));
  const auto counters = json("bw_loss")["pairs"][0]["sizes"][0]["at_server"]["counters"];
  EXPECT_GT(counters["out_of_seq_request"].get<int>(), 0);
}

TEST_F(Guest, APulledCableIsNamed) {
  const CheckResult r = result("bw_cable");
  EXPECT_EQ(r.code, 2);
  EXPECT_THAT(r.text, AllOf(HasSubstr("status 12"), HasSubstr("the peer stopped acknowledging"),
                            HasSubstr("rxe_h0r0")));
  EXPECT_THAT(r.text, ContainsRegex("status 12.*; rail 0 host client \\(rxe_h0r0\\): "
                                    ".*(retry|timeout|retr)[a-z_]* \\+[1-9]"))
      << "what the port counted meanwhile";
  EXPECT_EQ(result("bw_cable_server").code, 2);
}

TEST_F(Guest, ManyPairsAtOnce) {
  good("many_pairs");
  EXPECT_THAT(result("many_pairs").text,
              AllOf(HasSubstr(" 2->0 "), HasSubstr(" 3->1 "), ContainsRegex("2 pairs: .* median")));
  good("many_latencies");
  EXPECT_THAT(result("many_latencies").text, AllOf(HasSubstr(" 0->1 "), HasSubstr(" 3->0 ")));
}

TEST_F(Guest, TheComparisonWithPerftestRuns) {
  const CheckResult r = result("ratios");
  if (r.code == 3) GTEST_SKIP() << r.text;
  EXPECT_EQ(r.code, 0) << r.text;
  const auto rows = json("ratios")["rows"];
  ASSERT_EQ(rows.size(), 2U);
  for (const auto& row : rows) EXPECT_GT(row["ratio"].get<double>(), 0) << row;
}

}  // namespace
