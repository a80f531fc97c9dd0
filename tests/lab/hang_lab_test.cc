// A rail that goes dead under a job: its ports stay up, bytes go in and none come out. Every rank
// hears which rail it is, between which hosts. Needs root.
// labels: lab
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "support/shell.h"

namespace weft {
namespace {

using ::testing::ContainsRegex;

TEST(HangInTheLab, ARailThatMovesNoBytesIsNamed) {
  const std::string script = WEFT_SOURCE_DIR "/tests/lab/netlab";
  const Output check = run(script + " check");
  if (check.exit_code != 0)
    GTEST_SKIP() << "missing capability: root with network namespaces (" << check.text << ")";
  const std::string lab = fmt::format("hang{}", getpid());
  Output job;
  std::thread running([&] {
    job = run(fmt::format(
        "WEFT_FAILOVER=0 timeout 100 {0} lab netlab --name {1} --hosts 2 --ppn 2 --rails 2 "
        "--grace 10 -- {0} perf all_reduce -b 2M -e 2M -i 1000000 "
        "--timeout-ms 4000",
        WEFT_BINARY, lab));
  });
  // Once the job is well under way.
  bool runs = false;
  for (int i = 0; i < 300 && !runs; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const auto jobs = nlohmann::json::parse(
        run(std::string(WEFT_BINARY) + " doctor --json 2>/dev/null").text, nullptr, false);
    if (!jobs.is_array()) continue;
    for (const auto& one : jobs)
      for (const auto& rank : one["ranks"])
        runs = runs || (one["size"] == 4 && rank["host"] != "" && rank["begun"] > 200 &&
                        rank["links"].size() == 3);
  }
  EXPECT_TRUE(runs) << "the job does not run";
  const Output cut = run(fmt::format("ip -n weft-{}-sw link set h2-r1 down", lab));
  EXPECT_EQ(cut.exit_code, 0) << cut.text;
  running.join();
  EXPECT_NE(job.exit_code, 0) << job.text;
  EXPECT_THAT(job.text,
              ContainsRegex("rail 1 .rail1. between hosts h[12] and h[12] moves no bytes: "
                            "what rank [13] sent in all_reduce #[0-9]+ has not reached "
                            "rank [13]; rail 1 host h[12]: .*tcp.retransmits \\+[0-9]"));
}

}  // namespace
}  // namespace weft
