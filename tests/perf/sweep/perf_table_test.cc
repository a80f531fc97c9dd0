// The rows and the JSON of `weft perf`: nccl-tests' columns, at most 100 characters.
#include "perf/sweep/perf_table.h"

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
  const PerfTable table(report, {1 << 20, types, ops}, PerfLines::kRows);
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

// A half without measurement shows N/A, like nccl-tests; one that is not requested has no columns.
TEST(PerfTable, TellsHalvesThatAreNotThereFromThoseThatAreNotAskedFor) {
  PerfReport report;
  report.collective = Collective::kSendRecv;
  const DType types[] = {DType::kFloat32};
  const RedOp ops[] = {RedOp::kSum};
  PerfRow row = row_of(64);
  row.in_place.reset();
  const PerfTable both(report, {64, types, ops}, PerfLines::kRows);
  EXPECT_THAT(both.row(row), HasSubstr("N/A    N/A"));
  report.in_place = false;
  const PerfTable one(report, {64, types, ops}, PerfLines::kRows);
  EXPECT_THAT(one.row(row), AllOf(Not(HasSubstr("N/A")), HasSubstr("hierarchical_leader")));
  EXPECT_THAT(words(one.header()), ::testing::Contains("of_bound"));
}

TEST(PerfTable, FitsAHundredColumns) {
  for (const PerfLines lines_of :
       {PerfLines::kRows, PerfLines::kPercentiles, PerfLines::kIterations})
    for (const bool in_place : {false, true})
      for (const std::uint64_t largest : {std::uint64_t{64} << 20, std::uint64_t{1} << 30}) {
        PerfReport report;
        report.ranks = 8;
        report.in_place = in_place;
        const DType types[] = {DType::kFloat32, DType::kBFloat16};
        const RedOp ops[] = {RedOp::kSum, RedOp::kAvg};
        const PerfTable table(report, {largest, types, ops}, lines_of);
        PerfRow row = row_of(largest);
        row.out_of_place->time_us = {499999, 999999, 999999, 999999};
        for (auto* half : {&row.out_of_place, &row.in_place}) (*half)->rank_us = {{1, 999999}};
        row.type = DType::kBFloat16;
        std::istringstream lines(table.header() + table.row(row));
        for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
      }
}

TEST(PerfTable, PercentilesHaveALineForEachHalf) {
  PerfReport report;
  const DType types[] = {DType::kFloat32};
  const RedOp ops[] = {RedOp::kSum};
  const PerfTable table(report, {64, types, ops}, PerfLines::kPercentiles);
  std::istringstream lines(table.row(row_of(64)));
  std::string out, in;
  std::getline(lines, out);
  std::getline(lines, in);
  EXPECT_THAT(words(out), ElementsAre("64", "50.0", "100.0", "200.0", "0.001", "0.000", "0.250",
                                      "0", "out", "hierarchical_leader"));
  EXPECT_THAT(words(in), ElementsAre("64", "25.0", "50.0", "100.0", "0.001", "0.000", "0.250", "0",
                                     "in", "hierarchical_leader"));
}

// -I and -S of nccl-tests: its column names, and the date at the end.
TEST(PerfTable, IterationsAndTimeStampsHaveTheColumnsOfNcclTests) {
  PerfReport report;
  report.ranks = 2;
  report.timestamps = true;
  report.skip_iterations = 1;
  const DType types[] = {DType::kFloat32};
  const RedOp ops[] = {RedOp::kSum};
  PerfRow row = row_of(64);
  row.finished = "2026-11-26 14:03:59";
  row.in_place.reset();
  row.out_of_place->rank_us = {{90, 1, 2, 2}, {1, 2, 4, 1}};  // the slowest: 90, 2, 4, 2
  const PerfTable table(report, {64, types, ops}, PerfLines::kIterations);
  EXPECT_THAT(words(table.header()),
              ::testing::IsSupersetOf({"i_min", "i_max", "i_p99", "i_cv", "timestamp"}));
  EXPECT_THAT(words(table.row(row)),
              ElementsAre("64", "100.0", "0.001", "0.001", "0", "2.00", "4.00", "4.00", "35.4",
                          "out", "2026-11-26", "14:03:59"));
  const PerfTable rows(report, {64, types, ops}, PerfLines::kRows);
  EXPECT_THAT(words(rows.header()), ::testing::Contains("in-place"));
  EXPECT_THAT(rows.row(row), HasSubstr("2026-11-26 14:03:59\n"));
}

TEST(PerfLimits, AreNamedWhereTheyAreMissed) {
  PerfReport report;
  report.ranks = 2;
  report.rows = {row_of(1000), row_of(2000)};  // busbw 0.01 and 0.02, 0.02 and 0.04
  std::size_t unknown = 0;
  EXPECT_TRUE(missed_limits(report, unknown).empty());
  report.limits.busbw = 0.03;
  EXPECT_THAT(missed_limits(report, unknown),
              ElementsAre("2000 bytes of float sum: busbw 0.020 GB/s is below --min-busbw 0.03"));
  report.limits = {0, 0.9, 0};
  for (PerfRow& row : report.rows) row.out_of_place->predicted_us = row.in_place->predicted_us = 45;
  EXPECT_THAT(missed_limits(report, unknown),
              ElementsAre(HasSubstr("1000 bytes of float sum: 100.0 us, 45.0 us predicted"),
                          HasSubstr("2000 bytes of float sum: 100.0 us, 45.0 us predicted")));
  EXPECT_EQ(unknown, 0u);
  report.rows[0].out_of_place->predicted_us = 0;
  EXPECT_EQ(missed_limits(report, unknown).size(), 2u);
  EXPECT_EQ(unknown, 1u) << "what is not predicted is not reached";
  report.limits = {0, 0, 0.026};  // the average is 0.0225, above 0.9 of the limit
  EXPECT_THAT(missed_limits(report, unknown),
              ElementsAre(HasSubstr("the average bus bandwidth, 0.0225 GB/s, is below")));
  report.limits.average_busbw = 0.024;
  EXPECT_TRUE(missed_limits(report, unknown).empty());
  EXPECT_THAT(footer(report), Not(HasSubstr("MISSED")));
}

TEST(PerfGroups, SlowOnesAreMarked) {
  PerfReport report;
  report.ranks = 2;
  report.split = "NCCL_TESTS_SPLIT=DIV 2";
  for (int g = 0; g < 4; ++g) report.groups.push_back({g, {2 * g, 2 * g + 1}});
  report.rows = {row_of(1000)};
  report.rows[0].out_of_place->group_us = {100, 102, 250, 99};
  EXPECT_THAT(footer(report), ::testing::ContainsRegex("2 +4,5 +0.004 +SLOW: 0.41 of the median"));
  EXPECT_EQ(footer(report).find("SLOW"), footer(report).rfind("SLOW"));
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

// The original times of weft.perf/1 are out of place; in-place ones are beside them.
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
