// Escape sequences are printed only to terminals that support them, and colors only if wanted.
// labels: multiproc
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "support/jobs/launchers.h"
#include "support/process/shell.h"

namespace weft {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kColour[] = "\033\\[[0-9;]*m";

// The command's output on a terminal.
Output on_terminal(const std::string& variables, const std::string& command) {
  return run(fmt::format("env -u NO_COLOR -u TERM {} timeout 100 script -qec \"{} {}\" /dev/null",
                         variables, WEFT_BINARY, command));
}

class Colours : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (run("script --version").exit_code != 0)
      GTEST_SKIP() << "missing capability: script (bsdutils)";
  }
};

TEST_P(Colours, AreOnATerminal) {
  EXPECT_THAT(on_terminal("TERM=xterm", GetParam()).text, ContainsRegex(kColour));
  EXPECT_THAT(on_terminal("TERM=xterm NO_COLOR=", GetParam()).text, ContainsRegex(kColour));
}

TEST_P(Colours, AreNotWhereNobodyWantsThemOrTheTerminalIsDumb) {
  for (const char* variables : {"TERM=xterm NO_COLOR=1", "TERM=dumb", ""})
    EXPECT_THAT(on_terminal(variables, GetParam()).text, Not(ContainsRegex(kColour))) << variables;
}

TEST_P(Colours, AreNotInAPipe) {
  EXPECT_THAT(run(fmt::format("TERM=xterm timeout 100 {} {} | cat", WEFT_BINARY, GetParam())).text,
              Not(HasSubstr("\033[")));
}

// mpirun gives its ranks a terminal and copies their output to its own standard output.
TEST_P(Colours, AreNotUnderMpirun) {
  if (const std::string why = testing::missing_for_mpirun(); !why.empty()) GTEST_SKIP() << why;
  const Output o = run("TERM=xterm timeout 100 " +
                       testing::by_mpirun(1, fmt::format("{} {}", WEFT_BINARY, GetParam())));
  EXPECT_THAT(o.text, Not(HasSubstr("\033["))) << o.text;
}

INSTANTIATE_TEST_SUITE_P(Commands, Colours,
                         ::testing::Values("topo",
                                           "validate --simulate --hosts 4 --random-faults 1"),
                         [](const auto& info) {
                           const std::string words = info.param;
                           return words.substr(0, words.find(' '));
                         });

// The progress line is erased by an escape sequence.
TEST(ProgressLine, IsNotOnADumbTerminal) {
  if (run("script --version").exit_code != 0)
    GTEST_SKIP() << "missing capability: script (bsdutils)";
  const char* command = "perf all_reduce -N 2 -b 8 -e 64 -n 3 --timeout-ms 60000";
  EXPECT_THAT(on_terminal("TERM=xterm", command).text, HasSubstr("\033[K"));
  EXPECT_THAT(on_terminal("TERM=dumb", command).text, Not(HasSubstr("\033")));
}

}  // namespace
}  // namespace weft
