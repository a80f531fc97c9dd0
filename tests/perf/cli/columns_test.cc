// The output of commands fits a terminal of 100 columns.
// labels: multiproc
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "support/process/shell.h"
#include "support/process/temporary_folder.h"
#include "tests/perf/replay/replay_files.h"

namespace weft {
namespace {

std::size_t columns_of(const std::string& line) {
  return static_cast<std::size_t>(
      std::ranges::count_if(line, [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string expect_narrow(const std::string& command, int exit_code = 0) {
  const Output o = run(command);
  EXPECT_EQ(o.exit_code, exit_code) << command << "\n" << o.text;
  std::istringstream lines(o.text);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    EXPECT_LE(columns_of(line), 100u) << command << "\n" << line;
  EXPECT_GT(count, 0) << command;
  return o.text;
}

// Every collective in every form, and its results are right.
TEST(Columns, OfPerf) {
  for (const std::string what :
       {"all_reduce -e 1M -f 64", "all_reduce --in-place --buffers weft -b 4K -e 4K", "barrier",
        "all_reduce -e 1M -f 64 --percentiles", "sendrecv -b 4K -e 4K",
        "all_gather -d half -b 4K -e 4K", "all_gather --in-place -b 4K -e 4K",
        "reduce_scatter -o avg -d bfloat16 -b 4K -e 4K", "reduce_scatter --in-place -b 4K -e 4K",
        "broadcast --root 2 -b 4K -e 4K", "broadcast --in-place --root 1 -b 4K -e 4K",
        "all_reduce -d all -o all -e 8", "all_reduce --back-to-back -b 4K -e 4K",
        "all_reduce --out-of-place --percentiles -b 4K -e 4K", "sendrecv --percentiles -b 4K -e 4K",
        "reduce_scatter --hosts 2 --rails 2 -N 4 -b 64K -e 64K --out-of-place",
        "all_reduce -N 4 --hosts 2 --rail-gbps 10 -b 64K -e 64K --back-to-back",
        "all_reduce -d all -o all -e 8 --percentiles -c 0"}) {
    const std::string ranks = what.find("-N") == what.npos ? "-N 3" : "";
    const std::string text = expect_narrow(
        fmt::format("{} perf {} {} -n 2 -w 1 --timeout-ms 20000", WEFT_BINARY, what, ranks));
    EXPECT_NE(text.find(what.ends_with("-c 0") ? "not checked" : "all results exact"), text.npos)
        << what << text;
  }
}

TEST(Columns, OfPairs) {
  for (const char* what : {"bw", "bw --report_gbits -b", "lat", "lat -a"})
    expect_narrow(fmt::format("{0} launch -N 2 -- {0} perf {1} --op shm -n 10", WEFT_BINARY, what));
}

TEST(Columns, OfPredictions) {
  for (const char* what :
       {"explain all_reduce", "explain barrier", "explain reduce_scatter -N 16 --hosts 4 --steps",
        "explain all_to_all -N 64 --hosts 8", "sim all_reduce -N 16 --hosts 4 --algo all",
        "sim all_reduce -N 32 --hosts 2 --bytes 1M", "sim broadcast --bytes 1K"})
    expect_narrow(fmt::format("{} {}", WEFT_BINARY, what));
}

TEST(Columns, OfTune) {
  const weft::testing::TemporaryFolder folder;
  expect_narrow(
      fmt::format("WEFT_PROFILE={} {} tune -N 2 -b 8 -e 64K -f 16 --rounds 1 "
                  "--budget-ms 1 --timeout-ms 60000 | grep -v 'are kept in'",
                  folder / "p", WEFT_BINARY));
}

TEST(Columns, OfReplays) {
  const weft::testing::TemporaryFolder folder;
  const std::string trace = folder / "work.txt";
  replay::testing::write_file(
      trace, replay::testing::simai("a -1 1000 ALLGATHER 4096 0 NONE 0 0 ALLREDUCE 8192 1\n", 1));
  expect_narrow(fmt::format("{} replay --sim --hosts 2 {}", WEFT_BINARY, trace));
  expect_narrow(fmt::format("{} replay -N 2 -n 1 --compare {}", WEFT_BINARY, trace));
}

TEST(Columns, OfPlans) {
  for (const char* what :
       {"--model gpt2 --gpus 8", "--params 10e9 --gpus 64 --layers 32 --rows 100",
        "--model gpt3 --gpus 1024 --batch 1536",
        "--params 10e9 --layers 32 --gpus 64 --rail-gbps 16 --rows 100",
        "--model gpt3 --gpus 1024 --batch 512 --zero 3 --pp 2",
        "--params 100e9 --gpus 512 --tp 16 --pp 32 --batch 64"})
    expect_narrow(fmt::format("{} plan {}", WEFT_BINARY, what));
  for (const char* what : {"--model gpt3 --gpus 8 --batch 8",
                           "--params 10e9 --layers 32 --gpus 64 --tp 1 --pp 1 --zero 1",
                           "--params 10e9 --layers 32 --gpus 64 --tp 1 --pp 1 --zero 0"})
    expect_narrow(fmt::format("{} plan {}", WEFT_BINARY, what), 1);
}

TEST(Columns, OfTraining) {
  const weft::testing::TemporaryFolder folder;
  const std::string text = folder / "text";
  replay::testing::write_file(text, std::string(3000, 'x'));
  const auto train = [&](const char* more) {
    return fmt::format(
        "cd {} && {} train --data text --batch 8 --width 16 --heads 2 --layers 2 --positions 16 "
        "{}",
        folder.path(), WEFT_BINARY, more);
  };
  expect_narrow(train("-N 2 --dp 1 --pp 2 --schedule zero-bubble --steps 2 --sample 40"));
  expect_narrow(train("-N 2 --dp 2 --zero 3 --steps 4 --eval-every 2 --save s"));
  expect_narrow(train("-N 1 --resume --steps 5 --eval-every 2 --save s"));
  expect_narrow(train("-N 1 --steps 0 --save s"));
  expect_narrow(fmt::format("{} spiral -N 3 --sync ps --steps 100", WEFT_BINARY));
  expect_narrow(fmt::format("{} pipeline bubbles -N 2 --op-us 10", WEFT_BINARY));
}

TEST(Columns, OfTheDoctor) {
  expect_narrow(fmt::format(
      "{0} perf all_reduce -N 4 --hosts 2 -b 1M -e 1M -n 1000000 >/dev/null 2>&1 & p=$!; "
      "for i in $(seq 100); do sleep 0.1; {0} doctor >/dev/null 2>&1; [ $? = 3 ] || break; done; "
      "{0} doctor; kill $p; wait $p; exit 0",
      WEFT_BINARY));
}

TEST(Columns, OfTheRest) {
  for (const char* what : {"topo | grep -v /", "cost", "validate --list",
                           "pipeline explain --stages 4 --micro-batches 8",
                           "validate --simulate --hosts 8 --rails 2 --verbose"})
    expect_narrow(fmt::format("{} {}", WEFT_BINARY, what));
}

}  // namespace
}  // namespace weft
