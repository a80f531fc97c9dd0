// Selection of rails among ports, and the reasons against the others, on made-up trees.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <map>

#include "fake_sysfs.h"
#include "topo/discover.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// An RDMA device on a separate card below its own root complex.
struct Card {
  std::string name, pci, layer = "InfiniBand", device = "0x1021";
  std::string state = "4: ACTIVE", physical = "5: LinkUp", rate = "400 Gb/sec (4X NDR)";
  std::string lanes = "16", speed = "32.0 GT/s PCIe", numa = "0";
};

void add_card(const FakeSysfs& tree, const Card& card) {
  tree.add_pci(card.pci, "0x020700", "0x15b3", card.device, card.numa);
  const std::string function = FakeSysfs::function(card.pci);
  tree.write(function + "/max_link_width", card.lanes);
  tree.write(function + "/max_link_speed", card.speed);
  tree.add_rdma(card.name, card.pci, "1", card.state, card.rate);
  const std::string port = function + "/infiniband/" + card.name + "/ports/1/";
  tree.write(port + "phys_state", card.physical);
  tree.write(port + "link_layer", card.layer);
}

class Ports : public ::testing::Test {
 protected:
  Ports() { unsetenv("WEFT_RAILS"); }
  // The rails of the tree in order, and the reason for every other device.
  std::string rails() {
    const PortChoice choice = choose_ports(discover_host(tree_.root()));
    std::vector<std::string> names;
    for (const Nic& nic : choice.rails) names.push_back(nic.name);
    why_.clear();
    for (const Nic& nic : choice.others) why_[nic.name] = nic.aside;
    return fmt::format("{}", fmt::join(names, " "));
  }
  void add_link(const std::string& name, int index, const std::string& type, int lower) {
    tree_.add_netdev(name, "", "", "up");
    const std::string folder = "class/net/" + name;
    tree_.write(folder + "/ifindex", std::to_string(index));
    tree_.write(folder + "/iflink", std::to_string(lower));
    if (!type.empty()) tree_.write(folder + "/uevent", "DEVTYPE=" + type);
  }
  void add_nic(const std::string& name, const std::string& pci, int index,
               const std::string& operstate = "up") {
    tree_.add_pci(pci, "0x020000", "0x8086", "0x1592", "0");
    tree_.add_netdev(name, pci, "100000", operstate);
    tree_.write("class/net/" + name + "/ifindex", std::to_string(index));
    tree_.write("class/net/" + name + "/iflink", std::to_string(index));
  }
  FakeSysfs tree_;
  std::map<std::string, std::string> why_;
};

TEST_F(Ports, AStateOrARateTakesNoPortOutOfTheSet) {
  add_card(tree_, {"mlx5_0", "0000:1a:00.0"});
  add_card(tree_, {.name = "mlx5_1",
                   .pci = "0000:3c:00.0",
                   .state = "1: DOWN",
                   .physical = "2: Polling",
                   .rate = "10 Gb/sec (4X SDR)"});
  add_card(tree_, {.name = "mlx5_2", .pci = "0000:4d:00.0", .state = "2: INIT"});
  add_card(tree_, {.name = "mlx5_3", .pci = "0000:5e:00.0", .rate = "100 Gb/sec (1X NDR)"});
  EXPECT_EQ(rails(), "mlx5_0 mlx5_1 mlx5_2 mlx5_3");
  const PortChoice choice = choose_ports(discover_host(tree_.root()));
  EXPECT_EQ(choice.rails[1].state, "DOWN, Polling");
  EXPECT_EQ(choice.rails[2].state, "INIT, LinkUp");
}

TEST_F(Ports, AnotherKindIsNotTheJobs) {
  for (const char* pci : {"0000:1a:00.0", "0000:3c:00.0"})
    add_card(tree_, {fmt::format("ib{}", pci[5]), pci});
  add_card(tree_, {.name = "front0", .pci = "0000:5e:00.0", .layer = "Ethernet"});
  EXPECT_EQ(rails(), "ib1 ib3") << "InfiniBand before Ethernet";
  EXPECT_THAT(why_["front0"], ::testing::AllOf(StartsWith("another kind"), HasSubstr("Ethernet")));
  EXPECT_THAT(why_["front0"], HasSubstr("x16 of 32.0 GT/s PCIe"));
}

// Two of the large ports are down, and all of the small ones are up.
TEST_F(Ports, TheKindBesideTheGpusIsTheJobs) {
  for (int i = 0; i < 4; ++i) {
    add_card(tree_, {.name = fmt::format("mlx5_{}", i),
                     .pci = fmt::format("0000:{}a:00.0", i + 1),
                     .layer = "Ethernet",
                     .state = i < 2 ? "1: DOWN" : "4: ACTIVE",
                     .physical = i < 2 ? "3: Disabled" : "5: LinkUp"});
    tree_.add_pci(fmt::format("0000:{}b:00.0", i + 1), "0x030200", "0x10de", "0x2330", "0");
  }
  for (int i = 0; i < 2; ++i)
    add_card(tree_, {.name = fmt::format("front{}", i),
                     .pci = fmt::format("0000:c{}:00.0", i),
                     .layer = "Ethernet",
                     .device = "0x101d",
                     .rate = "100 Gb/sec (4X EDR)",
                     .speed = "16.0 GT/s PCIe"});
  EXPECT_EQ(rails(), "mlx5_0 mlx5_1 mlx5_2 mlx5_3");
}

