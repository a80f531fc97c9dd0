// The faults of netlab: each has the effect that its row states, on the named port only, and heal
// removes all of them. Needs root.
// labels: lab
// ctest: whole alone
#include "tests/lab/netlab_faults.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "support/process/shell.h"

namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using weft::Output;
using weft::run;
using weft::testing::kNetlab;
using weft::testing::NetlabFaults;

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

// 200 of 20,000 are lost on average; the standard deviation is 14.
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
  run(fmt::format("sh -c '{} exec --lab {} h2 sleep 100' >/dev/null 2>&1 &", kNetlab, lab_));
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
  refused("spell h2r1 20%", "spell 20%: write the times like 30ms/1s");
  refused("spell h2r1 20%:3s/1s", "spell 20%:3s/1s: write the times like");
  refused("spell h2r1 200%:1s/3s", "write the rate like 20%");
  refused("cut h2r1 30ms", "cut 30ms: write the times like 30ms/1s");
  refused("ecmp h2r1 5%", "ecmp 5%: write it like loss:5% or rate:10%");
  refused("ecmp h2r1 loss:much", "loss much: write it like 0.1%");
  refused("ecmp h2r1 rate:100%", "ecmp rate:100%: write the rate like 20%");
  refused("gremlins h2 1", "unknown fault gremlins");
  EXPECT_EQ(arrived(1, 2, 1, 10), 10);
  inject("rate h2r1 50%");
  EXPECT_THAT(run(kNetlab + " fault").text, HasSubstr("blackhole  PLACES"));
}

}  // namespace

// The same program sends datagrams from the hosts.
int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (!words.empty() && (words[0] == "--datagrams" || words[0] == "--seconds"))
    return weft::testing::send_as_a_host(words);
  ::testing::InitGoogleMock(&argc, argv);
  return RUN_ALL_TESTS();
}
