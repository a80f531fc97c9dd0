// weft perf bw and lat: flags without effect on an operation, reported settings that were really
// used, columns, deadlines, and corrupted data.
// labels: multiproc waits
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <future>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "perf/pair/pair_options.h"
#include "support/process/read_file.h"
#include "support/process/shell.h"
#include "support/process/temporary_folder.h"
#include "transport/ucx/ucx.h"
#ifdef WEFT_HAVE_VERBS
#include "perf/pair/verbs_pair.h"
#endif

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kPairTest = std::string(WEFT_BINARY) + " perf ";

class PairLimits : public ::testing::Test {
 protected:
  struct Ends {
    Output server, client;
  };
  static int port() { return 8000 + getpid() % 12000; }
  Ends run_pair(const std::string& arguments, const std::string& environment = "") {
    const std::string both =
        fmt::format("{} timeout 90 {}{} -d lo -p {}", environment, kPairTest, arguments, port());
    auto server = std::async(std::launch::async, [&] { return run(both); });
    Ends ends;
    ends.client = run(fmt::format("{} --json {} 127.0.0.1", both, folder_ / "report.json"));
    ends.server = server.get();
    return ends;
  }
  nlohmann::json report() const {
    return nlohmann::json::parse(read_file(folder_ / "report.json"));
  }
  // The words of each line that is neither a remark nor the header.
  static std::vector<std::vector<std::string>> rows(const std::string& text) {
    std::vector<std::vector<std::string>> all;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::vector<std::string> row;
      for (std::string word; words >> word;) row.push_back(word);
      if (!row.empty() && row[0].find('#') == row[0].npos) all.push_back(row);
    }
    return all;
  }
  testing::TemporaryFolder folder_;
};

TEST(PairFlags, ThatSayNothingToATransportAreRefused) {
  int turn = 0;
  for (const char* op : {"shm", "tcp", "ucx"}) {
    if (std::string(op) == "ucx" && !ucx_available()) continue;
    for (const char* flag : {"-i 1", "-m 1024", "-x 1", "-x 0", "-S 3", "-S 0", "--tclass 96",
                             "--tclass 0", "-I 64", "-I 0", "-Q 8"}) {
      const char* const test = turn++ % 2 == 0 ? "bw" : "lat";
      const Output out = run(fmt::format("{}{} --op {} {} -p 1 --timeout-ms 1000 127.0.0.1",
                                         kPairTest, test, op, flag));
      const std::string name(flag, std::string(flag).find(' '));
      EXPECT_EQ(out.exit_code, 4) << test << op << flag;
      EXPECT_THAT(out.text, HasSubstr(fmt::format("{} with --op {}: ", name, op)));
    }
  }
  const Output read = run(kPairTest + "lat --op read -Q 4 -p 1 --timeout-ms 1000 127.0.0.1");
  EXPECT_EQ(read.exit_code, 4);
  EXPECT_THAT(read.text, AnyOf(HasSubstr("lat --op read -Q"), HasSubstr("missing capability")));
}

TEST(PairFlags, ModerationIsAsAskedFor) {
  PairOptions o;
  o.test = PairTest::kLatency;
  EXPECT_EQ(o.moderation_for(64), 32);
  o.moderation = 5;
  EXPECT_EQ(o.moderation_for(64), 5);
  EXPECT_EQ(o.moderation_for(1 << 20), 5);
  o.depth = 4;
  EXPECT_EQ(o.moderation_for(64), 4) << "no more than are under way";
}

#ifdef WEFT_HAVE_VERBS
TEST(PairFlags, WinOverTheEnvironmentAlsoWithZero) {
  const std::vector<const char*> names = {"WEFT_VERBS_SL", "WEFT_VERBS_TRAFFIC_CLASS",
                                          "WEFT_VERBS_GID_INDEX", "WEFT_VERBS_MTU",
                                          "WEFT_VERBS_PORT"};
  for (const char* name : names)
    setenv(name, std::string(name) == "WEFT_VERBS_MTU" ? "512" : "3", 1);
  PairOptions o;
  VerbsSettings s = settings_of(o);
  EXPECT_EQ(s.service_level, 3);
  EXPECT_EQ(s.traffic_class, 3);
  EXPECT_EQ(s.gid_index, 3);
  EXPECT_EQ(s.mtu, 512);
  EXPECT_EQ(s.port, 3);
  CLI::App app;
  add_pair_flags(app, o);
  app.parse("-S 0 --tclass 0 -x 0 -m 1024 -i 1");
  s = settings_of(o);
  EXPECT_EQ(s.service_level, 0);
  EXPECT_EQ(s.traffic_class, 0);
  EXPECT_EQ(s.gid_index, 0);
  EXPECT_EQ(s.mtu, 1024);
  EXPECT_EQ(s.port, 1);
  for (const char* name : names) unsetenv(name);
}
#endif

