// Rails that fail in the middle of collectives, on real interfaces: links of a lab of network
// namespaces go down and up at random moments, and every result is right, bit for bit. Needs root.
// WEFT_FAILOVER_ROUNDS=100 sets how often links go down (the default is quick).
// labels: lab
// ctest: whole alone
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <random>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "coll/api/communicator.h"
#include "coll/api/metrics.h"
#include "support/process/shell.h"
#include "support/process/temporary_folder.h"
#include "tests/lab/shared_lab.h"
#include "transport/ucx/ucx.h"

namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using weft::Output;
using weft::run;
using Clock = std::chrono::steady_clock;

const std::string kScript = WEFT_SOURCE_DIR "/tests/lab/netlab";
const std::string kNetlab = std::string(WEFT_BINARY) + " lab netlab ";

int rounds() {
  const char* text = std::getenv("WEFT_FAILOVER_ROUNDS");
  return text ? std::atoi(text) : 6;
}

// Floats whose sum depends on the order.
float fraction(std::size_t i, std::int64_t operation, int rank) {
  const auto turn = (i + static_cast<std::size_t>(operation) + static_cast<std::size_t>(rank)) % 4;
  const float big[] = {1e8F, 1.0F, -1e8F, 0.3F};
  return big[turn] + static_cast<float>(i % 1000) * 0.37F;
}

