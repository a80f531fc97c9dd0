// A rail fails during a job while its ports stay up: bytes enter the rail and none leave it. Every
// rank's error names the rail and the hosts. Needs root.
//
// WEFT_TEST_SEED repeats a run.
// labels: lab
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "support/process/shell.h"

namespace weft {
namespace {

using ::testing::ContainsRegex;

// A lab of two hosts under a job of endless all_reduces, until a rail is cut at a random moment.
class HangInTheLab : public ::testing::Test {
 protected:
  void SetUp() override {
    const Output check = run(script_ + " check");
    if (check.exit_code != 0)
      GTEST_SKIP() << "missing capability: root with network namespaces (" << check.text << ")";
    const char* text = std::getenv("WEFT_TEST_SEED");
    const auto seed = text ? static_cast<unsigned>(std::atol(text)) : std::random_device{}();
    fmt::print("WEFT_TEST_SEED={}\n", seed);
    random_.seed(seed);
    host_ = 1 + static_cast<int>(random_() % 2);
  }

  // ports: of the switches, named by the rail's end at a host: "h2-r1"; cut: the command for each,
  // in the switches' namespace. Returns the job's output.
  Output job_with_cut(int per_host, int rails, const std::string& environment,
                      const std::vector<std::string>& ports,
                      const std::string& cut = "ip -n {} link set {} down", int hosts = 2) {
    const std::string lab = fmt::format("hang{}", getpid());
    const int ranks = hosts * per_host;
    Output job;
    std::thread running([&] {
      job =
          run(fmt::format("{0} timeout 200 {1} lab netlab --name {2} --hosts {5} --ppn {3} --rails "
                          "{4} --grace-ms 10000 -- "
                          "{1} perf all_reduce -b 2M -e 2M -n 1000000 --timeout-ms 4000 2>&1",
                          environment, WEFT_BINARY, lab, per_host, rails, hosts));
    });
    // Waits until the job has made progress.
    bool runs = false;
    for (int i = 0; i < 600 && !runs; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const auto jobs = nlohmann::json::parse(
          run(std::string(WEFT_BINARY) + " doctor --json 2>/dev/null").text, nullptr, false);
      if (!jobs.is_array()) continue;
      for (const auto& one : jobs)
        for (const auto& rank : one["ranks"])
          runs = runs || (one["size"] == ranks && rank["host"] != "" && rank["begun"] > 200 &&
                          rank["links"].size() == static_cast<std::size_t>(rails) + 1 &&
                          // not a job of another test
                          run(fmt::format("ip netns identify {}", rank["pid"].get<int>()))
                              .text.starts_with(fmt::format("weft-{}-", lab)));
    }
    EXPECT_TRUE(runs) << "the job does not run";
    std::this_thread::sleep_for(std::chrono::milliseconds(random_() % 1000));
    for (const std::string& port : ports) {
      const Output done =
          run(fmt::format(fmt::runtime(cut), fmt::format("weft-{}-sw", lab), port) + " 2>&1");
      EXPECT_EQ(done.exit_code, 0) << done.text;
    }
    running.join();
    return job;
  }

