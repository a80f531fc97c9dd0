// labels: multiproc
// ctest: whole
// sanitize: long
// Traces, metrics and the log of real jobs: files can be loaded, and their numbers agree with the
// calls.
#include "coll/observe/trace.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "coll/api/metrics.h"
#include "support/jobs/ranks.h"
#include "support/process/read_file.h"
#include "support/process/shell.h"
#include "support/process/temporary_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class Observed : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_ / name; }
  static nlohmann::json json(const std::string& path) {
    return nlohmann::json::parse(read_file(path), nullptr, false);
  }

  const testing::TemporaryFolder folder_;
};

// Two emulated hosts of two ranks each.
std::string perf(const std::string& arguments) {
  return fmt::format("{} launch -N 4 --hosts 2 -- {} perf {}", WEFT_BINARY, WEFT_BINARY, arguments);
}

TEST_F(Observed, TracesOfAllRanksBecomeOneFileThatLoads) {
  const Output job = run(fmt::format("WEFT_TRACE={} {}", file("t.json"),
                                     perf("all_reduce -b 1M -e 1M -n 2 --algo ring")));
  ASSERT_EQ(job.exit_code, 0) << job.text;
  std::string files;
  for (int r = 0; r < 4; ++r) {
    const std::string path = file(fmt::format("t.rank{}.json", r));
    files += path + " ";
    const auto trace = json(path);
    ASSERT_TRUE(trace.is_object()) << path;
    EXPECT_EQ(trace["otherData"]["rank"], r);
    EXPECT_GE(trace["otherData"]["clock_uncertain_us"], 0) << path;
  }
  const Output merged =
      run(fmt::format("{} trace merge {} -o {}", WEFT_BINARY, files, file("all.json")));
  ASSERT_EQ(merged.exit_code, 0) << merged.text;

  struct Span {
    double begin, end;
  };
  std::map<std::pair<int, std::string>, Span> operations;  // by rank and name
  std::map<std::pair<int, int>, std::uint64_t> sent, received;
  std::map<std::pair<int, int>, double> first_send, first_recv;
  std::map<std::pair<int, int>, double> free_at;  // by rank and track
  const auto trace = json(file("all.json"));
  ASSERT_TRUE(trace.is_object());
  int transfers = 0, last_step = 0;
  auto events = trace["traceEvents"].get<std::vector<nlohmann::json>>();
  std::ranges::stable_sort(events, {}, [](const auto& e) { return e.value("ts", -1.0); });
  for (const auto& e : events) {
    const int rank = e["pid"];
    ASSERT_TRUE(rank >= 0 && rank < 4);
    if (e["ph"] == "M") continue;
    ASSERT_EQ(e["ph"], "X");
    const Span span{e["ts"], e["ts"].get<double>() + e["dur"].get<double>()};
    ASSERT_GE(span.begin, 0);
    ASSERT_GE(span.end, span.begin);
    // Spans of a track do not overlap, so that viewers can draw them.
    double& busy = free_at[{rank, e["tid"]}];
    EXPECT_GE(span.begin, busy - 0.002) << e;
    busy = span.end;
    if (e["cat"] == "operation") {
      operations[{rank, e["name"]}] = span;
      continue;
    }
    ++transfers;
    // A ring of four sends its chunks in up to six messages per channel, round by round.
    if (std::string(e["args"]["operation"]).starts_with("all_reduce")) {
      EXPECT_LT(e["args"]["channel"], 8) << e;
      EXPECT_LT(e["args"]["step"], 6) << e;
      last_step = std::max(last_step, e["args"]["step"].get<int>());
    }
    const int peer = e["args"]["peer"];
    EXPECT_EQ(e["args"]["ok"], true) << e;
    const bool send = std::string(e["name"]).starts_with("send");
    const bool across = rank / 2 != peer / 2;
    EXPECT_EQ(std::string(e["args"]["link"]).starts_with("rail"), across) << e;
    (send ? sent : received)[{rank, peer}] += e["args"]["bytes"].get<std::uint64_t>();
  }
  EXPECT_GT(transfers, 40);
  EXPECT_FALSE(operations.empty());
  // Every byte sent was received, on every link.
  for (const auto& [pair, bytes] : sent) {
    const auto [from, to] = pair;
    EXPECT_EQ(received[std::make_pair(to, from)], bytes) << from << " -> " << to;
  }
  // On no rank does an all_reduce end before all ranks have begun it.
  int compared = 0;
  for (const auto& [key, span] : operations) {
    if (!key.second.starts_with("all_reduce")) continue;
    for (int r = 0; r < 4; ++r) {
      const auto other = operations.find({r, key.second});
      ASSERT_NE(other, operations.end()) << key.second << " on rank " << r;
      EXPECT_LE(other->second.begin, span.end + 1) << key.second;
      ++compared;
    }
  }
  EXPECT_GT(compared, 16);
  EXPECT_GT(last_step, 0);
}

