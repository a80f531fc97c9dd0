// Trace readers on traces made here: accepted inputs, and errors that name the cause.
// ctest: alone
#include "perf/replay/formats/read.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "perf/replay/fold.h"
#include "perf/replay/write_goal.h"
#include "support/process/temporary_folder.h"
#include "tests/perf/replay/formats/read_texts.h"
#include "topo/base/status.h"

namespace weft::replay {
namespace {

using namespace testing;  // NOLINT: the traces
using ::testing::AllOf;
using ::testing::HasSubstr;

class Chakra : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!reads_chakra_traces()) GTEST_SKIP() << "missing capability: protobuf";
  }
};

TEST_F(Chakra, GivesCallsWithTheirWholeMessagesAndDependencies) {
  const JobTrace trace = job(std::vector(4, small_chakra()), "et");
  EXPECT_EQ(trace.ranks, 4);
  ASSERT_EQ(trace.programs.size(), 1u);
  const Program& p = trace.programs[0];
  ASSERT_EQ(p.size(), 5u);
  EXPECT_EQ(p[0].bytes, 1u << 20);
  EXPECT_EQ(p[1].compute_us, 500);
  EXPECT_EQ(p[2].collective, Collective::kAllGather);
  EXPECT_EQ(p[2].bytes, 4u << 16) << "what a rank puts in, from all ranks";
  EXPECT_EQ(p[2].after, (std::vector{0, 1}));
  EXPECT_EQ(p[3].collective, Collective::kReduceScatter);
  EXPECT_EQ(p[3].bytes, 1u << 18);
}

TEST_F(Chakra, OneFileStandsForAllWhereItsRanksAreSaid) {
  const JobTrace trace = job({small_chakra()}, "et", ReadOptions{16, ""});
  EXPECT_EQ(trace.ranks, 16);
  EXPECT_TRUE(trace.alike());
  EXPECT_THAT(trace.notes, ::testing::ElementsAre(HasSubstr("stands for all 16 ranks")));
}

TEST_F(Chakra, RefusesWhatIsCutOffOrOfAnotherVersion) {
  const std::string whole = small_chakra();
  EXPECT_THAT(refusal({whole.substr(0, whole.size() - 3)}, "et"),
              AllOf(HasSubstr("t.0.et: cut off: the message at byte"), HasSubstr("are left")));
  for (const char* version : {"0.0.3", "2.0.0", "new"})
    EXPECT_THAT(refusal({metadata(version) + chakra(compute(1, 1))}, "et"),
                HasSubstr(fmt::format("version '{}' of Chakra; weft reads 0.0.4 to 1", version)));
  EXPECT_THAT(refusal({""}, "et"), HasSubstr("the file is empty"));
}

TEST_F(Chakra, NamesUnknownCollectivesGroupsAndNodes) {
  EXPECT_THAT(refusal({metadata() + chakra(collective(7, 23, 64))}, "et"),
              HasSubstr("node 7 (n7): comm_type 23 is not a collective"));
  EXPECT_THAT(refusal({metadata() + chakra(collective(7, 0, 64, {}, "tensor"))}, "et"),
              HasSubstr("node 7 (n7): there is no group 'tensor'; there are: all"));
}

// Chakra's generator and converters, each in its current version.
TEST_F(Chakra, ReadsEveryVersionSinceTheFirstThatIsInUse) {
  const std::string schema = delimited(
      field(2, field(1, std::string("schema")) + field(29, std::string("1.1.1-chakra.1.0.0"))));
  for (const std::string& head : {metadata("0.0.4"), metadata("0.0.5"), metadata("1.0.0"),
                                  metadata("1.2.0"), schema, delimited("")}) {
    const JobTrace trace = job({head + chakra(collective(1, 0, 64))}, "et", ReadOptions{4, ""});
    EXPECT_EQ(trace.programs[0].at(0).bytes, 64u);
  }
}

