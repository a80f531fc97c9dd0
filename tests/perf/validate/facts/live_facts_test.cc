// Facts of interfaces in network namespaces, from netlink and ioctl, while /sys shows another
// namespace.
// labels: lab
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "perf/validate/facts/tree.h"
#include "support/process/shell.h"

namespace weft::fabric {
namespace {

using nlohmann::ordered_json;

// Runs `work` in a child with its own network namespace and returns its JSON; null if the namespace
// cannot be created or `set_up` fails.
ordered_json in_own_namespace(const std::string& set_up,
                              const std::function<ordered_json()>& work) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return nullptr;
  const pid_t child = fork();
  if (child == 0) {
    const bool ready = unshare(CLONE_NEWNET) == 0 && std::system(set_up.c_str()) == 0;
    const std::string text = (ready ? work() : ordered_json()).dump();
    _exit(write(ends[1], text.data(), text.size()) < 0);
  }
  close(ends[1]);
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t bytes; (bytes = read(ends[0], buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<std::size_t>(bytes));
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return ordered_json::parse(text, nullptr, false);
}

std::vector<Nic> rail(const std::string& name) {
  std::vector<Nic> rails;
  for (const Nic& nic : sysfs::discover_nics("/sys", true))
    if (nic.name == name) rails.push_back(nic);
  for (Nic& nic : rails) nic.aside.clear();  // both ends of a cable are here; this one is the rail
  return rails;
}

ordered_json facts_with_counters(const std::string& name, const std::string& meanwhile) {
  const Sources sources;
  HostFacts host = read_host(rail(name), sources);
  for (PortFacts& port : host.ports) port.before = read_counters(port, sources);
  if (std::system(meanwhile.c_str()) != 0) return nullptr;
  for (PortFacts& port : host.ports) port.after = read_counters(port, sources);
  return to_json(host);
}

std::string veth(int mtu, const std::string& mac, const std::string& address) {
  return "exec >/dev/null 2>&1; ip link set lo up && "
         "ip link add rail0 address " +
         mac +
         " type veth peer name other && "
         "ip link set rail0 mtu " +
         std::to_string(mtu) +
         " up && ip link set other up && "
         "ip address add " +
         address +
         "/24 dev rail0 && "
         "sysctl -qw net.ipv4.conf.all.arp_ignore=0 net.ipv4.conf.rail0.arp_ignore=0";
}

TEST(FabricLiveFacts, EachEmulatedHostReadsItsOwnPorts) {
  const auto facts = [](int mtu, const std::string& mac, const std::string& address) {
    return in_own_namespace(veth(mtu, mac, address), [] {
      return facts_with_counters("rail0", "ip link set other down && ip link set other up");
    });
  };
  ordered_json a = facts(1400, "02:00:00:00:00:0a", "192.0.2.1");
  if (!a.is_object()) GTEST_SKIP() << "missing capability: network namespaces (root, ip)";
  ordered_json b = facts(9000, "02:00:00:00:00:0b", "192.0.2.2");
  ASSERT_EQ(a["ports"].size(), 1u) << a;
  ordered_json& port = a["ports"][0];
  EXPECT_EQ(port["mtu_bytes"], 1400);
  EXPECT_EQ(port["mac"], "02:00:00:00:00:0a");
  EXPECT_EQ(port["address"], "192.0.2.1");
  EXPECT_EQ(port["subnet"], "192.0.2.0/24");
  EXPECT_EQ(port["arp_for_all"], true);
  EXPECT_EQ(port["operstate"], "up");
  EXPECT_EQ(port["carrier"], true);
  EXPECT_EQ(port["driver"], "veth");
  EXPECT_FALSE(port.contains("rate_gbps")) << "veth makes its rate up";
  EXPECT_FALSE(port.contains("most_rate_gbps"));
  EXPECT_FALSE(port.contains("pfc_priorities"));
  EXPECT_EQ(b["ports"][0]["mtu_bytes"], 9000);
  EXPECT_EQ(b["ports"][0]["mac"], "02:00:00:00:00:0b");
  // The link went down and up again; kernel and driver counters changed.
  const auto change = [&](const char* name) {
    return port["after"].at(name).get<std::int64_t>() - port["before"].at(name).get<std::int64_t>();
  };
  EXPECT_EQ(change("net.carrier_down_count"), 1);
  EXPECT_EQ(change("net.carrier_up_count"), 1);
  EXPECT_EQ(change("net.carrier_changes"), 2);
  EXPECT_EQ(change("net.rx_crc_errors"), 0);
  EXPECT_TRUE(port["after"].contains("eth.peer_ifindex")) << port["after"];
  EXPECT_TRUE(port["after"].contains("tcp.RetransSegs"));
  EXPECT_FALSE(port["after"].contains("tcp.RtoMin"));
  for (const auto& [name, value] : port["after"].items())
    EXPECT_TRUE(value.is_number_unsigned()) << name << " " << value;
}

// netlink and sysfs agree if sysfs shows this namespace.
TEST(FabricLiveFacts, LoopbackIsAsSysfsShowsIt) {
  const std::vector<Nic> rails = rail("lo");
  if (rails.empty()) GTEST_SKIP() << "missing capability: a loopback interface";
  const PortFacts port = read_host(rails, {}).ports.at(0);
  EXPECT_EQ(port.mtu, sysfs::read_integer("/sys/class/net/lo/mtu", 0));
  EXPECT_EQ(port.mac, sysfs::read_line("/sys/class/net/lo/address"));
  EXPECT_EQ(port.operstate, sysfs::read_line("/sys/class/net/lo/operstate"));
  Sources tree;
  tree.live = false;
  // Traffic continues between the readings.
  const Readings before = read_counters(port, {}), by_tree = read_counters(port, tree),
                 after = read_counters(port, {});
  for (const auto& [name, reading] : by_tree) {
    if (!name.starts_with("net.")) continue;
    ASSERT_TRUE(before.contains(name)) << name;
    EXPECT_EQ(before.at(name).state, ReadingState::kValue) << name;
    EXPECT_LE(before.at(name).value, reading.value) << name;
    EXPECT_LE(reading.value, after.at(name).value) << name;
  }
}

// Another namespace's /sys may have an interface of the same name and index.
TEST(FabricLiveFacts, ATreeWithAnotherInterfaceOfThatNameIsNotBelieved) {
  const auto facts = [](const std::string& mac_in_tree) {
    return in_own_namespace(veth(1400, "02:00:00:00:00:0a", "192.0.2.1"), [&] {
      const std::vector<Nic> rails = rail("rail0");
      const std::string net = "sys/class/net/rail0/";
      const std::string index = std::to_string(if_nametoindex("rail0"));
      const weft::testing::HostTree tree({{net + "ifindex", index},
                                          {net + "address", mac_in_tree},
                                          {net + "mtu", "9000"},
                                          {net + "device/driver_name", "x"},
                                          {net + "device/numa_node", "3"},
                                          {net + "qos/trust", "dscp"}});
      Sources sources = tree.sources();
      sources.live = true;
      return to_json(read_host(rails, sources));
    });
  };
  ordered_json other = facts("02:00:00:00:00:99");
  if (!other.is_object()) GTEST_SKIP() << "missing capability: network namespaces (root, ip)";
  ASSERT_EQ(other["ports"].size(), 1u) << other;
  EXPECT_EQ(other["ports"][0]["mtu_bytes"], 1400);
  EXPECT_FALSE(other["ports"][0].contains("qos_trust"));
  EXPECT_FALSE(other["ports"][0].contains("numa_node"));
  ordered_json ours = facts("02:00:00:00:00:0a");
  EXPECT_EQ(ours["ports"][0]["mtu_bytes"], 1400);
  EXPECT_EQ(ours["ports"][0]["qos_trust"], "dscp");
  EXPECT_EQ(ours["ports"][0]["numa_node"], 3);
}

TEST(FabricLiveFacts, OfAnInterfaceThatIsGoneNothingIsKnown) {
  Nic gone;
  gone.name = gone.netdev = "weft-none";
  const HostFacts host = read_host(std::span(&gone, 1), {});
  EXPECT_FALSE(host.ports.at(0).mtu || host.ports[0].driver || host.ports[0].pfc_priorities);
  for (const auto& [name, reading] : read_counters(host.ports[0], {}))
    EXPECT_TRUE(name.starts_with("tcp.")) << name;
  EXPECT_GT(host.cores, 0);
  EXPECT_TRUE(host.memlock_bytes.has_value());
  EXPECT_NE(host.kernel, "");
}

}  // namespace
}  // namespace weft::fabric
