// The explanation of the pick by `weft explain`, compared with its own table of times.
#include "perf/predict/explain.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perf/predict/model_flags.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Explanation explained(int ranks, int hosts, const char* bytes, const char* algorithm = "auto") {
  ModelFlags flags;
  flags.collective = "all_reduce";
  flags.ranks = ranks;
  flags.hosts = hosts;
  flags.bytes = bytes;
  Question q;
  q.call = call_of(flags, 0);
  q.algorithm = algorithm;
  return explain(q);
}

TEST(Explain, CallsOnlyTheFastestTheFastest) {
  int fastest = 0, others = 0;
  for (const auto& [ranks, hosts] : {std::pair{2, 1}, {8, 2}, {24, 3}, {64, 8}, {4096, 512}})
    for (const char* bytes : {"8", "64K", "1M", "16M", "1G"})
      for (const char* algorithm : {"auto", "ring", "direct"}) {
        const Explanation e = explained(ranks, hosts, bytes, algorithm);
        const double least = e.candidates.front().prediction.time_us;
        for (const Candidate& c : e.candidates) EXPECT_GE(c.prediction.time_us, least);
        const std::string said = text(e);
        SCOPED_TRACE(said);
        const bool claims = said.find("the fastest") != said.npos;
        EXPECT_EQ(claims, e.chosen.prediction.time_us == least);
        ++(claims ? fastest : others);
      }
  EXPECT_GT(fastest, 0);
  EXPECT_GT(others, 0);
}

TEST(Explain, SaysThatHostsHaveUnequalNumbersOfRanks) {
  EXPECT_THAT(
      text(explained(64, 7, "1M")),
      HasSubstr("the blocks of ranks are unequal: 1 host has 10 ranks, 6 hosts have 9 ranks\n"));
  for (const int hosts : {1, 8})
    EXPECT_THAT(text(explained(64, hosts, "1M")), Not(HasSubstr("unequal")));
}

}  // namespace
}  // namespace weft
