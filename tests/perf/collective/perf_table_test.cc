// The rows and the JSON of `weft perf`: nccl-tests' columns, at most 100 of them.
#include "perf/collective/perf_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

PerfHalf half(double us) {
  PerfHalf h;
  h.algorithm = "hierarchical_leader";
  h.time_us = {us / 2, us, 2 * us, 3 * us};
  h.bound_us = us / 4;
  h.iterations = 20;
  h.wrong = 0;
  return h;
}

PerfRow row_of(std::uint64_t bytes) {
  PerfRow row;
  row.bytes = bytes;
  row.count = bytes / 4;
  row.out_of_place = half(100);
  row.in_place = half(50);
  return row;
}

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> all;
  for (std::string word; in >> word;) all.push_back(word);
  return all;
}

TEST(PerfTable, HasTheColumnsOfNcclTests) {
  PerfReport report;
  report.ranks = 2;
  const DType types[] = {DType::kFloat32};
  const RedOp ops[] = {RedOp::kSum};
  const PerfTable table(report, {1 << 20, types, ops}, false);
  std::istringstream header(table.header());
  std::string halves, titles;
  std::getline(header, halves);
  std::getline(header, titles);
  EXPECT_THAT(words(halves), ElementsAre("#", "out-of-place", "in-place"));
  EXPECT_THAT(words(titles),
              ElementsAre("#", "size", "count", "type", "redop", "root", "time", "algbw", "busbw",
                          "#wrong", "time", "algbw", "busbw", "#wrong"));
  EXPECT_THAT(words(table.row(row_of(1 << 20))),
              ElementsAre("1048576", "262144", "float", "sum", "-1", "100.0", "10.49", "10.49", "0",
                          "50.0", "20.97", "20.97", "0"));
}

// A half that is not there has N/A, as in nccl-tests; one that is not asked for has no columns.
TEST(PerfTable, TellsHalvesThatAreNotThereFromThoseThatAreNotAskedFor) {
  PerfReport report;
  report.collective = Collective::kSendRecv;
  const DType types[] = {DType::kFloat32};
  const RedOp ops[] = {RedOp::kSum};
  PerfRow row = row_of(64);
  row.in_place.reset();
  const PerfTable both(report, {64, types, ops}, false);
  EXPECT_THAT(both.row(row), HasSubstr("N/A    N/A"));
  report.in_place = false;
  const PerfTable one(report, {64, types, ops}, false);
  EXPECT_THAT(one.row(row), AllOf(Not(HasSubstr("N/A")), HasSubstr("hierarchical_leader")));
  EXPECT_THAT(words(one.header()), ::testing::Contains("of_bound"));
}

TEST(PerfTable, FitsAHundredColumns) {
  for (const bool percentiles : {false, true})
    for (const bool in_place : {false, true})
      for (const std::uint64_t largest : {std::uint64_t{64} << 20, std::uint64_t{1} << 30}) {
        PerfReport report;
        report.ranks = 8;
        report.in_place = in_place;
        const DType types[] = {DType::kFloat32, DType::kBFloat16};
        const RedOp ops[] = {RedOp::kSum, RedOp::kAvg};
        const PerfTable table(report, {largest, types, ops}, percentiles);
        PerfRow row = row_of(largest);
        row.out_of_place->time_us = {499999, 999999, 999999, 999999};
        row.type = DType::kBFloat16;
        std::istringstream lines(table.header() + table.row(row));
        for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
      }
}

TEST(PerfTable, PercentilesHaveALineForEachHalf) {
  PerfReport report;
  const DType types[] = {DType::kFloat32};
  const RedOp ops[] = {RedOp::kSum};
  const PerfTable table(report, {64, types, ops}, true);
  std::istringstream lines(table.row(row_of(64)));
  std::string out, in;
  std::getline(lines, out);
  std::getline(lines, in);
  EXPECT_THAT(words(out), ElementsAre("64", "50.0", "100.0", "200.0", "0.001", "0.000", "0.250",
                                      "0", "out", "hierarchical_leader"));
  EXPECT_THAT(words(in), ElementsAre("64", "25.0", "50.0", "100.0", "0.001", "0.000", "0.250", "0",
                                     "in", "hierarchical_leader"));
}

TEST(PerfTable, AFooterHasTheAverageOfAllHalvesAndTheAlgorithms) {
  PerfReport report;
  report.ranks = 2;
  report.rows = {row_of(1000), row_of(2000)};
  report.rows[1].out_of_place->algorithm = "ring";
  // 1000 and 2000 bytes in 100 and 50 us: 0.01, 0.02, 0.02 and 0.04 GB/s.
  EXPECT_THAT(footer(report), HasSubstr("# Avg bus bandwidth    : 0.0225\n"));
  EXPECT_THAT(
      algorithms_in_words(report),
      HasSubstr("# algorithm: hierarchical_leader, ring from 2000; of_bound at most 0.250"));
}

// The times that weft.perf/1 always had are those out of place; in place they are beside them.
TEST(PerfTable, JsonHasBothHalves) {
  PerfReport report;
  report.ranks = 2;
  report.rows = {row_of(1000)};
  auto json = to_json(report);
  EXPECT_EQ(json["in_place"], false);
  EXPECT_EQ(json["rows"][0]["time_us_p50"], 100);
  EXPECT_EQ(json["rows"][0]["in_place"]["time_us_p50"], 50);
  EXPECT_EQ(json["rows"][0]["in_place"]["wrong"], 0);
  report.rows[0].in_place.reset();
  EXPECT_TRUE(to_json(report)["rows"][0]["in_place"].is_null());
  report.rows = {row_of(1000)};
  report.rows[0].out_of_place.reset();
  report.out_of_place = false;
  json = to_json(report);
  EXPECT_EQ(json["in_place"], true);
  EXPECT_EQ(json["rows"][0]["time_us_p50"], 50);
  EXPECT_FALSE(json["rows"][0].contains("in_place"));
}

}  // namespace
}  // namespace weft
