// Discovery on recorded trees, with unusual values and missing files, and on the real host.
#include "topo/discover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "fake_sysfs.h"
#include "topo/sysfs.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// Sets or (nullptr) unsets a variable while alive.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    const char* before = getenv(name);
    had_ = before != nullptr;
    if (had_) before_ = before;
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  }
  ~Variable() { had_ ? setenv(name_, before_.c_str(), 1) : unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  bool had_;
  std::string before_;
};

std::vector<std::string> names(const std::vector<Nic>& nics) {
  std::vector<std::string> result;
  for (const Nic& nic : nics) result.push_back(nic.name);
  return result;
}

const Nic& nic(const HostDescription& host, const std::string& name) {
  for (const Nic& it : host.nics) {
    if (it.name == name) return it;
  }
  ADD_FAILURE() << "no NIC " << name;
  static const Nic none;
  return none;
}

std::string rails_error(const HostDescription& host, const char* rails) {
  const Variable variable("WEFT_RAILS", rails);
  try {
    choose_rails(host);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Nic interface(const std::string& name, const std::string& address, const std::string& pci = "") {
  Nic nic;
  nic.name = nic.netdev = name;
  nic.address = address;
  nic.pci = pci;
  nic.up = true;
  return nic;
}

TEST(Discover, ReadsTheDevicesOfATree) {
  const FakeSysfs tree;
  add_two_rail_host(tree);
  const HostDescription host = discover_host(tree.root());
  EXPECT_EQ(host.cores, 4);
  ASSERT_EQ(host.numa.size(), 2u);
  EXPECT_EQ(host.numa[0].cpus, "0-3");
  EXPECT_EQ(host.numa[0].memory_bytes, 2048u * 1024);
  EXPECT_EQ(host.numa[1].memory_bytes, 0u);
  // In PCI order, RDMA before its interface, virtual ones last.
  EXPECT_THAT(names(host.nics), ElementsAre("eno1", "mlx5_1", "mlx5_0", "ens9", "lo"));
  const Nic& first = nic(host, "mlx5_0");
  EXPECT_TRUE(first.rdma);
  EXPECT_TRUE(first.up);
  EXPECT_EQ(first.netdev, "ens9");
  EXPECT_EQ(first.pci, "0000:9a:00.0");
  EXPECT_EQ(first.numa_node, 1);
  EXPECT_EQ(first.rate_gbps, 400);
  EXPECT_EQ(nic(host, "mlx5_1").netdev, "");
  EXPECT_EQ(nic(host, "ens9").rate_gbps, 400);
  EXPECT_EQ(nic(host, "eno1").rate_gbps, 1);
  EXPECT_EQ(nic(host, "eno1").numa_node, -1);
  EXPECT_EQ(nic(host, "lo").rate_gbps, 0);
  EXPECT_TRUE(nic(host, "lo").up);
}

TEST(Discover, GpusByPciClassWithoutTheManagementController) {
  const FakeSysfs tree;
  add_two_rail_host(tree);
  tree.add_pci("10000:01:00.0", "0x120000", "0x1002", "0x74a1", "0");
  const std::vector<Gpu> gpus = discover_host(tree.root()).gpus;
  ASSERT_EQ(gpus.size(), 3u);
  EXPECT_EQ(gpus[0].pci, "0000:0a:00.0");
  EXPECT_EQ(gpus[0].name, "NVIDIA 2335");
  EXPECT_EQ(gpus[1].pci, "0000:3b:00.0");
  EXPECT_EQ(gpus[1].numa_node, 1);
  EXPECT_EQ(gpus[1].domain, -1);
  EXPECT_EQ(gpus[2].name, "AMD 74a1");
}

TEST(Discover, AnNvswitchJoinsTheGpusOfItsVendor) {
  const FakeSysfs tree;
  add_two_rail_host(tree);
  tree.add_pci("0000:05:00.0", "0x068000", "0x10de", "0x22a3", "0");
  tree.add_pci("10000:01:00.0", "0x120000", "0x1002", "0x74a1", "0");
  const std::vector<Gpu> gpus = discover_host(tree.root()).gpus;
  ASSERT_EQ(gpus.size(), 3u);
  EXPECT_EQ(gpus[0].domain, 0);
  EXPECT_EQ(gpus[1].domain, 0);
  EXPECT_EQ(gpus[2].domain, -1);
}

TEST(Discover, TheDriverSaysWhichGpusAContainerHas) {
  const FakeSysfs tree, proc;
  add_two_rail_host(tree);
  proc.write("driver/nvidia/gpus/0000:3b:00.0/information", "Model: \t\t NVIDIA H200\nIRQ: 5");
  const std::vector<Gpu> gpus = sysfs::discover_gpus(tree.root(), proc.root());
  ASSERT_EQ(gpus.size(), 1u);
  EXPECT_EQ(gpus[0].pci, "0000:3b:00.0");
  EXPECT_EQ(gpus[0].name, "NVIDIA H200");
}

TEST(Discover, RatesThatTheKernelDoesNotKnow) {
  const FakeSysfs tree;
  for (const char* pci : {"0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0"}) {
    tree.add_pci(pci, "0x020000", "0x8086", "0x1521", "oops");
  }
  tree.add_netdev("minus", "0000:01:00.0", "-1", "up");
  tree.add_netdev("wrapped", "0000:02:00.0", "4294967295", "up");
  tree.add_netdev("broken", "0000:03:00.0", "", "up");
  tree.write_unreadable("class/net/broken/speed");
  tree.add_netdev("words", "0000:04:00.0", "fast", "up");
  tree.add_netdev("veth0", "", "10000", "up");
  tree.add_netdev("bond0", "", "50000", "up");
  tree.link("class/net/bond0/lower_minus", "class/net/minus");
  const HostDescription host = discover_host(tree.root());
  for (const char* name : {"minus", "wrapped", "broken", "words", "veth0"}) {
    EXPECT_EQ(nic(host, name).rate_gbps, 0) << name;
    EXPECT_EQ(nic(host, name).numa_node, -1) << name;
  }
  EXPECT_EQ(nic(host, "bond0").rate_gbps, 50);
}

TEST(Discover, StatesOfLinks) {
  const FakeSysfs tree;
  tree.add_netdev("good", "", "", "up");
  tree.add_netdev("down", "", "", "down");
  tree.add_netdev("off", "", "", "up", "0x1002");
  tree.add_netdev("silent", "", "", "unknown");
  tree.add_netdev("cut", "", "", "unknown");
  tree.write("class/net/cut/carrier", "0");
  tree.write("class/net/bonding_masters", "bond0");
  const HostDescription host = discover_host(tree.root());
  EXPECT_TRUE(nic(host, "good").up);
  EXPECT_FALSE(nic(host, "down").up);
  EXPECT_FALSE(nic(host, "off").up);
  EXPECT_TRUE(nic(host, "silent").up);
  EXPECT_FALSE(nic(host, "cut").up);
  EXPECT_EQ(host.nics.size(), 5u);
}

TEST(Discover, Tunnels) {
  const FakeSysfs tree;
  for (const char* name : {"eth0", "vx0", "tun0", "bond0"}) tree.add_netdev(name, "", "", "up");
  tree.write("class/net/eth0/type", "1");
  tree.write("class/net/vx0/type", "1");
  tree.write("class/net/vx0/uevent", "DEVTYPE=vxlan\nINTERFACE=vx0");
  tree.write("class/net/tun0/type", "65534");
  tree.write("class/net/bond0/uevent", "DEVTYPE=bond\nINTERFACE=bond0");
  const HostDescription host = discover_host(tree.root());
  for (const char* name : {"eth0", "bond0"}) EXPECT_EQ(nic(host, name).aside, "") << name;
  for (const char* name : {"vx0", "tun0"})
    EXPECT_THAT(nic(host, name).aside, ::testing::StartsWith("a tunnel")) << name;
}

TEST(Discover, RdmaPortsInOddStates) {
  const FakeSysfs tree;
  for (const char* pci : {"0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0"}) {
    tree.add_pci(pci, "0x020700", "0x15b3", "0x1021", "0");
  }
  tree.add_rdma("second_port", "0000:01:00.0", "1", "1: DOWN", "10 Gb/sec (4X SDR)");
  tree.add_rdma("second_port", "0000:01:00.0", "2", "4: ACTIVE", "2.5 Gb/sec (1X SDR)");
  tree.add_rdma("no_state", "0000:02:00.0", "1", "", "100 Gb/sec (4X EDR)");
  tree.add_rdma("no_rate", "0000:03:00.0", "1", "4: ACTIVE", "");
  tree.add_rdma("odd_rate", "0000:04:00.0", "1", "4: ACTIVE", "inf Gb/sec");
  tree.write("class/infiniband/no_ports/node_type", "1: CA");
  const HostDescription host = discover_host(tree.root());
  EXPECT_TRUE(nic(host, "second_port").up);
  EXPECT_EQ(nic(host, "second_port").rate_gbps, 2.5);
  EXPECT_FALSE(nic(host, "no_state").up);
  EXPECT_EQ(nic(host, "no_state").rate_gbps, 100);
  EXPECT_TRUE(nic(host, "no_rate").up);
  EXPECT_EQ(nic(host, "no_rate").rate_gbps, 0);
  EXPECT_EQ(nic(host, "odd_rate").rate_gbps, 0);
  EXPECT_FALSE(nic(host, "no_ports").up);
}

TEST(Discover, DevicesWithoutReliableConnectionsSayIt) {
  const FakeSysfs tree;
  const std::map<std::string, std::string> types = {
      {"mlx5_0", "1: CA"},         {"irdma0", "4: RNIC"},           {"usnic_0", "5: usNIC"},
      {"usnic_1", "6: usNIC UDP"}, {"rdmap0s31", "7: unspecified"}, {"odd", ""}};
  for (const auto& [name, type] : types) {
    tree.add_rdma(name, "", "1", "4: ACTIVE", "100 Gb/sec (4X EDR)");
    tree.write("class/infiniband/" + name + "/node_type", type);
  }
  const HostDescription host = discover_host(tree.root());
  for (const auto& [name, type] : types)
    EXPECT_EQ(nic(host, name).no_rc, name.starts_with("usnic") || name == "rdmap0s31") << name;
}

TEST(Discover, DevicesOfAHostWithOneNodeAreOnIt) {
  const FakeSysfs tree;
  tree.add_numa_node(0, "0", "");
  tree.add_pci("0000:02:00.0", "0x020000", "0x8086", "0x1521", "-1");
  tree.add_netdev("eno1", "0000:02:00.0", "1000", "up");
  EXPECT_EQ(nic(discover_host(tree.root()), "eno1").numa_node, 0);
}

TEST(Discover, NothingIsAnEmptyHost) {
  for (const std::string& root : {FakeSysfs().root(), std::string("/does/not/exist")}) {
    const HostDescription host = discover_host(root);
    EXPECT_THAT(host.nics, IsEmpty());
    EXPECT_THAT(host.gpus, IsEmpty());
    EXPECT_THAT(host.numa, IsEmpty());
    EXPECT_EQ(host.cores, 0);
  }
}

TEST(ChooseRails, RdmaDevicesOfAKindInPciOrderWhateverTheirState) {
  const Variable variable("WEFT_RAILS", nullptr);
  const FakeSysfs tree;
  add_two_rail_host(tree);
  tree.add_pci("0000:11:00.0", "0x020700", "0x15b3", "0x1021", "0");
  tree.add_rdma("mlx5_2", "0000:11:00.0", "1", "1: DOWN", "200 Gb/sec (4X HDR)");
  EXPECT_THAT(names(choose_rails(discover_host(tree.root()))),
              ElementsAre("mlx5_2", "mlx5_1", "mlx5_0"));
}

TEST(ChooseRails, SoftRoceOnlyWithoutHardware) {
  const Variable variable("WEFT_RAILS", nullptr);
  HostDescription host;
  host.nics = {interface("rxe0", "10.0.0.1"), interface("eth0", "10.0.0.1")};
  host.nics[0].rdma = true;
  EXPECT_THAT(names(choose_rails(host)), ElementsAre("rxe0"));
  host.nics.push_back(interface("mlx5_0", "", "0000:01:00.0"));
  host.nics.back().rdma = true;
  EXPECT_THAT(names(choose_rails(host)), ElementsAre("mlx5_0"));
}

TEST(ChooseRails, InterfacesWithAnAddressElseAnyElseLoopback) {
  const Variable variable("WEFT_RAILS", nullptr);
  HostDescription host;
  host.nics = {interface("lo", "127.0.0.1")};
  EXPECT_THAT(names(choose_rails(host)), ElementsAre("lo"));
  host.nics.push_back(interface("docker0", "172.17.0.1"));
  host.nics.back().aside = "a bridge without a NIC";
  EXPECT_THAT(names(choose_rails(host)), ElementsAre("docker0"));
  host.nics.push_back(interface("eth1", ""));
  EXPECT_THAT(names(choose_rails(host)), ElementsAre("eth1"));
  host.nics.push_back(interface("rail10", "10.0.1.1"));
  host.nics.push_back(interface("rail2", "10.0.2.1"));
  EXPECT_THAT(names(choose_rails(host)), ElementsAre("rail2", "rail10"));
  // Interfaces to the host's service processor and containers; no packet on them reaches another
  // host.
  host.nics.push_back(interface("usb0", "169.254.95.120", "0000:00:14.0"));
  host.nics.push_back(interface("kube-ipvs0", "10.96.0.1"));
  host.nics.back().aside = "a device of kind dummy, which has no cable";
  host.nics.push_back(interface("br7", "10.0.4.1"));
  host.nics.back().removed = 2;
  EXPECT_THAT(names(choose_rails(host)), ElementsAre("rail2", "rail10"));
  host.nics.erase(host.nics.begin() + 3, host.nics.begin() + 5);
  EXPECT_THAT(names(choose_rails(host)), ElementsAre("br7")) << "with an address";
  host.nics.pop_back();
  EXPECT_THAT(names(choose_rails(host)), ElementsAre("eth1")) << "no link-local address";
  for (Nic& nic : host.nics) nic.up = nic.name == "usb0";
  EXPECT_THAT(names(choose_rails(host)), ElementsAre("usb0")) << "there is nothing else";
  for (Nic& nic : host.nics) nic.up = nic.name == "lo";
  EXPECT_THAT(names(choose_rails(host)), ElementsAre("lo"));
  host.nics.clear();
  EXPECT_THAT(choose_rails(host), IsEmpty());
}

TEST(ChooseRails, TheVariableNamesThemInItsOrderWithRates) {
  const FakeSysfs tree;
  add_two_rail_host(tree);
  const HostDescription host = discover_host(tree.root());
  const Variable variable("WEFT_RAILS", "mlx5_0, eno1:0.4 ,mlx5_1:1.0");
  const std::vector<Nic> rails = choose_rails(host);
  ASSERT_THAT(names(rails), ElementsAre("mlx5_0", "eno1", "mlx5_1"));
  EXPECT_EQ(rails[0].rate_gbps, 400);
  EXPECT_EQ(rails[1].rate_gbps, 0.4);
  EXPECT_EQ(rails[2].rate_gbps, 1);
}

TEST(ChooseRails, BadValuesAreNamedWithWhatThereIs) {
  const FakeSysfs tree;
  add_two_rail_host(tree);
  const HostDescription host = discover_host(tree.root());
  EXPECT_THAT(rails_error(host, "mlx5_0,mlx5_7"),
              ::testing::AllOf(HasSubstr("'mlx5_7'"), HasSubstr("eno1, mlx5_1, mlx5_0, ens9, lo")));
  EXPECT_THAT(rails_error(host, "mlx5_0,,eno1"), HasSubstr("empty name"));
  EXPECT_THAT(rails_error(host, "mlx5_0,"), HasSubstr("empty name"));
  EXPECT_THAT(rails_error(host, " "), HasSubstr("empty name"));
  EXPECT_THAT(rails_error(host, "eno1,eno1:1"), HasSubstr("'eno1' twice"));
  EXPECT_THAT(rails_error(host, "mlx5_0:1"), HasSubstr("names a port"));
  for (const char* rate : {"", "fast", "0", "-1", "inf", "nan", "1e999", "1x", "1:2", "0x10"}) {
    EXPECT_THAT(rails_error(host, ("eno1:" + std::string(rate)).c_str()),
                HasSubstr("the rate '" + std::string(rate) + "' in 'eno1:"));
  }
  EXPECT_THAT(rails_error({}, "eth0"), HasSubstr("this host has none"));
}

TEST(Place, OfThisProcess) {
  const Variable rails("WEFT_RAILS", nullptr), id("WEFT_HOST_ID", nullptr);
  const Place place = discover_place();
  const HostDescription host = discover_host();
  EXPECT_THAT(place.host, ::testing::StartsWith(host.hostname + "#"));
  EXPECT_THAT(place.machine, Not(IsEmpty()));
  EXPECT_EQ(place.machine, discover_place().machine);
  EXPECT_GE(host.cores, 1);
  EXPECT_THAT(host.numa, Not(IsEmpty()));
  if (host.nics.empty()) GTEST_SKIP() << "missing capability: a network interface";
  EXPECT_THAT(names(host.nics), ::testing::Contains("lo"));
  EXPECT_EQ(names(place.rails), names(choose_rails(host)));
}

TEST(Place, HostIdentityIsWhatTheVariableSays) {
  const Variable rails("WEFT_RAILS", nullptr);
  std::string machine;
  for (const char* name : {"hostA", "host B"}) {
    const Variable id("WEFT_HOST_ID", name);
    const Place place = discover_place();
    EXPECT_EQ(place.host, name);
    // Emulated hosts share the memory of one machine.
    EXPECT_TRUE(machine.empty() || machine == place.machine) << place.machine;
    machine = place.machine;
  }
  {
    const Variable id("WEFT_HOST_ID", "");
    EXPECT_THAT(discover_place().host, Not(IsEmpty()));
  }
  const Variable id("WEFT_HOST_ID", "a\nb");
  EXPECT_THROW(discover_place(), Error);
}

TEST(Sysfs, CpuLists) {
  EXPECT_THAT(sysfs::parse_cpulist("0-2,8"), ElementsAre(0, 1, 2, 8));
  EXPECT_THAT(sysfs::parse_cpulist(""), IsEmpty());
  EXPECT_THAT(sysfs::parse_cpulist("3-1,x,-4,5-,7,,0-99999999999"), ElementsAre(7));
  std::vector<NumaNode> nodes(2);
  nodes[0].cpus = "0-3";
  nodes[1].id = 4;
  nodes[1].cpus = "4-7";
  EXPECT_EQ(sysfs::numa_node_of(nodes, "5-6"), 4);
  EXPECT_EQ(sysfs::numa_node_of(nodes, "3-4"), -1);
  EXPECT_EQ(sysfs::numa_node_of(nodes, ""), -1);
}

TEST(Sysfs, PciAddresses) {
  for (const char* good : {"0000:3b:00.0", "10000:01:00.0", "0000:ff:1f.7"}) {
    EXPECT_TRUE(sysfs::is_pci_address(good)) << good;
  }
  for (const char* bad : {"", ":", "3b:00.0", "0000:3b:00", "0000:3b:00.00", "pci0000:00",
                          "0000-3b-00-0", "0000:3g:00.0", "0000:3b:00:0"}) {
    EXPECT_FALSE(sysfs::is_pci_address(bad)) << bad;
  }
}

}  // namespace
}  // namespace weft
