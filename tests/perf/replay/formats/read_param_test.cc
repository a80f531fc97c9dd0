// The reader of PyTorch's execution traces; names of folders, archives and files.
// ctest: alone
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "support/process/read_file.h"
#include "support/process/shell.h"
#include "tests/perf/replay/formats/read_texts.h"

namespace weft::replay {
namespace {

using namespace testing;  // NOLINT: the traces
using ::testing::AllOf;
using ::testing::HasSubstr;

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
              HasSubstr("node 2: 'allrotate' is not a collective that weft supports"));
  EXPECT_THAT(refusal({param(param_call(2, "allreduce", 1, 1, 1, "Quad"))}, "json"),
              HasSubstr("node 2: dtype 'Quad'"));
}

// A call as recorded by PyTorch: tensors, number, group, rank, collective, splits, ranks.
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
  // Version 1.0.1: inputs are a list, and a group is an address.
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
  EXPECT_THAT(uneven.notes, ::testing::Contains(HasSubstr("which are played with the mean: 1")));
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
           {"hello", "not a trace that weft supports: it reads Chakra"},
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
  ASSERT_EQ(run(fmt::format("cd {} && mkdir et_resources && echo 'def call(): pass' > "
                            "et_resources/kernel.py && tar czf all.tar.gz et_resources et.*.json "
                            "&& gzip et.0.json",
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

}  // namespace
}  // namespace weft::replay
