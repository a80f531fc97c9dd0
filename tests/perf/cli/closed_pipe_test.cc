// A command whose standard output is closed ends like other programs: by SIGPIPE, without a
// message, together with its ranks.
// labels: multiproc
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "support/process/read_file.h"
#include "support/process/shell.h"
#include "support/process/temporary_folder.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

struct Ended {
  int code;
  std::string errors;
};

// Runs the command and closes its standard output after reading one line.
Ended read_one_line(const std::string& command, const std::string& before = "") {
  const testing::TemporaryFolder folder;
  const std::string errors = folder / "stderr";
  const Output o =
      run(fmt::format("export SAVE={0} WEFT_PROFILE={0}.profile; {1} timeout 120 bash -c '{2} "
                      "2>{3} | head -n 1 >/dev/null; exit "
                      "${{PIPESTATUS[0]}}'",
                      folder / "save", before, command, errors));
  return {o.exit_code, read_file(errors)};
}

class ClosedPipe : public ::testing::TestWithParam<const char*> {};

// Each command prints more after its first line, at once or during its measurements.
TEST_P(ClosedPipe, EndsTheCommandInSilence) {
  const Ended end = read_one_line(fmt::format("{} {}", WEFT_BINARY, GetParam()));
  EXPECT_EQ(end.code, 141);
  EXPECT_EQ(end.errors, "");
}

// Long enough to be busy when the reader leaves.
INSTANTIATE_TEST_SUITE_P(
    Commands, ClosedPipe,
    ::testing::Values(
        "perf all_reduce -N 2 -b 8 -e 64M -n 2000 --timeout-ms 60000",
        "perf all_reduce -N 4 --hosts 2 --rails 2 -b 8 -e 64M -n 2000 --timeout-ms 60000",
        "spiral --threads 2 --steps 10000000 --report-every 100 --timeout-ms 60000",
        "train -N 2 --steps 100000 --eval-every 0 --timeout-ms 60000",
        "train -N 2 --steps 100000 --restart 3 --save $SAVE --timeout-ms 60000",
        "train -N 2 --steps 100000 --elastic --save $SAVE --timeout-ms 60000",
        "spiral -N 2 --steps 10000000 --report-every 100 --timeout-ms 60000",
        "launch -N 2 -- weft perf all_reduce -b 8 -e 64M -n 2000 --timeout-ms 60000",
        "launch -N 2 --tag -- weft perf all_reduce -b 8 -e 64M -n 2000 --timeout-ms 60000",
        "launch -N 2 -- sh -c \"while :; do echo line; done\"",
        "launch -N 2 --tag -- sh -c \"while :; do echo line; done\""),
    [](const auto& info) { return std::to_string(info.index); });

// A command that prints less than a pipe holds may end before a slow reader does: here the pipe has
// no reader from the start.
Ended without_reader(const char* command, const std::string& before = "") {
  const testing::TemporaryFolder folder;
  const std::string errors = folder / "stderr", pipe = folder / "pipe";
  // The reader opens the pipe and leaves; only then does the command start.
  const Output o =
      run(fmt::format("export WEFT_PROFILE={3}.profile; {4} mkfifo {0}; (exec 3<{0}) & exec 4>{0}; "
                      "wait; timeout 120 {1} {2} >&4 2>{3}",
                      pipe, WEFT_BINARY, command, errors, before));
  return {o.exit_code, read_file(errors)};
}

class NoReader : public ::testing::TestWithParam<const char*> {};

TEST_P(NoReader, EndsTheCommandInSilence) {
  const Ended end = without_reader(GetParam());
  EXPECT_EQ(end.code, 141);
  EXPECT_EQ(end.errors, "");
}

INSTANTIATE_TEST_SUITE_P(
    Commands, NoReader,
    ::testing::Values("topo", "--help", "validate --list",
                      "tune -N 2 -b 8 -e 64 --rounds 1 --timeout-ms 60000", "--version",
                      "completion bash", "explain all_reduce --ranks 8 --hosts 2 --bytes 1M",
                      "sim all_reduce --ranks 8 --hosts 2 --bytes 1M", "plan --model gpt2 --gpus 8",
                      "cost --gpus 8 --days 1", "pipeline explain --stages 4",
                      "pipeline bubbles -N 2 --timeout-ms 60000",
                      "perf all_reduce -N 2 -b 8 -e 8 -n 3 --timeout-ms 60000 --json",
                      "validate -N 2 --hosts 2 --rails 1 --budget 5s",
                      "train -N 2 --steps 3 --timeout-ms 60000"),
    [](const auto& info) { return std::to_string(info.index); });

// Service managers and Python start programs with SIGPIPE ignored.
TEST(ClosedPipeIgnored, EndsTheCommandInSilenceToo) {
  for (const Ended& end :
       {read_one_line(WEFT_BINARY " perf all_reduce -N 2 -b 8 -e 64M -n 2000 --timeout-ms 60000",
                      "trap \"\" PIPE;"),
        without_reader("completion bash", "trap \"\" PIPE;")}) {
    EXPECT_EQ(end.code, 141);
    EXPECT_EQ(end.errors, "");
  }
}

// A rank that dies of SIGPIPE while its output is read is reported like any killed rank.
TEST(ClosedPipeOfARank, OfItsOwnIsAFailureThatIsNamed) {
  const Output o =
      run(fmt::format("timeout 60 {} launch -N 2 -- sh -c 'kill -PIPE $$'", WEFT_BINARY));
  EXPECT_EQ(o.exit_code, 141);
  EXPECT_THAT(o.text, HasSubstr("was killed by signal 13"));
}

}  // namespace
}  // namespace weft
