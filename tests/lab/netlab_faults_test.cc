// The faults of netlab: each one does what its row says, to the port it names and to no other, and
// heal ends all of them. Needs root.
// labels: lab
// ctest: whole alone
#include <arpa/inet.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "support/process/shell.h"
#include "tests/lab/shared_lab.h"

namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using weft::Output;
using weft::run;

const std::string kScript = WEFT_SOURCE_DIR "/tests/lab/netlab";

// One lab of three hosts for all tests, as healed as the test before has left it.
class NetlabFaults : public weft::testing::LabTest {
 protected:
  void SetUp() override {
    LabTest::SetUp();
    if (!IsSkipped()) lab_ = lab(3, 2);
  }
  void TearDown() override {
    if (broken_ || HasFailure()) lab_to_break(3, 2);
    LabTest::TearDown();
  }

  Output fault(const std::string& words) {
    broken_ = true;
    return netlab("fault", lab_, words);
  }
  void inject(const std::string& words) {
    const Output output = fault(words);
    ASSERT_EQ(output.exit_code, 0) << words << ": " << output.text;
  }
  void heal() {
    const Output output = netlab("heal", lab_);
    ASSERT_EQ(output.exit_code, 0) << output.text;
    broken_ = false;
  }
  std::string in(const std::string& host, const std::string& command) const {
    return run(fmt::format("{} exec --lab {} {} {}", kScript, lab_, host, command)).text;
  }
  std::string at_the_switch(const std::string& command) const {
    return run(fmt::format("ip netns exec weft-{}-sw {}", lab_, command)).text;
  }
  // The rates of a port as its two shapers have them.
  std::string sends(int host, int rail) const {
    return in(fmt::format("h{}", host), fmt::format("tc qdisc show dev rail{} root", rail));
  }
  std::string receives(int host, int rail) const {
    return at_the_switch(fmt::format("tc qdisc show dev h{}-r{} root", host, rail));
  }
  // How many of `count` datagrams from one host arrive at another one.
  int arrived(int from, int to, int rail, int count, int bytes = 100) const {
    const std::string host = fmt::format("h{}", to);
    const int before = datagrams_of(host);
    const std::string sender = fmt::format("{} --datagrams 10.{}.0.{} {} {}",
                                           std::filesystem::read_symlink("/proc/self/exe").string(),
                                           rail, to, count, bytes);
    EXPECT_EQ(in(fmt::format("h{}", from), sender), "");
    return datagrams_of(host) - before;
  }

 private:
  // Datagrams to a port that nobody has are counted, too.
  int datagrams_of(const std::string& host) const {
    return std::atoi(in(host, "awk '/^Udp: [0-9]/ { print $2 + $3 }' /proc/net/snmp").c_str());
  }

  bool broken_ = false;

 protected:
  std::string lab_;
};

TEST_F(NetlabFaults, ARateIsThatOfOneDirectionAPortAHostOrARail) {
  inject("rate h2r1:tx 50%");
  EXPECT_THAT(sends(2, 1), HasSubstr("rate 200Mbit"));
  EXPECT_THAT(receives(2, 1), HasSubstr("rate 400Mbit"));
  inject("rate h2r1:rx 40mbit");
  EXPECT_THAT(sends(2, 1), HasSubstr("rate 200Mbit"));
  EXPECT_THAT(receives(2, 1), HasSubstr("rate 40Mbit"));
  EXPECT_THAT(sends(2, 0), HasSubstr("rate 400Mbit"));
  inject("rate rail0 25%");
  inject("rate h3 10%");
  EXPECT_THAT(sends(1, 0), HasSubstr("rate 100Mbit"));
  EXPECT_THAT(receives(2, 0), HasSubstr("rate 100Mbit"));
  EXPECT_THAT(receives(3, 0), HasSubstr("rate 40Mbit"));
  EXPECT_THAT(sends(3, 1), HasSubstr("rate 40Mbit"));
  EXPECT_THAT(sends(1, 1), HasSubstr("rate 400Mbit"));
  inject("queue h1r1:rx 48k");
  EXPECT_THAT(receives(1, 1), HasSubstr("lat 328us"));
  EXPECT_THAT(sends(1, 1), HasSubstr("lat 20.3ms"));
  inject("rate h3r1 none");
  EXPECT_THAT(sends(3, 1), HasSubstr("rate 400Mbit"));
  heal();
  for (int host = 1; host <= 3; ++host) {
    for (int rail = 0; rail < 2; ++rail) {
      EXPECT_THAT(sends(host, rail), HasSubstr("rate 400Mbit"));
      EXPECT_THAT(receives(host, rail), HasSubstr("rate 400Mbit"));
    }
  }
}

