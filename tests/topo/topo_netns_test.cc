// Discovery in network namespaces: with /sys of another namespace, and with addresses of two
// families.
// labels: lab
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "support/process/shell.h"
#include "transport/ucx/ucx.h"

namespace weft {
namespace {

using nlohmann::json;

// unshare does not remount /sys, so it still shows the interfaces of the outer namespace.
std::string in_namespace(const std::string& command) {
  return "unshare --net sh -c '" + command + "'";
}

TEST(TopoNetns, RailsAreThoseOfTheNamespace) {
  if (run(in_namespace("ip link show lo")).exit_code != 0) {
    GTEST_SKIP() << "missing capability: network namespaces (root, unshare and ip)";
  }
  const std::string set_up =
      "ip link add rail0 type veth peer name rail1 && ip link set rail0 up && "
      "ip link set rail1 up && ip addr add 192.0.2.7/24 dev rail0 && ";
  const Output veth = run(in_namespace(set_up + "true"));
  if (veth.exit_code != 0) GTEST_SKIP() << "missing capability: veth devices: " << veth.text;

  const Output output =
      run(in_namespace(set_up + "WEFT_RAILS=rail1:0.2,rail0:0.4 " WEFT_BINARY " topo --json"));
  ASSERT_EQ(output.exit_code, 0) << output.text;
  const json topo = json::parse(output.text);
  std::vector<std::string> names;
  for (const json& nic : topo["nics"]) names.push_back(nic["name"]);
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("lo", "rail0", "rail1"));
  ASSERT_EQ(topo["rails"].size(), 2u);
  EXPECT_EQ(topo["rails"][0]["name"], "rail1");
  EXPECT_EQ(topo["rails"][0]["rate_gbps"], 0.2);
  EXPECT_EQ(topo["rails"][1]["address"], "192.0.2.7");
  EXPECT_EQ(topo["rails"][1]["up"], true);
}

// A host with both families and one with only IPv6: they use IPv6 on every transport.
TEST(TopoNetns, AHostWithoutIpv4MeetsThoseThatHaveBoth) {
  const std::string hosts = R"sh(
    mount -t sysfs sys /sys || exit 9  # where UCX looks for interfaces
    unshare --net --mount sh -c "mount -t sysfs sys /sys && exec sleep 100" & other=$!
    trap "kill $other" EXIT
    until test "$(cat /proc/$other/comm)" = sleep; do kill -0 $other || exit 9; done
    there="nsenter --net --mount --target $other"
    ip link add rail0 type veth peer name rail0 netns $other || exit 9
    ip addr add 192.0.2.1/24 dev rail0 && ip addr add fd00::1/64 dev rail0 nodad || exit 9
    $there ip addr add fd00::2/64 dev rail0 nodad || exit 9
    ip link set rail0 up && $there ip link set rail0 up || exit 9
    until $there grep -q up /sys/class/net/rail0/operstate &&
        grep -q up /sys/class/net/rail0/operstate; do sleep 0.05; done
    export WEFT_ROOT=[fd00::1]:7100 WEFT_SIZE=2 WEFT_SECRET=s WEFT_RAILS=rail0
  )sh";
  for (const std::string transport : {"tcp", "ucx"}) {
    if (transport == "ucx" && !ucx_available()) continue;
    const std::string job =
        "job=\"" WEFT_BINARY " perf all_reduce -b 1K -e 1K -n 1 --transport " + transport + "\"\n" +
        "WEFT_RANK=1 WEFT_HOST_ID=b $there $job & WEFT_RANK=0 WEFT_HOST_ID=a $job && wait $!";
    const Output output = run("unshare --mount " + in_namespace(hosts + job));
    if (output.exit_code == 9)
      GTEST_SKIP() << "missing capability: namespaces with IPv6 and veth: " << output.text;
    EXPECT_EQ(output.exit_code, 0) << transport << ": " << output.text;
    EXPECT_THAT(output.text, ::testing::HasSubstr("all results exact"));
  }
}

// Two containers that share a core.
TEST(TopoNetns, RanksInContainersTakeTurnsOnTheCoresOfTheirKernel) {
  const std::string container = "unshare --pid --fork --mount-proc ";
  if (run(container + "true").exit_code != 0)
    GTEST_SKIP() << "missing capability: process namespaces (root, unshare)";
  const Output output =
      run("core=$(taskset -c -p $$ | sed 's/.*[ ,-]//'); WEFT_LOG=debug " WEFT_BINARY
          " launch -N 2 --no-bind --host-ids a,b -- " +
          container + "taskset -c $core " WEFT_BINARY " perf all_reduce -b 1K -e 1K -n 1");
  EXPECT_EQ(output.exit_code, 0) << output.text;
  EXPECT_THAT(output.text, ::testing::HasSubstr("share memory, more ranks than cores"));
}

}  // namespace
}  // namespace weft