TEST_F(Ports, PlanesAreRailsAndASecondPortWithoutCablesIsNone) {
  const auto card = [&](int i, int function, bool up) {
    add_card(tree_, {.name = fmt::format("mlx5_{}", 2 * i + function),
                     .pci = fmt::format("0000:{}a:00.{}", i + 1, function),
                     .state = up ? "4: ACTIVE" : "1: DOWN",
                     .physical = up ? "5: LinkUp" : "3: Disabled"});
  };
  for (int i = 0; i < 2; ++i) {
    card(i, 0, true);
    card(i, 1, false);
  }
  EXPECT_EQ(rails(), "mlx5_0 mlx5_2");
  EXPECT_EQ(why_["mlx5_1"], "this port of the card has no cable, on any such card");
  const std::string port = FakeSysfs::function("0000:1a:00.1") + "/infiniband/mlx5_1/ports/1/";
  tree_.write(port + "state", "4: ACTIVE");
  tree_.write(port + "phys_state", "5: LinkUp");
  EXPECT_EQ(rails(), "mlx5_0 mlx5_1 mlx5_2 mlx5_3") << "one has a cable: the other lost its";
}

TEST_F(Ports, AVirtualFunctionSharesTheCableOfItsCard) {
  add_card(tree_, {"mlx5_0", "0000:1a:00.0"});
  add_card(tree_, {.name = "mlx5_1", .pci = "0000:1a:00.2", .lanes = "0"});
  tree_.link(FakeSysfs::function("0000:1a:00.2") + "/physfn", FakeSysfs::function("0000:1a:00.0"));
  EXPECT_EQ(rails(), "mlx5_0");
  EXPECT_EQ(why_["mlx5_1"], "shares the cable of mlx5_0");
}

TEST_F(Ports, AVirtualFunctionAloneIsAPort) {
  add_card(tree_, {.name = "mlx5_1", .pci = "0000:1a:00.2", .lanes = "0"});
  EXPECT_EQ(rails(), "mlx5_1");
}

TEST_F(Ports, InterfacesWithoutAnyCableServeWhenNoRdmaDeviceHasOne) {
  add_card(tree_,
           {.name = "mlx5_0", .pci = "0000:1a:00.0", .state = "1: DOWN", .physical = "2: Polling"});
  add_nic("eth0", "0000:02:00.0", 2);
  EXPECT_EQ(rails(), "eth0");
  EXPECT_THAT(why_["mlx5_0"], StartsWith("no cable"));
}

TEST_F(Ports, WhatRidesOnANicIsTheSameCable) {
  add_nic("eth0", "0000:02:00.0", 2);
  add_link("eth0.1015", 3, "vlan", 2);
  add_link("mv0", 4, "macvlan", 2);
  add_link("veth7", 6, "", 5);
  EXPECT_EQ(rails(), "eth0");
  EXPECT_EQ(why_["eth0.1015"], "shares the cable of eth0");
  EXPECT_EQ(why_["mv0"], "shares the cable of eth0");
  EXPECT_EQ(why_["veth7"], "virtual, beside NICs");
}

TEST_F(Ports, ABondStandsForItsPorts) {
  add_nic("eth0", "0000:02:00.0", 2);
  add_nic("eth1", "0000:03:00.0", 3);
  add_link("bond0", 4, "bond", 4);
  for (const char* name : {"eth0", "eth1"})
    tree_.link("class/net/" + std::string(name) + "/master", "class/net/bond0");
  EXPECT_EQ(rails(), "bond0");
  EXPECT_EQ(why_["eth0"], "a port of bond0");
}

TEST_F(Ports, BridgesRepresentorsTunnelsAndDevicesWithoutCables) {
  add_nic("eth0", "0000:02:00.0", 2);
  add_nic("eth0v0", "0000:02:00.1", 3);
  tree_.write("class/net/eth0v0/phys_port_name", "pf0vf0");
  add_link("nerdctl0", 4, "bridge", 4);
  add_link("vx0", 5, "vxlan", 5);
  add_link("ipvs0", 6, "", 6);
  tree_.write("class/net/ipvs0/flags", "0x83");
  EXPECT_EQ(rails(), "eth0");
  EXPECT_EQ(why_["eth0v0"], "the host's end of a virtual function (pf0vf0)");
  EXPECT_THAT(why_["nerdctl0"], StartsWith("a bridge without a NIC"));
  EXPECT_THAT(why_["vx0"], StartsWith("a tunnel (vxlan)"));
  EXPECT_THAT(why_["ipvs0"], StartsWith("a device of kind dummy"));
}

TEST_F(Ports, AContainerHasTheDevicesThatItCanOpen) {
  for (int i = 0; i < 4; ++i)
    add_card(tree_, {fmt::format("mlx5_{}", i), fmt::format("0000:{}a:00.0", i + 1)});
  HostDescription host = discover_host(tree_.root());
  for (Nic& nic : host.nics) nic.closed = nic.name > "mlx5_1";
  const PortChoice choice = choose_ports(host);
  EXPECT_EQ(choice.rails.size(), 2u);
  ASSERT_EQ(choice.others.size(), 2u);
  EXPECT_EQ(choice.others[0].aside, "this process cannot open it");
}

}  // namespace
}  // namespace weft
