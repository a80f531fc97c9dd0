// The training text of `weft train`, and the columns of its output.
// labels: multiproc
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/process/shell.h"
#include "support/process/temporary_folder.h"

namespace weft {
namespace {

using ::testing::ContainsRegex;
using ::testing::Not;

class TrainText : public ::testing::Test {
 protected:
  TrainText() {
    std::ofstream text(data_);
    for (int i = 0; i < 400; ++i) text << "line " << i * i << " of a text\n";
  }
  Output train(const std::string& flags) {
    return run(
        fmt::format("timeout 120 {} train --data {} --width 16 --heads 2 --layers 2 "
                    "--positions 16 --timeout-ms 60000 {}",
                    WEFT_BINARY, data_, flags));
  }
  double first_loss(const std::string& flags) {
    const std::string log = folder_ / "log";
    std::ofstream{log};
    const Output o = train(flags + " --log " + log);
    EXPECT_EQ(o.exit_code, 0) << o.text;
    std::ifstream file(log);
    std::string line;
    std::getline(file, line);
    return nlohmann::json::parse(line).at("loss");
  }

  testing::TemporaryFolder folder_;
  const std::string data_ = folder_ / "text";
};

TEST_F(TrainText, IsTheSameForEveryNumberOfSteps) {
  const double loss = first_loss("-N 1 --steps 1");
  for (const int steps : {10, 19, 20, 21})
    EXPECT_EQ(first_loss(fmt::format("-N 1 --steps {}", steps)), loss) << steps;
  EXPECT_EQ(first_loss("-N 1 --steps 3 --eval-every 1"), loss);
}

// The exposed share of gradient time: with one replica no gradients are sent.
TEST_F(TrainText, NoShareOfGradientsIsGivenWhereNoneTravel) {
  constexpr char kRow[] = "[0-9] %        -  ";
  EXPECT_THAT(train("-N 2 --tp 2 --steps 2").text, ContainsRegex(kRow));
  EXPECT_THAT(train("-N 2 --dp 2 --steps 2").text, Not(ContainsRegex(kRow)));
}

// The trace contains the schedule of a run, and its shape.
TEST_F(TrainText, AScheduleIsExplainedFromTheTraceAlone) {
  const std::string trace = folder_ / "r2.json";
  const Output trained =
      train("-N 4 --dp 2 --pp 2 --batch 12 --micro-batch 2 --steps 2 --trace " + trace);
  ASSERT_EQ(trained.exit_code, 0) << trained.text;
  const std::string explain = std::string(WEFT_BINARY) + " pipeline explain ";
  const Output planned = run(explain + "--stages 2 --micro-batches 3");
  EXPECT_EQ(run(explain + "--of " + trace).text, planned.text);
  EXPECT_EQ(run(explain + "--stages 2 --schedule 1f1b --of " + trace).text, planned.text);
  const Output other = run(explain + "--schedule gpipe --of " + trace);
  EXPECT_EQ(other.exit_code, 4);
  EXPECT_THAT(other.text,
              ::testing::HasSubstr("--schedule gpipe: the run of --of " + trace + " had 1f1b"));
  const Output nowhere = run(explain + "--of " + (folder_ / "no.json"));
  EXPECT_EQ(nowhere.exit_code, 4);
  EXPECT_THAT(nowhere.text, ::testing::HasSubstr("no.pipeline.rank0.json"));
}

}  // namespace
}  // namespace weft
