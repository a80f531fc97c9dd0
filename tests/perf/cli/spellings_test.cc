// Old and foreign spellings of options are answered with the one that there is.
// labels: multiproc
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "support/process/shell.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

struct Case {
  const char* typed;
  const char* answer;
};

TEST(Spellings, OldOnesAreAnsweredWithTheNewOne) {
  for (const Case& c :
       {Case{"tune -n 2", "-n is -N here (ranks)"}, {"validate -n 2", "-n is -N here (ranks)"},
        {"train -n 2", "-n is -N here (ranks)"}, {"launch -n 2 -- true", "-n is -N here (ranks)"},
        {"explain all_reduce -n 8", "-n is -N here (ranks)"},
        {"sim all_reduce -n 8", "-n is -N here (ranks)"},
        {"perf all_reduce --iterations 5", "--iterations is --iters here"},
        {"replay x -i 5", "-i is -n here (steps)"},
        {"perf bw --timeout 3", "--timeout is --timeout-ms here (milliseconds)"},
        {"perf bw --limit 3", "--limit is --limit-s here"},
        {"lab softroce --timeout 3 -- true", "--timeout is --limit-s here"},
        {"lab netlab --grace 3 -- true", "--grace is --grace-ms here (milliseconds)"},
        {"lab netlab --counters x -- true", "--counters is --json here"},
        {"lab matrix --stop-after 3", "--stop-after is --stop-after-s here"},
        {"doctor --after 3", "--after is --after-s here"},
        {"sim all_reduce --reduce-GBps 3", "--reduce-GBps is --reduce-gbs here"},
        {"plan --model gpt3 --microbatch 2", "--microbatch is --micro-batch here"},
        {"plan --params 1e9 --hidden 128", "--hidden is --width here"},
        {"plan --params 1e9 --sequence 128", "--sequence is --positions here"},
        {"plan --model gpt3 --rail-gbytes 2", "--rail-gbytes is --rail-gbps here"},
        {"plan --model gpt3 --domain-gbytes=2", "--domain-gbytes is --host-gbps here"},
        {"trace merge x --output y", "--output is --out here"},
        {"bench peers -n 2", "-n is -N here (ranks)"},
        {"bench choice -n 2", "-n is -N here (ranks)"}}) {
    const Output o = run(std::string(WEFT_BINARY " ") + c.typed);
    EXPECT_EQ(o.exit_code, 4) << c.typed << o.text;
    EXPECT_THAT(o.text, HasSubstr(c.answer)) << c.typed;
  }
}

}  // namespace
}  // namespace weft