// The job has ended by then, so its results are not affected.
TEST_F(Observed, ATraceThatAFullDiskCutsOffEndsNoJob) {
  for (int r = 0; r < 2; ++r)
    fs::create_symlink("/dev/full", file(fmt::format("t.rank{}.json", r)));
  const Output job = run(fmt::format("WEFT_TRACE={} {} perf all_reduce -N 2 -b 8 -e 64K",
                                     file("t.json"), WEFT_BINARY));
  EXPECT_EQ(job.exit_code, 0) << job.text;
  EXPECT_THAT(job.text, HasSubstr("cannot write the trace"));
}

TEST_F(Observed, AHostMayBeCalledAnything) {
  const Output job =
      run(fmt::format("WEFT_HOST_ID='a\"b\\c' WEFT_TRACE={} {} perf barrier -N 2 -n 3",
                      file("t.json"), WEFT_BINARY));
  ASSERT_EQ(job.exit_code, 0) << job.text;
  const auto trace = json(file("t.rank0.json"));
  ASSERT_TRUE(trace.is_object());
  EXPECT_EQ(trace["traceEvents"][0]["args"]["name"], "rank 0 on a\"b\\c");
}

TEST_F(Observed, MergingRefusesWhatIsNoTrace) {
  std::ofstream(file("x.json")) << "{\"traceEvents\":[";
  const Output output =
      run(fmt::format("{} trace merge {} -o {}", WEFT_BINARY, file("x.json"), file("y.json")));
  EXPECT_EQ(output.exit_code, 4) << output.text;
  EXPECT_THAT(output.text, HasSubstr("is not a trace of one rank"));
  EXPECT_FALSE(fs::exists(file("y.json")));
}

// Reading address 0 of /proc/self/mem fails like a broken disk.
TEST_F(Observed, MergingNamesTheFileThatCannotBeRead) {
  const Output output =
      run(fmt::format("{} trace merge /proc/self/mem -o {}", WEFT_BINARY, file("y.json")));
  EXPECT_EQ(output.exit_code, 4) << output.text;
  EXPECT_THAT(output.text, HasSubstr("cannot read the trace /proc/self/mem"));
  EXPECT_FALSE(fs::exists(file("y.json")));
}

// Nesting deep enough to overflow a recursive reader's stack is refused beforehand.
TEST_F(Observed, MergingRefusesWhatIsNestedTooDeeply) {
  const std::string open(200000, '['), close(200000, ']');
  std::ofstream(file("x.json")) << R"({"otherData":{"schema":"weft.trace/1","rank":0},)"
                                << R"("traceEvents":[)" << open << close << "]}";
  const Output output =
      run(fmt::format("{} trace merge {} -o {}", WEFT_BINARY, file("x.json"), file("y.json")));
  EXPECT_EQ(output.exit_code, 4) << output.text;
  EXPECT_THAT(output.text, HasSubstr("x.json is not a trace: nested too deeply"));
}

// The error names the damaged one of several files.
TEST_F(Observed, MergingNamesTheDamagedFile) {
  const std::string good = R"({"traceEvents":[{"ts":1.5}],"otherData":{"schema":"weft.trace/1",)";
  std::ofstream(file("good.json")) << good << R"("rank":0}})";
  for (const char* const about :
       {R"("rank":"one"}})", R"("rank":1,"clock_ahead_us":[]}})", R"("rank":1,"dropped":{}}})",
        R"("rank":1e30}})", R"("rank":-5}})", R"("rank":99999999999}})", R"("none":1}})",
        R"("rank":1,"dropped":1e30}})"}) {
    std::ofstream(file("bad.json")) << good << about;
    const Output output = run(fmt::format("{} trace merge {} {} -o {}", WEFT_BINARY,
                                          file("good.json"), file("bad.json"), file("y.json")));
    EXPECT_EQ(output.exit_code, 4) << output.text;
    EXPECT_THAT(output.text, HasSubstr(file("bad.json") + " is a damaged trace"));
    EXPECT_FALSE(fs::exists(file("y.json")));
  }
}

