// The commands as processes: reports, and errors for invalid requests.
// labels: multiproc
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "support/process/temporary_folder.h"

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int code;
  std::string output;  // stdout and stderr
};

Outcome weft(const std::string& arguments, const std::string& redirect = "2>&1") {
  const std::string command = std::string(WEFT_BINARY) + " " + arguments + " " + redirect;
  FILE* pipe = popen(command.c_str(), "r");
  std::string output;
  char buffer[4096];
  for (std::size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) output.append(buffer, n);
  const int status = pclose(pipe);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, output};
}

TEST(PerfCommand, AReportThatAFullDiskCutsOffIsAnError) {
  for (const char* command : {"perf all_reduce -N 2 -b 8 -e 8 -n 3 --timeout-ms 20000 --json -",
                              "topo --json", "explain all_reduce --ranks 4 --bytes 1M", "--help"}) {
    const Outcome run = weft(command, "2>&1 > /dev/full");
    EXPECT_EQ(run.code, 4) << command;
    EXPECT_THAT(run.output, HasSubstr("standard output cannot be written: No space left"))
        << command;
  }
}

// A host with fewer ranks has fewer ports in both, and the text next to the bound says so.
TEST(PerfCommand, SimAndExplainHaveOneBoundOfUnequalHosts) {
  const std::string job = "all_reduce --ranks 3 --hosts 2 --cpu-us 0 --json";
  const auto sim = nlohmann::json::parse(weft("sim " + job + " --algo all").output);
  const auto explained = nlohmann::json::parse(weft("explain " + job).output);
  EXPECT_DOUBLE_EQ(sim["lower_bound_us"], explained["lower_bound_us"]);
  EXPECT_GT(sim["rows"][0]["of_bound"], 0.99) << sim.dump(1);
  EXPECT_LE(sim["rows"][0]["of_bound"], 1.0) << sim.dump(1);
}

// A socket would get the number of a closed standard stream, and the report would be written to it.
TEST(PerfCommand, RunsWithoutStreams) {
  const Outcome run =
      weft("perf all_reduce -N 2 --hosts 2 -b 8 -e 1M -n 3 --timeout-ms 20000", "<&- 2>&1 >&-");
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_EQ(weft("perf all_reduce -N 2 -b 8 -e 8 -n 3 --timeout-ms 20000", ">&- 2>&-").code, 0);
}

// Under a launcher, the folder may be missing on hosts of other ranks, which write nothing.
TEST(PerfCommand, OnlyRankZeroNeedsTheFileOfTheReport) {
  const weft::testing::TemporaryFolder folder;
  std::filesystem::create_directories(folder / "0/reports");
  std::filesystem::create_directories(folder / "1");
  const auto ranks = [&](const std::string& command) {
    return weft("launch -N 2 -- bash -c 'cd " + folder.path() + "/$WEFT_RANK && exec " +
                WEFT_BINARY + " " + command + "'");
  };
  for (const char* file : {"reports/perf", "perf"}) {
    const Outcome run =
        ranks(fmt::format("perf all_reduce -b 8 -e 8 -n 3 --timeout-ms 20000 --json {}", file));
    EXPECT_EQ(run.code, 0) << run.output;
    EXPECT_TRUE(std::filesystem::exists(folder / "0/" + file));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "1/perf")) << "an empty file";
  for (const char* command : {"perf all_reduce -b 8 -e 8", "validate"}) {
    const Outcome run = ranks(fmt::format("{} --timeout-ms 20000 --json nowhere/x", command));
    EXPECT_EQ(run.code, 4) << run.output;
    EXPECT_THAT(run.output, HasSubstr("--json nowhere/x: cannot be written: No such file"));
  }
}

// Exit code 2 would be the verdict CRITICAL.
TEST(PerfCommand, WhatASignalEndsIsNoVerdict) {
  for (const char* command : {"validate", "perf all_reduce -N 2 -b 1M -e 1M -n 10000000"}) {
    const std::string script = fmt::format(
        "{} {} >/dev/null 2>&1 & p=$!; until grep -q . /proc/$p/task/$p/children; "
        "do sleep 0.05; done; kill -TERM $p; wait $p; exit $?",
        WEFT_BINARY, command);
    EXPECT_EQ(WEXITSTATUS(std::system(fmt::format("bash -c '{}'", script).c_str())), 128 + SIGTERM)
        << command;
  }
}

