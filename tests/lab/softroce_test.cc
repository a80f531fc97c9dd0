// The Soft-RoCE lab. Mock emulators test the promises of `weft lab softroce`; one boot runs the
// checks in the guest (softroce_checks), which all sources of this program use: softroce_pairs.cc,
// softroce_collectives.cc, softroce_failover.cc, and the pages' commands.
// labels: softroce
// ctest: whole alone
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/process/read_file.h"
#include "support/process/shell.h"
#include "support/process/temporary_folder.h"
#include "tests/docs/pages.h"
#include "tests/lab/softroce_boot.h"

namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;
using weft::Output;
using weft::read_file;
using weft::run;
using weft::testing::Block;
using weft::testing::CheckResult;
using weft::testing::Guest;

const std::string kScript = WEFT_SOURCE_DIR "/tests/lab/softroce";
const std::string kSoftroce = std::string(WEFT_BINARY) + " lab softroce ";

using Lab = weft::testing::Softroce;

// A mock emulator in its own folder.
class StandIn {
 public:
  explicit StandIn(const std::string& does) {
    fs::create_directory(path("bin"));
    fs::create_directory(path("tmp"));
    const std::string file = path("bin/qemu-system-x86_64");
    std::ofstream(file) << "#!/bin/bash\ncd " << folder_.path() << "\n" << does << "\n";
    fs::permissions(file, fs::perms::owner_all);
  }
  std::string path(const std::string& name) const { return folder_ / name; }
  // Prefix of a command.
  std::string environment() const {
    return fmt::format("PATH={0}/bin:$PATH TMPDIR={0}/tmp ", folder_.path());
  }

 private:
  weft::testing::TemporaryFolder folder_;
};

TEST_F(Lab, AFolderThatCannotBeMadeIsNamed) {
  const Output result = run(kSoftroce + "--out /proc/nowhere -- true");
  EXPECT_EQ(result.exit_code, 4) << result.text;
  EXPECT_THAT(result.text, HasSubstr("--out /proc/nowhere"));
}

// The options of a boot, recorded by a mock emulator.
TEST_F(Lab, TheGuestIsToldWhatTheCommandLineSays) {
  const StandIn emulator(
      "for w; do case $w in local,id=job,path=*) job=${w#*path=} && "
      "cat \"${job%%,security*}\"/{facts,command} >told;; esac; done");
  const Output o =
      run(emulator.environment() + "WEFT_TOLD=1 " + kSoftroce +
          "--hosts 3 --ppn 2 --rails 1 --rate 80mbit --mtu 1500 --grace-ms 5 --summary "
          "--json /out/x.json -- weft perf 'a  b'");
  EXPECT_EQ(o.exit_code, 4) << o.text;
  EXPECT_THAT(o.text, HasSubstr("the guest ended"));
  const std::string told = read_file(emulator.path("told"));
  EXPECT_THAT(told, HasSubstr("hosts=3 rails=1 rate=80mbit mtu=1500\n"));
  EXPECT_THAT(told, HasSubstr("export WEFT_TOLD=1\n"));
  EXPECT_THAT(told,
              HasSubstr(" lab softroce --hosts 3 --rails 1 --ppn 2 --grace-ms 5 --summary --json "
                        "/out/x.json -- weft perf a\\ \\ b )\n"));
}

TEST_F(Lab, ACommandThatHangsIsEnded) {
  const StandIn emulator("exec sleep 1000");
  const Output result = run(emulator.environment() + kSoftroce + "--limit-s 2 -- sleep 1000");
  EXPECT_EQ(result.exit_code, 124) << result.text;
  EXPECT_THAT(result.text, HasSubstr("not done within 2 s"));
}

TEST_F(Lab, NoEmulatorOutlivesAKilledRun) {
  const StandIn emulator("echo $$ >pid.new && mv pid.new pid && exec sleep 1000");
  const pid_t weft = fork();
  if (weft == 0) {
    execl("/bin/sh", "sh", "-c",
          ("exec env " + emulator.environment() + kSoftroce + "-- sleep 1000").c_str(), nullptr);
    _exit(127);
  }
  const auto eventually = [](const std::string& look) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (run(look).exit_code != 0) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return true;
  };
  ASSERT_TRUE(eventually("test -e " + emulator.path("pid"))) << "no emulator was started";
  const std::string pid = read_file(emulator.path("pid"));
  EXPECT_EQ(run("kill -0 " + pid).exit_code, 0) << "it has ended: this test shows nothing";
  kill(weft, SIGKILL);
  int status = 0;
  waitpid(weft, &status, 0);
  EXPECT_TRUE(eventually("! kill -0 " + pid));
}

TEST(LabArguments, AreChecked) {
  EXPECT_EQ(run(kSoftroce + "--hosts 0 -- true").exit_code, 4);
  EXPECT_EQ(run(kSoftroce + "-- ").exit_code, 4);
  const Output rate = run(kSoftroce + "--rate fast -- true");
  EXPECT_EQ(rate.exit_code, 4);
  EXPECT_THAT(rate.text, HasSubstr("--rate fast"));
  // Without a lab, it names the missing capability.
  const Output nowhere = run("WEFT_SOFTROCE_KERNEL=/nowhere " + kScript + " check");
  EXPECT_EQ(nowhere.exit_code, 3);
  EXPECT_THAT(nowhere.text, HasSubstr("missing capability"));
  const Output outside = run(WEFT_SOURCE_DIR "/tests/lab/softroce_guest status");
  EXPECT_EQ(outside.exit_code, 4);
  EXPECT_THAT(outside.text, HasSubstr("inside of the lab"));
}