TEST_F(Observed, MergingLeavesNoHalfOfATrace) {
  std::ofstream good(file("good.json"));
  good << R"({"traceEvents":[{"ts":1.5})";
  for (int i = 0; i < 2000; ++i) good << R"(,{"ts":2.5})";
  good << R"(],"otherData":{"schema":"weft.trace/1","rank":0}})";
  good.close();
  const Output output = run(fmt::format("trap '' XFSZ; ulimit -f 4; {} trace merge {} -o {}",
                                        WEFT_BINARY, file("good.json"), file("y.json")));
  EXPECT_EQ(output.exit_code, 4) << output.text;
  EXPECT_THAT(output.text, HasSubstr("y.json: File too large; make room, or name another file"));
  EXPECT_FALSE(fs::exists(file("y.json")));
}

// For example, a rank was killed, and its file of an earlier job still exists.
TEST_F(Observed, MergingRefusesTracesOfTwoJobs) {
  for (const char* const name : {"a.json", "b.json"})
    ASSERT_EQ(run(fmt::format("WEFT_TRACE={} {} perf barrier -N 2 -n 1", file(name), WEFT_BINARY))
                  .exit_code,
              0);
  const auto merge = [&](const char* one, const char* other) {
    return run(fmt::format("{} trace merge {} {} -o {}", WEFT_BINARY, file(one), file(other),
                           file("y.json")));
  };
  const Output mixed = merge("a.rank0.json", "b.rank1.json");
  EXPECT_EQ(mixed.exit_code, 4) << mixed.text;
  EXPECT_THAT(mixed.text, HasSubstr(file("a.rank0.json") + " and " + file("b.rank1.json") +
                                    " are traces of two jobs"));
  EXPECT_FALSE(fs::exists(file("y.json")));
  EXPECT_EQ(merge("b.rank0.json", "b.rank1.json").exit_code, 0);
}

// A failed job leaves the offset of rank 1's clock unknown.
TEST_F(Observed, MergingSaysWhoseClockIsNotKnown) {
  const std::string good = R"({"traceEvents":[{"ts":1.5}],"otherData":{"schema":"weft.trace/1",)";
  std::ofstream(file("a.json")) << good << R"("rank":0,"clock_uncertain_us":3}})";
  std::ofstream(file("b.json")) << good << R"("rank":1,"clock_uncertain_us":-1}})";
  const Output output = run(fmt::format("{} trace merge {} {} -o {}", WEFT_BINARY, file("a.json"),
                                        file("b.json"), file("y.json")));
  EXPECT_EQ(output.exit_code, 0) << output.text;
  EXPECT_THAT(output.text, HasSubstr("the clock of rank 1 is not known"));
  EXPECT_THAT(output.text, Not(HasSubstr("agree within")));
  EXPECT_EQ(json(file("y.json"))["otherData"]["clock_uncertain_us"], -1);
}

TEST_F(Observed, AFileOfEachRank) {
  EXPECT_EQ(file_of_rank("/a/t.json", 3), "/a/t.rank3.json");
  EXPECT_EQ(file_of_rank("metrics", 0), "metrics.rank0");
}

TEST_F(Observed, PrometheusText) {
  const Output job =
      run(fmt::format("WEFT_METRICS={} {}", file("m.prom"), perf("all_reduce -b 1M -e 1M -n 20")));
  ASSERT_EQ(job.exit_code, 0) << job.text;
  for (int r = 0; r < 4; ++r) {
    std::istringstream text(read_file(file(fmt::format("m.rank{}.prom", r))));
    int samples = 0;
    for (std::string line; std::getline(text, line);) {
      if (line.starts_with("#")) continue;
      ++samples;
      EXPECT_THAT(line, ContainsRegex("^weft_[a-z_]+[{]rank=\"[0-9]\".*[}] [0-9.e+-]+$"));
    }
    EXPECT_GT(samples, 15);
  }
  const std::string text = read_file(file("m.rank1.prom"));
  EXPECT_THAT(text, ContainsRegex("weft_calls_total.rank=\"1\",collective=\"all_reduce\". [0-9]+"));
  EXPECT_THAT(text, ContainsRegex("weft_sent_bytes_total.*link=\"rail 0"));
  EXPECT_THAT(text, ContainsRegex("weft_pick_measured_us.*collective=\"all_reduce\""));
}

