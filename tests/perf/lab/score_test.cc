// The score of a matrix: counts, the confusion matrix, the page, and the file of results.
#include "perf/lab/matrix/score.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "topo/base/status.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const MatrixHead kHead = {{"netlab", {"h1", "h2"}, 2}, 7, "400mbit", "--budget 20s"};

TrialResult result_of(const std::string& id, std::vector<LabFault> faults,
                      std::vector<Claim> claims, const std::string& verdict, double seconds) {
  TrialResult result;
  result.trial = {id, std::move(faults)};
  result.seen = {verdict, std::move(claims)};
  result.match = match(result.trial, result.seen, kHead.lab);
  result.seconds = seconds;
  return result;
}

std::vector<TrialResult> results() {
  LabFault slow;
  slow.kind = "rate";
  slow.place = FaultPlace::kTransmit;
  slow.host = "h2";
  slow.rail = 1;
  slow.strength = "50%";
  Claim right;
  right.id = "port-rate";
  right.severity = "fail";
  right.place = "port";
  right.host = "h2";
  right.rail = 1;
  right.direction = "transmit";
  Claim wide = right, away = right;
  wide.direction = "both";
  away.host = "h1";
  std::vector<TrialResult> all = {
      result_of("rate-transmit/0", {slow}, {right}, "critical", 10),
      result_of("clean/0", {}, {}, "ok", 9),
      result_of("rate-transmit/1", {slow}, {wide}, "critical", 12),
      result_of("rate-transmit/2", {slow}, {}, "ok", 30),
      result_of("clean/1", {}, {away}, "critical", 9),
      result_of("pair/0", {slow, slow}, {right}, "critical", 11),
  };
  all.push_back(result_of("rate-transmit/3", {slow}, {}, "none", 180));
  all.back().problem = "no report (exit code 124)";
  return all;
}

TEST(MatrixScore, CountsWhatWasRight) {
  const Score counted = score(results());
  ASSERT_EQ(counted.rows.size(), 3);
  const ScoreRow& rate = counted.rows[0];
  EXPECT_EQ(rate.name, "rate-transmit");
  EXPECT_EQ(rate.runs, 4);
  EXPECT_EQ(rate.kind, 2);
  EXPECT_EQ(rate.place, 1);
  EXPECT_EQ(rate.verdict, 2);
  EXPECT_EQ(rate.without_report, 1);
  EXPECT_EQ(rate.median_s(), 30);
  EXPECT_EQ(rate.longest_s(), 180);
  EXPECT_EQ(counted.rows[1].name, "clean");
  EXPECT_EQ(counted.rows[1].false_alarms, 1);
  EXPECT_EQ(counted.rows[2].kind, 1);
  EXPECT_EQ(counted.faults.runs, 4);
  ASSERT_EQ(counted.kinds.size(), 1);
  EXPECT_EQ(counted.kinds[0].name, "rate");
  EXPECT_EQ(counted.kinds[0].runs, 4) << "of all places";
  EXPECT_THAT(to_text(counted), HasSubstr("all of rate"));
  EXPECT_EQ(counted.confusion.at("rate").at("port-rate"), 2);
  EXPECT_EQ(counted.confusion.at("rate").at("nothing"), 1);
  EXPECT_EQ(counted.confusion.at("rate").at("-"), 1);
  EXPECT_EQ(counted.confusion.at("clean").at("port-rate"), 1);
}

TEST(MatrixScore, ThePageNamesTheRunsThatWentWrong) {
  const std::string page = to_markdown({{kHead, results()}});
  EXPECT_THAT(page, HasSubstr("## netlab: 2 hosts x 2 rails"));
  EXPECT_THAT(page,
              HasSubstr("| rate-transmit | 4 | 2 of 4 | 1 of 4 | 2 of 4 | 0 | 30 s | 180 s |"));
  EXPECT_THAT(page, HasSubstr("| clean | 2 |  |  | 1 of 2 | 1 | 9 s | 9 s |"));
  EXPECT_THAT(page, HasSubstr("| rate-transmit/2 | rate 50% at h2r1:tx | ok | nothing |"));
  EXPECT_THAT(page, HasSubstr("| rate-transmit/3 | rate 50% at h2r1:tx | none | no report"));
  EXPECT_THAT(page, Not(HasSubstr("| rate-transmit/0 |")));
  EXPECT_THAT(to_text(score(results())), HasSubstr("all with one fault"));
}

class MatrixResultsFile : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  void write(const std::string& text) const { std::ofstream(path_) << text; }
  const std::string path_ = (std::filesystem::temp_directory_path() /
                             ("matrix_results_" + std::to_string(getpid()) + ".jsonl"))
                                .string();
};

TEST_F(MatrixResultsFile, KeepsRunsAndLeavesOutALineThatWasCutOff) {
  EXPECT_TRUE(read_results(path_, kHead).runs.empty()) << "no file yet";
  std::string text = to_json(kHead).dump() + "\n";
  for (const TrialResult& result : results()) text += to_json(result).dump() + "\n";
  write(text + R"({"run": "clean/2", "fau)");
  const MatrixResults read = read_results(path_, {});
  EXPECT_EQ(read.head, kHead);
  ASSERT_EQ(read.runs.size(), results().size());
  EXPECT_EQ(to_json(score(read.runs)), to_json(score(results())));
}

TEST_F(MatrixResultsFile, NamesALineThatIsWrong) {
  const std::string head = to_json(kHead).dump() + "\n", run = to_json(results()[0]).dump() + "\n";
  for (const auto& [text, line] :
       {std::pair(head + "nonsense\n" + run, ":2: "), std::pair(std::string("{}\n"), ":1: "),
        std::pair(head + "{\"run\": 5}\n" + run, ":2: ")}) {
    write(text);
    try {
      read_results(path_, kHead);
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(path_ + line));
    }
  }
}

}  // namespace
}  // namespace weft
