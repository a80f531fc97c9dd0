// Netlab faults that affect part of the time or of the flows: a source of netlab_faults_test, which
// also sends the datagrams that show them.
#include <arpa/inet.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <future>
#include <sstream>
#include <string>
#include <vector>

#include "tests/lab/netlab_faults.h"

namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using weft::testing::NetlabFaults;

// Half of the time, on average; a pause is 250 to 750 ms.
TEST_F(NetlabFaults, ASpellIsARateForAPartOfTheTime) {
  inject("rate h2 40mbit");
  inject("spell h2r1:tx 5%:500ms/1s");
  const auto share = [this] {
    const std::vector<double> datagrams = sent(2, "10.0.0.1,10.1.0.1", 1);
    return datagrams.size() == 2 ? datagrams[1] / datagrams[0] : 0;
  };
  const double in_spells = share();
  EXPECT_GT(in_spells, 0.2);
  EXPECT_LT(in_spells, 0.8);
  inject("rate h2r1:rx 20mbit");
  EXPECT_THAT(receives(2, 1), HasSubstr("rate 20Mbit")) << "faults add up";
  inject("spell h2r1 none");
  EXPECT_GT(share(), 0.9);
  EXPECT_EQ(at_work(), "");
}

// A fifth of the time, and both directions at once.
TEST_F(NetlabFaults, ACutPortPassesNothingNowAndThen) {
  const auto changes = [this] { return in("h2", "cat /sys/class/net/rail1/carrier_changes"); };
  const std::string before = changes();
  inject("rate h1 20mbit");
  inject("cut h2r1 100ms/500ms");
  const auto share_that_arrives = [this] {
    const int had = datagrams_of("h2");
    const std::vector<double> datagrams = sent(1, "10.1.0.2", 1);
    usleep(300'000);
    return datagrams.size() == 1 ? (datagrams_of("h2") - had) / datagrams[0] : 0;
  };
  const double in_spells = share_that_arrives();
  EXPECT_GT(in_spells, 0.4);
  EXPECT_LT(in_spells, 0.98);
  EXPECT_EQ(arrived(1, 2, 0, 1000), 1000);
  EXPECT_EQ(changes(), before);
  inject("cut h2r1 none");
  EXPECT_EQ(share_that_arrives(), 1);
  EXPECT_EQ(at_work(), "");
}

TEST_F(NetlabFaults, SpellsEndWithTheirLab) {
  inject("cut h2r1 30ms/300ms");
  inject("spell h3 20%:100ms/300ms");
  EXPECT_NE(at_work(), "");
  heal();
  EXPECT_EQ(at_work(), "");
  inject("spell h3 20%:100ms/300ms");
  EXPECT_NE(at_work(), "");
  lab_to_break(3, 2);
  EXPECT_EQ(netlab("down", lab_).exit_code, 0);
  EXPECT_EQ(at_work(), "");
  EXPECT_EQ(netlab("up", lab_, fmt::format("--hosts 3 --rails 2 --owner {}", getpid())).exit_code,
            0);
}

// With 16 flows on fixed ports, each of four links carries 1 to 8.
TEST_F(NetlabFaults, OneOfFourMembersLosesWhatItsFlowsSend) {
  constexpr int kFlows = 16, kOfEach = 10, kAll = kFlows * kOfEach, kMany = 16000;
  inject("ecmp h2r1:tx loss:100%");
  const int came = arrived(2, 1, 1, kAll, 100, kFlows);
  EXPECT_EQ(came % kOfEach, 0) << "a flow has one member";
  EXPECT_GE(kAll - came, kOfEach);
  EXPECT_LE(kAll - came, kAll / 2);
  EXPECT_EQ(arrived(2, 1, 1, kAll, 100, kFlows), came);
  EXPECT_EQ(arrived(1, 2, 1, kAll, 100, kFlows), kAll);
  EXPECT_EQ(arrived(2, 1, 0, kAll, 100, kFlows), kAll);
  inject("mtu h2r1 1400");
  EXPECT_EQ(arrived(2, 1, 1, kAll, 100, kFlows), came) << "another fault draws no other member";
  inject("ecmp h2r1:tx none");
  EXPECT_EQ(arrived(2, 1, 1, kAll, 100, kFlows), kAll);
  inject("ecmp h2r1:rx loss:9%");
  const int lost = kMany - arrived(1, 2, 1, kMany, 100, kFlows);
  EXPECT_GT(lost, kMany * 0.09 / kFlows / 2);
  EXPECT_LT(lost, kMany * 0.09 / 2 * 1.5);
  EXPECT_EQ(arrived(2, 1, 1, kMany, 100, kFlows), kMany);
}

TEST_F(NetlabFaults, OneOfFourMembersIsSlow) {
  constexpr int kFlows = 16;
  inject("rate h2 40mbit");
  const auto slow_ones = [&] {
    std::vector<double> flows = sent(2, "10.1.0.1", kFlows);
    EXPECT_EQ(flows.size(), kFlows);
    std::sort(flows.begin(), flows.end());
    return std::count_if(flows.begin(), flows.end(),
                         [&](double n) { return n < flows.back() / 4; });
  };
  inject("ecmp h2r1:tx rate:2%");
  const auto slow = slow_ones();
  EXPECT_GE(slow, 1);
  EXPECT_LE(slow, kFlows / 2);
  inject("mtu h2r1 1400");
  EXPECT_EQ(slow_ones(), slow) << "the same flows beside another fault";
  inject("ecmp h2r1:tx none");
  EXPECT_EQ(slow_ones(), 0);
  EXPECT_THAT(at_the_switch("tc qdisc show"), Not(HasSubstr("htb")));
  EXPECT_THAT(in("h2", "tc qdisc show"), Not(HasSubstr("htb")));
}

// A datagram socket connected to port 9 of an address, for the flow with this number; 0: any flow.
int flow_to(const std::string& address, int number) {
  sockaddr_in from{}, to{};
  from.sin_family = to.sin_family = AF_INET;
  from.sin_port = htons(static_cast<std::uint16_t>(number == 0 ? 0 : 20000 + number));
  to.sin_port = htons(9);
  inet_pton(AF_INET, address.c_str(), &to.sin_addr);
  const int fd = socket(AF_INET, SOCK_DGRAM, 0), both = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &both, sizeof both);  // flows of two rails
  if (bind(fd, reinterpret_cast<const sockaddr*>(&from), sizeof from) < 0 ||
      connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) < 0)
    std::perror("socket");
  return fd;
}

