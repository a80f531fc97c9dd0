// Rail outages are attributed to the host that they have in common, or to the rail.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perf/validate/checks/check.h"

namespace weft::fabric {
namespace {

using ::testing::IsEmpty;

TEST(Outages, NameTheRailAndTheHostThatAllHaveInCommon) {
  EXPECT_THAT(judge_outages(std::vector<RailOutage>()), IsEmpty());
  std::vector<RailOutage> outages = {{1, "a", "b", false, "its link is down"},
                                     {1, "b", "a", false, "no answer"},
                                     {1, "b", "c", false, "no answer"}};
  auto findings = judge_outages(outages);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].where.kind, PlaceKind::kPort);
  EXPECT_EQ(findings[0].where.host, "b");
  EXPECT_EQ(findings[0].where.rail, 1);
  EXPECT_EQ(findings[0].severity, Severity::kFail);
  EXPECT_EQ(findings[0].evidence.size(), 3u);
  outages.push_back({1, "c", "a", false, "no answer"});
  outages.push_back({0, "a", "b", true, "no answer"});
  findings = judge_outages(outages);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].where.kind, PlaceKind::kRail);
  EXPECT_EQ(findings[0].where.rail, 0);
  EXPECT_EQ(findings[0].severity, Severity::kWarn) << "it came back";
  EXPECT_EQ(findings[1].where.kind, PlaceKind::kRail) << "the whole rail, or more than one host";
  EXPECT_EQ(findings[1].where.rail, 1);
}

TEST(Outages, ARailThatStayedOutOnOnePathIsOut) {
  for (const bool back : {false, true}) {
    const auto findings = judge_outages(std::vector<RailOutage>{{1, "a", "b", true, "no answer"},
                                                                {1, "a", "c", back, "no answer"}});
    ASSERT_EQ(findings.size(), 1u);
    EXPECT_EQ(findings[0].severity, back ? Severity::kWarn : Severity::kFail);
  }
}

TEST(Outages, EachOfTwoHostsAtFaultIsNamed) {
  std::vector<RailOutage> outages;
  for (const char* host : {"a", "b", "c", "d", "e"})
    for (const char* other : {"b", "d"})
      if (host != std::string(other)) outages.push_back({1, host, other, false, "no answer"});
  outages.push_back({1, "d", "a", false, "its link is down"});
  const auto findings = judge_outages(outages);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].where.host, "b");
  EXPECT_EQ(findings[1].where.host, "d");
}

TEST(Outages, HostsWithoutFailoverAreAWarning) {
  const auto findings = judge_outages(std::vector<RailOutage>{{kNoRail, "a", "b", false, ""}});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].id, "no-failover");
  EXPECT_EQ(findings[0].severity, Severity::kWarn);
}

}  // namespace
}  // namespace weft::fabric
