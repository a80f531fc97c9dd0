// The lab and `weft lab netlab`: nothing is left behind, exit codes are passed on, counters count
// all traffic, and the rails of a collective carry their shares. Needs root.
// labels: lab
// ctest: whole alone
#include <arpa/inet.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "support/process/shell.h"
#include "tests/lab/shared_lab.h"

namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;
using weft::Output;
using weft::run;

constexpr std::chrono::seconds kDeadline{30};
const std::string kScript = WEFT_SOURCE_DIR "/tests/lab/netlab";
const std::string kNetlab = std::string(WEFT_BINARY) + " lab netlab ";

bool eventually(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

// Leftovers of a lab, as text.
std::string traces_of(const std::string& lab) {
  std::string traces = run("ip netns list | grep -w 'weft-" + lab + "-[a-z0-9]*'").text;
  if (fs::exists("/run/weft-lab/" + lab)) traces += "/run/weft-lab/" + lab + "\n";
  traces += run("ls -d /etc/netns/weft-" + lab + "-* 2>/dev/null").text;
  traces += run("grep -F /run/weft-lab/" + lab + "/ /proc/mounts").text;
  return traces;
}

bool alive(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(stat, text)) return false;
  return text.substr(text.rfind(')') + 2, 1) != "Z";  // not even a zombie
}

