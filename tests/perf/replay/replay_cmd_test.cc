// `weft replay` on the command line: ranks play a trace byte for byte.
// labels: multiproc
// ctest: alone
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "perf/replay/formats/read.h"
#include "support/process/read_file.h"
#include "support/process/shell.h"
#include "support/process/temporary_folder.h"
#include "tests/perf/replay/replay_files.h"

namespace weft::replay {
namespace {

using namespace testing;  // NOLINT: the traces
using ::testing::AllOf;
using ::testing::HasSubstr;

Output replay_files(const std::string& arguments) {
  return run(fmt::format("timeout 120 {} replay {} 2>&1", WEFT_BINARY, arguments));
}

// Total calls and bytes by collective.
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
  for (const char* how : {"measured", "simulated"}) {
    const auto& played = report.at(how);
    const double step = played.at("step_us");
    double shares = played.at("compute_us").get<double>() / step;
    for (const auto& row : played.at("rows")) {
      EXPECT_GT(row.at("time_us"), 0);
      EXPECT_LE(row.at("time_us"), step) << "no call is longer than the step that it is of";
      shares += row.at("share_of_step").get<double>();
    }
    EXPECT_LE(shares, 1.000001) << how;
  }
  EXPECT_GE(report.at("simulated").at("step_us_one_rail_at_half_rate"),
            report.at("simulated").at("step_us"));
  EXPECT_THAT(o.text, HasSubstr("us: from a call's post to its end"));
}

// Both ranks send before they receive, more than any transport buffers; the second receives out of
// order.
TEST(ReplayCommand, SendsThatComeFirstWaitForNobody) {
  const weft::testing::TemporaryFolder folder;
  write_file(folder / "job.goal",
             "num_ranks 2\nrank 0 {\na: send 4000000b to 1 tag 1\nb: send 3000000b to 1 tag 2\n"
             "b requires a\nc: recv 4000000b from 1\nc requires b\n}\n"
             "rank 1 {\na: send 4000000b to 0\nb: recv 3000000b from 0 tag 2\nb requires a\n"
             "c: recv 4000000b from 0 tag 1\nc requires b\n}\n");
  const std::string json = folder / "report.json";
  const Output o = replay_files(fmt::format("-N 2 -n 2 --json {} {}", json, folder / "job.goal"));
  ASSERT_EQ(o.exit_code, 0) << o.text;
  const std::map<std::string, std::pair<double, double>> said = {{"send", {3, 11e6}},
                                                                 {"recv", {3, 11e6}}};
  EXPECT_EQ(traffic(nlohmann::json::parse(read_file(json)).at("measured")), said);
}

TEST(ReplayCommand, AnEmptyTraceIsSaidToBeEmpty) {
  const weft::testing::TemporaryFolder folder;
  write_file(folder / "et.json",
             R"({"schema":"1.1.0","nodes":[{"id":3,"name":"aten::mm"},{"id":4,"name":"odd"}]})");
  for (const char* how : {"--sim", "-N 2"}) {
    const Output o = replay_files(fmt::format("{} {}", how, folder / "et.json"));
    EXPECT_EQ(o.exit_code, 0);
    EXPECT_THAT(o.text, HasSubstr("which is empty"));
    EXPECT_THAT(o.text, ::testing::Not(HasSubstr("step")));
    EXPECT_THAT(o.text, HasSubstr("1 computations state no time"));
  }
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

TEST(ReplayCommand, RanksPassThePipelinesMessagesOn) {
  const weft::testing::TemporaryFolder folder;
  write_file(folder / "work.txt",
             simai("a -1 1000 NONE 0 1000 NONE 0 0 NONE 0 1\n", 1,
                   "model_parallel_NPU_group: 2 pp: 2 ga: 3 all_gpus: 4 pp_comm 100000"));
  const std::string json = folder / "report.json";
  const Output o = replay_files(
      fmt::format("-N 4 --hosts 2 -n 1 --compare --json {} {}", json, folder / "work.txt"));
  ASSERT_EQ(o.exit_code, 0) << o.text;
  const std::map<std::string, std::pair<double, double>> said = {{"sendrecv", {12, 1200000}}};
  const auto report = nlohmann::json::parse(read_file(json));
  EXPECT_EQ(traffic(report.at("measured")), said) << "2 groups, 3 messages on and 3 back";
  EXPECT_EQ(traffic(report.at("simulated")), said);
  EXPECT_GT(report.at("simulated").at("rows").at(0).at("exposed"), 0.9);
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
  // The ranks' own traces: the elements of a call, or of each of its blocks.
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
  // Chakra's feeder reads an attribute from the field of its type: int64 9, int32 7, bool 27.
  const std::string chakra = read_file(folder / "run.1.et");
  for (const char* field :
       {"comm_type\x48", "comm_size\x48", "comm_dst\x38", "comm_src\x38", "is_cpu_op\xd8\x01"})
    EXPECT_NE(chakra.find(field), std::string::npos) << field;
  const std::string json = folder / "report.json";
  const Output o =
      replay_files(fmt::format("-N 4 -n 1 --json {} {}/run.?.et", json, std::string(folder / "")));
  ASSERT_EQ(o.exit_code, 0) << o.text;
  EXPECT_THAT(o.text, AllOf(HasSubstr("tensor of 2"), HasSubstr("job of 4")));
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
  EXPECT_THAT(o.text, HasSubstr("'ALLROTATE' is not a collective that weft supports"));
  EXPECT_THAT(replay_files("--sim /nowhere.et").text, HasSubstr("/nowhere.et: cannot be read"));
}

}  // namespace
}  // namespace weft::replay