// 200 of 20,000 are lost on average; the deviation is 14.
TEST_F(NetlabFaults, ALossIsOneOfPacketsInOneDirection) {
  constexpr int kSent = 20000, kFew = 100, kMany = 300;
  inject("loss h2r1:tx 1%");
  const int from_2 = kSent - arrived(2, 1, 1, kSent);
  EXPECT_GT(from_2, kFew);
  EXPECT_LT(from_2, kMany);
  EXPECT_EQ(arrived(1, 2, 1, kSent), kSent);
  heal();
  inject("loss h2r1:rx 0.01");
  const int to_2 = kSent - arrived(1, 2, 1, kSent);
  EXPECT_GT(to_2, kFew);
  EXPECT_LT(to_2, kMany);
  EXPECT_EQ(arrived(2, 1, 1, kSent), kSent);
  EXPECT_EQ(arrived(1, 2, 0, kSent), kSent);
  heal();
  EXPECT_EQ(arrived(1, 2, 1, kSent), kSent);
}

TEST_F(NetlabFaults, ABlackHoleIsOneOfAPairInOneDirection) {
  inject("blackhole h2r1 h3");
  EXPECT_EQ(arrived(2, 3, 1, 10), 0);
  EXPECT_EQ(arrived(3, 2, 1, 10), 10);
  EXPECT_EQ(arrived(2, 1, 1, 10), 10);
  EXPECT_EQ(arrived(2, 3, 0, 10), 10);
  inject("blackhole h2r1 h1");
  EXPECT_EQ(arrived(2, 3, 1, 10), 0);
  EXPECT_EQ(arrived(2, 1, 1, 10), 0);
  heal();
  EXPECT_EQ(arrived(2, 3, 1, 10), 10);
}

TEST_F(NetlabFaults, AnMtuIsThatOfTheHostOrOfTheSwitch) {
  inject("mtu h2r1 1400");
  EXPECT_THAT(in("h2", "ip link show rail1"), HasSubstr("mtu 1400"));
  EXPECT_THAT(in("h2", "ip link show rail0"), HasSubstr("mtu 1500"));
  heal();
  inject("switch-mtu h2r1 1400");
  EXPECT_THAT(in("h2", "ip link show rail1"), HasSubstr("mtu 1500"));
  EXPECT_EQ(arrived(1, 2, 1, 10, 1300), 10);
  EXPECT_EQ(arrived(1, 2, 1, 10, 1472), 0);
  EXPECT_EQ(arrived(2, 1, 1, 10, 1472), 0);
  heal();
  EXPECT_EQ(arrived(1, 2, 1, 10, 1472), 10);
}

TEST_F(NetlabFaults, AddressesAndCablesAreExchanged) {
  inject("duplicate h2r1 h3");
  EXPECT_THAT(in("h2", "ip -4 addr show rail1"), HasSubstr("10.1.0.3/24"));
  heal();
  EXPECT_THAT(in("h2", "ip -4 addr show rail1"), HasSubstr("10.1.0.2/24"));
  inject("swap h2 rail0,rail1");
  EXPECT_THAT(at_the_switch("ip link show h2-r0"), HasSubstr("master br1"));
  EXPECT_THAT(at_the_switch("ip link show h2-r1"), HasSubstr("master br0"));
  EXPECT_THAT(at_the_switch("ip link show h3-r1"), HasSubstr("master br1"));
  heal();
  EXPECT_THAT(at_the_switch("ip link show h2-r0"), HasSubstr("master br0"));
  EXPECT_EQ(arrived(1, 2, 1, 10), 10);
}

TEST_F(NetlabFaults, ALeafIsASwitchWithASlowUplink) {
  inject("leaf h2r1,h3r1 50%");
  EXPECT_THAT(at_the_switch("ip link show h2-r1"), HasSubstr("master leaf1"));
  EXPECT_THAT(at_the_switch("ip link show h1-r1"), HasSubstr("master br1"));
  EXPECT_THAT(at_the_switch("tc qdisc show dev up1"), HasSubstr("rate 200Mbit"));
  EXPECT_EQ(arrived(1, 2, 1, 10), 10);
  EXPECT_EQ(fault("leaf h2 50%").exit_code, 4) << "ports of two rails";
  heal();
  EXPECT_THAT(at_the_switch("ip link show h2-r1"), HasSubstr("master br1"));
  EXPECT_THAT(at_the_switch("ip link show"), Not(HasSubstr("leaf1")));
  EXPECT_EQ(arrived(1, 2, 1, 10), 10);
}

