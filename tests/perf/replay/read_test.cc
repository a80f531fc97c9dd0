// Readers of traces, on traces made here: what they take, and what they refuse by name.
// ctest: alone
#include "perf/replay/read.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "perf/replay/fold.h"
#include "support/process/read_file.h"
#include "support/process/shell.h"
#include "support/process/temporary_folder.h"
#include "tests/perf/replay/replay_files.h"
#include "topo/base/status.h"

namespace weft::replay {
namespace {

using namespace testing;  // NOLINT: the traces
using ::testing::AllOf;
using ::testing::HasSubstr;

// The message of the Error that a trace of these files is refused with; "" where it is taken.
std::string refusal(const std::vector<std::string>& texts, const char* end,
                    const ReadOptions& options = {}) {
  const weft::testing::TemporaryFolder folder;
  std::vector<std::string> paths;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    paths.push_back(folder / fmt::format("t.{}.{}", r, end));
    write_file(paths.back(), texts[r]);
  }
  try {
    (void)read_job(paths, options);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

JobTrace job(const std::vector<std::string>& texts, const char* end,
             const ReadOptions& options = {}) {
  const weft::testing::TemporaryFolder folder;
  std::vector<std::string> paths;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    paths.push_back(folder / fmt::format("t.{}.{}", r, end));
    write_file(paths.back(), texts[r]);
  }
  return read_job(paths, options);
}

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
              HasSubstr("node 7 (n7): comm_type 23 is no collective"));
  EXPECT_THAT(refusal({metadata() + chakra(collective(7, 0, 64, {}, "tensor"))}, "et"),
              HasSubstr("node 7 (n7): there is no group 'tensor'; there are: all"));
}

// Chakra's generator and converters, each as it writes today.
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
  // Field 4 is ctrl_deps: the operator that called this one, which waits for it in turn.
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

std::string param_call(int id, const char* word, int request, int in, int out,
                       const char* type = "Float") {
  return fmt::format(
      R"({{"id":{},"name":"record_param_comms","ctrl_deps":1,"inputs":{{"values":[{},["0",""]]}},)"
      R"("attrs":[{{"name":"collective_name","value":"{}"}},{{"name":"dtype","value":"{}"}},)"
      R"({{"name":"in_msg_nelems","value":{}}},{{"name":"out_msg_nelems","value":{}}},)"
      R"({{"name":"pg_name","value":"0"}},{{"name":"pg_size","value":4}}]}})",
      id, request, word, type, in, out);
}
std::string param(const std::string& nodes, const char* schema = "1.1.0-chakra.0.0.4") {
  return fmt::format(R"({{"schema":"{}","nodes":[{}]}})", schema, nodes);
}

TEST(Param, GivesCallsTheirBytesAndWaits) {
  const JobTrace trace =
      job({param(param_call(2, "allreduce", 33, 1000, 1000) + "," +
                 R"({"id":3,"name":"aten::mm","ctrl_deps":1},)" + param_call(4, "wait", 33, 0, 0) +
                 "," + param_call(5, "_allgather_base", 34, 10, 40, "Half") + "," +
                 R"({"id":6,"name":"odd","ctrl_deps":1})")},
          "json");
  EXPECT_EQ(trace.ranks, 4) << "as the size of the group says";
  const Program& p = trace.programs[0];
  ASSERT_EQ(p.size(), 3u);
  EXPECT_EQ(p[0].bytes, 4000u);
  EXPECT_EQ(p[2].bytes, 80u);
  EXPECT_EQ(p[2].type, DType::kFloat16);
  EXPECT_EQ(p[2].after, std::vector{1}) << "the wait, which waits for the all_reduce";
  EXPECT_EQ(p[1].after, std::vector{0});
  EXPECT_EQ(trace.untimed, 1u);
  EXPECT_EQ(trace.left_out.at("odd"), 1u);
}

TEST(Param, RefusesWhatIsWrongByName) {
  const std::string whole = param(param_call(2, "allreduce", 33, 1, 1));
  EXPECT_THAT(refusal({whole.substr(0, whole.size() / 2)}, "json"),
              HasSubstr("t.0.json: cut off or damaged"));
  EXPECT_THAT(refusal({param("", "2.0.0")}, "json"), HasSubstr("schema '2.0.0'"));
  EXPECT_THAT(refusal({param(param_call(2, "allrotate", 1, 1, 1))}, "json"),
              HasSubstr("node 2: 'allrotate' is no collective that weft knows"));
  EXPECT_THAT(refusal({param(param_call(2, "allreduce", 1, 1, 1, "Quad"))}, "json"),
              HasSubstr("node 2: dtype 'Quad'"));
}

