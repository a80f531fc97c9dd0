// `weft validate --baseline`, with processes on emulated hosts.
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

Output validate(const std::string& arguments) {
  return run(fmt::format("timeout 120 {} validate {} 2>&1", WEFT_BINARY, arguments));
}

TEST(BaselineCommand, WhatGotWorseIsPartOfTheVerdict) {
  const testing::TemporaryFolder folder;
  const std::string base = folder / "base.json", json = folder / "report.json";
  const std::string job = fmt::format("-N 2 --hosts 2 --rails 1 --budget 4s --baseline {}", base);
  const Output first = validate(job);
  ASSERT_TRUE(std::filesystem::exists(base)) << first.text;
  auto stored = nlohmann::json::parse(read_file(base));
  for (auto& [name, value] : stored["numbers"].items())
    if (name.ends_with("_gbps")) value = 10 * value.get<double>();
  std::ofstream(base) << stored;
  const Output worse = validate(job + " --json " + json);
  EXPECT_EQ(worse.exit_code, 2) << worse.text;
  EXPECT_THAT(worse.text, HasSubstr("in the baseline"));
  EXPECT_EQ(read_report(json).verdict, Verdict::kCritical);

  std::filesystem::remove(base);
  const std::string policy = folder / "policy.toml";
  std::ofstream(policy) << "skipped_checks = [\"rail-oot\"]\n";
  const Output refused = validate("--policy " + policy);
  EXPECT_EQ(refused.exit_code, 4);
  EXPECT_THAT(refused.text, HasSubstr("\"rail-oot\", which is not a check"));
}

}  // namespace
}  // namespace weft::fabric
