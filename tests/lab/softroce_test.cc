// The Soft-RoCE lab: what `weft lab softroce` promises; and in one boot of it (softroce_checks)
// verbs devices, pairs in every mode, the verbs transport, and collectives on it.
// labels: softroce
// ctest: whole alone
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/process/shell.h"
#include "support/process/temporary_folder.h"
#include "tests/lab/softroce_boot.h"

namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;
using weft::Output;
using weft::read_file;
using weft::run;
using weft::testing::CheckResult;

const std::string kScript = WEFT_SOURCE_DIR "/tests/lab/softroce";
const std::string kSoftroce = std::string(WEFT_BINARY) + " lab softroce ";
// For what hangs; a check that hangs is ended by softroce_check, in proportion to the guest's speed.
constexpr int kChecksSeconds = 3000;

using Lab = weft::testing::Softroce;

// One boot for all of these.
class Guest : public weft::testing::SoftroceChecks {
 protected:
  static void SetUpTestSuite() {
    boot(fmt::format("--rails 2 --limit-s {}", kChecksSeconds), "softroce_checks", WEFT_SOURCE_DIR);
  }

  static nlohmann::json json(const std::string& check) {
    const std::string text = left(check + ".json");
    return text.empty() ? nlohmann::json() : nlohmann::json::parse(text);
  }
  static void expect_good(const std::string& check) {
    const CheckResult r = result(check);
    EXPECT_EQ(r.code, 0) << check << ":\n" << r.text;
  }
  // Both ends of a pair test that went well and found every byte right.
  static void expect_good_pair(const std::string& check) {
    const CheckResult r = result(check);
    EXPECT_EQ(r.code, 0) << check << ":\n" << r.text << left(check + "_server.txt");
    EXPECT_EQ(result(check + "_server").code, 0) << check;
    EXPECT_THAT(r.text, Not(HasSubstr("WRONG"))) << check;
  }
};

// ---- the lab itself ------------------------------------------------------------------------

TEST_F(Lab, OutputFilesAndExitCodesComeBack) {
  // A comma means something to the emulator.
  const fs::path out = fs::temp_directory_path() / ("softroce, out_" + std::to_string(getpid()));
  const Output result =
      run(kSoftroce + "--hosts 3 --rails 1 --rate 80mbit --limit-s 900 --out '" + out.string() +
          "' -- bash -c 'echo \"$WEFT_RANK of $WEFT_SIZE on $WEFT_RAILS at $WEFT_RAIL_GBPS\"; "
          "echo said >&2; hostname >/out/$WEFT_HOST_ID; exit $((WEFT_RANK * 3))'");
  EXPECT_EQ(result.exit_code, 6) << result.text;
  for (int h = 0; h < 3; ++h) {
    EXPECT_THAT(result.text, HasSubstr(fmt::format("{0} of 3 on rxe_h{0}r0 at 0.08\n", h)));
    EXPECT_EQ(read_file(out / fmt::format("h{}", h)), "softroce\n");
  }
  EXPECT_THAT(result.text, HasSubstr("said\n"));
  fs::remove_all(out);
}

TEST_F(Lab, AFolderThatCannotBeMadeIsNamed) {
  const Output result = run(kSoftroce + "--out /proc/nowhere -- true");
  EXPECT_EQ(result.exit_code, 4) << result.text;
  EXPECT_THAT(result.text, HasSubstr("--out /proc/nowhere"));
}

TEST_F(Lab, FourHostsUseAllTheirRails) {
  const weft::testing::TemporaryFolder out;
  const Output result = run(kSoftroce + "--hosts 4 --rails 2 --limit-s 900 --out " + out.path() +
                            " --json /out/ports.json -- weft perf all_reduce --transport verbs "
                            "-b 8 -e 512K -f 256 -w 1 -n 3 --timeout-ms 120000");
  ASSERT_EQ(result.exit_code, 0) << result.text;
  EXPECT_THAT(result.text, HasSubstr("all results exact"));
  const auto ports = nlohmann::json::parse(read_file(out / "ports.json"))["ports"];
  ASSERT_EQ(ports.size(), 8U);
  for (const auto& port : ports) EXPECT_GT(port["tx_bytes"].get<std::int64_t>(), 256 << 10) << port;
}

