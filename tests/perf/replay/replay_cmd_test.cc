// `weft replay`, as users type it: real ranks play what a trace says, byte for byte.
// labels: multiproc
// ctest: alone
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "perf/replay/read.h"
#include "support/process/read_file.h"
#include "support/process/shell.h"
#include "support/process/temporary_folder.h"
#include "tests/perf/replay/replay_files.h"

namespace weft::replay {
namespace {

using namespace testing;  // NOLINT: the traces
using ::testing::HasSubstr;

Output replay_files(const std::string& arguments) {
  return run(fmt::format("timeout 120 {} replay {} 2>&1", WEFT_BINARY, arguments));
}

// Calls and bytes in all, by collective.
std::map<std::string, std::pair<double, double>> traffic(const nlohmann::json& played) {
  std::map<std::string, std::pair<double, double>> all;
  for (const auto& row : played.at("rows")) {
    auto& [calls, bytes] = all[row.at("collective").get<std::string>()];
    calls += row.at("calls").get<double>();
    bytes += row.at("total_bytes").get<double>();
  }
  return all;
}

const std::map<std::string, std::pair<double, double>> kSmall = {{"all_reduce", {1, 1 << 20}},
                                                                 {"all_gather", {1, 4 << 16}},
                                                                 {"reduce_scatter", {1, 1 << 18}},
                                                                 {"all_to_all", {1, 1 << 18}}};

TEST(ReplayCommand, RanksPlayTheBytesOfTheTrace) {
  if (!reads_chakra_traces()) GTEST_SKIP() << "missing capability: protobuf";
  const weft::testing::TemporaryFolder folder;
  for (int r = 0; r < 4; ++r) write_file(folder / fmt::format("t.{}.et", r), small_chakra());
  const std::string json = folder / "report.json";
  const Output o = replay_files(fmt::format("-N 4 --hosts 2 -n 2 --compare --json {} {}/t.?.et",
                                            json, std::string(folder / "")));
  ASSERT_EQ(o.exit_code, 0) << o.text;
  EXPECT_THAT(o.text, HasSubstr("with one rail at half rate"));
  const auto report = nlohmann::json::parse(read_file(json));
  EXPECT_EQ(report.at("schema"), "weft.replay/1");
  EXPECT_EQ(traffic(report.at("measured")), kSmall);
  EXPECT_EQ(traffic(report.at("simulated")), kSmall);
  EXPECT_GE(report.at("measured").at("step_us"), 500) << "the computation alone";
  for (const auto& row : report.at("measured").at("rows")) EXPECT_GT(row.at("time_us"), 0);
}

TEST(ReplayCommand, ALargerTraceIsFoldedAndSaysSo) {
  const weft::testing::TemporaryFolder folder;
  write_file(folder / "work.txt",
             simai("a -1 1000 ALLGATHER 4096 0 NONE 0 0 ALLREDUCE 8192 1\n", 1));
  const std::string json = folder / "report.json";
  const Output o = replay_files(fmt::format("-N 2 -n 1 --json {} {}", json, folder / "work.txt"));
  ASSERT_EQ(o.exit_code, 0) << o.text;
  EXPECT_THAT(o.text, HasSubstr("folded: 2 ranks play the 8 of the trace"));
  const auto report = nlohmann::json::parse(read_file(json));
  EXPECT_EQ(traffic(report.at("measured")),
            (std::map<std::string, std::pair<double, double>>{{"all_gather", {1, 4096}},
                                                              {"all_reduce", {1, 8192}}}));
}

TEST(ReplayCommand, SimulatesAtTheTracesOwnSize) {
  const weft::testing::TemporaryFolder folder;
  write_file(folder / "work.txt", simai("a -1 1000 ALLGATHER 4096 0 NONE 0 0 ALLREDUCE 1048576 1\n",
                                        1, "model_parallel_NPU_group: 8 all_gpus: 64"));
  const auto step = [&](const char* rate) {
    const Output o = replay_files(fmt::format(
        "--sim --hosts 8 --rails 8 --rail-gbps {} --json - {}", rate, folder / "work.txt"));
    EXPECT_EQ(o.exit_code, 0) << o.text;
    return nlohmann::json::parse(o.text).at("simulated");
  };
  const auto fast = step("100"), slow = step("10");
  EXPECT_LT(fast.at("step_us"), slow.at("step_us"));
  EXPECT_GT(slow.at("step_us_one_rail_at_half_rate"), slow.at("step_us"));
  EXPECT_EQ(traffic(fast).at("all_reduce"), (std::pair<double, double>{8, 8 << 20}));
}

TEST(ReplayCommand, ATrainingRunReplaysToItsOwnBytes) {
  if (!reads_chakra_traces()) GTEST_SKIP() << "missing capability: protobuf";
  const weft::testing::TemporaryFolder folder;
  const Output trained =
      run(fmt::format("timeout 120 {} train -N 4 --dp 2 --tp 2 --steps 2 --sample 0 --width 32 "
                      "--layers 2 --heads 2 "
                      "--batch 8 --trace {} 2>&1",
                      WEFT_BINARY, folder / "run.json"));
  ASSERT_EQ(trained.exit_code, 0) << trained.text;
  // What the ranks' own traces say: the elements of a call, and as many for each of its blocks.
  std::map<std::string, std::pair<double, double>> said;
  for (int r = 0; r < 4; ++r) {
    const auto trace = nlohmann::json::parse(read_file(folder / fmt::format("run.rank{}.json", r)));
    for (const auto& event : trace.at("traceEvents")) {
      if (event.value("cat", "") != "operation") continue;
      const auto& args = event.at("args");
      const std::string word = args.at("collective");
      const bool message = word == "send" || word == "recv";
      const double members = args.at("members").get<double>();
      if (!message && members < 2) continue;
      const bool blocks = word == "all_gather" || word == "reduce_scatter";
      auto& [calls, bytes] = said[word];
      calls += message ? 1 : 1 / members;
      bytes += args.at("bytes").get<double>() * (message ? 1
                                                 : blocks && !args.at("uneven").get<bool>()
                                                     ? 1
                                                     : 1 / members);
    }
  }
  ASSERT_GT(said.at("all_reduce").first, 0);
  const std::string json = folder / "report.json";
  const Output o =
      replay_files(fmt::format("-N 4 -n 1 --json {} {}/run.?.et", json, std::string(folder / "")));
  ASSERT_EQ(o.exit_code, 0) << o.text;
  const auto played = traffic(nlohmann::json::parse(read_file(json)).at("measured"));
  ASSERT_EQ(played.size(), said.size());
  for (const auto& [word, sums] : said) {
    EXPECT_NEAR(played.at(word).first, sums.first, 1e-6) << word;
    EXPECT_NEAR(played.at(word).second, sums.second, 1e-3) << word;
  }
}

TEST(ReplayCommand, ABadTraceIsNamedBeforeRanksStart) {
  const weft::testing::TemporaryFolder folder;
  write_file(folder / "work.txt", simai("a -1 1 ALLROTATE 8 0 NONE 0 0 NONE 0 1\n", 1));
  const Output o = replay_files(fmt::format("-N 2 {}", folder / "work.txt"));
  EXPECT_EQ(o.exit_code, 4) << o.text;
  EXPECT_THAT(o.text, HasSubstr("'ALLROTATE' is no collective that weft knows"));
  EXPECT_THAT(replay_files("--sim /nowhere.et").text, HasSubstr("/nowhere.et: cannot be read"));
}

}  // namespace
}  // namespace weft::replay