// A call as PyTorch records it: tensors, number, group, rank, collective, splits, ranks.
std::string recorded(int id, const char* word, int rank, const char* attributes = "",
                     const char* tensor = R"([1, 2, 0, 1024, 4, "cpu"])") {
  return fmt::format(
      R"({{"id": {}, "name": "record_param_comms", "ctrl_deps": 77, "inputs": {{"values": [[{}],)"
      R"( [10, false], ["5", "mesh_tp"], {}, "{}", [], [], 0, 1, 2]}}, "attrs": [{}]}})",
      id, tensor, rank, word, attributes);
}
std::string process_groups(const char* ranks) {
  return fmt::format(
      R"({{"id": 1, "name": "## process_group:init ##", "inputs": {{"values": ["[{{\"pg_name\": )"
      R"(\"0\", \"pg_desc\": \"default_pg\", \"ranks\": [], \"group_size\": 4}}, {{\"pg_name\": )"
      R"(\"5\", \"pg_desc\": \"mesh_tp\", \"ranks\": {}, \"group_size\": 2}}]"]}}}})",
      ranks);
}

TEST(Param, TakesFromTheInputsWhatOlderSchemasHaveNoAttributesFor) {
  const std::string text = param(recorded(2, "allreduce", 0), "1.0.3-chakra.0.0.4");
  const JobTrace trace = job({text, text}, "json");
  EXPECT_EQ(trace.ranks, 2);
  EXPECT_EQ(trace.programs[0].at(0).bytes, 4096u);
  // 1.0.1: inputs are a list, and a group is an address.
  const auto old = [](int elements) {
    return param(
        fmt::format(R"({{"id": 9, "name": "record_param_comms", "parent": 3, "inputs": )"
                    R"([[1, 2, 0, {}, 8, "cuda:0"], 147, 94594108284448, 0, "all_to_allv", [], )"
                    R"([]], "outputs": [[3, 4, 0, 2, 8, "cuda:0"]]}},)"
                    R"({{"id": 10, "name": "record_param_comms", "parent": 3, )"
                    R"("inputs": [147, 0, 0, "wait", [], []]}})",
                    elements),
        "1.0.1");
  };
  const JobTrace uneven = job({old(10), old(20)}, "json");
  ASSERT_EQ(uneven.programs.size(), 1u);
  EXPECT_EQ(uneven.programs[0].at(0).bytes, 120u) << "the mean of 80 and 160";
  EXPECT_THAT(uneven.notes, ::testing::Contains(HasSubstr("1 calls have another size")));
}

TEST(Param, NamesPeersAndRootsByTheirPlaceInTheGroup) {
  const auto text = [](const char* word, int peer, const char* root, const char* ranks) {
    return param(process_groups(ranks) + "," + recorded(2, word, peer) + "," +
                 recorded(3, root, 1));
  };
  const JobTrace trace =
      job({text("send", 1, "_broadcast_oop", "[0, 2]"), text("recv", 1, "_reduce_oop", "[1, 3]"),
           text("recv", 0, "_broadcast_oop", "[0, 2]"), text("send", 0, "_reduce_oop", "[1, 3]")},
          "json");
  EXPECT_EQ(trace.program(0).at(0).peer, 2);
  EXPECT_EQ(trace.program(3).at(0).peer, 1);
  EXPECT_EQ(trace.program(0).at(1).root, 2);
  EXPECT_EQ(trace.program(1).at(1).collective, Collective::kReduce);
  EXPECT_EQ(trace.program(1).at(1).root, 3);
  ASSERT_EQ(trace.groups.size(), 2u) << "the groups of an axis are one";
  EXPECT_EQ(trace.groups[1].name, "mesh_tp");
}

TEST(Param, TypesThatOnlyNeedASizeArePlayedAsBytes) {
  const auto bytes = [](const char* type, const char* tensor) {
    const std::string attributes = fmt::format(
        R"({{"name": "dtype", "value": "{}"}}, {{"name": "in_msg_nelems", "value": 6}})", type);
    return job({param(recorded(2, "allreduce", 0, attributes.c_str(), tensor))}, "json")
        .programs[0]
        .at(0)
        .bytes;
  };
  EXPECT_EQ(bytes("Float8_e8m0fnu", ""), 6u);
  EXPECT_EQ(bytes("UInt64", ""), 48u);
  EXPECT_EQ(bytes("Quad", R"([1, 2, 0, 6, 16, "cuda:0"])"), 96u);
}

