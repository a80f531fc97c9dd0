// weft perf bw and lat: pairs, flags, rates of windows; client and server, and launched ranks, over
// shared memory and TCP.
// labels: multiproc
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "perf/pair/pair_link.h"
#include "perf/pair/pair_options.h"
#include "perf/pair/pair_run.h"
#include "perf/pair/pair_session.h"
#include "support/process/sanitizer.h"
#include "support/process/shell.h"
#include "transport/gpu/device.h"
#include "transport/ucx/ucx.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string kPerf = std::string(WEFT_BINARY) + " perf ";

Topology hosts(int nhosts, int per_host) {
  std::vector<Place> places;
  for (int r = 0; r < nhosts * per_host; ++r) {
    Place place;
    place.host = fmt::format("h{}", r / per_host);
    place.rails.resize(2);
    place.rails[0].name = "a";
    place.rails[1].name = "b";
    places.push_back(place);
  }
  return Topology(places);
}

TEST(ChoosePairs, NoRankIsTwiceInARound) {
  for (const char* kind : {"all", "ring", "rail", "random"}) {
    for (const int n : {2, 3, 4, 5, 8}) {
      const Topology topology = std::string(kind) == "rail" ? hosts(n, 2) : hosts(1, n);
      std::size_t pairs = 0;
      for (const auto& round : choose_pairs(kind, 3, topology)) {
        std::set<Rank> busy;
        for (const RankPair& p : round) {
          EXPECT_TRUE(busy.insert(p.client).second) << kind << n;
          EXPECT_TRUE(busy.insert(p.server).second) << kind << n;
          ++pairs;
        }
      }
      const auto c = static_cast<std::size_t>(n);
      const std::size_t expected = std::string(kind) == "all"    ? c * (c - 1) / 2
                                   : std::string(kind) == "ring" ? (c == 2 ? 1 : c)
                                   : std::string(kind) == "rail" ? c * (c - 1) / 2 * 2
                                                                 : c / 2;
      EXPECT_EQ(pairs, expected) << kind << n;
    }
  }
}

TEST(ChoosePairs, OfARailStayOnIt) {
  const Topology topology = hosts(4, 2);
  for (const auto& round : choose_pairs("rail", 1, topology)) {
    for (const RankPair& p : round) {
      EXPECT_EQ(topology.rail(p.client), topology.rail(p.server));
      EXPECT_FALSE(topology.same_host(p.client, p.server));
    }
  }
  EXPECT_THROW(choose_pairs("rail", 1, hosts(1, 4)), Error);
}

TEST(ChoosePairs, ASeedGivesTheSamePairs) {
  const Topology topology = hosts(1, 16);
  EXPECT_EQ(choose_pairs("random", 5, topology), choose_pairs("random", 5, topology));
  EXPECT_NE(choose_pairs("random", 5, topology), choose_pairs("random", 6, topology));
}

TEST(PairOptions, HavePerftestsDefaults) {
  PairOptions o;
  EXPECT_THAT(o.sizes(), ElementsAre(65536U));
  EXPECT_EQ(o.iterations_or_default(), 5000);
  EXPECT_EQ(o.moderation_for(8192), 100);
  EXPECT_EQ(o.moderation_for(8193), 1);
  EXPECT_EQ(o.inline_or_default(), 0);
  o.depth = 16;
  EXPECT_EQ(o.moderation_for(64), 16) << "no more than are under way";
  o.op = "send";
  EXPECT_EQ(o.iterations_or_default(), 1000);
  o.test = PairTest::kLatency;
  EXPECT_THAT(o.sizes(), ElementsAre(2U));
  EXPECT_EQ(o.inline_or_default(), 220);
  o.all_sizes = true;
  EXPECT_EQ(o.sizes().size(), 23U);
  EXPECT_EQ(o.sizes().back(), 8U << 20);
  o.all_sizes = false;
  o.size = "1M,64";
  EXPECT_THAT(o.sizes(), ElementsAre(64U, 1U << 20));
  o.size = "4K,64,4096";
  EXPECT_THAT(o.sizes(), ElementsAre(64U, 4096U)) << "a size is measured once";
}

