// labels: multiproc
// The commands `weft spiral` and `weft pipeline`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
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

Output train(const std::string& arguments) {
  return run(std::string("timeout 60 ") + WEFT_BINARY + " spiral " + arguments);
}

TEST(SpiralCommand, TrainsWithEverySynchronisation) {
  const testing::TemporaryFolder folder;
  const std::string log = folder / "spiral.jsonl";
  for (const char* how :
       {"-N 1", "-N 2 --algo ring", "-N 4 --hosts 2 --algo hierarchical",
        "-N 4 --algo halving_doubling", "--sync ps", "--sync ps -N 5", "--sync ps -N 2", "-N 2"}) {
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

// A line of text and of JSON for each report, during the run.
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
  ASSERT_EQ(lines.size(), 12u);  // 0, 5, .. 45, the end, and the run's summary
  for (std::size_t i = 0; i < 11; ++i) {
    EXPECT_EQ(lines[i]["iteration"], 5 * i);
    EXPECT_EQ(lines[i]["loss"], lines[11]["curve"][i]["loss"]);
  }
  for (const char* rank : {"rank0", "rank1"})
    EXPECT_TRUE(std::filesystem::exists(folder / ("run." + std::string(rank) + ".json"))) << o.text;
  // Another rate or another seed gives another curve.
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

// With two threads, each does half of the operations; the printed ratio is that of the times.
TEST(SpiralCommand, ThreadsShareTheWork) {
  for (const char* sync : {"allreduce", "ps"}) {
    const Output o = train(std::string("--threads 2 --steps 300 --report-every 0 --sync ") + sync);
    ASSERT_EQ(o.exit_code, 0) << o.text;
    const std::string line = o.text.substr(o.text.find("1 thread "));
    double one = 0, two = 0, ratio = 0;
    unsigned long long all = 0, half = 0;
    ASSERT_EQ(std::sscanf(line.c_str(),
                          "1 thread %lf s, 2 threads %lf s: %lf times as fast; a thread makes %llu "
                          "and %llu multiply-adds",
                          &one, &two, &ratio, &all, &half),
              5)
        << o.text;
    EXPECT_EQ(all, 300u * 300u * 100u * (5 + 3 * 3)) << sync;
    EXPECT_EQ(2 * half, all) << sync;
    EXPECT_NEAR(ratio, one / two, 0.6 * ratio);  // the times have two digits
  }
  EXPECT_EQ(train("--threads 1 --steps 20").text.find("as fast"), std::string::npos);
}

TEST(SpiralCommand, RefusesWhatCannotBe) {
  EXPECT_THAT(train("--sync ps -N 1").text, HasSubstr("2 ranks or more"));
  EXPECT_NE(train("--sync gossip").exit_code, 0);
  const std::pair<const char*, const char*> refused[] = {
      {"--trace /nowhere/run.json", "--trace /nowhere/run.json: there is no folder"},
      {"--sync ps --threads 2 -N 3", "-N 3 with --threads"},
      {"--algo fast", "halving_doubling"},
      {"--sync ps --algo ring", "--algo ring with --sync ps"},
      {"--algo ring", "--algo ring with one rank: it has nobody to add up with"},
      {"--sync ps --staleness 3", "--staleness 3 with --sync ps"},
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
