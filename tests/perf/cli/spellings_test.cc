// Old and foreign spellings of options give an error with the right spelling.
// labels: multiproc
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "support/process/shell.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Case {
  const char* typed;
  const char* answer;
};

TEST(Spellings, NumbersOfRanksAreAnswered) {
  for (const Case& c : {Case{"tune -n 2", "-n is -N here (ranks)"},
                        {"validate -n 2", "-n is -N here (ranks)"},
                        {"train -n 2", "-n is -N here (ranks)"},
                        {"launch -n 2 -- true", "-n is -N here (ranks)"},
                        {"explain all_reduce -n 8", "-n is -N here (ranks)"},
                        {"sim all_reduce -n 8", "-n is -N here (ranks)"}}) {
    const Output o = run(std::string(WEFT_BINARY " ") + c.typed);
    EXPECT_EQ(o.exit_code, 4) << c.typed << o.text;
    EXPECT_THAT(o.text, HasSubstr(c.answer)) << c.typed;
  }
}

TEST(Spellings, FlagsOfNcclTestsAndPerftestAreTakenOrAnswered) {
  const Output nccl = run(WEFT_BINARY
                          " perf all_reduce -N 2 -b 8 -e 64 -f 2 -g 1 -t 1 -c 1 -w 5 -n 20 "
                          "--timeout-ms 20000");
  EXPECT_EQ(nccl.exit_code, 0) << nccl.text;
  EXPECT_THAT(nccl.text, HasSubstr("# Avg bus bandwidth    : "));
  EXPECT_THAT(run(WEFT_BINARY " perf barrier -N 2 -n 2 -c 0").text,
              HasSubstr("results were not checked"));
  for (const Case& c : {Case{"perf all_reduce --no-check", "--no-check: -c 0 compares nothing"},
                        {"perf all_reduce_perf", "it is `weft perf all_reduce` here"},
                        {"all_reduce_perf -b 8", "it is `weft perf all_reduce` here"},
                        {"alltoall_perf", "it is `weft perf all_to_all` here"},
                        {"broadcast", "it is `weft perf broadcast` here"},
                        {"ib_write_bw", "it is `weft perf bw --op write` here"},
                        {"perf ib_send_bw -a -F", "it is `weft perf bw --op send` here"},
                        {"perf ib_read_lat", "it is `weft perf lat --op read` here"},
                        {"perf bw -N 2", "`weft launch -N 2 --hosts 2 -- weft perf bw --op tcp`"},
                        {"perf lat --hosts 2", "--hosts: a launcher starts both ends"},
                        {"perf all_reduce --iterss 5", "did you mean --iters?"},
                        {"plan --model gpt33", "no model 'gpt33'; did you mean gpt3?"}}) {
    const Output o = run(std::string(WEFT_BINARY " ") + c.typed);
    EXPECT_EQ(o.exit_code, 4) << c.typed << o.text;
    EXPECT_THAT(o.text, HasSubstr(c.answer)) << c.typed;
  }
}

// The list comes from the script; `weft lab netlab` alone requires a command.
TEST(Spellings, FaultsOfTheLabHaveTheirOwnHelp) {
  const Output help = run(WEFT_BINARY " lab netlab fault --help");
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.text, HasSubstr("Usage: weft lab netlab fault "));
  EXPECT_THAT(help.text, HasSubstr(run(WEFT_SOURCE_DIR "/tests/lab/netlab fault").text));
  EXPECT_EQ(run(WEFT_BINARY " lab netlab fault").exit_code, 0);
  const Output none = run(WEFT_BINARY " lab netlab fault --lab none rate h1 50%");
  EXPECT_EQ(none.exit_code, 4);
  EXPECT_THAT(none.text, HasSubstr("no lab is called none"));
  const Output bare = run(WEFT_BINARY " lab netlab");
  EXPECT_EQ(bare.exit_code, 4);
  EXPECT_THAT(bare.text, HasSubstr("command is required"));
}

// Ranks that share cores or migrate between cores are slow; the header says so.
TEST(Spellings, TheHeaderSaysHowRanksShareCores) {
  const std::string small = " perf barrier -n 2 --timeout-ms 20000";
  EXPECT_THAT(run("n=$(($(nproc --all) + 1)); " WEFT_BINARY + small + " -N $n").text,
              HasSubstr(" ranks share "));
  EXPECT_THAT(run(WEFT_BINARY + small + " -N 1").text, Not(HasSubstr("share")));
}

}  // namespace
}  // namespace weft