TEST_F(Chakra, CallersAndNodesThatAreMissingAreNotWaitedFor) {
  // Field 4 is ctrl_deps: the calling operator, which in turn waits for the called one.
  const std::string called = delimited(field(1, 2) + field(3, 4) + field(4, 1) + field(7, 5));
  const JobTrace trace = job({metadata() + chakra(compute(1, 1, {2, 9})) + called}, "et");
  EXPECT_EQ(trace.programs[0].size(), 2u);
  EXPECT_EQ(trace.left_out.at("dependency on a node that the file does not have"), 1u);
}

TEST_F(Chakra, WhatLacksSizeKindOrPeerIsCountedAndKeepsItsTime) {
  const JobTrace trace =
      job({metadata() + chakra({1, 7, {}, 40, {{"comm_size", 8}}, ""}) +
           chakra({2, 7, {}, 40, {{"comm_type", 0}}, ""}) +
           chakra({3, 5, {}, 40, {{"tensor_size", 8}}, ""}) +
           chakra({4, 6, {}, 40, {{"comm_src", 1}}, ""}) + chakra({5, 11, {}, 40, {}, ""})},
          "et", ReadOptions{2, ""});
  EXPECT_THAT(trace.left_out, ::testing::UnorderedElementsAre(
                                  std::pair("collective without comm_type (its time is kept)", 1u),
                                  std::pair("collective without comm_size (its time is kept)", 1u),
                                  std::pair("send without a peer (its time is kept)", 1u),
                                  std::pair("recv without a size (its time is kept)", 1u),
                                  std::pair("node of type 11", 1u)));
  double us = 0;
  for (const TraceNode& node : trace.programs[0]) us += node.compute_us;
  EXPECT_EQ(us, 160);
}

TEST_F(Chakra, TakesGroupsFromAProcessGroupsNode) {
  const std::string groups =
      R"(['[{"pg_name": "7", "pg_desc": "tensor", "ranks": [0, 1], "group_size": 2}]'])";
  const std::string init =
      delimited(field(1, 1) + field(2, std::string("## process_group:init ##")) + field(3, 1) +
                field(8, field(1, groups)));
  const JobTrace trace =
      job(std::vector(2, metadata() + init + chakra(collective(2, 0, 64, {}, "7"))), "et");
  EXPECT_EQ(trace.groups.at(1).name, "tensor");
  EXPECT_EQ(*trace.list_of(1, 1), (std::vector<Rank>{0, 1}));
}

TEST(ChakraJson, GivesWhatTheFeederReads) {
  const JobTrace trace = job({R"({"workload_graph": [
        {"Id": 1, "Name": "a", "NodeType": 4, "runtime": 30, "data_deps": [], "is_cpu_op": true},
        {"Id": 2, "Name": "b", "NodeType": 7, "data_deps": [1, 77], "comm_type": 2, "comm_size": 8,
         "is_cpu_op": false},
        {"Id": 3, "Name": "c", "NodeType": 9, "data_deps": [2]}], "ngpus": 4})"},
                             "json", ReadOptions{4, ""});
  ASSERT_EQ(trace.programs[0].size(), 3u);
  EXPECT_EQ(trace.programs[0][0].compute_us, 30);
  EXPECT_EQ(trace.programs[0][1].collective, Collective::kAllGather);
  EXPECT_EQ(trace.programs[0][1].bytes, 32u);
  EXPECT_EQ(trace.programs[0][1].after, std::vector{0});
  EXPECT_EQ(trace.left_out.at("node of type 9"), 1u);
}

TEST_F(Chakra, NamesACircleOfDependencies) {
  EXPECT_THAT(
      refusal({metadata() + chakra(compute(1, 1, {3})) + chakra(compute(2, 1, {1})) +
               chakra(compute(3, 1, {2}))},
              "et"),
      HasSubstr("in a circle: node 1 (n1) waits for node 3 (n3) waits for node 2 (n2) waits "
                "for node 1 (n1)"));
}

