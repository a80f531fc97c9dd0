// Selection of rails among interfaces created in the kernel: bridges, VLANs, bonds, addresses on
// lo.
// labels: lab
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/process/shell.h"

namespace weft {
namespace {

using ::testing::Contains;

// A host with eth0 and eth1, virtual cables whose other ends are in another namespace.
constexpr const char* kHost = R"sh(
  unshare --net sleep 100 & there=$!
  trap "kill $there" EXIT
  until test "$(cat /proc/$there/comm)" = sleep; do kill -0 $there || exit 9; done
  for i in 0 1; do
    ip link add eth$i type veth peer name far$i || exit 9
    ip link set far$i netns $there && nsenter --net --target $there ip link set far$i up || exit 9
    ip link set eth$i up
  done
)sh";

// The veth pair of a container engine.
constexpr const char* kContainer = "ip link add c0 type veth peer name c1; ip link set c1 up; ";

struct Shown {
  std::map<std::string, std::string> rails, others;  // addresses; reasons
  std::string skipped;
};

Shown topo_after(const std::string& set_up) {
  const Output output = run("unshare --net sh -c '" + std::string(kHost) + "(" + set_up +
                            ") 2>&1 || exit 9\n env -u WEFT_RAILS " WEFT_BINARY " topo --json'");
  Shown shown;
  if (output.exit_code == 9) shown.skipped = output.text;
  if (output.exit_code == 9) return shown;
  EXPECT_EQ(output.exit_code, 0) << output.text;
  const auto topo = nlohmann::json::parse(output.text.substr(output.text.find('{')));
  const auto text = [](const nlohmann::json& value) {
    return value.is_string() ? value.get<std::string>() : "";
  };
  for (const auto& rail : topo["rails"]) shown.rails[rail["name"]] = text(rail["address"]);
  for (const auto& other : topo["no_rails"]) shown.others[other["name"]] = text(other["reason"]);
  return shown;
}

struct HostCase {
  const char* name;
  std::string set_up;
  std::map<std::string, std::string> rails, others;  // like Shown; a subset of the others
};
void PrintTo(const HostCase& one, std::ostream* os) { *os << one.name; }

const std::vector<HostCase>& host_cases() {
  // clang-format off
  static const std::vector<HostCase> all = {
      {"ABridgeOfContainersIsNoRail",
       "ip addr add 192.0.2.1/24 dev eth0 && ip link add engine0 type bridge && " +
           std::string(kContainer) +
           "ip link set engine0 up && ip link set c0 master engine0 up && "
           "ip addr add 10.4.0.1/24 dev engine0",
       {{"eth0", "192.0.2.1"}},
       {{"engine0", "a bridge without a NIC, for traffic inside this host"},
        {"c0", "a virtual cable with both ends on this host"},
        {"eth1", "no address"}}},
      {"ABridgeOverANicIsItsRail",
       "ip link add ex type bridge && ip link set ex up && ip link set eth0 master ex && "
       "ip addr add 192.0.2.1/24 dev ex && ip link add pods type bridge && "
       "ip link set pods up && " +
           std::string(kContainer) +
           "ip link set c0 master pods up && ip addr add 10.128.0.2/23 dev pods",
       {{"ex", "192.0.2.1"}},
       {{"eth0", "shares the cable of ex"}}},
      {"AVlanAndAMacvlanShareTheirCable",
       "ip addr add 192.0.2.1/24 dev eth0 && ip link add mv0 link eth0 type macvlan && "
       "ip link set mv0 up && ip addr add 192.0.2.3/24 dev mv0 && "
       "ip link add eth1.5 link eth1 type vlan id 5 && ip link set eth1.5 up && "
       "ip addr add 198.51.100.1/24 dev eth1.5",
       {{"eth0", "192.0.2.1"}, {"eth1.5", "198.51.100.1"}},
       {{"mv0", "shares the cable of eth0"}, {"eth1", "shares the cable of eth1.5"}}},
      {"ABondStandsForItsPorts",
       "ip link add bond7 type bond && ip link set eth0 down && ip link set eth1 down && "
       "ip link set eth0 master bond7 && ip link set eth1 master bond7 && "
       "ip link set bond7 up && ip addr add 192.0.2.1/24 dev bond7 && "
       "until grep -q up /sys/class/net/bond7/operstate || ip -br link show bond7 | "
       "grep -q LOWER_UP; do sleep 0.05; done",
       {{"bond7", "192.0.2.1"}},
       {{"eth0", "a port of bond7"}}},
      {"PortsOfAVrfAreRailsAndItIsNone",
       "ip link add blue type vrf table 10 && ip link set blue up && "
       "ip link set eth0 master blue && ip addr add 192.0.2.1/24 dev eth0 && "
       "ip addr add 192.0.2.9/32 dev blue",
       {{"eth0", "192.0.2.1"}},
       {{"blue", "a device of kind vrf, which has no cable"}}},
      {"TwoNicsOfOneSubnetAreTwoRails",
       "ip addr add 192.0.2.1/24 dev eth0 && ip addr add 192.0.2.2/24 dev eth1",
       {{"eth0", "192.0.2.1"}, {"eth1", "192.0.2.2"}}, {}},
      {"Ipv6Only", "ip addr add fd00:50::1/64 dev eth0 nodad", {{"eth0", "fd00:50::1"}}, {}},
      // BGP unnumbered: routes select a packet's NIC.
      {"AnAddressOnLoIsThatOfTheNic",
       "ip link set lo up && ip addr add 192.0.2.1/32 dev lo && ip link set eth1 down",
       {{"eth0", "192.0.2.1"}}, {}},
      {"AnAddressOnLoIsThatOfAllNics",
       "ip link set lo up && ip addr add 192.0.2.1/32 dev lo",
       {{"eth0", "192.0.2.1"}},
       {{"eth1", "routing shares the address 192.0.2.1 out over eth0 and this"}}},
  };
  // clang-format on
  return all;
}

class PortsNetns : public ::testing::TestWithParam<HostCase> {};

TEST_P(PortsNetns, AreRails) {
  const Shown shown = topo_after(GetParam().set_up);
  if (!shown.skipped.empty())
    GTEST_SKIP() << "missing capability: network namespaces with such devices: " << shown.skipped;
  EXPECT_EQ(shown.rails, GetParam().rails);
  for (const auto& other : GetParam().others) EXPECT_THAT(shown.others, Contains(other));
}

INSTANTIATE_TEST_SUITE_P(, PortsNetns, ::testing::ValuesIn(host_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace weft
