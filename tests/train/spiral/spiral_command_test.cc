// labels: multiproc
// weft spiral and weft pipeline: the commands themselves.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "support/process/shell.h"
#include "support/process/temporary_folder.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Output train(const std::string& arguments) {
  return run(std::string("timeout 60 ") + WEFT_BINARY + " spiral " + arguments);
}

TEST(SpiralCommand, TrainsWithEverySynchronisation) {
  const testing::TemporaryFolder folder;
  const std::string log = folder / "spiral.jsonl";
  for (const char* how : {"-N 1", "-N 2 --algo ring", "-N 4 --hosts 2 --algo hierarchical",
                          "-N 4 --algo halving_doubling", "--sync ps", "--sync ps -N 5",
                          "--sync ps -N 3 --threads", "-N 2 --threads"}) {
    const Output o = train(std::string("--steps 500 --report-every 250 --log ") + log + " " + how);
    EXPECT_EQ(o.exit_code, 0) << how << "\n" << o.text;
  }
  std::ifstream file(log);
  std::vector<nlohmann::json> runs;
  for (std::string line; std::getline(file, line);) {
    const auto j = nlohmann::json::parse(line);
    if (j.contains("curve")) runs.push_back(j);  // the end of a run, after its points
  }
  ASSERT_EQ(runs.size(), 8u);
  for (const auto& r : runs) {
    ASSERT_EQ(r["curve"].size(), 3u);  // at the start, in the middle, at the end
    EXPECT_EQ(r["curve"].back()["accuracy"], runs[0]["curve"].back()["accuracy"]);
    EXPECT_NEAR(r["curve"].back()["loss"], runs[0]["curve"].back()["loss"], 1e-13);
  }
  EXPECT_EQ(runs[4]["server"]["staleness"], nlohmann::json({2 * 500}));
}

TEST(SpiralCommand, SaysHowStaleGradientsWere) {
  const Output o = train("--steps 300 --sync ps-async --staleness 2 --straggler-us 300 -N 4");
  EXPECT_EQ(o.exit_code, 0) << o.text;
  EXPECT_THAT(o.text, HasSubstr("server: 900 updates"));
  EXPECT_THAT(o.text, HasSubstr("staleness   0"));
  EXPECT_THAT(o.text, HasSubstr("worker 2 (rank 3): worked"));
}

// A line of text and of JSON for each report, as they come.
TEST(SpiralCommand, ReportsAsItGoes) {
  const testing::TemporaryFolder folder;
  const std::string log = folder / "log", trace = folder / "run.json";
  const Output o =
      train("--steps 50 -N 2 --deterministic --lr 0.1 --seed 3 --log " + log + " --trace " + trace);
  EXPECT_EQ(o.exit_code, 0) << o.text;
  EXPECT_THAT(o.text, HasSubstr("# iteration      loss  accuracy\n          0   1.098"));
  std::ifstream file(log);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(lines.size(), 12u);  // 0, 5, .. 45, the end, and what there is to say of the run
  for (std::size_t i = 0; i < 11; ++i) {
    EXPECT_EQ(lines[i]["iteration"], 5 * i);
    EXPECT_EQ(lines[i]["loss"], lines[11]["curve"][i]["loss"]);
  }
  for (const char* rank : {"rank0", "rank1"})
    EXPECT_TRUE(std::filesystem::exists(folder / ("run." + std::string(rank) + ".json"))) << o.text;
  // Another rate, another seed: another curve.
  const auto first = [&](const std::string& flags) {
    std::filesystem::remove(log);
    train("--steps 20 --log " + log + " " + flags);
    std::ifstream in(log);
    std::string line, last;
    while (std::getline(in, line)) last = line;
    return nlohmann::json::parse(last)["curve"].back()["loss"].get<double>();
  };
  const double loss = first("");
  EXPECT_EQ(loss, first("--lr 0.3 --seed 24"));
  EXPECT_NE(loss, first("--lr 0.2"));
  EXPECT_NE(loss, first("--seed 25"));
}

// Killed and started again, with as many workers or fewer, and by hand with another
// synchronisation: the run ends with the same loss.
TEST(SpiralCommand, GoesOnAfterARankWasKilled) {
  const testing::TemporaryFolder folder;
  int runs = 0;
  Output o;
  const auto loss = [&](const std::string& flags) {
    const std::string log = folder / fmt::format("log{}", ++runs);
    o = train("--deterministic --steps 400 --log " + log + " " + flags);
    EXPECT_EQ(o.exit_code, 0) << o.text;
    std::ifstream in(log);
    std::string line, last;
    while (std::getline(in, line)) last = line;
    return nlohmann::json::parse(last)["curve"].back()["loss"].get<double>();
  };
  const auto save = [&] {
    return " --save-every 100 --save " + folder / fmt::format("save{}", runs);
  };
  const double whole = loss("-N 2");
  EXPECT_EQ(loss("-N 2 --restart 1 --kill 1:250" + save()), whole);
  EXPECT_THAT(o.text, HasSubstr("went on after step 200 of"));
  EXPECT_EQ(loss("--sync ps -N 3 --restart 1 --kill 0:399" + save()), whole);
  EXPECT_THAT(o.text, HasSubstr("went on after step 300 of"));
  EXPECT_NEAR(loss("-N 3 --elastic --kill 2:150" + save()), whole, 1e-13);
  EXPECT_THAT(o.text, HasSubstr("with 2 ranks"));
  EXPECT_THAT(o.text, HasSubstr("went on after step 100 of"));
  const std::string last = " --save-every 100 --save " + folder / "save2";
  std::filesystem::remove_all(folder / "save2/step-00000400");
  EXPECT_EQ(loss("--sync ps -N 3 --resume" + last), whole);  // of the run with all-reduce
  EXPECT_THAT(o.text, HasSubstr("went on after step 300 of"));
  EXPECT_NEAR(loss("-N 4 --resume" + last), whole, 1e-2);  // nothing left to do
  EXPECT_THAT(o.text, HasSubstr("went on after step 400 of"));
  // Asynchronous: not the same, but it goes on.
  loss("--sync ps-async -N 3 --restart 1 --kill 2:250" + save());
  EXPECT_THAT(o.text, HasSubstr("went on after step 200 of"));
}