TEST_F(Chakra, NamesACircleAmongRanks) {
  const auto text = [](int first, int second, Rank peer) {
    return metadata() + chakra(message(1, first, peer, 64)) +
           chakra(message(2, second, peer, 64, {1}));
  };
  EXPECT_THAT(refusal({text(6, 5, 1), text(6, 5, 0)}, "et"),
              HasSubstr("node 1 (n1): recv of 64 bytes waits for rank"));
  EXPECT_EQ(refusal({text(5, 6, 1), text(6, 5, 0)}, "et"), "");
  EXPECT_EQ(refusal({text(5, 6, 1), text(5, 6, 0)}, "et"), "") << "Chakra's sends wait for nobody";
  EXPECT_THAT(refusal({text(5, 5, 1), text(6, 4, 0)}, "et"), HasSubstr("that rank never receives"));
}

TEST_F(Chakra, NamesRanksThatAreMissingAndCallsThatDiffer) {
  const weft::testing::TemporaryFolder folder;
  std::vector<std::string> paths;
  for (const int r : {0, 1, 3}) {
    paths.push_back(folder / fmt::format("t.{}.et", r));
    write_file(paths.back(), small_chakra());
  }
  EXPECT_THAT([&] { (void)read_job(paths); },
              ::testing::ThrowsMessage<Error>(HasSubstr("there is no file of rank 2")));
  EXPECT_THAT(refusal({metadata() + chakra(collective(1, 0, 64)),
                       metadata() + chakra(collective(1, 0, 128))},
                      "et"),
              HasSubstr("all_reduce of 128 bytes meets rank 0's node 1, all_reduce of 64 bytes"));
}

TEST_F(Chakra, CountsNodesThatItDoesNotKnow) {
  const JobTrace trace =
      job(std::vector(2, metadata() + chakra({1, 9, {}, 0, {}, ""}) + chakra(compute(2, 0))), "et");
  EXPECT_EQ(trace.left_out.at("node of type 9"), 2u);
  EXPECT_EQ(trace.untimed, 2u);
}

TEST(Simai, DealsItsGroupsAndOrdersForwardAndBackward) {
  const JobTrace trace = job({simai("a -1 1000 ALLGATHER 64 2000 REDUCESCATTER 64 3000 NONE 0 1\n"
                                    "b -1 1000 ALLTOALL_EP 64 0 NONE 0 0 ALLREDUCE 128 1\n",
                                    2)},
                             "txt");
  EXPECT_EQ(trace.ranks, 8);
  EXPECT_TRUE(trace.alike());
  std::vector<std::string> calls;
  for (const TraceNode& n : trace.programs[0])
    calls.push_back(n.kind == NodeKind::kCompute
                        ? fmt::format("{} us", n.compute_us)
                        : fmt::format("{} {}", word_of(key_of(n)),
                                      trace.groups[static_cast<std::size_t>(n.group)].name));
  EXPECT_EQ(calls,
            (std::vector<std::string>{"1 us", "all_gather TP", "1 us", "all_to_all EP",
                                      "all_reduce DP", "2 us", "reduce_scatter TP", "3 us"}));
  EXPECT_EQ(*trace.list_of(trace.programs[0][4].group, 1), (std::vector<Rank>{1, 3, 5, 7}));
}