TEST(RateMeter, WindowsOfAHundredMilliseconds) {
  RateMeter meter;
  meter.start(10);
  EXPECT_EQ(meter.average(), 0);
  meter.add(10.0625, 50);  // one window of 100 bytes in 1/8 s
  meter.add(10.125, 50);
  meter.add(10.375, 100);   // one of 1/4 s
  meter.add(10.4375, 400);  // short remainder: no separate window
  EXPECT_DOUBLE_EQ(meter.average(), 600 / 0.4375);
  EXPECT_DOUBLE_EQ(meter.worst(), 400);
  EXPECT_DOUBLE_EQ(meter.best(), meter.average()) << "never below the average";
  meter.add(10.5, 100);
  EXPECT_DOUBLE_EQ(meter.best(), 4000);
}

// Answers a ping after some polls, and records the time of each.
class EchoLink : public PairLink {
 public:
  explicit EchoLink(bool one_sided) : one_sided_(one_sided) {}
  std::string offer() override { return ""; }
  void connect(const std::string&) override {}
  std::string path() const override { return "echo"; }
  PairUse use() const override { return {1}; }
  bool one_sided() const override { return one_sided_; }
  void prepare(const PairRole&) override {}
  int post(int) override { return 0; }
  int last() const override { return 1; }
  int post_last() override { return 1; }
  PairProgress poll() override { return {}; }
  void ping(std::uint64_t) override { start_ = std::chrono::steady_clock::now(); }
  bool arrived(std::uint64_t turn) override {
    const auto took = std::chrono::steady_clock::now() - start_;
    if (took < std::chrono::milliseconds(2)) return false;
    if (turn > 1) answered_ns += static_cast<double>(std::chrono::nanoseconds(took).count());
    return true;
  }
  std::string check() override { return ""; }
  double answered_ns = 0;  // of all turns but the first

 private:
  const bool one_sided_;
  std::chrono::steady_clock::time_point start_;
};

TEST(PairTimes, OfAPingPongAreOneWayAndOfAReadTheWhole) {
  const auto job = local_jobs(1);
  for (const bool one_sided : {false, true}) {
    EchoLink link(one_sided);
    Histogram times;
    const double took_s =
        run_ping_pong(link, {}, PairRole{8, false, true, false}, 1, 20, times, *job[0]);
    ASSERT_EQ(times.count(), 19u);
    const double total_ns = times.mean() * 19 * (one_sided ? 1 : 2);
    EXPECT_GE(total_ns, 0.999 * link.answered_ns);
    EXPECT_LE(total_ns, took_s * 1.001e9);
  }
}

// A message that takes 2.5 s; `tells`: whether it reports progress meanwhile.
class SlowLink : public PairLink {
 public:
  explicit SlowLink(std::function<std::optional<std::uint64_t>()> tells)
      : tells_(std::move(tells)) {}
  std::string offer() override { return ""; }
  void connect(const std::string&) override {}
  std::string path() const override { return "slow"; }
  PairUse use() const override { return {1}; }
  bool one_sided() const override { return false; }
  void prepare(const PairRole&) override {}
  int post(int) override { return 0; }
  int last() const override { return 1; }
  int post_last() override { return 1; }
  PairProgress poll() override { return {.sent = over() ? 1 : 0}; }
  std::optional<std::uint64_t> moved_bytes() const override { return tells_(); }
  void ping(std::uint64_t) override {}
  bool arrived(std::uint64_t) override { return over(); }
  std::string check() override { return ""; }

