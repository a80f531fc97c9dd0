// Discovery in a network namespace, below a /sys of another one.
// labels: lab
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/shell.h"

namespace weft {
namespace {

using nlohmann::json;

// unshare leaves /sys alone, so it still shows the interfaces of the namespace around.
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

}  // namespace
}  // namespace weft