TEST(Simai, PassesThePipelinesValuesOnAfterEachPieceOfTheLayers) {
  const std::string layers =
      "a -1 1000 NONE 0 3000 NONE 0 0 NONE 0 1\nb -1 2000 NONE 0 4000 NONE 0 0 NONE 0 1\n";
  const std::string head = "model_parallel_NPU_group: 2 ep: 1 pp: 2 vpp: 1 ga: 2 all_gpus: 8";
  const JobTrace trace = job({simai(layers, 2, head + " pp_comm 640")}, "txt");
  EXPECT_TRUE(trace.alike());
  EXPECT_TRUE(trace.left_out.empty());
  EXPECT_EQ(job({simai(layers, 2, head + " pp_comm: 640.0")}, "txt").programs[0][1].bytes, 640u)
      << "as AICB writes it with sequence parallelism";
  const Program& p = trace.programs[0];
  std::vector<std::string> seen;
  for (const TraceNode& n : p)
    seen.push_back(n.kind == NodeKind::kCompute ? fmt::format("{} us", n.compute_us)
                                                : fmt::format("{} {} {}", word_of(key_of(n)),
                                                              n.bytes, n.back ? "back" : "on"));
  EXPECT_EQ(seen,
            (std::vector<std::string>{"1 us", "sendrecv 640 on", "2 us", "sendrecv 640 on", "4 us",
                                      "sendrecv 640 back", "3 us", "sendrecv 640 back"}));
  EXPECT_EQ(p[2].after, std::vector{1}) << "the next piece waits for the message";
  EXPECT_EQ(*trace.list_of(p[1].group, 3), (std::vector<Rank>{3, 7}));
  EXPECT_EQ(job({simai(layers, 2, head)}, "txt")
                .left_out.at("messages of the pipeline, whose size (pp_comm) the file does not "
                             "state"),
            4u);
  EXPECT_THAT(refusal({simai(layers, 2,
                             "model_parallel_NPU_group: 2 pp: 2 vpp: 9999 ga: 9999 all_gpus: 8")},
                      "txt"),
              HasSubstr("9999 micro-batches (ga) of 9999 pieces (vpp)"));
}

TEST(Simai, RefusesWhatIsWrongByLine) {
  const std::string layer = "a -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n";
  EXPECT_THAT(refusal({simai(layer, 2)}, "txt"),
              HasSubstr("line 2 says 2 layers, and there are 1"));
  EXPECT_THAT(refusal({simai("a -1 1 NONE 0\n", 1)}, "txt"), HasSubstr("line 3: 5 words of 12"));
  for (const char* size : {"-4", "0x10", "1e400", "nan", "4.0b"})
    EXPECT_THAT(
        refusal({simai(fmt::format("a -1 1 ALLREDUCE {} 1 NONE 0 1 NONE 0 1\n", size), 1)}, "txt"),
        HasSubstr(fmt::format("the size '{}' is not a number from 0 up", size)));
  EXPECT_THAT(refusal({simai("a -1 1 ALLROTATE 8 1 NONE 0 1 NONE 0 1\n", 1)}, "txt"),
              HasSubstr("node 3: 'ALLROTATE' is not a collective"));
  EXPECT_THAT(refusal({"MICRO all_gpus: 8\n1\n" + layer}, "txt"),
              HasSubstr("'MICRO' is not a policy"));
  EXPECT_THAT(refusal({simai(layer, 1, "model_parallel_NPU_group: 3 all_gpus: 8")}, "txt"),
              HasSubstr("8 ranks cannot be 3 tensor"));
}

TEST(Goal, GivesMessagesTimesAndWhatWaits) {
  const JobTrace trace =
      job({"num_ranks 2\n/* both send\n first */\nrank 0 {\na: send 64b to 1 tag 7 cpu 0 nic 1\n"
           "b: calc 1500 // ns\nc: recv 8 b from 1\nb requires a\nd: calc 1\nd irequires b\n"
           "calc 5\n}\n\nrank 1 {\nx: recv 64b from 0 tag 7\ny: send 8b to 0\ny requires x\n}\n"},
          "goal");
  ASSERT_EQ(trace.ranks, 2);
  const Program& p = trace.program(0);
  ASSERT_EQ(p.size(), 5u);
  EXPECT_EQ(p[0].kind, NodeKind::kSend);
  EXPECT_EQ(p[0].bytes, 64u);
  EXPECT_EQ(p[0].tag, 7);
  EXPECT_EQ(p[1].compute_us, 1.5);
  EXPECT_EQ(p[1].after, std::vector{0});
  EXPECT_EQ(p[3].after, std::vector{0}) << "d begins with b, which waits for a";
}