 private:
  bool over() const {
    return std::chrono::steady_clock::now() - start_ > std::chrono::milliseconds(2500);
  }
  std::function<std::optional<std::uint64_t>()> tells_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

TEST(PairDeadline, ALongMessageTakesItsTimeWhileBytesMove) {
  const auto job = local_jobs(1);
  PairOptions o;
  o.timeout_ms = 1000;
  o.iterations = 1;
  const PairRole role{1 << 20, false, true, false};
  std::uint64_t bytes = 0;
  SlowLink link([&bytes] { return bytes += 1448; });
  EXPECT_EQ(run_stream(link, o, role, *job[0]).sent, 1U);
  SlowLink lat([&bytes] { return bytes += 1448; });
  Histogram times;
  run_ping_pong(lat, o, role, 1, 1, times, *job[0]);

  const auto failure = [&](std::optional<std::uint64_t> moved) -> std::string {
    try {
      SlowLink still([=] { return moved; });
      (void)run_stream(still, o, role, *job[0]);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(failure(1448), HasSubstr("nothing has moved for 1 s (--timeout-ms): is the link up"));
  EXPECT_THAT(
      failure(std::nullopt),
      AllOf(HasSubstr("nothing has moved for 1 s (--timeout-ms), as far as messages that end"),
            HasSubstr("-s")));
}

TEST(Pattern, ShowsWhatIsWrong) {
  std::vector<std::byte> data(1003);
  fill_pattern(data.data(), data.size(), 42);
  EXPECT_EQ(compare_pattern(data.data(), data.size(), 42), "");
  EXPECT_NE(compare_pattern(data.data(), data.size(), 43), "");
  data[1001] ^= std::byte{1};
  EXPECT_THAT(compare_pattern(data.data(), data.size(), 42), HasSubstr("byte 1001 is"));
}

// ---- processes -----------------------------------------------------------------------------

class PairProcesses : public ::testing::Test {
 protected:
  PairProcesses() : report_(fs::temp_directory_path() / fmt::format("pair_test_{}", getpid())) {}
  ~PairProcesses() override { fs::remove(report_); }

  struct Ends {
    Output server, client;
  };
  // Concurrent tests use different ports.
  Ends run_pair(const std::string& arguments, const std::string& only_client = "") {
    const int port = 20000 + getpid() % 12000;
    const std::string both = fmt::format("timeout 60 {}{} -d lo -p {}", kPerf, arguments, port);
    auto server = std::async(std::launch::async, [&] { return run(both); });
    Ends ends;
    ends.client =
        run(fmt::format("{} {} --json {} 127.0.0.1", both, only_client, report_.string()));
    ends.server = server.get();
    return ends;
  }
  nlohmann::json report() const {
    std::ifstream file(report_);
    return nlohmann::json::parse(file);
  }
  fs::path report_;
};

// Strips what an end prints while it waits for the other.
std::string table_of(const std::string& text) {
  const auto at = text.find(" #bytes");
  return at == text.npos ? text : text.substr(at);
}

TEST_F(PairProcesses, ClientAndServer) {
  for (const std::string op : {"shm", "tcp", "ucx"}) {
    if (op == "ucx" && !ucx_available()) continue;
    for (const std::string test : {"bw", "lat"}) {
      const Ends ends =
          run_pair(test + " --op " + op + " -s 1,4K,100000 -n 200 --check --timeout-ms 20000");
      EXPECT_EQ(ends.client.exit_code, 0) << ends.client.text << ends.server.text;
      EXPECT_EQ(ends.server.exit_code, 0) << ends.server.text;
      EXPECT_EQ(table_of(ends.client.text), table_of(ends.server.text)) << "both print the same";
      EXPECT_THAT(ends.client.text, Not(HasSubstr("WRONG")));
      const auto json = report();
      EXPECT_EQ(json["test"], test);
      ASSERT_EQ(json["pairs"][0]["sizes"].size(), 3U);
      for (const auto& size : json["pairs"][0]["sizes"])
        EXPECT_EQ(size["at_client"]["messages"], 200) << op << test << size;
    }
  }
}

// The answering end has nothing to wait for after its last message, which may not be sent by then
// if it is long.
TEST_F(PairProcesses, LatencyOfAllSizes) {
  for (const std::string op : {"shm", "tcp", "ucx"}) {
    if (op == "ucx" && !ucx_available()) continue;
    const Ends ends = run_pair("lat --op " + op + " -a -n 5 --check --timeout-ms 10000");
    EXPECT_EQ(ends.client.exit_code, 0) << op << ends.client.text;
    EXPECT_EQ(ends.server.exit_code, 0) << op << ends.server.text;
    EXPECT_THAT(ends.client.text, Not(HasSubstr("WRONG"))) << op;
    const auto sizes = report()["pairs"][0]["sizes"];
    ASSERT_EQ(sizes.size(), 23U) << op;
    EXPECT_EQ(sizes.back()["bytes"], 8 << 20) << op;
    const Output launched = run(
        fmt::format("timeout 100 {} launch -N 2 -- {}lat --op {} -s 4M,8M -n 5 --timeout-ms 10000",
                    WEFT_BINARY, kPerf, op));
    EXPECT_EQ(launched.exit_code, 0) << op << launched.text;
  }
}

TEST_F(PairProcesses, BothWaysWithManyUnderWay) {
  const Ends ends =
      run_pair("bw --op shm -b -s 64,1M -n 150 -t 64 -l 8 --check --timeout-ms 20000");
  EXPECT_EQ(ends.client.exit_code, 0) << ends.client.text << ends.server.text;
  const auto sizes = report()["pairs"][0]["sizes"];
  EXPECT_EQ(sizes.size(), 2U);
  for (const auto& size : sizes) {
    EXPECT_EQ(size["at_client"]["messages"], 150);
    EXPECT_EQ(size["at_server"]["messages"], 150);
  }
}

TEST_F(PairProcesses, ForSomeSeconds) {
  for (const std::string test : {"bw", "lat"}) {
    const Ends ends = run_pair(test + " --op shm -D 0.5 -s 4K");
    EXPECT_EQ(ends.client.exit_code, 0) << ends.client.text;
    const auto end = report()["pairs"][0]["sizes"][0]["at_client"];
    EXPECT_GT(end["messages"].get<int>(), 10);
    if (test == "bw") {
      EXPECT_GE(end["seconds"].get<double>(), 0.4);
    }
  }
}

TEST_F(PairProcesses, DifferentFlagsAreRefused) {
  const Ends ends = run_pair("bw --op shm -s 4K", "-n 77");
  EXPECT_EQ(ends.client.exit_code, 4) << ends.client.text;
  EXPECT_THAT(ends.client.text, AllOf(HasSubstr("different flags"), HasSubstr("-n 77")));
  EXPECT_EQ(ends.server.exit_code, 4) << ends.server.text;
}

// The launcher ends with the exit code of the first rank to end: both have the same.
TEST_F(PairProcesses, WhatOneEndCannotDoAsAskedIsNoFaultOfTheFabric) {
  for (const std::string test : {"bw", "lat"}) {
    const std::string both = fmt::format("timeout 60 {}{} --op shm -s 64 -d lo -p {}", kPerf, test,
                                         20000 + getpid() % 12000);
    auto server = std::async(std::launch::async, [&] { return run(both); });
    const Output client = run(both + " --json /nowhere/report 127.0.0.1");
    EXPECT_EQ(client.exit_code, 4) << client.text;
    const Output other = server.get();
    EXPECT_EQ(other.exit_code, 4) << other.text;
    EXPECT_THAT(other.text, HasSubstr("/nowhere/report"));
  }
}

TEST_F(PairProcesses, AServerThatIsNotThereIsNamed) {
  const Output client = run(kPerf + "bw --op shm -p 1 --timeout-ms 1000 127.0.0.1");
  EXPECT_EQ(client.exit_code, 4) << client.text;
  EXPECT_THAT(client.text, HasSubstr("no server listens at 127.0.0.1 port 1"));
}

TEST_F(PairProcesses, AClientThatDiesIsNamed) {
  const int port = 20000 + getpid() % 12000;
  const std::string both = fmt::format("timeout 60 {}bw --op shm -d lo -D 30 -p {}", kPerf, port);
  auto server = std::async(std::launch::async, [&] { return run(both); });
  // It is running once it has used 0.3 s of CPU time: set-up takes little.
  run(
      fmt::format("bash -c '{} 127.0.0.1 & c=$!; "
                  "while t=$(cut -d\" \" -f14 /proc/$c/stat 2>/dev/null); "
                  "[ \"${{t:-99}}\" -le 30 ]; do sleep 0.05; done; kill -KILL $c'",
                  both.substr(11)));
  const Output end = server.get();
  EXPECT_EQ(end.exit_code, 2) << end.text;
  EXPECT_THAT(end.text, HasSubstr("rank 1 (host"));
}

TEST_F(PairProcesses, LaunchedRanksInPairs) {
  for (const std::string pairs : {"all", "ring", "random"}) {
    const Output result =
        run(fmt::format("timeout 100 {} launch -N 4 -- {}bw --op shm --pairs {} -s 64,64K -n 50 "
                        "--check --json {}",
                        WEFT_BINARY, kPerf, pairs, report_.string()));
    EXPECT_EQ(result.exit_code, 0) << result.text;
    const std::size_t expected = pairs == "all" ? 6 : pairs == "ring" ? 4 : 2;
    EXPECT_EQ(report()["pairs"].size(), expected);
    EXPECT_THAT(result.text, ContainsRegex("65536 bytes, [0-9] pairs: .* median"));
  }
}

TEST_F(PairProcesses, LaunchedRanksOnTheirRails) {
  for (const std::string test : {"bw --op ucx", "lat --op tcp"}) {
    if (test.ends_with("ucx") && !ucx_available()) continue;
    const Output result = run(fmt::format(
        "timeout 100 {} launch -N 4 --hosts 2 --rails 2 -- {}{} --pairs rail -s 4K -n 50 "
        "--check --json {}",
        WEFT_BINARY, kPerf, test, report_.string()));
    EXPECT_EQ(result.exit_code, 0) << result.text;
    EXPECT_THAT(result.text, AllOf(HasSubstr(" 2->0 "), HasSubstr(" 3->1 ")));
    EXPECT_EQ(report()["pairs"].size(), 2U);
  }
}

TEST_F(PairProcesses, UnderMpirun) {
  if (run("command -v mpirun.openmpi").exit_code != 0)
    GTEST_SKIP() << "missing capability: Open MPI's mpirun";
  const std::string mpirun =
      "timeout 100 mpirun.openmpi --allow-run-as-root --oversubscribe -n 4 " + kPerf;
  const Output all =
      run(mpirun + "bw --op shm --pairs all -s 4K -n 50 --check --json " + report_.string());
  EXPECT_EQ(all.exit_code, 0) << all.text;
  EXPECT_EQ(report()["pairs"].size(), 6U);
  // All ranks of mpirun are on this host.
  const Output rail = run(mpirun + "bw --op shm --pairs rail -s 4K -n 50");
  EXPECT_NE(rail.exit_code, 0);
  EXPECT_THAT(rail.text, HasSubstr("--pairs rail: all ranks are on one host"));
}

TEST_F(PairProcesses, WhatCannotBeIsRefused) {
  if (device() == nullptr) {
    EXPECT_THAT(run(kPerf + "bw --use_cuda").text, HasSubstr("missing capability: a CUDA device"));
  }
  EXPECT_EQ(run(kPerf + "bw -l 200 -t 100").exit_code, 4);
  EXPECT_EQ(run(kPerf + "bw --op shm -q 2").exit_code, 4);
  EXPECT_EQ(run(kPerf + "lat --op write -e").exit_code, 4);
  EXPECT_EQ(run(kPerf + "bw --op shm -n 10 -D 3").exit_code, 4);
  EXPECT_EQ(run(kPerf + "bw --op fly").exit_code, 4);
  EXPECT_EQ(run(kPerf).exit_code, 4);
  EXPECT_EQ(run("WEFT_RAILS=lo " + kPerf + "bw").exit_code, 4) << "no RDMA device";
  const Output report = run(
      fmt::format("timeout 60 {} launch -N 2 -- {}bw --op shm -s 64 -D 30 --json /nowhere/report",
                  WEFT_BINARY, kPerf));
  EXPECT_EQ(report.exit_code, 4) << report.text;
  EXPECT_THAT(report.text, AllOf(HasSubstr("/nowhere/report"), Not(HasSubstr("#pair"))));
  const std::string no_memory = "no memory for messages of this size";
  // A sanitizer's operator new does not throw: it aborts.
  for (const auto& [size, why] : {std::pair<std::string, std::string>{"4194304T", "too large"},
                                  {"18446744073709551615", "too large"},
                                  {"128T", no_memory},
                                  {"16T", no_memory}}) {
    if (testing::kSanitizer && why == no_memory) continue;
    const Output large = run(
        fmt::format("timeout 60 {} launch -N 2 -- {}bw --op shm -s {}", WEFT_BINARY, kPerf, size));
    EXPECT_EQ(large.exit_code, 4) << large.text;
    EXPECT_THAT(large.text, HasSubstr(why));
  }
}

}  // namespace
}  // namespace weft