TEST(Traces, AreNumberedByWhatDiffersInTheirNames) {
  const auto ranks = [](const std::vector<std::string>& names) {
    std::vector<TraceFile> files;
    for (const std::string& name : names) files.push_back({name, "", -1, false});
    number_by_names(files);
    std::vector<int> numbers;
    for (const TraceFile& file : files) numbers.push_back(file.rank);
    return numbers;
  };
  using Numbers = std::vector<int>;
  EXPECT_EQ(ranks({"a/job.1.et", "a/job.0.et"}), (Numbers{1, 0}));
  EXPECT_EQ(ranks({"run_7/et_0_of_2.json", "run_7/et_1_of_2.json"}), (Numbers{0, 1}));
  EXPECT_EQ(ranks({"x.tar: rank12_gpt2_8gpu.json.gz", "x.tar: rank3_gpt2_8gpu.json.gz"}),
            (Numbers{12, 3}));
  EXPECT_EQ(ranks({"2026-11-26_rank-1.json", "2026-11-27_rank-0.json"}), (Numbers{1, 0}));
  EXPECT_EQ(ranks({"first.json", "second.json"}), (Numbers{-1, -1}));
}

TEST(Traces, OfOtherToolsAreAnsweredWithWhatToGive) {
  for (const auto& [text, answer] : std::vector<std::pair<std::string, const char*>>{
           {R"({"schemaVersion": 1, "deviceProperties": [], "traceEvents": [{"ph": "X"}]})",
            "a Kineto profile"},
           {R"({"traceEvents": [{"ph": "X"}], "otherData": {"schema":"weft.trace/1"}})",
            "give the Chakra traces that `weft train --trace run.json` writes"},
           {R"({"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": []})",
            "a dump of PyTorch's flight recorder"},
           {"\x80\x04\x95\x10\x00\x00\x00}", "a pickle, as PyTorch's flight recorder"},
           {R"({"version": 1, "args": [], "nccl_version": 22703, "config": {}, "results": []})",
            "results of nccl-tests"},
           {"# nThread 1 nGpus 8 minBytes 8", "output of nccl-tests"},
           {"host:1:1 [0] NCCL INFO AllReduce: opCount 0", "a log of NCCL"},
           {"hello", "no trace that weft knows: it reads Chakra"},
           {R"([{"a": 1}])", "JSON without \"nodes\""}})
    EXPECT_THAT(refusal({text}, "json"),
                AllOf(HasSubstr("t.0.json: the file is "), HasSubstr(answer)));
}

TEST(Traces, InAFolderMayHaveOtherFilesBesideThem) {
  const weft::testing::TemporaryFolder folder;
  ASSERT_EQ(run(fmt::format("mkdir -p {0}/job/et_resources", std::string(folder / ""))).exit_code,
            0);
  for (int r = 0; r < 4; ++r)
    write_file(folder / fmt::format("job/et.{}.json", r),
               param(param_call(2, "allreduce", 1, 8, 8)));
  write_file(folder / "job/et_resources/kernel.py", "def call(): pass\n");
  write_file(folder / "job/et_resources/kernel.json", R"({"nodes": []})");
  write_file(folder / "job/._et.0.json", "\x05\x16\x07");
  const JobTrace trace = read_job({folder / "job"});
  EXPECT_EQ(trace.programs.size(), 1u);
  EXPECT_THAT(trace.notes, ::testing::ElementsAre("3 files beside the traces are not read"));
}

TEST(Param, ReadsGzippedFilesAndTars) {
  if (!reads_packed_files()) GTEST_SKIP() << "missing capability: libarchive";
  const weft::testing::TemporaryFolder folder;
  for (int r = 0; r < 4; ++r)
    write_file(folder / fmt::format("et.{}.json", r), param(param_call(2, "allreduce", 1, 8, 8)));
  ASSERT_EQ(run(fmt::format("cd {} && tar czf all.tar.gz et.*.json && gzip et.0.json",
                            std::string(folder / "")))
                .exit_code,
            0);
  EXPECT_EQ(read_job({folder / "all.tar.gz"}).ranks, 4);
  EXPECT_EQ(read_job({folder / "et.0.json.gz"}).ranks, 4) << "one stands for all";
  const std::string whole = read_file(folder / "et.0.json.gz");
  write_file(folder / "cut.gz", whole.substr(0, whole.size() - 12));
  EXPECT_THAT([&] { (void)open_trace(folder / "cut.gz"); },
              ::testing::ThrowsMessage<Error>(HasSubstr("cannot be unpacked")));
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
  EXPECT_THAT(refusal({simai("a -1 1 ALLROTATE 8 1 NONE 0 1 NONE 0 1\n", 1)}, "txt"),
              HasSubstr("node 3: 'ALLROTATE' is no collective"));
  EXPECT_THAT(refusal({"MICRO all_gpus: 8\n1\n" + layer}, "txt"),
              HasSubstr("'MICRO' is no policy"));
  EXPECT_THAT(refusal({simai(layer, 1, "model_parallel_NPU_group: 3 all_gpus: 8")}, "txt"),
              HasSubstr("8 ranks cannot be 3 tensor"));
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