TEST(PairFlags, UseCudaSaysHow) {
  const Output help = run(kPairTest + "bw --help");
  EXPECT_THAT(help.text, AllOf(HasSubstr("dma-buf"), HasSubstr("nvidia_peermem")));
  const Output none = run("WEFT_DEVICE=off " + kPairTest + "bw --use_cuda");
  EXPECT_EQ(none.exit_code, 4);
  EXPECT_THAT(none.text, HasSubstr("capability"));
  if (none.text.find("CUDA") != none.text.npos) {
    const Output fake = run("WEFT_DEVICE=fake " WEFT_WITH_FAKES " perf bw --use_cuda 99");
    EXPECT_EQ(fake.exit_code, 4);
    EXPECT_THAT(fake.text, ContainsRegex("--use_cuda 99: there are [0-9]+ GPUs here"));
  }
}

TEST_F(PairLimits, WhatWasUsedIsToldWhereItIsLess) {
  // 64 messages of 8 MiB would exceed their memory.
  const Ends ends = run_pair("bw --op shm -s 8M -n 8 -t 64");
  EXPECT_EQ(ends.client.exit_code, 0) << ends.client.text;
  EXPECT_THAT(ends.client.text, ContainsRegex("# -t 64: 31 under way"));
  EXPECT_EQ(report()["pairs"][0]["tx_depth"], 31);
  const Ends all = run_pair("bw --op shm -s 64 -n 3000 -t 1000 -l 600");
  EXPECT_EQ(all.client.exit_code, 0) << all.client.text;
  EXPECT_THAT(all.client.text, Not(HasSubstr("under way")));
  EXPECT_EQ(report()["pairs"][0]["tx_depth"], 1000);
}

// perftest's columns: every row has a value for each header, and -n is the number of messages (in
// latency tests, of round trips) with all other options.
TEST_F(PairLimits, ColumnsAndIterations) {
  const Ends bw = run_pair("bw --op shm -s 64,4K -n 137");
  EXPECT_THAT(bw.client.text,
              ContainsRegex("#bytes +#iterations +BW peak\\[MB/sec\\] +BW average\\[MB/sec\\] +"
                            "MsgRate\\[Mpps\\] +BW min\\[MB/sec\\]"));
  const auto bandwidth = rows(bw.client.text);
  ASSERT_EQ(bandwidth.size(), 2U) << bw.client.text;
  for (std::size_t i = 0; i < 2; ++i) {
    const auto& row = bandwidth[i];
    ASSERT_EQ(row.size(), 6U);
    const double bytes = i == 0 ? 64 : 4096;
    EXPECT_EQ(row[0], fmt::format("{}", bytes));
    EXPECT_EQ(row[1], "137");
    const double peak = std::stod(row[2]), average = std::stod(row[3]), least = std::stod(row[5]);
    EXPECT_GE(peak, average);
    EXPECT_LE(least, average);
    // Both from the same clock: MB are 2^20 bytes.
    EXPECT_NEAR(std::stod(row[4]) * 1e6 * bytes / (1 << 20), average, 0.01 * average + 1);
  }
  const Ends lat = run_pair("lat --op shm -s 64,4K -n 137");
  EXPECT_THAT(lat.client.text,
              ContainsRegex("#bytes +#iterations +t_min +t_max +t_typical +t_avg +t_stdev +99% "
                            "+99.9% +99.99%\n #( +\\[usec\\]){8}\n"));
  const auto times = rows(lat.client.text);
  ASSERT_EQ(times.size(), 2U) << lat.client.text;
  for (const auto& row : times) {
    ASSERT_EQ(row.size(), 10U);
    EXPECT_EQ(row[1], "137");
    const double least = std::stod(row[2]), most = std::stod(row[3]), typical = std::stod(row[4]),
                 p99 = std::stod(row[7]), p9999 = std::stod(row[9]);
    EXPECT_LE(least, typical);
    EXPECT_LE(typical, p99 * 1.01);
    EXPECT_LE(p99, p9999);
    EXPECT_LE(p9999, most * 1.01);
  }
}

TEST_F(PairLimits, ASizeThatTakesTooLongEndsAndSaysSo) {
  for (const std::string test : {"bw", "lat"}) {
    const Ends ends = run_pair(test + " --op shm -s 4K -n 2000000000 --limit-s 1");
    for (const Output* end : {&ends.client, &ends.server}) {
      EXPECT_EQ(end->exit_code, 1) << test << end->text;
      EXPECT_THAT(end->text, HasSubstr("# 4096 bytes, client: ended by --limit-s")) << test;
    }
    const auto end = report()["pairs"][0]["sizes"][0]["at_client"];
    EXPECT_EQ(end.value("ended_by_limit", false), true) << test << end;
    EXPECT_GT(end["messages"].get<std::uint64_t>(), 0U) << test;
  }
}

