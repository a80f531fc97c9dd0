// Datagram probes between two network namespaces: hosts with a large MTU, and a port between them
// that drops large packets; over IPv4 and over IPv6 only.
// labels: lab
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "perf/validate/probes/flow_end.h"
#include "support/process/shell.h"

namespace weft::fabric {
namespace {

using ::testing::Optional;

Nic port_of(const std::string& name, const std::string& address) {
  Nic nic;
  nic.name = nic.netdev = name;
  nic.address = address;
  nic.up = true;
  return nic;
}

// Waits until the kernel has processed the link's coming up, up to a second later on a work queue.
// Until then IPv6 answers no neighbor solicitation on that port.
std::string until_up(const std::string& device) {
  return fmt::format(
      "for i in $(seq 200); do ip link show {0} | grep -q 'state UP' && exit 0; sleep 0.05; done; "
      "echo {0} is not up; exit 1",
      device);
}

// Two ends, each in a thread with its own network namespace.
struct Ends {
  EndSample sent, received;
  std::string skipped;
};

Ends between_namespaces(Probe probe, const std::string& prefix, const std::string& bits) {
  Ends ends;
  std::promise<std::string> set_up, offer, answer;
  const auto end_of = [&](bool sends, const std::string& device, const std::string& address) {
    EndOrder order;
    order.probe = probe;
    order.sends = sends;
    order.seconds = 0.1;
    return make_datagram_end(order, {port_of(device, address)});
  };
  std::promise<pid_t> there;
  std::thread receiver([&] {
    there.set_value(unshare(CLONE_NEWNET) == 0 ? gettid() : 0);
    if (!set_up.get_future().get().empty()) return;
    // A port that drops packets of more than 1500 bytes: the kernel adds room for a VLAN tag.
    const Output o =
        run(fmt::format("ip addr add {0}2{1} dev far nodad 2>&1 || ip addr add {0}2{1} "
                        "dev far; ip link set far mtu 1496 up; {2}",
                        prefix, bits, until_up("far")));
    const auto end = end_of(false, "far", prefix + "2");
    offer.set_value(o.exit_code == 0 ? end->offer() : "");
    end->connect(answer.get_future().get());
    ends.received = end->run();
  });
  std::thread sender([&] {
    const pid_t other = there.get_future().get();
    const Output o =
        other == 0 || unshare(CLONE_NEWNET) != 0
            ? Output{"unshare(CLONE_NEWNET) is refused", 1}
            : run(fmt::format("ip link add near mtu 9000 type veth peer name far mtu 1496 && "
                              "ip link set far netns {2} && ip link set near up && "
                              "(ip addr add {0}1{1} dev near nodad 2>/dev/null || "
                              "ip addr add {0}1{1} dev near)",
                              prefix, bits, other));
    if (o.exit_code != 0) ends.skipped = o.text.empty() ? "no" : o.text;
    set_up.set_value(ends.skipped);
    if (!ends.skipped.empty()) return;
    const std::string theirs = offer.get_future().get();
    run(until_up("near"));
    const auto end = end_of(true, "near", prefix + "1");
    answer.set_value(end->offer());
    end->connect(theirs);
    ends.sent = end->run();
  });
  sender.join();
  receiver.join();
  return ends;
}

class Family : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(Family, TheLargestPacketThatPassesIsFoundHoweverManySizesFail) {
  const Ends ends = between_namespaces(Probe::kPathMtu, GetParam().first, GetParam().second);
  if (!ends.skipped.empty())
    GTEST_SKIP() << "missing capability: network namespaces: " << ends.skipped;
  EXPECT_EQ(ends.sent.error, "");
  EXPECT_THAT(ends.sent.passed_mtu, Optional(1500));
  EXPECT_THAT(ends.sent.failed_mtu, Optional(1501));
}

TEST_P(Family, ADatagramArrivesAtItsPort) {
  const Ends ends = between_namespaces(Probe::kReach, GetParam().first, GetParam().second);
  if (!ends.skipped.empty())
    GTEST_SKIP() << "missing capability: network namespaces: " << ends.skipped;
  EXPECT_EQ(ends.received.error, "");
  EXPECT_THAT(ends.received.arrived_rail, Optional(0));
}

INSTANTIATE_TEST_SUITE_P(Datagrams, Family,
                         ::testing::Values(std::pair("192.0.2.", "/24"),
                                           std::pair("fd00:50::", "/64")),
                         [](const auto& info) {
                           return std::string(info.param.first[0] == 'f' ? "IPv6" : "IPv4");
                         });

}  // namespace
}  // namespace weft::fabric
