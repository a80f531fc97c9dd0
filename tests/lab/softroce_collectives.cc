// Collectives, the tester and the transport's own tests over verbs, in the boot of
// softroce_test.cc.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "support/process/read_file.h"
#include "tests/lab/softroce_boot.h"

namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using weft::read_file;
using weft::testing::CheckResult;
using weft::testing::Guest;

TEST_F(Guest, LossShowsInWhatCollectivesSay) {
  good("counters");
  EXPECT_THAT(result("counters").text,
              ContainsRegex("took [0-9]+ ms: .*rail 1 host h1: .*out_of_seq_request \\+[1-9]"));
}

// Queue pairs are closed while their peers still send: this must not count as a fault of the
// fabric.
TEST_F(Guest, TheTesterAccusesNobodyWhereNothingIsWrong) {
  const CheckResult r = result("validate_clean");
  const auto report = json("validate_clean");
  EXPECT_EQ(report["transport"], "verbs");
  // If starved, the tester measured its own wait.
  for (const auto& finding : report["findings"])
    if (finding["id"] == "tester-starved") GTEST_SKIP() << "missing capability: free cores";
  EXPECT_THAT(r.code, AnyOf(0, 3, 4)) << r.text;
  for (const auto& finding : report["findings"])
    if (!finding.value("unknown", false) && finding["where"]["kind"] != "tester") {
      EXPECT_THAT(finding["severity"], AnyOf("info", "warn")) << finding;
    }
}

TEST_F(Guest, TheTesterNamesThePortThatLosesPackets) {
  const CheckResult r = result("validate_lossy");
  EXPECT_EQ(r.code, 2) << r.text;
  EXPECT_THAT(r.text, ContainsRegex("rail 1.*(retransmit|loses|repeat|timed out)"));
}

// The ranks connect although one port is down, and the other rail's rates are measured over verbs.
TEST_F(Guest, TheTesterNamesThePortThatIsDown) {
  const CheckResult r = result("validate_down");
  EXPECT_EQ(r.code, 2) << r.text;
  const auto report = json("validate_down");
  int named = 0;
  for (const auto& finding : report["findings"]) {
    const auto& where = finding["where"];
    named += finding["id"] == "link-state" && finding["severity"] == "critical" &&
             where.value("host", "") == "h1" && where.value("device", "") == "rxe_h1r0";
  }
  EXPECT_EQ(named, 1) << r.text;
  EXPECT_EQ(report["transport"], "verbs");
}

TEST_F(Guest, TheVerbsTransportPassesItsTests) {
  int programs = 0;
  const fs::path tests = fs::read_symlink("/proc/self/exe").parent_path();
  for (const auto& file : fs::directory_iterator(tests)) {
    const std::string name = file.path().filename();
    if (!std::regex_match(name, std::regex("verbs_.*_test"))) continue;
    if (read_file(file.path()).find("fake verbs: ") != std::string::npos) continue;
    ++programs;
    good(name);
  }
  EXPECT_GE(programs, 2) << "build all tests";
}

TEST_F(Guest, CollectivesUseAllRails) {
  for (const char* collective :
       {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"}) {
    good(collective);
    const auto report = json(collective);
    ASSERT_EQ(report["ports"].size(), 8U) << collective;
    for (const auto& port : report["ports"]) {
      const auto bytes =
          port["tx_bytes"].get<std::int64_t>() + port["rx_bytes"].get<std::int64_t>();
      if (port["host"] == "h0" || port["host"] == "h1") {
        EXPECT_GT(bytes, 512 << 10) << collective << port;
      } else {
        EXPECT_LT(bytes, 64 << 10) << collective << port << ": a host without ranks";
      }
    }
  }
}

TEST_F(Guest, UcxIsUsedWhereDevicesHaveNoReliableConnections) {
  EXPECT_THAT(good("no_rc"), HasSubstr("# ucx;"));
}

TEST_F(Guest, AHostWithoutLibibverbsIsNamedOnAllRanks) {
  EXPECT_THAT(good("no_library"),
              AllOf(HasSubstr("# tcp;"), ContainsRegex("rank 1 on host h1: .*libibverbs.*; tcp is "
                                                       "used between hosts. Install libibverbs1")));
  const CheckResult r = result("no_library_verbs");
  EXPECT_EQ(r.code, 4) << r.text;
  EXPECT_THAT(r.text, ContainsRegex("(transport verbs: rank 1 on host h1: [^\n]*libibverbs.*){2}"));
}

// WEFT_VERBS_QPS and the depth variables, as shown by the kernel during the job.
TEST_F(Guest, QueuesAreAsManyAndAsDeepAsTheVariablesSay) {
  struct Asked {
    const char* check;
    int qps, send_depth, slots, slot_bytes;
  };
  for (const Asked& a : {Asked{"few", 1, 64, 8, 2048}, Asked{"many", 4, 1000, 64, 4096}}) {
    good(a.check);
    const std::string held = left(std::string(a.check) + ".held");
    const auto lines = [&](const std::string& pattern) {
      const std::regex regex(pattern);
      return std::distance(std::sregex_iterator(held.begin(), held.end(), regex), {});
    };
    // rdma_rxe makes a completion queue one entry less than a power of two; the slots of either
    // direction are whole pages.
    const int per_pair = a.send_depth + a.slots + 16 + 4;
    const unsigned entries = std::bit_ceil(static_cast<unsigned>(a.qps * per_pair) + 1) - 1;
    const int slots = 2 * a.qps * a.slots * a.slot_bytes;
    for (const char* device : {"rxe_h0r0", "rxe_h0r1", "rxe_h1r0", "rxe_h1r1"}) {
      EXPECT_EQ(lines(fmt::format("link {}/1 .*type RC state RTS .*comm failover", device)), a.qps)
          << device << "\n"
          << held;
      EXPECT_EQ(lines(fmt::format("dev {} .*cqe {} .*comm failover", device, entries)), 1)
          << device << ": " << entries << " completions\n"
          << held;
      EXPECT_EQ(lines(fmt::format("dev {} .*mrlen {} .*comm failover", device, slots)), 1)
          << device << ": " << slots << " bytes of slots\n"
          << held;
    }
  }
}

}  // namespace