class Netlab : public weft::testing::LabTest {
 protected:
  void SetUp() override {
    LabTest::SetUp();
    if (IsSkipped()) return;
    folder_ = fs::temp_directory_path() / ("netlab_test_" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override {
    for (const std::string& lab : labs_) {
      if (!traces_of(lab).empty()) run(kScript + " down --lab " + lab);
    }
    if (!folder_.empty()) fs::remove_all(folder_);
    LabTest::TearDown();
  }
  // The shared lab of that shape, with ranks in it.
  static std::string use(int hosts, int rails, const std::string& rate = "400mbit") {
    return kNetlab + "--use " + lab(hosts, rails, rate) + " ";
  }
  // Concurrent tests use different lab names.
  std::string lab_name() {
    labs_.push_back(fmt::format("t{}_{}", getpid(), labs_.size()));
    return labs_.back();
  }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  nlohmann::json json(const std::string& name) const {
    std::ifstream stream(file(name));
    return nlohmann::json::parse(stream);
  }
  // A rank that writes its pid and then sleeps for longer than any test.
  std::string sleeper() const {
    return "bash -c 'sleep 1000 & echo $! >" + file("pid") + ".new; mv " + file("pid") + ".new " +
           file("pid") + "; wait'";
  }
  pid_t noted_pid() const {
    EXPECT_TRUE(eventually([&] { return fs::exists(file("pid")); })) << "the rank did not start";
    std::ifstream stream(file("pid"));
    pid_t pid = 0;
    stream >> pid;
    return pid;
  }
  // Starts `weft lab netlab` without a shell, so that a signal reaches it.
  pid_t start(const std::string& arguments) const {
    const pid_t pid = fork();
    if (pid == 0) {
      const std::string command = "exec " + kNetlab + arguments;
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    return pid;
  }
  static int wait_for(pid_t pid) {
    int status = 0;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  // A command of this program, see main(): rank 1 sends bytes to rank 0 on a rail.
  static std::string transfer(int rail, std::int64_t bytes) {
    return fs::read_symlink("/proc/self/exe").string() + " --transfer " + std::to_string(rail) +
           " " + std::to_string(bytes);
  }

 private:
  fs::path folder_;
  std::vector<std::string> labs_;
};

TEST_F(Netlab, UpAndDownLeavesNothingBehind) {
  const std::string lab = lab_name();
  const Output up = run(kScript + " up --lab " + lab + " --hosts 3 --rails 2 --rate 400mbit");
  ASSERT_EQ(up.exit_code, 0) << up.text;
  EXPECT_THAT(run(kScript + " status --lab " + lab).text,
              HasSubstr("hosts=3 rails=2 rates=400mbit,400mbit"));
  EXPECT_EQ(run(kScript + " exec --lab " + lab + " h2 hostname").text, "h2\n");
  EXPECT_EQ(run("ip netns list | grep -cw 'weft-" + lab + "-[a-z0-9]*'").text, "4\n");
  // A background process ends with its host.
  run(kScript + " exec --lab " + lab + " h1 setsid " + sleeper() + " >/dev/null 2>&1 &");
  const pid_t pid = noted_pid();
  ASSERT_TRUE(alive(pid));

  const Output down = run(kScript + " down --lab " + lab);
  EXPECT_EQ(down.exit_code, 0) << down.text;
  EXPECT_THAT(traces_of(lab), IsEmpty());
  EXPECT_TRUE(eventually([&] { return !alive(pid); }));
}

TEST_F(Netlab, ALabThatCannotBeMadeLeavesNothingBehind) {
  const std::string lab = lab_name();
  const Output up = run(kScript + " up --lab " + lab + " --hosts 2 --rate 12furlongs");
  EXPECT_EQ(up.exit_code, 4);
  EXPECT_THAT(up.text, HasSubstr("12furlongs"));
  EXPECT_THAT(traces_of(lab), IsEmpty());
}

TEST_F(Netlab, RefusesWhatMakesNoSense) {
  EXPECT_EQ(run(kNetlab + "--hosts 0 -- true").exit_code, 4);
  EXPECT_EQ(run(kNetlab + "--rails 2 --rate 1gbit,2gbit,3gbit -- true").exit_code, 4);
  EXPECT_EQ(run(kNetlab + "--use nosuchlab -- true").exit_code, 4);
  EXPECT_EQ(run(kNetlab + "--json /no/such/folder/x.json -- true").exit_code, 4);
  const Output named = run(kNetlab + "--name My-lab -- true");
  EXPECT_EQ(named.exit_code, 4);
  EXPECT_THAT(named.text, HasSubstr("a lab called 'My-lab': use letters a-z"));
  EXPECT_THAT(named.text, Not(HasSubstr("--lab"))) << "an option that it does not have";
  const std::string digits(50000, '4');
  for (const std::string& bad : {std::string("fast"), std::string("400"), std::string("-1mbit"),
                                 std::string("0mbit"), std::string("infbit"), digits + "mbit"}) {
    const Output rate = run(kNetlab + "--rate " + bad + " -- true");
    EXPECT_EQ(rate.exit_code, 4) << bad.substr(0, 20);
    EXPECT_THAT(rate.text, HasSubstr("--rate " + bad + ": write it like"));
  }
}

TEST_F(Netlab, RanksAreToldWhoTheyAre) {
  const Output result =
      run(use(2, 2, "400mbit,200mbit") +
          "--ppn 2 -- bash -c 'echo \"$WEFT_RANK "
          "$WEFT_SIZE $WEFT_LOCAL_RANK $WEFT_ROOT $WEFT_HOST_ID $WEFT_RAILS $WEFT_RAIL_GBPS "
          "${#WEFT_SECRET} $(hostname)\"'");
  EXPECT_EQ(result.exit_code, 0);
  std::vector<std::string> lines;
  std::stringstream stream(result.text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  // With unequal rails, the rate is the mean.
  EXPECT_THAT(lines, UnorderedElementsAre("0 4 0 10.0.0.1:7100 h1 rail0,rail1 0.3 32 h1",
                                          "1 4 1 10.0.0.1:7100 h1 rail0,rail1 0.3 32 h1",
                                          "2 4 0 10.0.0.1:7100 h2 rail0,rail1 0.3 32 h2",
                                          "3 4 1 10.0.0.1:7100 h2 rail0,rail1 0.3 32 h2"));
}

TEST_F(Netlab, TheWorstExitCodePassesThrough) {
  const std::string hosts = use(3, 2) + "-- ";
  EXPECT_EQ(run(hosts + "true").exit_code, 0);
  EXPECT_EQ(run(hosts + "bash -c 'exit $((WEFT_RANK == 1 ? 7 : WEFT_RANK))'").exit_code, 7);
  EXPECT_EQ(run(hosts + "bash -c '[ $WEFT_RANK = 2 ] || exit 0; kill -9 $$'").exit_code, 128 + 9);
  EXPECT_EQ(run(hosts + "/no/such/command").exit_code, 127);
  EXPECT_EQ(run(hosts + "weft --help").exit_code, 0);
}

TEST_F(Netlab, RanksThatOutliveAFailureAreEnded) {
  const std::string lab = lab_name();
  const Output result =
      run(kNetlab + "--name " + lab +
          " --grace-ms 0 -- bash -c '[ $WEFT_RANK = 0 ] && exit 3; exec sleep 1000'");
  EXPECT_EQ(result.exit_code, 3) << result.text;
  EXPECT_THAT(result.text, HasSubstr("ending them"));
  EXPECT_THAT(traces_of(lab), IsEmpty());
}

TEST_F(Netlab, AStoppedRunTidiesUp) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const std::string lab = lab_name();
    const pid_t weft = start("--name " + lab + " --hosts 1 -- " + sleeper());
    const pid_t rank = noted_pid();
    fs::remove(file("pid"));
    kill(weft, signal);
    EXPECT_EQ(wait_for(weft), 128 + signal);
    EXPECT_THAT(traces_of(lab), IsEmpty());
    EXPECT_TRUE(eventually([&] { return !alive(rank); }));
  }
}

TEST_F(Netlab, TheNextRunCleansUpAfterAKilledOne) {
  const std::string lab = lab_name();
  const pid_t weft = start("--name " + lab + " --hosts 1 -- " + sleeper());
  const pid_t rank = noted_pid();
  kill(weft, SIGKILL);
  EXPECT_EQ(wait_for(weft), 128 + SIGKILL);
  EXPECT_FALSE(traces_of(lab).empty()) << "nothing to clean: this test shows nothing";

  const Output next = run(kNetlab + "--name " + lab_name() + " -- true");
  EXPECT_EQ(next.exit_code, 0) << next.text;
  EXPECT_THAT(traces_of(lab), IsEmpty());
  EXPECT_TRUE(eventually([&] { return !alive(rank); }));
}

TEST_F(Netlab, AKeptLabStaysAndCanBeUsed) {
  const std::string lab = lab_name();
  ASSERT_EQ(run(kNetlab + "--name " + lab + " --hosts 3 --keep -- true").exit_code, 0);
  run(kScript + " clean");
  EXPECT_FALSE(traces_of(lab).empty());
  EXPECT_EQ(run(kNetlab + "--use " + lab + " -- bash -c 'exit $WEFT_SIZE'").exit_code, 3);
  EXPECT_FALSE(traces_of(lab).empty());
  EXPECT_EQ(run(kScript + " down --lab " + lab).exit_code, 0);
  EXPECT_THAT(traces_of(lab), IsEmpty());
}

TEST_F(Netlab, CountersCountWhatWasSent) {
  constexpr std::int64_t kBytes = 3'000'000;
  const Output result =
      run(use(3, 2) + "--summary --json " + file("counters") + " -- " + transfer(1, kBytes));
  ASSERT_EQ(result.exit_code, 0) << result.text;
  EXPECT_THAT(result.text, ContainsRegex("h2 +rail1 +3\\."));
  const nlohmann::json report = json("counters");
  EXPECT_EQ(report["schema"], "weft.lab/1");
  ASSERT_EQ(report["ports"].size(), 6U);
  for (const auto& port : report["ports"]) {
    const auto tx = port["tx_bytes"].get<std::int64_t>();
    const auto rx = port["rx_bytes"].get<std::int64_t>();
    const bool sender = port["host"] == "h2" && port["rail"] == "rail1";
    const bool receiver = port["host"] == "h1" && port["rail"] == "rail1";
    // Headers and acknowledgements are at most 5 % of it; other ports have at most some ARP
    // requests.
    EXPECT_GE(tx, sender ? kBytes : 0) << port;
    EXPECT_LE(tx, sender ? kBytes * 105 / 100 : receiver ? kBytes * 5 / 100 : 2000) << port;
    EXPECT_GE(rx, receiver ? kBytes : 0) << port;
    EXPECT_LE(rx, receiver ? kBytes * 105 / 100 : sender ? kBytes * 5 / 100 : 2000) << port;
  }
  EXPECT_GE(report["max_host_tx_bytes"].get<std::int64_t>(), kBytes);
}

TEST_F(Netlab, TheReportTakesACommandOfAnyBytes) {
  const Output result =
      run(use(3, 2) + "--json " + file("counters") + " -- true \"$(printf 'caf\\351')\"");
  EXPECT_EQ(result.exit_code, 0) << result.text;
  EXPECT_EQ(json("counters")["command"][1], "caf\uFFFD");
}

TEST_F(Netlab, TwoLabsAtOnceDoNotMeet) {
  const std::vector<std::int64_t> sizes = {1'000'000, 2'000'000};
  std::vector<pid_t> runs;
  std::vector<std::string> labs;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    labs.push_back(lab_name());
    runs.push_back(start("--name " + labs[i] + " --json " + file(std::to_string(i)) + " -- " +
                         transfer(0, sizes[i])));
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(wait_for(runs[i]), 0);
    // The same addresses in both: each must have received its own bytes.
    const auto sent = json(std::to_string(i))["max_host_tx_bytes"].get<std::int64_t>();
    EXPECT_GE(sent, sizes[i]);
    EXPECT_LE(sent, sizes[i] * 105 / 100);
    EXPECT_THAT(traces_of(labs[i]), IsEmpty());
  }
}

// Bytes sent by an all-reduce over 4 hosts x 2 ranks x 2 rails, by the ports' own counters. Without
// failover, which would move messages between rails by measured rates: this tests schedules.
class NetlabCollective : public Netlab {
 protected:
  void measure(const std::string& perf_options) {
    constexpr std::int64_t kMessage = 16 << 20;
    constexpr int kOperations = 1 + 3;
    constexpr std::int64_t kSlack = 1'000'000;  // rendezvous, barriers, measured links
    const Output result =
        run("WEFT_FAILOVER=0 " + use(4, 2) + "--ppn 2 --json " + file("counters") +
            " -- weft perf all_reduce --out-of-place -b 16M -e 16M -w 1 -n 3 -c 0 " + perf_options);
    ASSERT_EQ(result.exit_code, 0) << result.text;
    const nlohmann::json report = json("counters");
    std::array<std::int64_t, 2> sent{}, received{};
    for (std::size_t i = 0; i < report["ports"].size(); i += 2) {
      const std::array<nlohmann::json, 2> rails = {report["ports"][i], report["ports"][i + 1]};
      std::int64_t host = 0;
      for (const auto& rail : rails) host += rail["tx_bytes"].get<std::int64_t>();
      for (std::size_t r = 0; r < 2; ++r) {
        const auto tx = rails[r]["tx_bytes"].get<std::int64_t>();
        EXPECT_NEAR(static_cast<double>(tx) / static_cast<double>(host), 0.5, 0.05) << rails[r];
        sent[r] += tx;
        received[r] += rails[r]["rx_bytes"].get<std::int64_t>();
      }
      // No algorithm sends less than 2 (H - 1) / H of the message out of a host.
      EXPECT_GE(host, kMessage * kOperations * 149 / 100) << rails[0]["host"];
      EXPECT_LE(host, kMessage * kOperations * 152 / 100 + kSlack) << rails[0]["host"];
    }
    // Traffic that enters a rail's switch leaves it on the same rail.
    for (std::size_t r = 0; r < 2; ++r) {
      EXPECT_NEAR(static_cast<double>(received[r]) / static_cast<double>(sent[r]), 1.0, 0.002);
    }
  }
};

TEST_F(NetlabCollective, HierarchicalLoadsTheRailsEvenly) { measure("--algo hierarchical"); }

TEST_F(NetlabCollective, AutoLoadsTheRailsEvenly) { measure("--algo auto"); }

// 256 KiB over 4 hosts use slices of the minimum length.
TEST_F(NetlabCollective, ARankUsesBothItsRailsForShortSlices) {
  const Output result =
      run(use(4, 2) + "--json " + file("counters") +
          " -- weft perf all_reduce --out-of-place -b 256K -e 256K -w 2 -n 30 -c 0 --algo ring");
  ASSERT_EQ(result.exit_code, 0) << result.text;
  const nlohmann::json report = json("counters");
  ASSERT_EQ(report["ports"].size(), 8U);
  for (std::size_t i = 0; i < report["ports"].size(); i += 2) {
    const auto one = report["ports"][i]["tx_bytes"].get<std::int64_t>();
    const auto other = report["ports"][i + 1]["tx_bytes"].get<std::int64_t>();
    EXPECT_GT(std::min(one, other), (one + other) * 3 / 10) << report["ports"][i]["host"];
  }
}

// weft perf gathers its times outside the transports: a rank with its result makes no progress
// then, but its sent messages must arrive. New connections, a few operations.
TEST_F(NetlabCollective, ARankMayLeaveAfterAnOperation) {
  for (int i = 0; i < 3; ++i) {
    const Output result =
        run(use(4, 1, "20gbit") +
            "-- weft perf all_reduce -b 64K -e 64K -w 1 -n 5 -c 0 --timeout-ms 20000");
    ASSERT_EQ(result.exit_code, 0) << result.text;
  }
}

// Rank 1 sends `bytes` to rank 0 on a rail; all other ranks do nothing.
int do_transfer(int rail, std::int64_t bytes) {
  const int rank = std::atoi(std::getenv("WEFT_RANK"));
  if (rank > 1) return 0;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(5000);
  inet_pton(AF_INET, fmt::format("10.{}.0.1", rail).c_str(), &address.sin_addr);
  const auto* to = reinterpret_cast<const sockaddr*>(&address);
  std::vector<char> block(1 << 16);
  std::int64_t done = 0;
  if (rank == 0) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, to, sizeof address) != 0 || listen(listener, 1) != 0) return 10;
    const int peer = accept(listener, nullptr, nullptr);
    for (ssize_t n; (n = read(peer, block.data(), block.size())) > 0;) done += n;
    return done == bytes ? 0 : 11;
  }
  int peer = -1;
  if (!eventually([&] {
        peer = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(peer, to, sizeof address) == 0) return true;
        close(peer);
        return false;
      })) {
    return 12;
  }
  while (done < bytes) {
    const auto left = static_cast<std::size_t>(bytes - done);
    const ssize_t n = write(peer, block.data(), std::min(block.size(), left));
    if (n <= 0) return 13;
    done += n;
  }
  return 0;
}

}  // namespace

// The lab's ranks run the same program.
int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--transfer") {
    return do_transfer(std::atoi(argv[2]), std::atoll(argv[3]));
  }
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