// The end that is not stopped fails after --timeout-ms and names what it waited for.
TEST_F(PairLimits, AnEndThatIsStoppedIsNotWaitedForForEver) {
  for (const bool stop_client : {true, false}) {
    const std::string both = fmt::format(
        "{}bw --op shm -d lo -s 4K -D 80 --timeout-ms 2000 --limit-s 80 -p {}", kPairTest, port());
    const std::string client = folder_ / "client", server = folder_ / "server";
    // It is running once it has used 0.4 s of CPU time: set-up takes little.
    const Output out = run(
        fmt::format("timeout 110 bash -c '{0} >{1} 2>&1 & s=$!; {0} 127.0.0.1 >{2} 2>&1 & c=$!; "
                    "trap \"kill -KILL $s $c\" EXIT; "
                    "while t=$(cut -d\" \" -f14 /proc/${3}/stat 2>/dev/null); "
                    "[ \"${{t:-99}}\" -le 40 ]; do sleep 0.1; done; "
                    "kill -STOP ${3}; wait ${4}; echo code $?; kill -KILL ${3}; wait; cat {5}'",
                    both, server, client, stop_client ? "c" : "s", stop_client ? "s" : "c",
                    stop_client ? server : client));
    EXPECT_THAT(out.text, HasSubstr("code 2"));
    EXPECT_THAT(out.text, HasSubstr("nothing has moved for 2 s (--timeout-ms)"));
  }
}

// Among many pairs, the error names the pair: either end may be at fault.
TEST_F(PairLimits, AnErrorNamesThePair) {
  // Over TCP most CPU time is the kernel's.
  const std::string rank =
      "if [ $WEFT_RANK = 3 ]; then while read -a f </proc/$$/stat && "
      "[ $((f[13] + f[14])) -le 40 ]; do sleep 0.1; done; kill -STOP $$; fi & exec " +
      kPairTest + "lat --op tcp -d lo --pairs rail -D 60 --timeout-ms 3000 --limit-s 60";
  const Output out = run(
      fmt::format("timeout 110 {} launch -N 4 --hosts 2 -- bash -c '{}' 2>&1", WEFT_BINARY, rank));
  EXPECT_EQ(out.exit_code, 2) << out.text;
  EXPECT_THAT(out.text, HasSubstr("nothing has moved for 3 s (--timeout-ms)"));
  EXPECT_THAT(out.text, HasSubstr("; pair 3->1: host host1 to host host0, rail 0 (lo)"));
}

TEST_F(PairLimits, AServerThatNobodyCallsEnds) {
  const Output out = run(fmt::format(
      "timeout 60 {}bw --op shm -d lo --timeout-ms 1000 --limit-s 1 -p {}", kPairTest, port()));
  EXPECT_EQ(out.exit_code, 4) << out.text;
  EXPECT_THAT(out.text, AllOf(HasSubstr("client"), HasSubstr("--timeout-ms"))) << out.text;
}

// No client is awaited then, and WEFT_ROOT does not apply to a pair.
TEST_F(PairLimits, APortThatIsTakenIsNoMissingClient) {
  const std::string both = fmt::format("timeout 60 {}bw --op shm -d lo -p {}", kPairTest, port());
  auto first = std::async(std::launch::async, [&] { return run(both); });
  const std::string second =
      fmt::format("until ss -Hltn sport = :{} | grep -q .; do sleep 0.05; done; {}", port(), both);
  const Output out = run(second);
  EXPECT_EQ(out.exit_code, 4) << out.text;
  EXPECT_THAT(out.text, AllOf(HasSubstr("in use"), HasSubstr("-p"), Not(HasSubstr("no client"))));
  EXPECT_EQ(run(both + " 127.0.0.1").exit_code, 0);
  EXPECT_EQ(first.get().exit_code, 0);
}

// Flips one bit of what one end sends: detected with a comparison of data, and not without.
TEST_F(PairLimits, WrongDataIsSeen) {
  for (const std::string test : {"bw --op shm", "lat --op shm", "lat --op tcp", "bw --op ucx"}) {
    if (test.ends_with("ucx") && !ucx_available()) continue;
    const std::string what = test + " -s 32,4K -n 20";
    const Ends ends = run_pair(what + " --check", "WEFT_FAULT=flip:rank=1");
    for (const Output* end : {&ends.client, &ends.server}) {
      EXPECT_EQ(end->exit_code, 2) << what << end->text;
      EXPECT_THAT(end->text,
                  ContainsRegex("# 4096 bytes, rank 0 \\(server\\): WRONG DATA: message [0-9]+: "
                                "byte 2047 is 0x.., expected 0x.."))
          << what;
      EXPECT_THAT(end->text, Not(HasSubstr("# 32 bytes, rank")))
          << "shorter than the fault's least";
    }
  }
  EXPECT_EQ(run_pair("bw --op shm -s 4K -n 20", "WEFT_FAULT=flip:rank=1").client.exit_code, 0)
      << "nobody compares";
  const Ends drop = run_pair("bw --op shm -s 4K -n 20", "WEFT_FAULT=drop:rank=1");
  EXPECT_EQ(drop.client.exit_code, 4) << drop.client.text;
  EXPECT_THAT(drop.client.text, HasSubstr("pairs know flip only"));
}

}  // namespace
}  // namespace weft