// A reader finds the previous report or none, never a partial one.
TEST(PerfCommand, WhatASignalEndsLeavesTheReportAsItWas) {
  const weft::testing::TemporaryFolder folder;
  const std::string report = folder / "report.json";
  for (const char* command :
       {"validate --soak 60s", "perf all_reduce -N 2 -b 1M -e 1M -n 10000000"})
    for (const bool there : {false, true}) {
      if (there) std::ofstream(report) << "before";
      const std::string script = fmt::format(
          "{} {} --json {} >{} 2>&1 & p=$!; for i in $(seq 200); do sleep 0.05; "
          "[ -s {} ] && break; done; kill -INT $p; wait $p",
          WEFT_BINARY, command, report, folder / "out", folder / "out");
      (void)std::system(fmt::format("timeout 60 bash -c 'set -m; {}' 2>/dev/null", script).c_str());
      EXPECT_EQ(std::filesystem::exists(report), there) << command;
      if (there) {
        std::string text;
        std::getline(std::ifstream(report), text);
        EXPECT_EQ(text, "before") << command;
      }
      std::filesystem::remove(report);
      std::filesystem::remove(folder / "out");
      EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << command;
    }
}

// The ranks die at different times. A rank must not report in place of rank 0 if a signal has ended
// rank 0.
TEST(PerfCommand, RanksThatASignalEndsOneByOneReportNothing) {
  if (std::system("strace -V >/dev/null 2>&1") != 0) GTEST_SKIP() << "missing capability: strace";
  const weft::testing::TemporaryFolder folder;
  const std::string report = folder / "report.json", out = folder / "out";
  // The launcher takes half a second after each signal that it sends.
  const std::string script = fmt::format(
      "strace -o /dev/null -e trace=kill -e inject=kill:delay_exit=500000 {} perf all_reduce -N 2 "
      "-b 1M -e 1M -n 10000000 --json {} >{} 2>&1 & p=$!; for i in $(seq 200); do sleep 0.05; "
      "[ -s {} ] && break; done; kill -TERM $(cat /proc/$p/task/$p/children); wait $p",
      WEFT_BINARY, report, out, out);
  (void)std::system(fmt::format("timeout 60 bash -c '{}'", script).c_str());
  std::ifstream said(out);
  const std::string text(std::istreambuf_iterator<char>(said), {});
  if (text.find("ptrace") != text.npos) GTEST_SKIP() << "missing capability: ptrace: " << text;
  EXPECT_FALSE(std::filesystem::exists(report)) << text;
  EXPECT_THAT(text, AllOf(HasSubstr("# weft perf"), Not(HasSubstr("peer failed"))));
}