  const std::string script_ = WEFT_SOURCE_DIR "/tests/lab/netlab";
  std::mt19937 random_;
  int host_ = 1;
};

// Any rail but rail 0, which carries the lab's control plane.
TEST_F(HangInTheLab, ARailThatMovesNoBytesIsNamed) {
  const int rails = 2 + static_cast<int>(random_() % 2);
  const int rail = 1 + static_cast<int>(random_() % static_cast<unsigned>(rails - 1));
  const Output job =
      job_with_cut(rails, rails, "WEFT_FAILOVER=0", {fmt::format("h{}-r{}", host_, rail)});
  EXPECT_NE(job.exit_code, 0) << job.text;
  EXPECT_THAT(job.text,
              ContainsRegex(fmt::format("rail {0} .rail{0}. between hosts h[12] and h[12] moves no "
                                        "bytes: what rank [0-9] sent in all_reduce #[0-9]+ has not "
                                        "reached rank [0-9]; rail {0} host h[12]: "
                                        ".*tcp.retransmits \\+[0-9]",
                                        rail)))
      << "host " << host_ << ", rail " << rail;
}

// One rank per host, whose large messages use both rails. Only long frames are lost (tbf drops
// frames longer than its burst), so that failover, whose probes are short, does not remove the
// rail.
TEST_F(HangInTheLab, ARailThatLosesLongFramesIsNamedThoughTheOtherOneIsThePairs) {
  const Output job =
      job_with_cut(1, 2, "WEFT_FAILOVER=1", {fmt::format("h{}-r1", host_)},
                   "tc -n {} qdisc replace dev {} root tbf rate 400mbit burst 700 limit 1m");
  EXPECT_NE(job.exit_code, 0) << job.text;
  EXPECT_THAT(job.text,
              ContainsRegex("[^0-9a-z]rail 1 .rail1. between hosts h[12] and h[12] moves no bytes: "
                            "what rank [01] sent in all_reduce #[0-9]+ has not reached rank [01]"))
      << "host " << host_;
}

// With one rail, the control plane loses long frames, too, including the ranks' reports.
TEST_F(HangInTheLab, TheOnlyRailLosesLongFramesAndWhatRanksSayAmongThem) {
  const std::string lab = fmt::format("hang{}", getpid());
  const Output up =
      run(fmt::format("{} up --lab {} --hosts 2 --rails 1 --rate 400mbit", script_, lab));
  ASSERT_EQ(up.exit_code, 0) << up.text;
  for (const char* port : {"h1-r0", "h2-r0"}) {
    const Output cut = run(fmt::format(
        "tc -n weft-{}-sw qdisc replace dev {} root tbf rate 400mbit burst 1000 limit 1m", lab,
        port));
    EXPECT_EQ(cut.exit_code, 0) << cut.text;
  }
  // Separate PID namespaces make two machines; ranks of one machine could read each other's
  // reports.
  const Output o = run(fmt::format(
      "timeout 100 {0} lab netlab --use {1} -- unshare --pid --fork --kill-child --mount-proc {0} "
      "perf all_reduce -b 64K -e 64K --timeout-ms 6000 2>&1",
      WEFT_BINARY, lab));
  EXPECT_EQ(o.exit_code, 2) << o.text;
  EXPECT_THAT(o.text,
              ContainsRegex("rank [01] has no snapshot, although its heartbeats arrive: .* between "
                            "hosts h[12] and h[12] long messages are lost .* the MTU all along"));
  EXPECT_THAT(o.text, ::testing::Not(ContainsRegex("did it call the same collective")));
  run(fmt::format("{} down --lab {}", script_, lab));
}

// Small packets pass, so the link is up and the ranks connect. The probes name the port, with and
// without a declared rate.
TEST_F(HangInTheLab, AValidationNamesARailThatLosesLongFrames) {
  const std::string lab = fmt::format("hang{}", getpid());
  const Output up =
      run(fmt::format("{} up --lab {} --hosts 4 --rails 2 --rate 400mbit", script_, lab));
  ASSERT_EQ(up.exit_code, 0) << up.text;
  const Output cut = run(fmt::format(
      "tc -n weft-{}-sw qdisc replace dev h4-r1 root tbf rate 400mbit burst 700 limit 1m", lab));
  EXPECT_EQ(cut.exit_code, 0) << cut.text;
  const auto validate = [&](const char* rate) {
    Output o = run(fmt::format(
        "timeout 200 {0} lab netlab --use {1} -- {2} {0} validate --timeout-ms 8000 2>&1",
        WEFT_BINARY, lab, rate));
    o.text = std::regex_replace(o.text, std::regex("\\s+"), " ");  // lines are broken anywhere
    EXPECT_EQ(o.exit_code, 2) << o.text;
    EXPECT_THAT(o.text, ContainsRegex("verdict: CRITICAL"));
    return o.text;
  };
  EXPECT_THAT(validate(""), ContainsRegex("h4 rail 1 .rail1."));
  EXPECT_THAT(validate("env -u WEFT_RAIL_GBPS "), ContainsRegex("h4 rail 1 .rail1."));
  run(fmt::format("{} down --lab {}", script_, lab));
}

// With failover no rail is left, and the control plane fails too: the job ends, and names the rail
// that it waits for, or the ranks that do not answer.
TEST_F(HangInTheLab, AHostWithoutAnyRailEndsTheJob) {
  const Output job = job_with_cut(2, 2, "WEFT_FAILOVER=1",
                                  {fmt::format("h{}-r0", host_), fmt::format("h{}-r1", host_)});
  EXPECT_NE(job.exit_code, 0) << job.text;
  EXPECT_NE(job.exit_code, 124) << "it hangs: " << job.text;
  EXPECT_THAT(job.text,
              ContainsRegex("rail [01] .rail[01]. between hosts h[12] and h[12] moves? no bytes|"
                            "rank [0-3] (on host h[12] )?(does not respond|has not responded)|"
                            "wait(s|ing) for rank [0-3]( .rail [01]|, which is)"))
      << "host " << host_;
}

// Rank 0 gets no answer from any other rank, and none of them is to blame.
TEST_F(HangInTheLab, RankZeroKnowsThatItsOwnHostIsCutOff) {
  const Output job = job_with_cut(1, 2, "", {"h1-r0", "h1-r1"}, "ip -n {} link set {} down", 3);
  EXPECT_NE(job.exit_code, 0) << job.text;
  EXPECT_THAT(job.text, ContainsRegex("no rank of the 2 other hosts has responded for [0-9]+ ms: "
                                      "host h1 is cut off from them"));
  EXPECT_THAT(
      job.text,
      ::testing::Not(ContainsRegex("rank [12] [a-z0-9 ]*(does not respond|has not responded)")));
}

}  // namespace
}  // namespace weft
