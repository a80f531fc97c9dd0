// Counters as evidence, on real interfaces: reports, slow operations and verdicts state what a rail
// lost, with rail and host. Needs root.
// labels: lab
// ctest: whole
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>

#include "support/process/shell.h"
#include "support/process/temporary_folder.h"
#include "tests/lab/shared_lab.h"

namespace weft {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class CountersInTheLab : public testing::LabTest {
 protected:
  Output job(const std::string& environment, int per_host, const std::string& command) {
    return run(fmt::format("{} timeout 200 {} lab netlab --use {} --ppn {} -- {} {}", environment,
                           WEFT_BINARY, lab_, per_host, WEFT_BINARY, command));
  }
  nlohmann::json report() const { return nlohmann::json::parse(std::ifstream(json_)); }
  // Disconnects or reconnects a rail's switch.
  void rail(int number, const char* to) {
    const Output o = run(fmt::format("ip -n weft-{}-sw link set br{} {}", lab_, number, to));
    EXPECT_EQ(o.exit_code, 0) << o.text;
  }
  // TCP segments that a host has retransmitted since its start.
  long resent(const std::string& host) const {
    const Output o = run(fmt::format("ip netns exec weft-{}-{} cat /proc/net/snmp", lab_, host));
    std::istringstream lines(o.text);
    std::string line, names;
    while (std::getline(lines, line)) {
      if (!line.starts_with("Tcp:")) continue;
      if (names.empty()) {
        names = line;
        continue;
      }
      std::istringstream keys(names), values(line);
      std::string key, value;
      while (keys >> key && values >> value)
        if (key == "RetransSegs") return std::stol(value);
    }
    ADD_FAILURE() << o.text;
    return 0;
  }
  // Cuts the rail while h1 has bytes in flight on it. Between two operations there may be none, so
  // that nothing is lost: then tries again.
  void cut_off(int number) {
    for (int i = 0; i < 50; ++i) {
      const long before = resent("h1");
      rail(number, "down");
      for (int k = 0; k < 20; ++k) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        if (resent("h1") > before) return;
      }
      rail(number, "up");
      std::this_thread::sleep_for(std::chrono::milliseconds(37));
    }
    ADD_FAILURE() << "h1 sends nothing on rail " << number;
  }
  // Waits until the first rank of h2 has done some operations, and returns its process.
  int running(int size) {
    for (int i = 0; i < 600; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const auto jobs = nlohmann::json::parse(
          run(std::string(WEFT_BINARY) + " doctor --json 2>/dev/null").text, nullptr, false);
      if (!jobs.is_array()) continue;
      for (const auto& one : jobs)
        for (const auto& rank : one["ranks"])
          if (rank["host"] == "h2" && one["size"] == size && rank["begun"] > 60 &&
              // not a job of another test
              run(fmt::format("ip netns identify {}", rank["pid"].get<int>())).text ==
                  fmt::format("weft-{}-h2\n", lab_))
            return rank["pid"];
    }
    ADD_FAILURE() << "the job does not run";
    return 0;
  }

  std::string lab_;
  testing::TemporaryFolder folder_;
  const std::string json_ = folder_ / "report.json";
};

TEST_F(CountersInTheLab, APerfReportTellsWhatEachPortCounted) {
  lab_ = lab(2, 2, "200mbit");
  const Output o = job("", 2, fmt::format("perf all_reduce -b 4M -e 4M -n 10 --json {}", json_));
  ASSERT_EQ(o.exit_code, 0) << o.text;
  const auto ports = report()["ports"];
  ASSERT_EQ(ports.size(), 4u) << ports.dump(1);
  for (const auto& port : ports)
    EXPECT_GT(port["counters"]["net.tx_bytes"].get<std::int64_t>(), 10'000'000) << port.dump(1);
  EXPECT_EQ(ports[3]["rail"], 1);
  EXPECT_EQ(ports[3]["host"], "h2");
}