TEST(Goal, RefusesWhatIsWrongByLine) {
  const auto of_rank_0 = [](const std::string& line) {
    return "num_ranks 2\nrank 0 {\n" + line + "\n}\nrank 1 {\n}\n";
  };
  for (const auto& [text, answer] : std::vector<std::pair<std::string, const char*>>{
           {of_rank_0("a: send 8 to 1"), "line 3: the size '8' does not end with b"},
           {of_rank_0("send 8b to 2"), "line 3: there is no rank 2; num_ranks is 2"},
           {of_rank_0("recv 8b from -1"), "a recv from any rank (-1)"},
           {of_rank_0("recv 8b from 1 tag -1"), "a recv of any tag (-1)"},
           {of_rank_0("a requires b"), "there is no operation 'a' before this line"},
           {of_rank_0("send 8b to 1 tag 4294967296"), "the tag 4294967296 has over 32 bits"},
           {of_rank_0("calc ten"), "line 3: the time in ns 'ten' is not a number from 0 up"},
           {of_rank_0("calc 1 cpu 0 xyz"), "'xyz' is one word too many"},
           {of_rank_0("put 8b to 1"), "'put' is not send, recv, calc, requires or irequires"},
           {of_rank_0("send 8b to 1"), "that rank never receives it"},
           {"num_ranks 2\nrank 0 {\ncalc 1\n", "cut off: rank 0 has no closing bracket"},
           {"num_ranks 100000\nrank 0 {\n}\n", "100000 ranks: the file is too short"}})
    EXPECT_THAT(refusal({text}, "goal"), HasSubstr(answer));
}

// Written and read again, the job is the same, with collectives as messages.
TEST_F(Chakra, BecomesGoalAndBack) {
  const std::vector<std::string> texts = {
      small_chakra() + chakra(message(6, 5, 1, 100, {5})) + chakra(collective(7, 9, 0, {6})),
      small_chakra() + chakra(message(6, 6, 0, 100, {5})) + chakra(collective(7, 9, 0, {6}))};
  const JobTrace trace = job(texts, "et");
  SimFlags flags;
  flags.hosts = 2;
  const ReplayFabric fabric = fabric_of_flags(flags, 2);
  const std::string goal = goal_of(trace, fabric);
  const JobTrace back = read_files({{"job.goal", goal, -1, false}});
  EXPECT_EQ(goal_of(back, fabric), goal);
  std::uint64_t sent = 0;
  double us = 0;
  for (Rank r = 0; r < 2; ++r)
    for (const TraceNode& node : back.program(r)) {
      sent += node.kind == NodeKind::kSend ? node.bytes : 0;
      us += node.compute_us;
    }
  EXPECT_EQ(us, 1000);
  // Bytes that each of two ranks sends: an all_reduce as two halves, and one of two blocks in the
  // other collectives.
  EXPECT_NEAR(static_cast<double>(sent), 2 * ((1 << 20) + (1 << 16) + (1 << 17) + (1 << 17)) + 100,
              8);
}

TEST(Fold, GroupsShrinkAndMessagesKeepTheirBytes) {
  const JobTrace whole = job({simai("a -1 1000 ALLREDUCE 64 0 NONE 0 0 ALLREDUCE 4096 1\n", 1,
                                    "model_parallel_NPU_group: 8 all_gpus: 64")},
                             "txt");
  const JobTrace folded = fold(whole, 4);
  EXPECT_EQ(folded.ranks, 4);
  EXPECT_EQ(*folded.list_of(folded.programs[0][1].group, 2), (std::vector<Rank>{0, 1, 2, 3}));
  EXPECT_EQ(folded.programs[0][2].bytes, 4096u);
  EXPECT_THAT(folded.notes.back(), HasSubstr("4 ranks play the 64"));
  EXPECT_EQ(fold(whole, 64).notes.size(), whole.notes.size());
}

}  // namespace
}  // namespace weft::replay
