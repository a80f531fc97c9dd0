// Facts from other machines are checked against the job's own data.
#include "perf/validate/fleet_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "perf/validate/rail_outages.h"
#include "tests/perf/validate/agents.h"

namespace weft::fabric {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Json = nlohmann::ordered_json;

class FactsOfAHost : public ::testing::Test {
 protected:
  FactsOfAHost() : topology_(loopback_topology(3, 2, 2)) {
    facts_.host = "h1";
    facts_.first_rank = 2;
    facts_.ranks = 2;
    facts_.cores = 8;
    facts_.ports.resize(2);
    facts_.ports[1].rail = 1;
    for (PortFacts& port : facts_.ports) {
      port.rate_gbps = 400;
      port.before["net.rx_bytes"] = {ReadingState::kValue, 1'000'000};
    }
  }
  HostFacts read(const std::string& text) { return facts_of_host(topology_, 1, text, lies_); }
  HostFacts read(const Json& json) { return read(json.dump()); }

  const Topology topology_;
  HostFacts facts_;
  std::vector<FalseReport> lies_;
};

TEST_F(FactsOfAHost, AreTakenAsTheyAre) {
  const HostFacts read_back = read(to_json(facts_));
  EXPECT_THAT(lies_, IsEmpty());
  EXPECT_EQ(to_json(read_back), to_json(facts_));
}

TEST_F(FactsOfAHost, WhatIsNoFactsNamesTheHostAndLeavesItWithoutPorts) {
  for (const std::string& text :
       {std::string(), std::string("{"), std::string("[]"), std::string("{\"host\":7}"),
        std::string(5000, '['), std::string("\xff")}) {
    lies_.clear();
    const HostFacts facts = read(text);
    ASSERT_EQ(lies_.size(), 1u) << text;
    EXPECT_EQ(lies_[0].host, "h1");
    EXPECT_EQ(facts.host, "h1");
    EXPECT_EQ(facts.first_rank, 2);
    EXPECT_EQ(facts.ranks, 2);
    EXPECT_THAT(facts.ports, IsEmpty());
  }
}

TEST_F(FactsOfAHost, AnotherHostsNameIsNotTaken) {
  Json json = to_json(facts_);
  json["host"] = "h2";
  const HostFacts facts = read(json);
  EXPECT_EQ(facts.host, "h1");
  EXPECT_EQ(facts.ports.size(), 2u);
  ASSERT_EQ(lies_.size(), 1u);
  EXPECT_EQ(lies_[0].host, "h1");
  EXPECT_THAT(lies_[0].text, HasSubstr("h2"));
}

TEST_F(FactsOfAHost, RailsThatTheHostHasNotAreNotTaken) {
  for (const int rail : {-1, 0, 2, 1000000}) {
    lies_.clear();
    Json json = to_json(facts_);
    json["ports"][1]["rail"] = rail;
    EXPECT_THAT(read(json).ports, IsEmpty()) << rail;
    EXPECT_EQ(lies_.size(), 1u);
  }
}

TEST_F(FactsOfAHost, NegativeNumbersAreDropped) {
  Json json = to_json(facts_);
  json["ports"][1]["rate_gbps"] = -400;
  const HostFacts facts = read(json);
  EXPECT_FALSE(facts.ports[1].rate_gbps);
  EXPECT_TRUE(facts.ports[0].rate_gbps);
  ASSERT_EQ(lies_.size(), 1u);
  EXPECT_EQ(lies_[0].rail, 1);
}

TEST_F(FactsOfAHost, FirstReadingsStay) {
  HostFacts later = facts_;
  keep_first_readings(facts_, later, lies_);
  EXPECT_THAT(lies_, IsEmpty());
  later.ports[1].before["net.rx_bytes"].value = 0;
  keep_first_readings(facts_, later, lies_);
  ASSERT_EQ(lies_.size(), 1u);
  EXPECT_EQ(lies_[0].rail, 1);
  EXPECT_EQ(later.ports[1].before, facts_.ports[1].before);
}

TEST_F(FactsOfAHost, OutagesThatAreNoneNameTheHost) {
  const std::string good = R"([{"rail":1,"peer":0,"back":false,"cause":"no answer"}])";
  EXPECT_EQ(outages_from(topology_, 3, good, lies_).size(), 1u);
  EXPECT_THAT(lies_, IsEmpty());
  for (const char* text : {"", "{", "[3]", R"([{"rail":1,"peer":6,"back":false,"cause":""}])",
                           R"([{"rail":1,"peer":-1,"back":false,"cause":""}])",
                           R"([{"rail":"x","peer":0,"back":false,"cause":""}])"}) {
    lies_.clear();
    EXPECT_THAT(outages_from(topology_, 3, text, lies_), IsEmpty()) << text;
    ASSERT_EQ(lies_.size(), 1u) << text;
    EXPECT_EQ(lies_[0].host, "h1");
  }
}

}  // namespace
}  // namespace weft::fabric