// A report replaces the previous one atomically; the name may be a link, and need not be a regular
// file.
TEST(PerfCommand, AReportReplacesTheOneBefore) {
  const weft::testing::TemporaryFolder folder;
  const std::string perf = "perf all_reduce -N 2 -b 8 -e 8 -n 3 --timeout-ms 20000 --json ";
  const std::string report = folder / "report.json", link = folder / "link";
  std::ofstream(report) << std::string(100000, 'x');
  std::filesystem::permissions(
      report, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  std::filesystem::create_symlink("report.json", link);
  const Outcome run = weft(perf + link);
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  std::ifstream file(report);
  EXPECT_EQ(nlohmann::json::parse(file)["schema"], "weft.perf/1");
  EXPECT_EQ(std::filesystem::status(report).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    EXPECT_TRUE(entry.path() == report || entry.path() == link) << entry;
  const Outcome full = weft(perf + "/dev/full");
  EXPECT_EQ(full.code, 4) << full.output;
  EXPECT_THAT(full.output, HasSubstr("--json /dev/full: cannot be written: No space left"));
  const Outcome device = weft(perf + "/dev/stdout", "2>/dev/null");
  EXPECT_THAT(device.output, HasSubstr("weft.perf/1"));
}

TEST(PerfCommand, HostsThatShareMemoryHaveNoRails) {
  const std::string command =
      "perf broadcast -N 4 --hosts 2 --transport shm -b 64K -e 64K -n 3 --timeout-ms 20000";
  const Outcome run = weft(command, "");
  EXPECT_EQ(run.code, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("of_bound: against this machine's memory"));
  EXPECT_THAT(weft(command + " --rail-gbps 10", "").output,
              HasSubstr("of_bound: against 1 x 10 Gb/s rails as declared"));
}

TEST(PerfCommand, WritesItsSchema) {
  const Outcome run =
      weft("perf all_reduce -N 2 -b 8 -e 2K -f 16 -n 3 --timeout-ms 20000 --json -", "");
  ASSERT_EQ(run.code, 0) << run.output;
  const auto json = nlohmann::json::parse(run.output);
  EXPECT_EQ(json["schema"], "weft.perf/1");
  EXPECT_EQ(json["collective"], "all_reduce");
  EXPECT_EQ(json["ranks"], 2);
  EXPECT_EQ(json["hosts"], 1);
  EXPECT_GE(json["rails"], 1);
  ASSERT_EQ(json["rows"].size(), 3u);
  for (const auto& row : json["rows"]) {
    for (const char* key :
         {"time_us_min", "time_us_p50", "time_us_p99", "algbw_GBps", "busbw_GBps", "of_bound"})
      EXPECT_TRUE(row[key].is_number()) << key << " in " << row;
    EXPECT_LE(row["time_us_min"], row["time_us_p50"]);
    EXPECT_LE(row["time_us_p50"], row["time_us_p99"]);
    EXPECT_TRUE(row["algorithm"].is_string());
    EXPECT_EQ(row["wrong"], 0);
  }
  EXPECT_EQ(json["rows"][2]["bytes"], 2048);
}

TEST(PerfCommand, AnswersWhatCannotBeWithTheValueAndWhatCan) {
  const std::vector<std::tuple<const char*, const char*, const char*>> cases = {
      {"validat", "validat", "explain"},
      {"perf all_redcue", "all_redcue", "reduce_scatter"},
      {"perf all_reduce -d float8", "float8", "bfloat16"},
      {"perf all_reduce -o mul", "mul", "sum, min, max, avg"},
      {"perf all_reduce --algo rings", "rings", "ring"},
      {"perf all_reduce -b 12Q", "12Q", "16K"},
      {"perf all_reduce -b 4M -e 1M", "-b 4M", "-e 1M"},
      {"perf all_reduce -b 0", "-b 0", "at least 1"},
      {"perf all_reduce -f 1", "-f 1", "at least 2"},
      {"perf all_reduce -N 0", "0", "1 to"},
      {"perf all_reduce -N x", "x", "ranks"},
      {"perf all_reduce -n 0", "0", "iters"},
      {"perf all_reduce --transport udp", "udp", "shm"},
      {"perf all_reduce --buffers hbm", "hbm", "malloc"},
      {"perf all_reduce --rail-gbps -1", "-1", "rail-gbps"},
      {"perf all_reduce --hosts 4 -N 2", "--hosts 4", "-N 2"},
      {"perf all_reduce --json /nowhere/x", "/nowhere/x", "written"},
      {"perf barrier --in-place", "--in-place", "barrier"},
      {"perf broadcast -N 2 --root 2", "--root 2", "0 to 1"},
      {"perf broadcast -N 2 --root x", "--root x", "not in the range"},
      {"perf all_reduce -N 1 --expect 0.9 -e 8", "--expect", "-N 2 or more"},
      {"perf all_reduce -i 1 -e 8G", "-i 1", "larger step"},
      {"perf all_reduce --frobnicate", "--frobnicate", ""},
      {"explain all_reduce --algo rings", "rings", "ring"},
      {"explain all_reduce --ranks 4 --hosts 5", "--hosts 5", "--ranks 4"},
      {"explain all_reduce --rank 8 --ranks 8 --steps", "--rank 8", "0 to 7"},
      {"explain all_reduce --bytes lots", "lots", "16K"},
      {"explain sendrecv", "sendrecv", "no schedules"},
      {"explain all_reduce --ranks 4 --profile /", "--profile /", "cannot be read"},
      {"trace merge / -o /nowhere/x", "the trace /", "cannot read"},
      {"validate --transport udp", "udp", "shm"},
      {"validate -N 0", "0", "1 to"},
      {"perf all_reduce x --algoo", "not expected: x --algoo", "did you mean --algo?"},
      {"perf all_reduce --root=1 --trnsport=shm", "--trnsport=shm", "did you mean --transport?"},
      {"train --stpes 3", "--stpes", "did you mean --steps?"},
      {"perf all_reduce -N 2 -f -2", "--factor -2", "negative"},
      {"perf all_reduce -f 1.5", "--factor 1.5", "not a number of the kind"},
      {"sim all_reduce --rail-gbps 0", "--rail-gbps 0", "above 0"},
      {"sim all_reduce --hosts 2 --slow-rail 0:2", "--slow-rail 0:2", "at most 1"},
      {"sim all_reduce --hosts 2 --slow-port 0:0", "--slow-port 0:0", "HOST:RAIL=FRACTION"},
      {"sim all_reduce --hosts 2 --slow-port 2:0=0.5", "--slow-port 2:0=0.5", "a host from 0 to 1"},
      {"sim all_reduce --hosts 2 --slow-port 0:4=0.5", "--slow-port 0:4=0.5", "a rail from 0 to 3"},
      {"sim all_reduce --hosts 2 --slow-port 0:1=1.5", "--slow-port 0:1=1.5", "to 1"},
      {"sim all_reduce --hosts 2 --slow-port 0:1=-1", "--slow-port 0:1=-1", "from 0 (dead)"},
      {"sim all_reduce --hosts 2 --slow-port 0:1=.5 --slow-port 0:1=.2", "host 0", "give one"},
      {"sim all_reduce -N 2 --hosts 2 --slow-port 1:0=0", "all ports of host 1", "leave one"},
      {"sim all_reduce --hosts 1 --slow-port 0:0=0.5", "--slow-port", "one host"},
      {"sim all_reduce --hosts 2 --cut 1", "--cut 1", "HOST:RAIL@US"},
      {"sim all_reduce --hosts 2 --wire token-ring", "--wire token-ring", "rdma or tcp"},
      {"perf all_reduce --transport=udp", "--transport udp", "auto, shm, tcp, ucx, verbs"},
      {"lab", "say which", "netlab, softroce"},
      {"valdate", "'valdate'", "did you mean validate?"},
      {"frobnicate", "'frobnicate'; there are:", "perf validate"},
      {"lab sofroce", "'sofroce'", "did you mean softroce?"},
      {"perf all-reduse", "all-reduse", "did you mean all_reduce?"},
      {"train --kill 3", "3", "rank:step"},
      {"train --lr 0", "--lr 0", "above 0"},
      {"train --trace /proc/1/nowhere/t.json", "/proc/1/nowhere", "make it first"},
      {"train --save /proc/nowhere", "--save /proc/nowhere", "another folder"},
      {"plan --model gpt2 --gpu-memory 80", "--gpu-memory 80", "80G"},
      {"plan --model gpt2 --gpu-tflops 0", "--gpu-tflops 0", "above 0"},
      {"plan --model gpt2 --layers 4", "--layers", "--params"},
      {"cost --days -1", "--days -1", "above 0"},
      {"validate -N 1 --budget nan", "--budget nan", "write a time"},
      {"doctor --after-s nan", "--after-s: nan", "not a finite number"},
      {"perf all_reduce --rail-gbps nan", "--rail-gbps: nan", "not a finite number"},
      {"explain all_reduce --host-us nan", "--host-us: nan", "not a finite number"},
      {"cost --watts inf", "--watts: inf", "not a finite number"},
  };
  for (const auto& [arguments, value, allowed] : cases) {
    const Outcome run = weft(arguments);
    EXPECT_EQ(run.code, 4) << arguments << "\n" << run.output;
    EXPECT_THAT(run.output, HasSubstr(value)) << arguments;
    EXPECT_THAT(run.output, HasSubstr(allowed)) << arguments;
  }
}

TEST(Command, ListsWhatThereIs) {
  const Outcome bare = weft("");
  EXPECT_EQ(bare.code, 4);
  EXPECT_THAT(bare.output, AllOf(HasSubstr("SUBCOMMAND"), HasSubstr("  validate ")));
  const Outcome help = weft("help perf");
  EXPECT_EQ(help.code, 0);
  EXPECT_THAT(help.output, HasSubstr("--iters"));
  const Outcome version = weft("--version");
  EXPECT_EQ(version.code, 0);
  EXPECT_THAT(version.output, HasSubstr("weft 0"));
}

// Regression: each was taken for its default, or detected only at the end.
TEST(PerfCommand, RefusesVariablesThatMakeNoSense) {
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"WEFT_INTEGRITY", "yes", "neither 0 nor 1"},
      {"WEFT_TIMEOUT_MS", "soon", "soon"},
      {"WEFT_TRACE", "/proc/nowhere/t.json", "there is no folder /proc/nowhere"},
      {"WEFT_METRICS", "/proc/nowhere/m.prom", "there is no folder /proc/nowhere"},
      {"WEFT_PROFILE", "/dev/null", "is not a regular file"},
      {"WEFT_PROFILE", WEFT_BINARY, "is not a profile and was left unchanged"},
  };
  for (const auto& [name, value, why] : cases) {
    const char* before = getenv(name.c_str());
    const std::string kept = before ? before : "";
    setenv(name.c_str(), value.c_str(), 1);
    const Outcome run = weft("perf all_reduce -N 2 -b 8 -e 8 -n 1");
    before ? setenv(name.c_str(), kept.c_str(), 1) : unsetenv(name.c_str());
    EXPECT_EQ(run.code, 4) << name << "\n" << run.output;
    EXPECT_THAT(run.output, AllOf(HasSubstr(value), HasSubstr(why))) << name;
  }
}

