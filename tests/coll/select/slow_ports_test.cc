// Parsing of slow ports, and their effect on schedules.
#include "coll/select/slow_ports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "topo/base/status.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const PortNames kFour{{"n0", "n1", "7", "rack:3"}, {0, 1, 3}};

TEST(SlowPorts, GoByNumberOrName) {
  EXPECT_THAT(parse_slow_ports("S", "1:0=0.5,n0:3=0", kFour),
              ElementsAre(PortRate{0, 2, 0}, PortRate{1, 0, .5}));
  EXPECT_THAT(parse_slow_ports("S", "7:1=.25", kFour), ElementsAre(PortRate{2, 1, .25}));
  EXPECT_THAT(parse_slow_ports("S", "rack:3:1=.25", kFour), ElementsAre(PortRate{3, 1, .25}));
  EXPECT_THAT(parse_slow_ports("S", "2:*=0.5", kFour),
              ElementsAre(PortRate{2, 0, .5}, PortRate{2, 1, .5}, PortRate{2, 2, .5}));
  EXPECT_EQ(parse_slow_ports("S", "*:3=0.5", kFour).size(), 4u);
  EXPECT_THAT(parse_slow_ports("S", "", kFour), IsEmpty());
  EXPECT_THAT(parse_slow_ports("S", "1:0=1", kFour), IsEmpty());
}

TEST(SlowPorts, ThatMakeNoSenseAreNamedWithARemedy) {
  const struct {
    const char *text, *named, *remedy;
  } cases[] = {{"4:0=.5", "S 4:0=.5: ", "a host from 0 to 3, its name or *"},
               {"-1:0=.5", "S -1:0=.5", "a host from"},
               {":0=.5", "S :0=.5", "a host from"},
               {"n9:0=.5", "S n9:0=.5", "its name"},
               {"1:2=.5", "S 1:2=.5", "a rail of 0, 1, 3 or *"},
               {"1=.5", "S 1=.5", "give HOST:RAIL=FRACTION"},
               {"1:0", "S 1:0:", "give HOST:RAIL=FRACTION"},
               {"1:0=", "S 1:0=:", "a fraction"},
               {"1:0=1.5", "S 1:0=1.5", "to 1"},
               {"1:0=nan", "S 1:0=nan", "from 0 (dead)"},
               {"1:0=.5 ", "S 1:0=.5 :", "a fraction"},
               {"0:0=.5,", "S :", "give HOST:RAIL=FRACTION"},
               {"0:0=.5,n0:0=.2", "host 0 has two fractions for its port on rail 0", "give one"},
               {"*:3=.5,1:*=.5", "host 1 has two fractions for its port on rail 3", "give one"},
               {"1:*=0", "all ports of host 1 are dead", "leave one"}};
  for (const auto& c : cases) try {
      parse_slow_ports("S", c.text, kFour);
      ADD_FAILURE() << c.text << ": no error";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(c.named));
      EXPECT_THAT(e.what(), HasSubstr(c.remedy));
    }
}

TEST(SlowPorts, WhatAllHostsLackIsTheRails) {
  auto ports = parse_slow_ports("S", "*:1=0.5,2:0=.25", kFour);
  EXPECT_THAT(take_rail_rates(ports, 4, 3), ElementsAre(1, .5, 1));
  EXPECT_THAT(ports, ElementsAre(PortRate{2, 0, .25}));
  ports = {{0, 1, .5}, {1, 1, .25}};
  EXPECT_THAT(take_rail_rates(ports, 2, 2), ElementsAre(1, .5));
  EXPECT_THAT(ports, ElementsAre(PortRate{1, 1, .5}));
  ports = {{0, 1, 0}, {1, 1, 0}};  // dead on every host: the rail's rate is unknown
  EXPECT_THAT(take_rail_rates(ports, 2, 2), ElementsAre(1, 1));
  EXPECT_EQ(ports.size(), 2u);
}

TEST(SlowPorts, AreThoseOfTheRanksOnTheRail) {
  const std::vector<std::vector<Rank>> hosts{{0, 1, 2}, {3, 4, 5}};
  const auto rail_of = [](Rank r) { return r % 3 == 0 ? 1 : 0; };
  EXPECT_THAT(ports_of_ranks({{0, 0, .5}, {1, 1, .25}}, hosts, rail_of),
              ElementsAre(SlowPort{0, 1, .5}, SlowPort{0, 2, .5}, SlowPort{1, 0, .25}));
}

}  // namespace
}  // namespace weft
