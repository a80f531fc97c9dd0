// `tests/peers/tester_ratios`: iperf3 and `weft validate` on the same port, in turns. How large the
// ratio is depends on the machine and is not tested here. Needs root.
// labels: lab
// ctest: alone
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/process/shell.h"
#include "support/process/temporary_folder.h"

namespace {

using ::testing::HasSubstr;
using weft::Output;
using weft::run;

const std::string kScript = WEFT_SOURCE_DIR "/tests/peers/tester_ratios " WEFT_BINARY " ";

bool there(const std::string& program) { return run("command -v " + program).exit_code == 0; }

TEST(TesterRatios, BothToolsMeasureThePortOfTheLab) {
  if (!there("python3")) GTEST_SKIP() << "missing capability: python3";
  if (!there("iperf3")) GTEST_SKIP() << "missing capability: iperf3";
  if (const Output lab = run(WEFT_SOURCE_DIR "/tests/lab/netlab check"); lab.exit_code != 0)
    GTEST_SKIP() << "missing capability: " << lab.text;
  const weft::testing::TemporaryFolder folder;
  const std::string file = folder / "ratios.json";
  const Output result = run(kScript + "netlab --rate 200mbit --rounds 1 --json " + file);
  ASSERT_EQ(result.exit_code, 0) << result.text;
  EXPECT_THAT(result.text, HasSubstr("netlab at 200mbit, 1 rounds"));
  std::ifstream stream(file);
  const nlohmann::json json = nlohmann::json::parse(stream);
  EXPECT_EQ(json["schema"], "weft.tester_ratios/1");
  // The port carries 200 Mb/s including headers.
  for (const char* tool : {"peer_gbps", "weft_gbps"}) {
    ASSERT_EQ(json[tool].size(), 1U) << json;
    EXPECT_GT(json[tool][0].get<double>(), 0) << json;
    EXPECT_LT(json[tool][0].get<double>(), 0.21) << json;
  }
}

TEST(TesterRatios, AMissingToolIsNamed) {
  if (!there("python3")) GTEST_SKIP() << "missing capability: python3";
  const weft::testing::TemporaryFolder folder;
  // `python3` may be a script that needs more of the path.
  std::string python = run("python3 -c 'import sys; print(sys.executable)'").text;
  python.erase(python.find('\n'));
  const Output result = run("PATH=" + (folder / "") + " " + python + " " + kScript + "netlab");
  EXPECT_EQ(result.exit_code, 3) << result.text;
  EXPECT_THAT(result.text, HasSubstr("missing capability: iperf3"));
}

}  // namespace