TEST(TuneCommand, TimesThatAreNotKeptAreAnError) {
  const weft::testing::TemporaryFolder folder;
  const std::string tune = "tune -N 2 -b 8 -e 8 --rounds 1 --budget-ms 1 --timeout-ms 20000";
  setenv("WEFT_PROFILE", (folder / "p").c_str(), 1);
  const Outcome kept = weft(tune);
  EXPECT_EQ(kept.code, 0) << kept.output;
  EXPECT_THAT(kept.output, HasSubstr("the times are kept in " + (folder / "p")));
  // The file is first written under a longer name, which is too long.
  setenv("WEFT_PROFILE", (folder / std::string(253, 'x')).c_str(), 1);
  const Outcome lost = weft(tune);
  EXPECT_EQ(lost.code, 4) << lost.output;
  EXPECT_THAT(lost.output, AllOf(HasSubstr("could not be stored"), Not(HasSubstr("are kept in"))));
  unsetenv("WEFT_PROFILE");
}

TEST(ExplainCommand, NamesPickBoundRunnerUpAndProof) {
  const Outcome run = weft("explain all_reduce --ranks 8 --hosts 2 --rails 4 --bytes 64M --steps");
  ASSERT_EQ(run.code, 0) << run.output;
  for (const char* part : {"algorithm", "why", "predicted", "lower bound", "limited by",
                           "runner-up", "proved:", "rank 0 of 8", "recv_reduce"})
    EXPECT_THAT(run.output, HasSubstr(part));
  const Outcome alone = weft("explain all_reduce --ranks 1");
  ASSERT_EQ(alone.code, 0) << alone.output;
  EXPECT_THAT(alone.output, AllOf(HasSubstr("runner-up"), Not(HasSubstr("nan"))));
  const Outcome json = weft("explain broadcast --ranks 5 --json --steps --rank 4 --root 2", "");
  ASSERT_EQ(json.code, 0);
  const auto parsed = nlohmann::json::parse(json.output);
  EXPECT_EQ(parsed["schema"], "weft.explain/1");
  EXPECT_EQ(parsed["proved"], true);
  EXPECT_EQ(parsed["rank"], 4);
  for (const auto& [flags, rails] :
       {std::pair{"--ranks 8 --hosts 2", 4}, {"--ranks 8 --hosts 2 --rails 2", 2}}) {
    const Outcome shape = weft(fmt::format("explain all_reduce {} --json", flags), "");
    EXPECT_EQ(nlohmann::json::parse(shape.output)["rails"], rails) << flags;
  }
}

