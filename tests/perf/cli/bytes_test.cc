// Parsing of sizes.
#include "perf/cli/bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "topo/base/status.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Bytes, ReadsPlainNumbersAndUnitsOf1024) {
  EXPECT_EQ(parse_bytes("-b", "8"), 8u);
  EXPECT_EQ(parse_bytes("-b", "16K"), 16u << 10);
  EXPECT_EQ(parse_bytes("-b", "16k"), 16u << 10);
  EXPECT_EQ(parse_bytes("-b", "64M"), 64u << 20);
  EXPECT_EQ(parse_bytes("-b", "64MiB"), 64u << 20);
  EXPECT_EQ(parse_bytes("-b", "64MB"), 64u << 20);
  EXPECT_EQ(parse_bytes("-b", "1G"), 1u << 30);
  EXPECT_EQ(parse_bytes("-b", "2T"), std::uint64_t{2} << 40);
  EXPECT_EQ(parse_bytes("-b", "100B"), 100u);
}

TEST(Bytes, RefusesEverythingElseAndNamesIt) {
  for (const char* text :
       {"", "K", "1X", "1.5M", "-8", "+8", " 8", "8 ", "0", "0K", "1KK", "1Mi", "0x10",
        "99999999999999999999", "99999999999T", "18446744073709551615", "129T"}) {
    try {
      parse_bytes("-e", text);
      ADD_FAILURE() << "accepted '" << text << "'";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(std::string("-e ") + (*text ? text : "''")));
      EXPECT_THAT(e.what(), HasSubstr("16K"));
    }
  }
}

TEST(Bytes, WritesTheShortestExactForm) {
  EXPECT_EQ(format_bytes(8), "8");
  EXPECT_EQ(format_bytes(1000), "1000");
  EXPECT_EQ(format_bytes(1024), "1K");
  EXPECT_EQ(format_bytes(64 << 20), "64M");
  EXPECT_EQ(format_bytes(0), "0");
  for (std::uint64_t bytes : {1ull, 1536ull, 65536ull, 3ull << 30, (1ull << 46) + 1})
    EXPECT_EQ(parse_bytes("-b", format_bytes(bytes)), bytes);
}

TEST(Bytes, LaddersEndAtOrBelowTheLastSize) {
  EXPECT_THAT(size_ladder(8, 128, 4), ElementsAre(8, 32, 128));
  EXPECT_THAT(size_ladder(8, 127, 4), ElementsAre(8, 32));
  EXPECT_THAT(size_ladder(8, 8, 2), ElementsAre(8));
  const std::uint64_t huge = ~std::uint64_t{0};
  EXPECT_THAT(size_ladder(huge / 2, huge, 2), ElementsAre(huge / 2, huge - 1));
  EXPECT_THROW(size_ladder(16, 8, 2), Error);
  EXPECT_THROW(size_ladder(8, 16, 1), Error);
  EXPECT_THROW(size_ladder(8, 16, 0), Error);
}

TEST(SizeLadder, MayGrowByASum) {
  EXPECT_THAT(size_ladder(8, 20, 4, 4), ::testing::ElementsAre(8, 12, 16, 20));
  EXPECT_THAT(size_ladder(8, 21, 1, 5), ::testing::ElementsAre(8, 13, 18));
  EXPECT_THAT(size_ladder(8, 9, 1, 100), ::testing::ElementsAre(8));
  EXPECT_THAT(size_ladder(8, 8, 1), ::testing::ElementsAre(8)) << "nothing grows";
  EXPECT_THROW(size_ladder(8, std::uint64_t{8} << 30, 2, 1), Error);
}

}  // namespace
}  // namespace weft
