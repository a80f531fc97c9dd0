// Failing RDMA rails during collectives (softroce_failover_checks), run in the guest that
// softroce_test.cc boots: pulled cables, dropped packets, loss, and a killed rank.
// WEFT_FAILOVER_ROUNDS=100 sets how often cables are pulled (the default is quick).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "tests/lab/softroce_boot.h"

namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

using FailingRails = weft::testing::Guest;

// For any number of ranks and lanes: each host logs at most one line, and as many about the return.
void expect_told_once(const std::string& text) {
  const auto lines = [&text](const std::string& what) {
    const std::regex line(what);
    return std::distance(std::sregex_iterator(text.begin(), text.end(), line), {});
  };
  for (const char* host : {"h0", "h1"}) {
    const std::string told = fmt::format(R"(rail \d \(\S+ on host {}\S*( to [^)]*)?\) is )", host);
    EXPECT_LE(lines(told + "taken out"), 1) << host << ":\n" << text;
    EXPECT_EQ(lines(told + "taken out"), lines(told + "back")) << host << ":\n" << text;
  }
}

TEST_F(FailingRails, APulledCableIsTakenOutAndBack) {
  const std::string text = good("cable");
  EXPECT_THAT(text, ContainsRegex("rail 1 \\(rxe_h.r1 on host h.*\\) is taken out: "));
  EXPECT_THAT(text, ContainsRegex("rail 1 \\(rxe_h.r1 on host h.*\\) is back"));
  EXPECT_THAT(text, ContainsRegex("rank 3: [0-9]+ operations right.*taken out [1-9].*back [1-9]"));
  expect_told_once(text);
}

// The link stays up, and nothing arrives.
TEST_F(FailingRails, SilenceIsNoticed) {
  const std::string text = good("silence");
  EXPECT_THAT(text, ContainsRegex("rail 0 \\(rxe_h.r0 on host h.*\\) is taken out: "));
  EXPECT_THAT(text, ContainsRegex("rank 0: [0-9]+ operations right.*taken out [1-9].*back [1-9]"));
  expect_told_once(text);
}

TEST_F(FailingRails, CablesArePulledAtRandomMoments) {
  const std::string text = good("at_random");
  EXPECT_THAT(text, ContainsRegex("rank 3: [0-9]+ operations right"));
  EXPECT_THAT(text, ContainsRegex("taken out [1-9]")) << "no rail ever left: this shows nothing";
}

TEST_F(FailingRails, AKilledRankIsNamed) {
  const auto [text, code] = result("killed");
  EXPECT_NE(code, 0);
  EXPECT_NE(code, 124) << "somebody waited for ever:\n" << text;
  EXPECT_THAT(text, AllOf(HasSubstr("rank 3"), HasSubstr("h1"))) << text;
}

// The speed is not tested here: docs/benchmarks has the figures.
TEST_F(FailingRails, LossOnOneRailIsNoHindrance) {
  for (const char* check : {"one_clean_rail", "two_rails_one_lossy"}) {
    good(check);
    const auto report = nlohmann::json::parse(left(std::string(check) + ".json"));
    ASSERT_EQ(report["rows"].size(), 1U) << check;
    const auto& row = report["rows"][0];
    EXPECT_EQ(row.value("wrong", 0), 0) << check;
    std::printf("%s: %.0f us, of the bound %.3f\n", check, row["time_us_p50"].get<double>(),
                row.value("of_bound", 0.0));
  }
}

}  // namespace