// Of the rails that the ranks have, not of all that the guest has.
TEST_F(Lab, RanksKnowTheRateOfTheirRails) {
  const Output result =
      run(kSoftroce + "--once --rails 2 --rate 80mbit,20mbit --limit-s 900 -- bash -c '" +
          kSoftroce + "--rails 1 -- bash -c \"printenv WEFT_RAILS WEFT_RAIL_GBPS\"; " + kSoftroce +
          "--hosts 1 -- printenv WEFT_RAIL_GBPS'");
  EXPECT_EQ(result.exit_code, 0) << result.text;
  EXPECT_THAT(result.text, AllOf(HasSubstr("rxe_h0r0\n0.08\n"), HasSubstr("\n0.05\n")));
}

TEST_F(Lab, ACommandThatHangsIsEnded) {
  const Output result = run(kSoftroce + "--hosts 1 --rails 1 --limit-s 15 -- sleep 1000");
  EXPECT_EQ(result.exit_code, 124) << result.text;
  EXPECT_THAT(result.text, HasSubstr("not done within 15 s"));
}

TEST_F(Lab, NoEmulatorOutlivesAKilledRun) {
  // The script's files are below TMPDIR, and the emulator's arguments name them.
  const fs::path folder = fs::temp_directory_path() / ("softroce_mark_" + std::to_string(getpid()));
  fs::create_directories(folder);
  const pid_t weft = fork();
  if (weft == 0) {
    setenv("TMPDIR", folder.c_str(), 1);
    execl(WEFT_BINARY, "weft", "lab", "softroce", "--hosts", "1", "--rails", "1", "--", "sleep",
          "1000", nullptr);
    _exit(127);
  }
  const auto eventually = [&](bool wanted) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    const std::string look = "pgrep -f '^[q]emu-system.*serial.*" + folder.string() + "'";
    while ((run(look).exit_code == 0) != wanted) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return true;
  };
  EXPECT_TRUE(eventually(true)) << "no emulator was started: this test shows nothing";
  kill(weft, SIGKILL);
  int status = 0;
  waitpid(weft, &status, 0);
  EXPECT_TRUE(eventually(false));
  fs::remove_all(folder);
}

TEST(LabArguments, AreChecked) {
  EXPECT_EQ(run(kSoftroce + "--hosts 0 -- true").exit_code, 4);
  EXPECT_EQ(run(kSoftroce + "-- ").exit_code, 4);
  const Output rate = run(kSoftroce + "--rate fast -- true");
  EXPECT_EQ(rate.exit_code, 4);
  EXPECT_THAT(rate.text, HasSubstr("--rate fast"));
  // Where there can be no lab, it says what is missing.
  const Output nowhere = run("WEFT_SOFTROCE_KERNEL=/nowhere " + kScript + " check");
  EXPECT_EQ(nowhere.exit_code, 3);
  EXPECT_THAT(nowhere.text, HasSubstr("missing capability"));
  const Output outside = run(WEFT_SOURCE_DIR "/tests/lab/softroce_guest status");
  EXPECT_EQ(outside.exit_code, 4);
  EXPECT_THAT(outside.text, HasSubstr("inside of the lab"));
}

// As far as an emulator that does nothing.
TEST_F(Lab, AKernelsFolderMayHaveABlankInItsName) {
  const weft::testing::TemporaryFolder folder;
  const std::string cache = "${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}/weft/softroce/kernel";
  const Output o = run(fmt::format(
      "cd {} && mkdir bin tmp 'a b' && ln -s \"${{WEFT_SOFTROCE_KERNEL:-{}}}\" 'a b/kernel' && "
      "ln -s /bin/true bin/qemu-system-x86_64 && PATH=$PWD/bin:$PATH TMPDIR=$PWD/tmp "
      "XDG_CACHE_HOME=$PWD/cache WEFT_SOFTROCE_KERNEL=\"$PWD/a b/kernel\" {} run -- true; "
      "echo code $?; ls tmp",
      folder.path(), cache, kScript));
  EXPECT_THAT(o.text, AllOf(HasSubstr("the guest ended"), Not(HasSubstr("No such file"))));
  EXPECT_TRUE(o.text.ends_with("code 4\n")) << o.text;
}

