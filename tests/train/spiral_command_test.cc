// labels: multiproc
// weft train --model spiral and --bubbles: the commands themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/shell.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

Output train(const std::string& arguments) {
  return run(std::string("timeout 60 ") + WEFT_BINARY + " train " + arguments);
}

TEST(SpiralCommand, TrainsWithEverySynchronisation) {
  const std::string log = ::testing::TempDir() + "spiral.jsonl";
  std::filesystem::remove(log);
  for (const char* how : {"-n 1", "-n 2 --algo ring", "-n 4 --hosts 2 --algo hierarchical",
                          "-n 4 --algo halving_doubling", "--sync ps", "--sync ps -n 5"}) {
    const Output o = train(std::string("--model spiral --steps 500 --log ") + log + " " + how);
    EXPECT_EQ(o.exit_code, 0) << how << "\n" << o.text;
  }
  std::ifstream file(log);
  std::vector<nlohmann::json> runs;
  for (std::string line; std::getline(file, line);) runs.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(runs.size(), 6u);
  for (const auto& r : runs) {
    EXPECT_EQ(r["curve"].back()["accuracy"], runs[0]["curve"].back()["accuracy"]);
    EXPECT_NEAR(r["curve"].back()["loss"], runs[0]["curve"].back()["loss"], 1e-13);
  }
  EXPECT_EQ(runs[4]["server"]["staleness"], nlohmann::json({2 * 500}));
  std::filesystem::remove(log);
}

TEST(SpiralCommand, SaysHowStaleGradientsWere) {
  const Output o = train(
      "--model spiral --steps 300 --sync ps-async --staleness 2 --straggler-us 300 -n 4");
  EXPECT_EQ(o.exit_code, 0) << o.text;
  EXPECT_THAT(o.text, HasSubstr("server: 900 updates"));
  EXPECT_THAT(o.text, HasSubstr("staleness   0"));
  EXPECT_THAT(o.text, HasSubstr("worker 2 (rank 3): worked"));
}

TEST(SpiralCommand, RefusesWhatCannotBe) {
  EXPECT_THAT(train("--model spiral --sync ps -n 1").text, HasSubstr("2 ranks or more"));
  EXPECT_THAT(train("--model spiral --algo fast -n 2").text, HasSubstr("halving_doubling"));
  EXPECT_NE(train("--model spiral --sync gossip").exit_code, 0);
}

TEST(BubblesCommand, ComparesWithTheFormula) {
  const Output o = train("--bubbles -n 2 --bubble-us 200");
  EXPECT_EQ(o.exit_code, 0) << o.text;
  EXPECT_THAT(o.text, HasSubstr("# schedule"));
  EXPECT_THAT(o.text, HasSubstr("zero-bubble     32"));
}

TEST(ExplainCommand, PrintsTheElevenSteps) {
  const Output o = train("--schedule dataflow --stages 4 --microbatches 4 --explain");
  EXPECT_EQ(o.exit_code, 0) << o.text;
  EXPECT_THAT(o.text, HasSubstr("active %: 25/50/75/100/75/50/75/100/75/50/25"));
}

}  // namespace
}  // namespace weft
