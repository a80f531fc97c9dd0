// `weft validate --like` and `--baseline`, played by processes on emulated hosts.
// labels: multiproc
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "perf/validate/report/report.h"
#include "support/process/read_file.h"
#include "support/process/shell.h"
#include "support/process/temporary_folder.h"

namespace weft::fabric {
namespace {

using ::testing::HasSubstr;

Output validate_like(const std::string& arguments) {
  return run(fmt::format("timeout 120 {} validate {} 2>&1", WEFT_BINARY, arguments));
}

TEST(LikeCommand, PlaysEveryKindAndSaysThatTheJobWasFolded) {
  const testing::TemporaryFolder folder;
  const std::string json = folder / "report.json", page = folder / "report.html";
  const Output o = validate_like(fmt::format(
      "-N 4 --hosts 2 --rails 2 --budget 12s --like gpt2-medium --tp 8 --pp 4 --dp 8 --json {} "
      "--html {}",
      json, page));
  // The verdict is this machine's, whose cores may be busy.
  EXPECT_THAT(o.text, HasSubstr("gpt2-medium, tp 8 x pp 4 x dp 8: folded to tp 2, pp 2 and dp 2 on "
                                "4 ranks"));
  EXPECT_THAT(o.text, HasSubstr("tensor all_reduce: "));
  const Report report = read_report(json);
  ASSERT_TRUE(report.like);
  EXPECT_TRUE(report.like->folded);
  std::set<std::string> axes;
  for (const TrafficKind& kind : report.like->kinds) {
    axes.insert(kind.axis);
    EXPECT_GE(kind.played_calls, std::min<std::uint64_t>(kind.calls, 3));
    EXPECT_GT(kind.measured_us, 0);
    EXPECT_GT(kind.predicted_us, 0);
    EXPECT_LE(kind.played_bytes, kind.bytes);
  }
  EXPECT_EQ(axes, (std::set<std::string>{"data", "pipeline", "tensor"}));
  EXPECT_FALSE(report.like->limiting_link.empty());
  EXPECT_THAT(read_file(page), HasSubstr("The traffic of gpt2-medium"));
}

TEST(BaselineCommand, WhatGotWorseIsPartOfTheVerdict) {
  const testing::TemporaryFolder folder;
  const std::string base = folder / "base.json", json = folder / "report.json";
  const std::string job = fmt::format("-N 2 --hosts 2 --rails 1 --budget 4s --baseline {}", base);
  const Output first = validate_like(job);
  ASSERT_TRUE(std::filesystem::exists(base)) << first.text;
  auto stored = nlohmann::json::parse(read_file(base));
  for (auto& [name, value] : stored["numbers"].items())
    if (name.ends_with("_gbps")) value = 10 * value.get<double>();
  std::ofstream(base) << stored;
  const Output worse = validate_like(job + " --json " + json);
  EXPECT_EQ(worse.exit_code, 2) << worse.text;
  EXPECT_THAT(worse.text, HasSubstr("in the baseline"));
  EXPECT_EQ(read_report(json).verdict, Verdict::kCritical);

  std::filesystem::remove(base);
  const std::string policy = folder / "policy.toml";
  std::ofstream(policy) << "skipped_checks = [\"rail-oot\"]\n";
  const Output refused = validate_like("--policy " + policy);
  EXPECT_EQ(refused.exit_code, 4);
  EXPECT_THAT(refused.text, HasSubstr("\"rail-oot\", which is no check"));
}

TEST(LikeCommand, RefusesWhatIsWrongBeforeAnythingRuns) {
  for (const auto& [arguments, why] : std::map<std::string, std::string>{
           {"--like gpt5 --tp 8", "--like gpt5: the planner knows no such model; take gpt2, "},
           {"--like gpt3 --tp 7", "--tp 7: gpt3 has 96 heads"},
           {"--tp 8", "--tp is about the job of --like"},
           {"--simulate --like gpt3 --tp 8", "a simulated fleet has no ranks to play a job"}}) {
    const Output o = validate_like(arguments);
    EXPECT_EQ(o.exit_code, 4) << arguments << ": " << o.text;
    EXPECT_THAT(o.text, HasSubstr(why)) << arguments;
  }
}

}  // namespace
}  // namespace weft::fabric
