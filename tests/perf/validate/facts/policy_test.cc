// Policies: the meaning of keys, and errors with file, line, key, value and remedy.
#include "perf/validate/facts/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "support/process/temporary_folder.h"
#include "topo/base/status.h"

namespace weft::fabric {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

class FabricPolicy : public ::testing::Test {
 protected:
  Policy read(const std::string& text) {
    std::ofstream(file_) << text;
    return read_policy(file_);
  }
  // read_policy()'s error for the text, without the folder of the file; empty if there is none.
  std::string refusal(const std::string& text) {
    try {
      read(text);
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_THAT(what, StartsWith(file_));
      return what.substr(file_.size() - std::string("fleet.toml").size());
    }
    return "";
  }
  const weft::testing::TemporaryFolder folder_;
  const std::string file_ = folder_ / "fleet.toml";
};

TEST_F(FabricPolicy, ReadsEveryKey) {
  const Policy policy = read(R"(
rate = "400 Gb/s"
mtu = 9000
pfc_priority = 3
dscp = 26
trust = "dscp"
dcqcn = true
lossless = true
excluded_devices = ["mlx5_bond_0"]
adaptive_routing = true
skipped_checks = ["host-setup", "firmware"]
[rail_rate]
2 = "25 GB/s"
[firmware]
MT_0000000838 = "28.41.1000"
[cc_parameters]
rp_ai_rate = 5
np_cnp_dscp = "48"
[thresholds]
warn_rate = 0.9
fail_rate = 0.8
fail_loss = 1e-4
confidence = 0.99
)");
  EXPECT_EQ(policy.file, file_);
  EXPECT_EQ(policy.rate_gbps, 400);
  EXPECT_THAT(policy.rail_rate_gbps, ElementsAre(Pair(2, 200)));
  EXPECT_THAT(policy.firmware, ElementsAre(Pair("MT_0000000838", "28.41.1000")));
  EXPECT_EQ(policy.mtu, 9000);
  EXPECT_EQ(policy.pfc_priority, 3);
  EXPECT_EQ(policy.dscp, 26);
  EXPECT_EQ(policy.trust, "dscp");
  EXPECT_EQ(policy.dcqcn, true);
  EXPECT_EQ(policy.lossless, true);
  EXPECT_THAT(policy.cc_parameters,
              ElementsAre(Pair("np_cnp_dscp", "48"), Pair("rp_ai_rate", "5")));
  EXPECT_THAT(policy.excluded_devices, ElementsAre("mlx5_bond_0"));
  EXPECT_TRUE(policy.adaptive_routing);
  EXPECT_THAT(policy.skipped_checks, ElementsAre("host-setup", "firmware"));
  EXPECT_EQ(policy.thresholds.warn_rate, 0.9);
  EXPECT_EQ(policy.thresholds.fail_loss, 1e-4);
  EXPECT_EQ(policy.thresholds.confidence, 0.99);
  EXPECT_EQ(policy.thresholds.fail_latency, Thresholds{}.fail_latency);
}

TEST_F(FabricPolicy, OfAnEmptyFileAllIsByDefault) {
  const Policy policy = read("");
  EXPECT_FALSE(policy.rate_gbps.has_value());
  EXPECT_EQ(policy.thresholds.warn_rate, Thresholds{}.warn_rate);
}

TEST_F(FabricPolicy, NamesTheNearestKeyToAnUnknownOne) {
  EXPECT_EQ(refusal("mtu = 9000\nrats = \"400 Gb/s\"\n"),
            "fleet.toml:2: rats = '400 Gb/s': unknown key; did you mean rate?");
  EXPECT_THAT(refusal("\n\npfc_priorty = 3"),
              AllOf(HasSubstr(":3: pfc_priorty = 3"), HasSubstr("mean pfc_priority")));
  EXPECT_THAT(
      refusal("[thresholds]\nwarnrate = 0.9"),
      AllOf(HasSubstr(":2: thresholds.warnrate = 0.9"), HasSubstr("mean thresholds.warn_rate")));
  // A key outside its table.
  EXPECT_THAT(refusal("warn_rate = 0.9"), HasSubstr("mean thresholds.warn_rate"));
  EXPECT_THAT(refusal("[threshold]\nwarn_rate = 0.9"), HasSubstr("mean thresholds"));
}

struct BadPolicy {
  const char* text;
  std::vector<const char*> words;
};

TEST_F(FabricPolicy, RefusesBadValues) {
  const BadPolicy cases[] = {
      {"rate = 400", {":1: rate = 400:", "needs a unit", "\"400 Gb/s\""}},
      {"rate = \"400 Gbps\"", {"400 Gbps", "known units are", "GB/s"}},
      {"rate = \"0 Gb/s\"", {"0 Gb/s", "above 0"}},
      {"rate = \"-4 Gb/s\"", {"above 0"}},
      {"rate = \"inf Gb/s\"", {"known units"}},
      {"rate = \"1e400 Gb/s\"", {"not a rate"}},
      {"rate = \"\"", {"not a rate"}},
      {"rate = true", {"text in quotes"}},
      {"rail_rate = 3", {"a table is expected", "[rail_rate]"}},
      {"[rail_rate]\nfirst = \"4 Gb/s\"", {":2: rail_rate.first", "not a rail number"}},
      {"[rail_rate]\n0 = 4", {":2: rail_rate.0 = 4", "unit"}},
      {"[firmware]\nMT_1 = 28", {"firmware.MT_1 = 28", "text in quotes"}},
      {"mtu = 67", {"mtu = 67", "68 to 65535"}},
      {"mtu = \"9 KiB\"", {"bytes as a whole number"}},
      {"mtu = 1500.5", {"whole number"}},
      {"pfc_priority = 8", {"-1 to 7"}},
      {"dscp = 64", {"0 to 63"}},
      {"trust = \"dcsp\"", {"\"dscp\" or \"pcp\""}},
      {"dcqcn = \"yes\"", {"true or false"}},
      {"lossless = 1", {"true or false"}},
      {"excluded_devices = \"mlx5_0\"", {"a list", "[\"mlx5_bond_0\"]"}},
      {"skipped_checks = [1]", {"texts are expected"}},
      {"[thresholds]\nwarn_rate = 93", {"from 0 to 1"}},
      {"[thresholds]\nwarn_rate = nan", {"from 0 to 1"}},
      {"[thresholds]\nwarn_latency = 0.5", {"1 or more"}},
      {"[thresholds]\nfail_rate = 0.95", {":2: thresholds.fail_rate", "above warn_rate"}},
      {"[thresholds]\nwarn_loss = 0.1", {":2: thresholds.warn_loss", "below warn_loss"}},
      {"[thresholds]\nconfidence = 1", {"0.5 to 0.999999"}},
      {"[thresholds]\nwarn_rate = \"93 %\"", {"from 0 to 1"}},
      {"thresholds = 5", {"a table"}},
      {"mtu = 9000\nmtu = 1500", {":2:", "not valid TOML"}},
      {"rate = ", {":1:", "not valid TOML"}},
  };
  for (const BadPolicy& bad : cases) {
    const std::string why = refusal(bad.text);
    for (const char* word : bad.words) EXPECT_THAT(why, HasSubstr(word)) << bad.text;
  }
}

TEST_F(FabricPolicy, NamesAFileThatCannotBeRead) {
  const auto why = [](const std::string& path) -> std::string {
    try {
      read_policy(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(why(folder_ / "none.toml"),
              AllOf(HasSubstr("none.toml"), HasSubstr("No such file"), HasSubstr("name a TOML")));
  EXPECT_THAT(why(folder_.path()), HasSubstr("Is a directory"));
}

TEST(FabricRate, OfTextsWithUnits) {
  EXPECT_EQ(rate_from("400 Gb/s"), 400);
  EXPECT_EQ(rate_from("400Gb/s"), 400);
  EXPECT_EQ(rate_from("50 GB/s"), 400);
  EXPECT_EQ(rate_from("400 Mb/s"), 0.4);
  EXPECT_EQ(rate_from("1.6 Tb/s"), 1600);
  EXPECT_EQ(rate_from("4e2 Gb/s"), 400);
  EXPECT_EQ(rate_from("125 MB/s"), 1);
  for (const char* bad : {"", "400", "Gb/s", "400 gb/s", "400 Gb", "4 00 Gb/s", "0 Gb/s",
                          "1-2 Gb/s", "400 Gb/s per rail"})
    EXPECT_THROW(rate_from(bad), Error) << bad;
}

}  // namespace
}  // namespace weft::fabric
