// NCCL_TESTS_SPLIT, according to nccl-tests' README.
#include "perf/sweep/groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topo/base/status.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int> colors(const std::string& value, const char* variable = "NCCL_TESTS_SPLIT") {
  return groups_of(variable, value, 6).colors;
}

TEST(Groups, AreThoseOfNcclTests) {
  EXPECT_THAT(colors("AND 0x1"), ElementsAre(0, 1, 0, 1, 0, 1));
  EXPECT_THAT(colors("&0b10"), ElementsAre(0, 0, 2, 2, 0, 0));
  EXPECT_THAT(colors("OR 0x7"), ElementsAre(7, 7, 7, 7, 7, 7));
  EXPECT_THAT(colors("|3"), ElementsAre(3, 3, 3, 3, 7, 7));
  EXPECT_THAT(colors("mod 4"), ElementsAre(0, 1, 2, 3, 0, 1));
  EXPECT_THAT(colors("%2"), ElementsAre(0, 1, 0, 1, 0, 1));
  EXPECT_THAT(colors("DIV 2"), ElementsAre(0, 0, 1, 1, 2, 2));
  EXPECT_THAT(colors("/4"), ElementsAre(0, 0, 0, 0, 1, 1));
  EXPECT_THAT(colors("0x2", "NCCL_TESTS_SPLIT_MASK"), ElementsAre(0, 0, 2, 2, 0, 0));
  EXPECT_THAT(colors("2", "NCCL_TESTS_SPLIT_MASK"), ElementsAre(0, 0, 2, 2, 0, 0));
  EXPECT_THAT(groups_of("x", "OR 3", 6).names(), ElementsAre(3, 7));
  EXPECT_THAT(groups_of("x", "OR 3", 6).members(7), ElementsAre(4, 5));
}

TEST(Groups, WhatIsNoSplitIsRefusedByName) {
  for (const char* value :
       {"", "XOR 3", "MOD", "MOD x", "MOD 2 3", "AND 0b12", "DIV 0", "%0", "AND -1"}) {
    try {
      (void)colors(value);
      ADD_FAILURE() << value;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(std::string("NCCL_TESTS_SPLIT=") + value));
    }
  }
}

// Ranks 1, 3 and 5 of two hosts of three: one rank on one host and two on the other.
TEST(Groups, AShapeHasTheRanksOfTheGroup) {
  std::vector<Place> places(6);
  for (std::size_t r = 0; r < places.size(); ++r) places[r].host = r < 3 ? "a" : "b";
  const Shape shape = shape_of(Topology(places), {1, 3, 5}, 2, 1);
  EXPECT_EQ(shape.nranks, 3);
  EXPECT_EQ(shape.rank, 2);
  EXPECT_EQ(shape.root, 1);
  EXPECT_THAT(shape.hosts, ElementsAre(ElementsAre(0), ElementsAre(1, 2)));
}

}  // namespace
}  // namespace weft