// With WEFT_DETERMINISTIC=1: sums are in rank order, whatever fails.
bool in_canonical_order(weft::Communicator& all, std::int64_t operation) {
  std::vector<float> in(100'000), out(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = fraction(i, operation, all.rank());
  all.all_reduce(in.data(), out.data(), in.size(), weft::DType::kFloat32, weft::RedOp::kSum)
      .check();
  for (std::size_t i = 0; i < in.size(); ++i) {
    float sum = fraction(i, operation, 0);
    for (int r = 1; r < all.size(); ++r) sum += fraction(i, operation, r);
    if (std::memcmp(&out[i], &sum, sizeof sum) != 0) {
      std::printf("WRONG: element %zu of operation %lld on rank %d is %.9g, not %.9g\n", i,
                  static_cast<long long>(operation), all.rank(), static_cast<double>(out[i]),
                  static_cast<double>(sum));
      return false;
    }
  }
  return true;
}

// A rank: collectives of changing sizes until `file` exists, each result checked. Rank 0 decides at
// which one all stop. `file`.upR, .outR, .backR mark the progress of rank R.
int rank_main(const std::string& file) try {
  const char* deterministic = std::getenv("WEFT_DETERMINISTIC");
  weft::WorldOptions options;
  if (const char* transport = std::getenv("FAILOVER_TRANSPORT")) options.transport = transport;
  auto world = weft::World::from_environment(options);
  weft::Communicator all = world->world();
  const int n = world->size();
  const std::vector<std::size_t> counts = {1, 200, 5'000, 60'000, 500'000, 1'000'000};
  std::vector<std::int32_t> in(1'000'000), out(in.size());
  std::int64_t done = 0;
  double slowest_s = 0;
  for (std::int32_t go = 1; go != 0; ++done) {
    const std::size_t count = counts[static_cast<std::size_t>(done) % counts.size()];
    const auto value = [&](std::size_t i, int rank) {
      return static_cast<std::int32_t>(i * 7 + static_cast<std::size_t>(done) * 13) +
             rank * 1'000'003;
    };
    for (std::size_t i = 0; i < count; ++i) in[i] = value(i, world->rank());
    const auto begin = Clock::now();
    all.all_reduce(in.data(), out.data(), count, weft::DType::kInt32, weft::RedOp::kSum).check();
    slowest_s = std::max(slowest_s, std::chrono::duration<double>(Clock::now() - begin).count());
    for (std::size_t i = 0; i < count; ++i) {
      std::int32_t sum = 0;
      for (int r = 0; r < n; ++r) sum += value(i, r);
      if (out[i] != sum) {
        std::printf("WRONG: element %zu of %zu of operation %lld on rank %d\n", i, count,
                    static_cast<long long>(done), world->rank());
        return 1;
      }
    }
    if (deterministic && done % 8 == 3 && !in_canonical_order(all, done)) return 1;
    if (done % 8 == 7) {
      const weft::Metrics now = world->metrics();
      const auto tell = [&](const char* what) {
        std::ofstream(fmt::format("{}.{}{}", file, what, world->rank()));
      };
      tell("up");
      if (now.rails_taken_out > 0) tell("out");
      if (now.rails_taken_back > 0) tell("back");
      if (now.rails_taken_out > 0 && now.rails_taken_back == now.rails_taken_out) tell("whole");
      go = fs::exists(file) ? 0 : 1;
      all.broadcast(&go, &go, 1, weft::DType::kInt32, 0).check();
    }
  }
  const weft::Metrics m = world->metrics();
  std::printf(
      "rank %d: %lld operations right, the slowest took %.2f s, taken out %llu, back %llu, "
      "replayed %llu\n",
      world->rank(), static_cast<long long>(done), slowest_s,
      static_cast<unsigned long long>(m.rails_taken_out),
      static_cast<unsigned long long>(m.rails_taken_back),
      static_cast<unsigned long long>(m.replayed));
  return 0;
} catch (const std::exception& e) {
  std::printf("FAILED: %s\n", e.what());
  return 1;
}

class Failover : public weft::testing::LabTest {
 protected:
  // `name`: of a lab of LabTest. All tests repair what they break.
  void start(const std::string& name, int per_host, const std::string& environment = "") {
    lab_ = name;
    ranks_ = std::async(std::launch::async, [this, per_host, environment] {
      return run(fmt::format("{} WEFT_LOG=warn {}--use {} --ppn {} -- {} --rank {} 2>&1",
                             environment, kNetlab, lab_, per_host,
                             fs::read_symlink("/proc/self/exe").string(), file_));
    });
    // After the first operations, the job is up.
    wait_for(".up0");
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  // Waits until a rank has created this file, or the job has ended.
  void wait_for(const std::string& what) {
    for (int i = 0; i < 2400 && !fs::exists(file_ + what); ++i)
      if (ranks_.wait_for(std::chrono::milliseconds(50)) == std::future_status::ready) break;
    EXPECT_TRUE(fs::exists(file_ + what)) << what;
  }
  // Waits until every rank that lost lanes has them all back.
  void wait_until_whole(int ranks) {
    for (int r = 0; r < ranks; ++r)
      if (fs::exists(fmt::format("{}.out{}", file_, r))) wait_for(fmt::format(".whole{}", r));
  }
  // Each host logs at most one line about a rail's failure, and as many about its return.
  static void expect_told_once(const std::string& text, int hosts) {
    const auto lines = [&text](const std::string& what) {
      const std::regex line(what);
      return std::distance(std::sregex_iterator(text.begin(), text.end(), line), {});
    };
    for (int h = 1; h <= hosts; ++h) {
      const std::string told = fmt::format(R"(rail 1 \(rail1 on host h{}[^)]*\) is )", h);
      EXPECT_LE(lines(told + "taken out"), 1) << "h" << h << ":\n" << text;
      EXPECT_EQ(lines(told + "taken out"), lines(told + "back")) << "h" << h << ":\n" << text;
    }
  }
  void link(int host, int rail, const char* to) {
    const Output o = run(fmt::format("ip -n weft-{}-h{} link set rail{} {}", lab_, host, rail, to));
    EXPECT_EQ(o.exit_code, 0) << o.text;
  }
  // Breaks links of either rail and any host, one at a time, including the control plane's.
  void break_links(int times) {
    const auto seed = static_cast<std::uint64_t>(getpid());
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    std::mt19937_64 random(seed);
    for (int i = 0; i < times; ++i) {
      const int host = 1 + static_cast<int>(random() % 2), rail = static_cast<int>(random() % 2);
      link(host, rail, "down");
      pause_ms(100 + static_cast<std::int64_t>(random() % 1200));
      link(host, rail, "up");
      pause_ms(static_cast<std::int64_t>(random() % 1500));
    }
  }
  // A job of 2 x 2 ranks on two rails whose links break `times` times: late, but right.
  void links_break(int times, const std::string& environment = "") {
    start(lab(2, 2), 2, environment);
    break_links(times);
    const Output result = finish();
    EXPECT_EQ(result.exit_code, 0) << result.text;
    EXPECT_THAT(result.text, ContainsRegex("rank 3: [0-9]+ operations right"));
    std::printf("%s", result.text.c_str());
  }
  // Both directions of all ports of a rail.
  void set_rate(int rail, const char* rate) {
    for (const int host : {1, 2})
      for (const std::string& port : {fmt::format("h{} qdisc change dev rail{}", host, rail),
                                      fmt::format("sw qdisc change dev h{}-r{}", host, rail)}) {
        const Output o = run(
            fmt::format("tc -n weft-{}-{} root tbf rate {} burst 32k limit 1m", lab_, port, rate));
        EXPECT_EQ(o.exit_code, 0) << o.text;
      }
  }
  // The share of rail 1 in the next 60 MB between the hosts; -1 if no bytes are sent.
  double share_of_rail_1() {
    const auto sent = [this] {
      std::array<double, 2> bytes{};
      std::istringstream lines(run(kScript + " counters --lab " + lab_).text);
      std::string host, rail;
      for (double tx = 0, rx = 0; lines >> host >> rail >> tx >> rx;) bytes[rail == "rail1"] += tx;
      return bytes;
    };
    const auto before = sent();
    const auto end = Clock::now() + std::chrono::seconds(60);
    while (Clock::now() < end) {
      pause_ms(100);
      const auto now = sent();
      const double all = now[0] + now[1] - before[0] - before[1];
      if (all >= 60e6) return (now[1] - before[1]) / all;
    }
    return -1;
  }
  // Polls until the share is in this range; returns the last one.
  double wait_for_share(double least, double most) {
    double share = -1;
    const auto end = Clock::now() + std::chrono::seconds(60);
    do share = share_of_rail_1();
    while ((share < least || share > most) && share >= 0 && Clock::now() < end);
    return share;
  }
  void a_slow_rail_gets_less(int per_host) {
    start(lab(2, 2), per_host);
    EXPECT_NEAR(wait_for_share(0.40, 0.60), 0.5, 0.1);
    set_rate(1, "100mbit");
    EXPECT_NEAR(wait_for_share(0.12, 0.28), 0.2, 0.08);
    set_rate(1, "400mbit");
    EXPECT_NEAR(wait_for_share(0.40, 0.60), 0.5, 0.1);
    const Output result = finish();
    EXPECT_EQ(result.exit_code, 0) << result.text;
    EXPECT_THAT(result.text, ContainsRegex("rank 1: [0-9]+ operations right.*taken out 0"));
    std::printf("%s", result.text.c_str());
  }
  Output finish() {
    std::ofstream(file_) << "stop";
    return ranks_.get();
  }
  static void pause_ms(std::int64_t ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  }

  weft::testing::TemporaryFolder folder_;
  const std::string file_ = folder_ / "stop";
  std::string lab_;
  std::future<Output> ranks_;
};

TEST_F(Failover, ARailIsTakenOutAndTakenBack) {
  start(lab(2, 2), 2);
  link(2, 1, "down");
  wait_for(".out3");
  link(2, 1, "up");
  wait_for(".back3");
  wait_until_whole(4);
  const Output result = finish();
  EXPECT_EQ(result.exit_code, 0) << result.text;
  EXPECT_THAT(result.text, ContainsRegex("rail 1 \\(rail1 on host .*\\) is taken out: "));
  EXPECT_THAT(result.text, ContainsRegex("rail 1 \\(rail1 on host .*\\) is back"));
  EXPECT_THAT(result.text,
              ContainsRegex("rank 3: [0-9]+ operations right.*taken out [1-9].*back [1-9]"));
  EXPECT_THAT(result.text, ::testing::Not(HasSubstr("WRONG")));
  expect_told_once(result.text, 2);
  std::printf("%s", result.text.c_str());
}

// The hosts' own links stay up: only the missing answers show the failure.
TEST_F(Failover, ASwitchThatDiesIsNoticed) {
  start(lab(3, 2), 1);
  const auto bridge = [&](const char* to) {
    const Output o = run(fmt::format("ip -n weft-{}-sw link set br1 {}", lab_, to));
    EXPECT_EQ(o.exit_code, 0) << o.text;
  };
  bridge("down");
  wait_for(".out2");
  bridge("up");
  wait_for(".back2");
  wait_until_whole(3);
  const Output result = finish();
  EXPECT_EQ(result.exit_code, 0) << result.text;
  EXPECT_THAT(result.text, ContainsRegex("rail 1 .* is taken out: no answer for [0-9]+ ms while"));
  EXPECT_THAT(result.text,
              ContainsRegex("rank 2: [0-9]+ operations right.*taken out [1-9].*back [1-9]"));
  expect_told_once(result.text, 3);
  std::printf("%s", result.text.c_str());
}

TEST_F(Failover, LinksGoDownAndUpAtRandomMoments) { links_break(rounds()); }

TEST_F(Failover, OverUcx) {
  if (!weft::ucx_available()) GTEST_SKIP() << "missing capability: UCX";
  links_break(std::min(rounds(), 20) / 2, "FAILOVER_TRANSPORT=ucx");
}

// Messages checked end to end and retransmitted, over rails that go down and up.
TEST_F(Failover, WithIntegrity) { links_break(std::min(rounds(), 20) / 2, "WEFT_INTEGRITY=1"); }
TEST_F(Failover, WithDeterministicSums) {
  links_break(std::min(rounds(), 20) / 2, "WEFT_DETERMINISTIC=1");
}

// UDP is filtered, TCP is not. Rails of different rates get different weights only if the other end
// can be notified.
TEST_F(Failover, HealthyRailsNeedNoDatagrams) {
  const Output result =
      run(fmt::format("WEFT_FAILOVER=1 WEFT_LOG=warn timeout 200 {0} --use {1} -- bash -c 'ip rule "
                      "del pref 0 && ip rule add pref 1 ipproto udp "
                      "prohibit && ip rule add pref 5 lookup local || exit 77; "
                      "exec {2} perf all_reduce --out-of-place -b 256K -e 1M -f 4 -w 2 -n 150'",
                      kNetlab, lab_to_break(2, 2, "200mbit,100mbit"), WEFT_BINARY));
  if (result.exit_code == 77) GTEST_SKIP() << "missing capability: ip rule ... ipproto udp";
  EXPECT_EQ(result.exit_code, 0) << result.text;
  EXPECT_THAT(result.text, HasSubstr("all results exact"));
  EXPECT_THAT(result.text, HasSubstr("no datagram is answered on any rail"));
}

// Measured in bytes on the wire: on a busy machine time proves nothing.
TEST_F(Failover, ASlowRailGetsLessAndThenItsShareAgain) { a_slow_rail_gets_less(1); }
TEST_F(Failover, ASlowRailGetsLessWithTwoRanksPerHost) { a_slow_rail_gets_less(2); }

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--rank") return rank_main(argv[2]);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