TEST_F(CountersInTheLab, ASlowOperationAndTheReportSayWhichRailLost) {
  lab_ = lab(2, 2, "200mbit");
  Output o;
  std::thread job_runs([&] {
    o = job("WEFT_FAILOVER=0 WEFT_COUNTERS=1 WEFT_SLOW_MS=700 WEFT_LOG=warn", 2,
            fmt::format("perf all_reduce -b 1M -e 1M -n 300 --json {}", json_));
  });
  running(4);
  rail(1, "down");
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  rail(1, "up");
  job_runs.join();
  EXPECT_EQ(o.exit_code, 0) << o.text;
  EXPECT_THAT(o.text, ContainsRegex("all_reduce of 1048576 bytes took [0-9]+ ms: .*"
                                    "rail 1 host h[12]: .*tcp.retransmits \\+[0-9]"));
  EXPECT_THAT(o.text, ContainsRegex("# rail 1 host h[12]: .*tcp.retransmits \\+[0-9]"));
  std::string trouble;
  const nlohmann::json json = report();
  for (const auto& port : json["ports"])
    if (port["rail"] == 1) trouble += port.value("trouble", "");
  EXPECT_THAT(trouble, ContainsRegex("tcp.retransmits \\+[0-9]"));
}

// Without this verdict the fabric would be trusted: all transfers succeeded, over rail 0.
TEST_F(CountersInTheLab, AVerdictNamesTheRailThatOthersStoodInFor) {
  lab_ = lab_to_break(2, 2);
  rail(1, "down");
  const Output o = run(fmt::format(
      "timeout 200 {} lab netlab --use {} -- weft validate --budget 0.01", WEFT_BINARY, lab_));
  EXPECT_EQ(o.exit_code, 2) << o.text;
  EXPECT_THAT(o.text, ContainsRegex("rail 1 failed, and other rails carried its messages"));
  EXPECT_THAT(o.text, ContainsRegex("verdict: CRITICAL"));
}

// All works until a rail fails; the verdict warns in advance that no rail could replace it.
TEST_F(CountersInTheLab, AVerdictTellsThatNoRailCouldStandInForAnother) {
  lab_ = lab_to_break(3, 2);
  const Output filter =
      run(fmt::format("n='ip -n weft-{}-h2 rule'; $n del pref 0 && $n add pref 1 ipproto udp "
                      "prohibit && $n add pref "
                      "5 lookup local",
                      lab_));
  if (filter.exit_code != 0) GTEST_SKIP() << "missing capability: ip rule ... ipproto udp";
  const Output o = run(fmt::format(
      "timeout 200 {} lab netlab --use {} -- weft validate --budget 20", WEFT_BINARY, lab_));
  EXPECT_THAT(o.text, ContainsRegex("h2: messages pass, and datagrams .UDP. do not"));
  EXPECT_THAT(o.text, ContainsRegex("Let UDP pass"));
  EXPECT_THAT(o.text, Not(HasSubstr("nothing arrives")));
  // On a busy machine, the tester may also lack a core.
  const bool starved = o.text.find("[tester-starved]") != std::string::npos;
  EXPECT_EQ(o.exit_code, starved ? 4 : 1) << "a filter is no dead link: " << o.text;
}

// The rank dies while its host is cut off: the other rank learns of both at the same time.
TEST_F(CountersInTheLab, AnErrorSaysWhatTheRailLostMeanwhile) {
  lab_ = lab(2, 1, "200mbit");
  Output o;
  std::thread job_runs(
      [&] { o = job("WEFT_COUNTERS=1", 1, "perf all_reduce -b 1M -e 1M -n 1000000"); });
  const int pid = running(2);
  cut_off(0);
  if (pid > 0) kill(pid, SIGKILL);
  rail(0, "up");
  job_runs.join();
  EXPECT_NE(o.exit_code, 0) << o.text;
  EXPECT_THAT(o.text, ContainsRegex("rank 1.*; rail 0 host h1: .*tcp.retransmits \\+[0-9]"));
}

}  // namespace
}  // namespace weft
