// nccl-tests compatibility of `weft perf`: flags, JSON, split; and limits.
// labels: multiproc
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/process/shell.h"
#include "support/process/temporary_folder.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Output perf(const std::string& arguments) { return run(WEFT_BINARY " perf " + arguments); }

// An nccl-tests script runs; each flag has its effect, or a line says that it has none.
TEST(NcclFlags, TakesTheFlagsOfNcclTests) {
  const testing::TemporaryFolder folder;
  const std::string file = folder / "out.json";
  const Output script = perf(
      "all_reduce -N 2 -b 1M --maxbytes=3M -i 1M -n 6 -w 1 -z 1 -I 1 -K 2 -S 1 -M 1 -u 3 -a 1 "
      "-m 2 -c 2 -G 1 -p 1 -T 20 --run_cycles 2 -J " +
      file);
  ASSERT_EQ(script.exit_code, 0) << script.text;
  for (const char* warning :
       {"-G 1 is ignored: ", "-p 1 is ignored: ", "-N 2 is the number of ranks", "-z 1: the time",
        "-m 2: the operations follow each other"}) {
    const std::string line = std::string("weft: warning: ") + warning;
    const auto at = script.text.find(line);
    EXPECT_NE(at, std::string::npos) << warning << script.text;
    EXPECT_EQ(script.text.rfind(line), at) << "said twice: " << warning;
  }
  EXPECT_THAT(script.text, AllOf(HasSubstr("mean of the ranks"), HasSubstr("i_p99"),
                                 HasSubstr("# Memory usage         : Initialization")));
  const auto json = nlohmann::json::parse(std::ifstream(file));
  EXPECT_EQ(json["version"], 3);
  EXPECT_EQ(json["config"]["step_bytes"], 1 << 20);
  EXPECT_EQ(json["config"]["aggregated_iterations"], 2);
  EXPECT_EQ(json["config"]["per_iter_timing"], "true");
  EXPECT_EQ(json["config"]["devices"].size(), 2u);
  EXPECT_EQ(json["average_bus_bandwidth"]["okay"], "unchecked");
  EXPECT_EQ(json["out_of_bounds"]["okay"], "true");
  for (const auto& variable : json["env"])
    EXPECT_THAT(variable.get<std::string>(), Not(HasSubstr("SECRET")));
  ASSERT_EQ(json["results"].size(), 6u) << "three sizes, twice";
  for (const auto& row : json["results"])
    for (const char* half : {"out_of_place", "in_place"}) {
      EXPECT_GT(row[half]["bus_bw"], 0);
      EXPECT_EQ(row[half]["nwrong"], 0);
      const auto& times = row[std::string(half) + "_per_iter"];
      ASSERT_EQ(times["times_us"].size(), 6u);
      ASSERT_EQ(times["per_process_max_times_us"].size(), 2u);
      double least = 1e9, most = 0;
      for (std::size_t i = 0; i < 6; ++i) {
        const double us = times["times_us"][i];
        const auto& ranks = times["per_process_max_times_us"];
        EXPECT_EQ(us, std::max(ranks[0][i].get<double>(), ranks[1][i].get<double>()));
        if (i < 2) continue;  // -K
        least = std::min(least, us);
        most = std::max(most, us);
      }
      EXPECT_EQ(times["min_us"], least);
      EXPECT_EQ(times["max_us"], most);
    }
}

TEST(NcclFlags, GroupsRunSideBySideAndLimitsHaveAnExitCode) {
  setenv("NCCL_TESTS_SPLIT", "MOD 2", 1);
  const Output split =
      perf("broadcast -N 5 -r all -b 4K -e 4K -n 3 -o max --min-busbw 1e6 --timeout-ms 20000");
  setenv("NCCL_TESTS_SPLIT", "MOD no", 1);
  const Output refused = perf("all_reduce -N 2 -b 8 -e 8 -n 3");
  unsetenv("NCCL_TESTS_SPLIT");
  EXPECT_EQ(split.exit_code, 2) << split.text;
  for (const char* part :
       {"-o max is ignored: broadcast reduces nothing", "# weft perf broadcast: 3 ranks on 1 host",
        "NCCL_TESTS_SPLIT=MOD 2: 2 groups", "1,3", "0,2,4", "is below --min-busbw 1e+06",
        "# all results exact"})
    EXPECT_THAT(split.text, HasSubstr(part));
  EXPECT_EQ(refused.exit_code, 4) << refused.text;
  EXPECT_THAT(refused.text, HasSubstr("NCCL_TESTS_SPLIT=MOD no: not a number"));
}

TEST(NcclFlags, PortsAndPredictionsAreBesideTheRows) {
  const Output fast = perf(
      "all_reduce -g 2 --hosts 2 -b 64K -e 64K -n 3 --ports --expect 1e-9 --timeout-ms 20000 "
      "--json - 2>/dev/null");
  ASSERT_EQ(fast.exit_code, 0) << fast.text;
  const auto json = nlohmann::json::parse(fast.text);
  EXPECT_EQ(json["ranks"], 2);
  EXPECT_GT(json["rows"][0]["ports"][0]["counters"]["net.tx_bytes"], 64 << 10);
  EXPECT_GT(json["rows"][0]["predicted_us"], 0);
  const Output slow =
      perf("all_reduce -N 2 --hosts 2 -b 64K -e 64K -n 3 --ports --expect 1000 --timeout-ms 20000");
  EXPECT_EQ(slow.exit_code, 2) << slow.text;
  EXPECT_THAT(slow.text, AllOf(HasSubstr("# MISSED: 65536 bytes of float sum: "),
                               HasSubstr("is below --expect 1000"), HasSubstr("net.tx_bytes +")));
}

}  // namespace
}  // namespace weft
