// `weft topo` as run by a user or a program.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "fake_sysfs.h"
#include "support/process/shell.h"

namespace weft {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kTopo = "env -u WEFT_RAILS -u WEFT_HOST_ID " WEFT_BINARY " topo";

TEST(TopoCommand, JsonOfThisHost) {
  const Output output = run(kTopo + " --json --ppn 3");
  ASSERT_EQ(output.exit_code, 0) << output.text;
  const json topo = json::parse(output.text);
  EXPECT_EQ(topo["schema"], "weft.topo/1");
  EXPECT_EQ(topo["ranks_per_host"], 3);
  EXPECT_EQ(topo["ranks"].size(), 3u);
  EXPECT_TRUE(topo["host"].is_string());
  EXPECT_GE(topo["cores"], 1);
}

TEST(TopoCommand, JsonOfARecordedTree) {
  const FakeSysfs tree;
  add_two_rail_host(tree);
  const Output output = run(kTopo + " --json --sysfs " + tree.root());
  ASSERT_EQ(output.exit_code, 0) << output.text;
  const json topo = json::parse(output.text);
  EXPECT_TRUE(topo["host"].is_null());
  EXPECT_EQ(topo["gpus"].size(), 2u);
  ASSERT_EQ(topo["rails"].size(), 2u);
  EXPECT_EQ(topo["rails"][0]["name"], "mlx5_1");
  EXPECT_EQ(topo["rails"][0]["rate_gbps"], 200);
  EXPECT_EQ(topo["rails"][1]["netdev"], "ens9");
  EXPECT_TRUE(topo["rails"][1]["address"].is_null());
  // One rank per GPU, each on the rail of its NUMA node.
  EXPECT_EQ(topo["ranks_per_host"], 2);
  EXPECT_EQ(topo["ranks"][0]["rail"], 0);
  EXPECT_EQ(topo["ranks"][1]["rail"], 1);
  EXPECT_EQ(topo["numa_nodes"][0]["memory_bytes"], 2048 * 1024);
  EXPECT_TRUE(topo["numa_nodes"][1]["memory_bytes"].is_null());
}

TEST(TopoCommand, TreeOfARecordedTree) {
  const FakeSysfs tree;
  add_two_rail_host(tree);
  tree.add_pci("0000:05:00.0", "0x068000", "0x10de", "0x22a3", "0");
  const Output output = run(kTopo + " --ppn 4 --sysfs " + tree.root());
  ASSERT_EQ(output.exit_code, 0) << output.text;
  EXPECT_THAT(output.text, HasSubstr("├─ NUMA node 0 · CPUs 0-3"));
  EXPECT_THAT(output.text, HasSubstr("mlx5_0 (ens9)"));
  EXPECT_THAT(output.text, HasSubstr("GPUs 0-1: NVLink"));
  EXPECT_THAT(output.text, HasSubstr("local ranks 0-1 of 4 → rail 0 (mlx5_1)"));
  EXPECT_THAT(output.text, HasSubstr("local ranks 2-3 of 4 → rail 1 (mlx5_0)"));
  EXPECT_THAT(output.text, Not(HasSubstr("\033"))) << "colours in a pipe";
}

TEST(TopoCommand, AsciiIsAscii) {
  const FakeSysfs tree;
  add_two_rail_host(tree);
  const Output output = run(kTopo + " --ascii --sysfs " + tree.root());
  ASSERT_EQ(output.exit_code, 0) << output.text;
  EXPECT_THAT(output.text, HasSubstr("|-- NUMA node 0"));
  for (const char c : output.text) ASSERT_GE(c, 0) << output.text;
}

TEST(TopoCommand, AnEmptyTreeIsShownAsSuch) {
  const FakeSysfs tree;
  const Output output = run(kTopo + " --sysfs " + tree.root());
  EXPECT_EQ(output.exit_code, 0) << output.text;
  EXPECT_THAT(output.text, HasSubstr("rails: none"));
  EXPECT_EQ(run(kTopo + " --json --sysfs " + tree.root()).exit_code, 0);
}

TEST(TopoCommand, ErrorsNameTheValue) {
  const FakeSysfs tree;
  add_two_rail_host(tree);
  const Output rails = run("WEFT_RAILS=mlx5_9 " WEFT_BINARY " topo --sysfs " + tree.root());
  EXPECT_EQ(rails.exit_code, 4);
  EXPECT_THAT(rails.text, ::testing::AllOf(HasSubstr("'mlx5_9'"), HasSubstr("mlx5_0")));
  const Output root = run(kTopo + " --sysfs /does/not/exist");
  EXPECT_EQ(root.exit_code, 4);
  EXPECT_THAT(root.text, HasSubstr("/does/not/exist"));
  const Output ppn = run(kTopo + " --ppn 0");
  EXPECT_EQ(ppn.exit_code, 4);
  EXPECT_THAT(ppn.text, HasSubstr("--ppn"));
}

TEST(TopoCommand, TheHostIdentityIsShown) {
  const Output output = run("WEFT_HOST_ID=emulated7 " WEFT_BINARY " topo");
  EXPECT_EQ(output.exit_code, 0) << output.text;
  EXPECT_THAT(output.text, HasSubstr("as 'emulated7'"));
}

}  // namespace
}  // namespace weft