// Ignores errors that the port has no socket.
bool send_one(int fd, const std::vector<char>& datagram) {
  while (send(fd, datagram.data(), datagram.size(), 0) < 0)
    if (errno != ECONNREFUSED) return std::perror("send"), false;
  return true;
}

int send_datagrams(const std::string& address, int count, std::size_t bytes, int flows) {
  const std::vector<char> datagram(bytes);
  for (int flow = 0; flow < flows; ++flow) {
    const int fd = flow_to(address, flows == 1 ? 0 : flow + 1);
    for (int i = 0; i < count / flows; ++i) send_one(fd, datagram);
  }
  usleep(300'000);  // for packets in the queues of the ports
  return 0;
}

// Concurrent flows at full speed; prints how much each one sent.
int send_for(const std::string& addresses, int seconds, int flows) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  std::vector<std::future<int>> counts;
  std::istringstream all(addresses);
  for (std::string address; std::getline(all, address, ',');) {
    for (int flow = 1; flow <= flows; ++flow) {
      counts.push_back(std::async(std::launch::async, [=] {
        const std::vector<char> datagram(1000);
        const int fd = flow_to(address, flow), buffer = 16 << 10;
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
        int sent = 0;
        while (std::chrono::steady_clock::now() < end && send_one(fd, datagram)) ++sent;
        close(fd);
        return sent;
      }));
    }
  }
  for (std::future<int>& count : counts) std::printf("%d ", count.get());
  return 0;
}

}  // namespace

int weft::testing::send_as_a_host(const std::vector<std::string>& words) {
  if (words.at(0) == "--datagrams")
    return send_datagrams(words.at(1), std::stoi(words.at(2)), std::stoul(words.at(3)),
                          std::stoi(words.at(4)));
  return send_for(words.at(1), std::stoi(words.at(2)), std::stoi(words.at(3)));
}