// ---- in the guest --------------------------------------------------------------------------

TEST_F(Guest, HasAnActiveDeviceForEachPort) {
  const CheckResult r = result("devices");
  for (const char* name : {"rxe_h0r0", "rxe_h0r1", "rxe_h1r0", "rxe_h1r1"})
    EXPECT_THAT(r.text, ContainsRegex(std::string(name) + "/1 state ACTIVE"));
}

// The switch sends nothing back to where it came from: datagrams between ranks of one host, by
// which rails stand in for each other, would be lost there.
TEST_F(Guest, AHostReachesItselfAndOthersByTheSwitch) {
  EXPECT_THAT(result("to_itself").text, HasSubstr("local 10.0.1.1 "));
  EXPECT_THAT(result("to_another").text, AllOf(HasSubstr("dev h0r1"), Not(HasSubstr("local "))));
}

TEST_F(Guest, RanksAreToldWhoTheyAre) {
  std::vector<std::string> lines;
  std::stringstream stream(result("environment").text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  EXPECT_THAT(lines,
              UnorderedElementsAre("0 4 0 h0 rxe_h0r0,rxe_h0r1 ", "1 4 1 h0 rxe_h0r0,rxe_h0r1 ",
                                   "2 4 0 h1 rxe_h1r0,rxe_h1r1 ", "3 4 1 h1 rxe_h1r0,rxe_h1r1 "));
  EXPECT_EQ(result("worst_code").code, 7);
  const CheckResult more = result("too_many_hosts");
  EXPECT_EQ(more.code, 4);
  EXPECT_THAT(more.text, HasSubstr("started with 2 hosts"));
  const CheckResult mistyped = result("mistyped");
  EXPECT_EQ(mistyped.code, 0) << "a loss that cannot be stays in the way of a rate: "
                              << mistyped.text;
}

TEST_F(Guest, PairsInEveryModeCarryEveryByte) {
  for (const char* op : {"write", "send", "read"}) {
    for (const char* test : {"bw_", "lat_"}) {
      const std::string name = std::string(test) + op;
      expect_good_pair(name);
      const auto report = json(name);
      ASSERT_TRUE(report.is_object()) << name;
      EXPECT_EQ(report["schema"], "weft.pair/1");
      EXPECT_THAT(report["pairs"][0]["path"].get<std::string>(), HasSubstr("RoCE v2 IPv4"));
      const auto& sizes = report["pairs"][0]["sizes"];
      ASSERT_EQ(sizes.size(), 4U) << name;
      for (const auto& size : sizes) {
        const bool bandwidth = name.starts_with("bw");
        EXPECT_EQ(size["at_client"]["messages"], bandwidth ? 100 : 50) << name << size;
        EXPECT_GT(size[bandwidth ? "average_MBps" : "typical_us"].get<double>(), 0) << name;
      }
    }
  }
}

TEST_F(Guest, QueuePairsListsBothWaysAndEvents) {
  expect_good_pair("bw_queues");
  expect_good_pair("bw_events");
  const auto queues = json("bw_queues")["pairs"][0]["sizes"][0];
  EXPECT_EQ(queues["at_client"]["messages"], 200);
  EXPECT_EQ(queues["at_server"]["messages"], 200);
}

TEST_F(Guest, WhatIsUsedIsToldAndNotWhatIsAskedFor) {
  expect_good_pair("bw_deep");
  EXPECT_EQ(json("bw_deep")["pairs"][0]["tx_depth"], 1000);
  EXPECT_THAT(result("bw_deep").text, Not(HasSubstr("under way")));
  expect_good_pair("bw_deeper");
  const int depth = json("bw_deeper")["pairs"][0]["tx_depth"];
  EXPECT_LT(depth, 32768) << "more than rdma_rxe has";
  EXPECT_THAT(result("bw_deeper").text, HasSubstr(fmt::format("-t 32768: {} under way", depth)));
  expect_good_pair("lat_moderated");
  const auto moderated = json("lat_moderated")["pairs"][0];
  EXPECT_EQ(moderated["inline_bytes"], 0);
  EXPECT_EQ(moderated["sizes"][0]["at_client"]["messages_per_completion"], 5);
  const auto usual = json("lat_write")["pairs"][0];
  EXPECT_EQ(usual["inline_bytes"], 220);
  EXPECT_EQ(usual["sizes"][0]["at_client"]["messages_per_completion"], 32);
}

// Of the fake GPU, whose memory no kernel registers.
TEST_F(Guest, MemoryOfAGpuThatTheDeviceDoesNotReachIsNamedWithARemedy) {
  const CheckResult r = result("bw_cuda");
  EXPECT_NE(r.code, 0);
  EXPECT_THAT(r.text, AllOf(HasSubstr("--use_cuda 0: "), HasSubstr("nvidia_peermem"),
                            HasSubstr("open kernel modules")));
}

TEST_F(Guest, WrongDataIsSeenInEveryMode) {
  for (const char* op : {"write", "send", "read"})
    for (const char* test : {"bw_", "lat_"}) {
      const std::string name = std::string("wrong_") + test + op;
      const CheckResult r = result(name);
      EXPECT_EQ(r.code, 2) << name << r.text;
      EXPECT_EQ(result(name + "_server").code, 2) << name;
      EXPECT_THAT(r.text, ContainsRegex("# 4096 bytes, rank [01] \\([a-z]+\\): WRONG DATA: .*byte "
                                        "2047 is 0x.., expected 0x.."))
          << name;
    }
}

TEST_F(Guest, ATestMayLastSeconds) {
  expect_good_pair("bw_duration");
  expect_good_pair("lat_duration");
  EXPECT_THAT(result("bw_duration").text, AllOf(HasSubstr("Gb/sec"), HasSubstr("MTU 1024")));
  const auto size = json("bw_duration")["pairs"][0]["sizes"][0]["at_client"];
  EXPECT_GE(size["seconds"].get<double>(), 0.9);
  EXPECT_LE(size["worst_100ms"].get<double>(), size["average"].get<double>());
  EXPECT_GE(size["best_100ms"].get<double>(), size["average"].get<double>());
}

TEST_F(Guest, LossShowsInTheCounters) {
  expect_good_pair("bw_loss");
  // 2 % of 1000 packets: none lost is as likely as 1 in 10^8.
  EXPECT_THAT(result("bw_loss").text, ContainsRegex("server: rail 0 host server \\(rxe_h1r0\\): "
                                                    ".*out_of_seq_request \\+[0-9]"));
  const auto counters = json("bw_loss")["pairs"][0]["sizes"][0]["at_server"]["counters"];
  EXPECT_GT(counters["out_of_seq_request"].get<int>(), 0);
}

TEST_F(Guest, APulledCableIsNamed) {
  const CheckResult r = result("bw_cable");
  EXPECT_EQ(r.code, 2);
  EXPECT_THAT(r.text, AllOf(HasSubstr("status 12"), HasSubstr("the peer stopped acknowledging"),
                            HasSubstr("rxe_h0r0")));
  EXPECT_THAT(r.text, ContainsRegex("status 12.*; rail 0 host client \\(rxe_h0r0\\): "
                                    ".*(retry|timeout|retr)[a-z_]* \\+[1-9]"))
      << "what the port counted meanwhile";
  EXPECT_EQ(result("bw_cable_server").code, 2);
}

TEST_F(Guest, LossShowsInWhatCollectivesSay) {
  expect_good("counters");
  EXPECT_THAT(result("counters").text,
              ContainsRegex("took [0-9]+ ms: .*rail 1 host h1: .*out_of_seq_request \\+[1-9]"));
}

// Ends of queue pairs are taken down while their peers still send: that is no fault of the fabric.
TEST_F(Guest, TheTesterAccusesNobodyWhereNothingIsWrong) {
  const CheckResult r = result("validate_clean");
  EXPECT_THAT(r.code, AnyOf(0, 3, 4)) << r.text;
  const auto report = json("validate_clean");
  for (const auto& finding : report["findings"])
    if (!finding.value("unknown", false) && finding["where"]["kind"] != "tester") {
      EXPECT_THAT(finding["severity"], AnyOf("info", "warn")) << finding;
    }
  EXPECT_EQ(report["transport"], "verbs");
}

TEST_F(Guest, TheTesterNamesThePortThatLosesPackets) {
  const CheckResult r = result("validate_lossy");
  EXPECT_EQ(r.code, 2) << r.text;
  EXPECT_THAT(r.text, ContainsRegex("rail 1.*(retransmit|loses|repeat|timed out)"));
}

// The ranks meet although one port is down, and the other rail's rates are measured over verbs.
TEST_F(Guest, TheTesterNamesThePortThatIsDown) {
  const CheckResult r = result("validate_down");
  EXPECT_EQ(r.code, 2) << r.text;
  const auto report = json("validate_down");
  int named = 0;
  for (const auto& finding : report["findings"]) {
    const auto& where = finding["where"];
    named += finding["id"] == "link-state" && finding["severity"] == "fatal" &&
             where.value("host", "") == "h1" && where.value("rail", -1) == 0;
  }
  EXPECT_EQ(named, 1) << r.text;
  EXPECT_EQ(report["transport"], "verbs");
}

TEST_F(Guest, ManyPairsAtOnce) {
  expect_good("many_pairs");
  EXPECT_THAT(result("many_pairs").text,
              AllOf(HasSubstr(" 2->0 "), HasSubstr(" 3->1 "), ContainsRegex("2 pairs: .* median")));
  expect_good("many_latencies");
  EXPECT_THAT(result("many_latencies").text, AllOf(HasSubstr(" 0->1 "), HasSubstr(" 3->0 ")));
}

TEST_F(Guest, TheVerbsTransportPassesItsTests) {
  int programs = 0;
  const fs::path tests = fs::read_symlink("/proc/self/exe").parent_path();
  for (const auto& file : fs::directory_iterator(tests)) {
    const std::string name = file.path().filename();
    if (!std::regex_match(name, std::regex("verbs_.*_test"))) continue;
    if (read_file(file.path()).find("fake verbs: ") != std::string::npos) continue;
    ++programs;
    expect_good(name);
  }
  EXPECT_GE(programs, 2) << "build all tests";
}

TEST_F(Guest, CollectivesUseAllRails) {
  for (const char* collective :
       {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"}) {
    expect_good(collective);
    const auto report = json(collective);
    ASSERT_EQ(report["ports"].size(), 4U) << collective;
    for (const auto& port : report["ports"]) {
      const auto bytes =
          port["tx_bytes"].get<std::int64_t>() + port["rx_bytes"].get<std::int64_t>();
      EXPECT_GT(bytes, 512 << 10) << collective << port;
    }
  }
}

// WEFT_VERBS_QPS and the variables of depths, by what the kernel says while the job ran.
TEST_F(Guest, QueuesAreAsManyAndAsDeepAsTheVariablesSay) {
  struct Asked {
    const char* check;
    int qps, send_depth, slots, slot_bytes;
  };
  for (const Asked& a : {Asked{"few", 1, 64, 8, 2048}, Asked{"many", 4, 1000, 64, 4096}}) {
    expect_good(a.check);
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
      EXPECT_EQ(lines(fmt::format("link {}/1 .*type RC state RTS .*comm weft", device)), a.qps)
          << device << "\n"
          << held;
      EXPECT_EQ(lines(fmt::format("dev {} .*cqe {} .*comm weft", device, entries)), 1)
          << device << ": " << entries << " completions\n"
          << held;
      EXPECT_EQ(lines(fmt::format("dev {} .*mrlen {} .*comm weft", device, slots)), 1)
          << device << ": " << slots << " bytes of slots\n"
          << held;
    }
  }
}

TEST_F(Guest, TheComparisonWithPerftestRuns) {
  const CheckResult r = result("ratios");
  if (r.code == 3) GTEST_SKIP() << r.text;
  EXPECT_EQ(r.code, 0) << r.text;
  const auto rows = json("ratios")["rows"];
  ASSERT_EQ(rows.size(), 2U);
  for (const auto& row : rows) EXPECT_GT(row["ratio"].get<double>(), 0) << row;
}

}  // namespace