// `direct` on 2 hosts x 2 ranks leaves its rails: it is not tried, and tuning continues. Standard
// output has only the report.
TEST(TuneCommand, LeavesOutWhatLeavesItsRail) {
  const weft::testing::TemporaryFolder folder;
  setenv("WEFT_PROFILE", (folder / "profile.json").c_str(), 1);
  const Outcome run = weft(
      "tune -N 4 --hosts 2 --rails 2 -b 64K -e 64K --rounds 1 --budget-ms 1 --timeout-ms 60000 "
      "--json -",
      "");
  setenv("WEFT_PROFILE", "off", 1);
  ASSERT_EQ(run.code, 0) << run.output;
  const auto json = nlohmann::json::parse(run.output);
  EXPECT_EQ(json["schema"], "weft.tune/1");
  ASSERT_EQ(json["rows"].size(), 1u);
  EXPECT_FALSE(json["rows"][0]["fixed_us"].contains("direct")) << json;
  EXPECT_TRUE(json["rows"][0]["fixed_us"].contains("hierarchical")) << json;
}

TEST(TuneCommand, FillsTheProfileThatExplainAndAutoGoBy) {
  const weft::testing::TemporaryFolder folder;
  const std::string profile = folder / "profile.json", report = folder / "tune.json";
  setenv("WEFT_PROFILE", profile.c_str(), 1);
  const Outcome run = weft(
      "tune all_reduce reduce_scatter -N 2 -b 64K -e 256K -f 4 --rounds 2 "
      "--budget-ms 2 --timeout-ms 20000 --json " +
      report);
  const Outcome explained = weft("explain all_reduce --ranks 2 --bytes 128K");
  const Outcome unmeasured = weft("explain all_reduce --ranks 2 --bytes 128K --profile off");
  const Outcome named = weft("explain all_reduce --ranks 2 --profile " + report);
  setenv("WEFT_PROFILE", "off", 1);
  const Outcome off = weft("tune -N 2");
  ASSERT_EQ(run.code, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("auto is within 10 % of the best fixed algorithm at"));
  std::ifstream file(report);
  const auto json = nlohmann::json::parse(file);
  EXPECT_EQ(json["schema"], "weft.tune/1");
  ASSERT_EQ(json["rows"].size(), 4u);
  for (const auto& row : json["rows"]) {
    EXPECT_GT(row["fixed_us"].size(), 1u);
    EXPECT_TRUE(row["fixed_us"].contains(row["best"])) << row;
    for (const auto& [algorithm, us] : row["in_turns_us"].items()) EXPECT_GE(us, row["best_us"]);
    EXPECT_EQ(row["in_turns_us"][row["best"].get<std::string>()], row["best_us"]) << row;
    EXPECT_GT(row["ratio"], 0);
  }
  EXPECT_TRUE(std::filesystem::exists(profile));
  EXPECT_EQ(explained.code, 0) << explained.output;
  EXPECT_THAT(explained.output, HasSubstr("measured here"));  // between two measured sizes
  EXPECT_THAT(unmeasured.output, Not(HasSubstr("measured here")));
  EXPECT_THAT(named.output, HasSubstr("weft.tune/1"));  // no profile: names the format
  EXPECT_NE(off.code, 0);
  EXPECT_THAT(off.output, HasSubstr("WEFT_PROFILE=off"));
}

TEST(ValidateCommand, WritesItsSchemaAndNeverSaysOkWhenTimeWasUp) {
  const Outcome run = weft("validate -N 2 --budget 0.001 --json -");  // and nothing on stderr
  const auto json = nlohmann::json::parse(run.output);
  EXPECT_EQ(json["schema"], "weft.validate/3");
  bool known = false;  // kernel counters include other programs on this machine
  std::vector<std::string> unknown;
  for (const auto& finding : json["findings"]) {
    known = known || !finding["unknown"].get<bool>();
    if (finding["unknown"]) unknown.push_back(finding["id"]);
  }
  EXPECT_THAT(unknown, ::testing::Contains("nothing-measured"));
  EXPECT_TRUE(known ? run.code == 1 || run.code == 2 : run.code == 3) << run.output;
  EXPECT_EQ(json["exit_code"], run.code);
  EXPECT_EQ(json["verdict"] == "UNKNOWN", !known);
}

}  // namespace