// Another seed is other points, too.
TEST(SpiralCommand, WarnsOfAnotherSeedAndRate) {
  const testing::TemporaryFolder folder;
  const std::string save = " --save " + folder / "save";
  EXPECT_EQ(train("-N 2 --steps 20" + save).exit_code, 0);
  EXPECT_THAT(train("-N 2 --steps 22 --resume" + save).text, Not(HasSubstr("warning")));
  // What was done is not what is asked for now.
  EXPECT_THAT(train("-N 2 --steps 10 --resume" + save).text, HasSubstr("22 iterations, 2 workers"));
  const Output o = train("-N 1 --steps 40 --seed 3 --lr 0.5 --resume" + save);
  EXPECT_EQ(o.exit_code, 0) << o.text;
  EXPECT_THAT(o.text, HasSubstr("warning: --seed is 3, but " + folder / "save/step-000000"));
  EXPECT_THAT(o.text, HasSubstr("was written with 24: the curve is not that of one run"));
  EXPECT_THAT(o.text, HasSubstr("warning: --lr is 0.5, but "));
}

TEST(SpiralCommand, WeightsThatAreNoNumbersReplaceNothing) {
  const testing::TemporaryFolder folder;
  const std::string flags = "-N 3 --save-every 5 --save " + folder / "save";
  for (const char* sync : {"allreduce", "ps", "ps-async"}) {
    const std::string how = flags + sync + " --sync " + sync;
    EXPECT_EQ(train(how + " --steps 10").exit_code, 0);
    const Output o = train(how + " --steps 60 --lr 1e300 --resume --restart 1");
    EXPECT_EQ(o.exit_code, 4) << o.text;
    EXPECT_THAT(o.text, HasSubstr("take a smaller --lr than 1e+300"));
    EXPECT_EQ(train(how + " --steps 15 --resume").exit_code, 0) << sync;
  }
}

TEST(SpiralCommand, RefusesWhatCannotBe) {
  EXPECT_THAT(train("--sync ps -N 1").text, HasSubstr("2 ranks or more"));
  EXPECT_NE(train("--sync gossip").exit_code, 0);
  const std::pair<const char*, const char*> refused[] = {
      {"--resume", "--resume needs checkpoints: pass --save FOLDER"},
      {"--elastic", "--elastic needs checkpoints: pass --save FOLDER"},
      {"--save /proc/nowhere", "--save /proc/nowhere: cannot write there"},
      {"--trace /nowhere/run.json", "--trace /nowhere/run.json: there is no folder"},
      {"--sync ps --threads --restart 1 --save x", "--restart with --threads"},
      {"--threads -N 1 --sync ps", "2 ranks or more"},
      {"--algo fast", "halving_doubling"},
      {"--sync ps --algo ring", "--algo ring with --sync ps"},
      {"--algo ring", "--algo ring with one rank: it has nobody to add up with"},
      {"--sync ps --staleness 3", "--staleness 3 with --sync ps"},
      {"-N 2 --kill 2:3", "--kill 2:3: nobody would die; the job has ranks 0 to 1"},
  };
  for (const auto& [flags, why] : refused) {
    const Output o = train(std::string("--steps 10 ") + flags);
    EXPECT_EQ(o.exit_code, 4) << flags << "\n" << o.text;
    EXPECT_THAT(o.text, HasSubstr(why)) << flags;
  }
}

TEST(BubblesCommand, ComparesWithTheFormula) {
  const Output o = run(WEFT_BINARY " pipeline bubbles -N 2 --op-us 200");
  EXPECT_EQ(o.exit_code, 0) << o.text;
  EXPECT_THAT(o.text, HasSubstr("# schedule"));
  EXPECT_THAT(o.text, HasSubstr("zero-bubble     32"));
}

TEST(ExplainCommand, PrintsTheElevenSteps) {
  const Output o =
      run(WEFT_BINARY " pipeline explain --schedule dataflow --stages 4 --micro-batches 4");
  EXPECT_EQ(o.exit_code, 0) << o.text;
  EXPECT_THAT(o.text, HasSubstr("active %: 25/50/75/100/75/50/75/100/75/50/25"));
}

}  // namespace
}  // namespace weft