TEST_F(NetlabFaults, ALinkIsDownAndFlaps) {
  const auto carrier = [this] { return in("h2", "cat /sys/class/net/rail1/carrier"); };
  const auto changes = [this] {
    return std::atoi(in("h2", "cat /sys/class/net/rail1/carrier_changes").c_str());
  };
  inject("down h2r1 on");
  EXPECT_EQ(carrier(), "0\n");
  EXPECT_EQ(in("h2", "cat /sys/class/net/rail0/carrier"), "1\n");
  heal();
  EXPECT_EQ(carrier(), "1\n");
  const int before = changes();
  inject("flap h2r1 50ms");
  EXPECT_EQ(changes(), before + 2);
  EXPECT_EQ(carrier(), "1\n");
}

TEST_F(NetlabFaults, AHostHasLessOfACore) {
  const Output output = fault("cpu h2 20%");
  if (output.exit_code == 3) GTEST_SKIP() << output.text;
  ASSERT_EQ(output.exit_code, 0) << output.text;
  EXPECT_THAT(in("h2", "cat /proc/self/cgroup"), HasSubstr("/weft-"));
  EXPECT_THAT(in("h1", "cat /proc/self/cgroup"), Not(HasSubstr("/weft-")));
  heal();
  EXPECT_THAT(in("h2", "cat /proc/self/cgroup"), Not(HasSubstr("/weft-")));
}

TEST_F(NetlabFaults, AHostStandsStillNowAndThen) {
  inject("stall h2 2s/3s");
  run(fmt::format("sh -c '{} exec --lab {} h2 sleep 100' >/dev/null 2>&1 &", kScript, lab_));
  const std::string states = fmt::format(
      "for i in $(seq 200); do for p in $(ip netns pids weft-{}-h2); do "
      "grep -q '^State:.T' /proc/$p/status 2>/dev/null && echo stopped && exit; done; "
      "sleep 0.1; done",
      lab_);
  EXPECT_EQ(run(states).text, "stopped\n");
  heal();
  EXPECT_EQ(run(fmt::format("for p in $(ip netns pids weft-{}-h2); do grep State: "
                            "/proc/$p/status; done | grep -c '^State:.T'",
                            lab_))
                .text,
            "0\n");
}

TEST_F(NetlabFaults, WhatMakesNoSenseIsNamedAndDoesNotStay) {
  const auto refused = [this](const std::string& words, const std::string& why) {
    const Output output = fault(words);
    EXPECT_EQ(output.exit_code, 4) << words;
    EXPECT_THAT(output.text, HasSubstr(why));
  };
  refused("rate h2r1 fast", "rate fast: write it like 50% or 200mbit");
  refused("rate h9 50%", "no port h9: hosts h1 to h3, rails rail0 to rail1");
  refused("rate h2r1:up 50%", "the direction is tx or rx");
  refused("loss h2r1 2", "loss 2: write it like 0.1%");
  refused("mtu h2r1 5", "mtu 5 of h2r1");
  refused("swap h2 rail0", "name two rails");
  refused("cpu h2 much", "write a share of one core like 20%");
  refused("gremlins h2 1", "unknown fault gremlins");
  EXPECT_EQ(arrived(1, 2, 1, 10), 10);
  inject("rate h2r1 50%");
  EXPECT_THAT(run(kScript + " fault").text, HasSubstr("blackhole  PLACES"));
}

// Sends datagrams to the port 9 of an address.
int send_datagrams(const char* address, int count, std::size_t bytes) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(9);
  inet_pton(AF_INET, address, &to.sin_addr);
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  const std::vector<char> datagram(bytes);
  for (int i = 0; i < count; ++i) {
    if (sendto(fd, datagram.data(), bytes, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to) <
        0)
      std::perror("sendto");
  }
  usleep(300'000);  // what is still in the queues of the ports
  return 0;
}

}  // namespace

// The same program is also what sends datagrams from the hosts.
int main(int argc, char** argv) {
  if (argc == 5 && std::string(argv[1]) == "--datagrams") {
    return send_datagrams(argv[2], std::atoi(argv[3]),
                          static_cast<std::size_t>(std::atoi(argv[4])));
  }
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