TEST_F(Lab, AKernelsFolderMayHaveABlankInItsName) {
  const StandIn emulator("true");
  const Output o =
      run("mkdir -p '" + emulator.path("a b") +
          "' && ln -s \"${WEFT_SOFTROCE_KERNEL:-${XDG_CACHE_HOME:-${HOME:-/var/tmp}/.cache}"
          "/weft/softroce/kernel}\" '" +
          emulator.path("a b/kernel") + "' && " + emulator.environment() +
          "WEFT_SOFTROCE_KERNEL='" + emulator.path("a b/kernel") + "' " + kScript +
          " run -- true; echo code $?; ls " + emulator.path("tmp"));
  EXPECT_THAT(o.text, AllOf(HasSubstr("the guest ended"), Not(HasSubstr("No such file"))));
  EXPECT_TRUE(o.text.ends_with("code 4\n")) << o.text;
}

// ---- in the guest --------------------------------------------------------------------------

TEST_F(Guest, OutputFilesAndExitCodesComeBack) {
  const Output& log = weft::testing::softroce_log();
  EXPECT_EQ(log.exit_code, 6) << log.text;
  EXPECT_THAT(log.text, HasSubstr("said to standard error\n"));
  EXPECT_EQ(left("h2"), "softroce\n");
}

TEST_F(Guest, FourHostsUseAllTheirRails) {
  EXPECT_THAT(good("four_hosts"), HasSubstr("all results exact"));
  const auto ports = json("four_hosts")["ports"];
  ASSERT_EQ(ports.size(), 8U);
  for (const auto& port : ports) EXPECT_GT(port["tx_bytes"].get<std::int64_t>(), 256 << 10) << port;
}

// The rates of the ranks' rails, not of all devices in the guest.
TEST_F(Guest, RanksKnowTheRateOfTheirRails) {
  EXPECT_EQ(good("rate_of_one"), "rxe_h0r0\n0.08\n");
  EXPECT_EQ(good("rate_of_both"), "0.05\n");
}

TEST_F(Guest, HasAnActiveDeviceForEachPort) {
  const CheckResult r = result("devices");
  for (const char* name : {"rxe_h0r0", "rxe_h0r1", "rxe_h1r0", "rxe_h1r1"})
    EXPECT_THAT(r.text, ContainsRegex(std::string(name) + "/1 state ACTIVE"));
}

// The switch does not send packets back to their port: datagrams between ranks of one host, which
// failover needs, would be lost there.
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
  EXPECT_THAT(more.text, HasSubstr("started with 4 hosts"));
  const CheckResult mistyped = result("mistyped");
  EXPECT_EQ(mistyped.code, 0) << "a loss that cannot be stays in the way of a rate: "
                              << mistyped.text;
}

// Packets that a queue of the guest has sent or dropped; -1: there is no such queue.
struct QueueCounts {
  int sent = -1, lost = -1;
};
QueueCounts counts_of(const std::string& text, const std::string& queue) {
  std::smatch match;
  const std::regex line("qdisc " + queue + R"([^\n]*\n Sent \d+ bytes (\d+) pkt \(dropped (\d+),)");
  if (!std::regex_search(text, match, line)) return {};
  return {std::stoi(match[1]), std::stoi(match[2])};
}

// 32 queue pairs have as many source ports; one link of four drops packets.
TEST_F(Guest, FaultsOfSomeFlowsSpareTheOthers) {
  expect_good_pair("bw_partial");
  const std::string text = result("queues").text;
  const QueueCounts others = counts_of(text, "bfifo 31: dev h0r0");
  const QueueCounts member = counts_of(text, "netem 22: dev h0r0");
  EXPECT_GT(member.lost, 0) << text;
  EXPECT_GT(member.sent, 0) << text;
  EXPECT_GT(others.sent, 0) << text;
  EXPECT_EQ(others.lost, 0) << text;
  EXPECT_THAT(text, ContainsRegex("netem 22: dev h0r1 [^\n]*loss gemodel"));
}

TEST_F(Guest, FaultsComeAndGo) { EXPECT_EQ(left("spells"), "rate 4Mbit\ncorrupt 1%\nloss 100%\n"); }

// Commands of the pages, each as if in its own guest.
class Page : public Guest, public ::testing::WithParamInterface<Block> {};

TEST_P(Page, BlockIsTrue) {
  const auto [text, code] = result(name_of(GetParam()));
  weft::testing::expect_true(GetParam(), {text, code});
}

std::vector<Block> blocks_of_softroce() {
  std::vector<Block> blocks = weft::testing::all_blocks();
  std::erase_if(blocks, [](const Block& b) { return !b.runs() || b.mark("needs") != "softroce"; });
  return blocks;
}
INSTANTIATE_TEST_SUITE_P(Docs, Page, ::testing::ValuesIn(blocks_of_softroce()),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace

// CTest names this file: its entry runs the whole program, since all share the boot.
int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