// The old metrics stay, and no partial file remains beside them.
TEST_F(Observed, MetricsOnAFullDiskLeaveNothingBehind) {
  const std::string disk = file("disk");
  fs::create_directory(disk);
  const std::string mounted = fmt::format(
      "unshare -m sh -c 'mount -t tmpfs -o size=4k none {0} || exit 77; "
      "head -c 4096 /dev/zero > {0}/m.rank0.prom; ",
      disk);
  if (run(mounted + "'").exit_code != 0)
    GTEST_SKIP() << "missing capability: mounting a small disk";
  const Output job =
      run(fmt::format("{}WEFT_METRICS={}/m.prom {} perf barrier -N 2 -n 1; ls -s {} | tail -n +2'",
                      mounted, disk, WEFT_BINARY, disk));
  EXPECT_THAT(job.text, HasSubstr("cannot write " + disk + "/m.rank0.prom: No space left"));
  EXPECT_THAT(job.text, HasSubstr("4 m.rank0.prom"));
  EXPECT_THAT(job.text, Not(HasSubstr("0 m.rank"))) << "what could not be written";
}

// Exception: a requested file that cannot be written is reported (see the tests with full disks).
TEST_F(Observed, TheLogIsSilentUnlessAsked) {
  const std::string command = perf("all_reduce -b 64K -e 64K -n 2");
  EXPECT_THAT(run(command).text, Not(HasSubstr("weft: all_reduce of")));
  EXPECT_THAT(run("WEFT_LOG=debug " + command).text, HasSubstr("weft: all_reduce of"));
  EXPECT_THAT(run("WEFT_LOG=loud " + command).text, HasSubstr("WEFT_LOG=loud is not one of"));
}

// Bytes sent equal bytes received and the schedule's bytes.
TEST(MetricsOfAWorld, CountCallsAndBytes) {
  constexpr std::size_t kCount = 1 << 20;
  constexpr int kCalls = 40, kRanks = 3;
  std::vector<Metrics> all(kRanks);
  testing::run_ranks(testing::places({kRanks}), {}, [&](World& world) {
    Communicator comm = world.world();
    comm.set_algorithm(Collective::kAllReduce, "ring");
    const Metrics before = world.metrics();
    std::vector<float> data(kCount, 1), out(kCount);
    for (int i = 0; i < kCalls; ++i)
      comm.all_reduce(data.data(), out.data(), kCount, DType::kFloat32, RedOp::kSum).check();
    for (int i = 0; i < 5; ++i)
      comm.all_reduce(data.data(), out.data(), 2, DType::kFloat32, RedOp::kSum).check();
    std::int32_t word = 0;
    if (world.rank() == 0) comm.send(&word, 1, DType::kInt32, 1).check();
    if (world.rank() == 1) comm.recv(&word, 1, DType::kInt32, 0).check();
    Metrics m = world.metrics();
    const auto value = [](const Metrics& from, Collective c) {
      for (const auto& calls : from.calls)
        if (calls.collective == c) return calls;
      return Metrics::Calls{c};
    };
    const auto now = value(m, Collective::kAllReduce), then = value(before, Collective::kAllReduce);
    EXPECT_EQ(now.calls - then.calls, kCalls + 5u);
    EXPECT_EQ(now.bytes - then.bytes, kCalls * kCount * 4 + 5 * 8u);
    EXPECT_EQ(now.failures, 0u);
    for (auto& t : m.traffic)
      for (const auto& old : before.traffic)
        if (old.peer == t.peer && old.link == t.link) {
          t.bytes_sent -= old.bytes_sent;
          t.bytes_received -= old.bytes_received;
        }
    bool timed = false;
    for (const auto& pick : m.picks)
      timed = timed || (pick.algorithm == "ring" && pick.measured > 0 && pick.min_us > 0);
    EXPECT_TRUE(timed);
    all[static_cast<std::size_t>(world.rank())] = m;
  });
  const auto traffic = [&](Rank from, Rank to) {
    for (const auto& t : all[static_cast<std::size_t>(from)].traffic)
      if (t.peer == to) return t;
    return Metrics::Traffic{};
  };
  for (Rank r = 0; r < kRanks; ++r) {
    const Rank next = (r + 1) % kRanks;
    // 2 (n - 1) / n of the message per call of the ring, and one word.
    const std::uint64_t ring = kCalls * kCount * 4 * 2 * (kRanks - 1) / kRanks;
    EXPECT_NEAR(static_cast<double>(traffic(r, next).bytes_sent), static_cast<double>(ring),
                static_cast<double>(ring) / 100);
    EXPECT_EQ(traffic(r, next).bytes_sent, traffic(next, r).bytes_received);
  }
}

}  // namespace
}  // namespace weft
