// Facts to JSON and back, and JSON that no rank of this version writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "perf/validate/facts/facts.h"
#include "topo/base/status.h"

namespace weft::fabric {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

HostFacts host_with_all_fields() {
  HostFacts h;
  h.host = "h3";
  h.hostname = "node3";
  h.kernel = "6.8.0";
  h.first_rank = 24;
  h.ranks = 8;
  h.cores = 16;
  h.allowed_cpus = "0-15";
  h.numa_node = 0;
  h.memlock_bytes = UINT64_MAX;
  h.governor = "performance";
  h.huge_pages = "madvise";
  h.gpu_state = {{"gpu0.nvlinks_down", {ReadingState::kValue, 0}}};
  h.peer_memory = false;
  h.dmabuf = true;
  h.gpus = 8;
  h.stops = {20.5, 1.25, 0.0625, 7, 0.5};
  h.names_rails = true;
  h.emulated = true;
  PortFacts p;
  p.rail = 1;
  p.device = "mlx5_1";
  p.netdev = "eth1";
  p.ib_port = 1;
  p.rdma = true;
  p.state = "ACTIVE";
  p.phys_state = "LinkUp";
  p.link_layer = "Ethernet";
  p.rate_gbps = 400;
  p.most_rate_gbps = 400.5;
  p.width_lanes = 4;
  p.operstate = "up";
  p.carrier = true;
  p.mtu = 9000;
  p.active_mtu = 4096;
  p.mac = "02:00:00:00:00:01";
  p.address = "10.0.0.1";
  p.subnet = "10.0.0.0/24";
  p.arp_for_all = true;
  p.sm_lid = 1;
  p.lid = 2;
  p.pkeys = {"0xffff"};
  p.gids = {{3, "::ffff:10.0.0.1", "RoCE v2", "eth1"}};
  p.firmware = "28.41.1000";
  p.board = "MT_0000000838";
  p.driver = "mlx5_core";
  p.pcie_speed = p.pcie_most_speed = "32.0 GT/s PCIe";
  p.pcie_width = 8;
  p.pcie_most_width = 16;
  p.slot_most_speed = "16.0 GT/s PCIe";
  p.slot_most_width = 8;
  p.numa_node = 1;
  p.local_cpus = "16-31";
  p.pci = "0000:3b:00.0";
  p.switch_name = "leaf-1";
  p.switch_port = "Ethernet1/1";
  p.settings = {{"FEC", "RS"}};
  p.gauges = {{"nic.celsius", {ReadingState::kValue, 61}}};
  p.qos_trust = "dscp";
  p.pfc_priorities = 8;
  p.pause_rx = false;
  p.pause_tx = true;
  p.dscp_map = {{26, 3}};
  p.ecn_np_priorities = 8;
  p.ecn_rp_priorities = 0;
  p.cc_parameters = {{"rp_ai_rate", "5"}, {"np_cnp_dscp", "48"}};
  p.before = {{"ib.link_downed", {ReadingState::kValue, 255}},
              {"ib.port_xmit_data", {ReadingState::kNotAvailable, 0}},
              {"hw.odd", {ReadingState::kUnreadable, 0}}};
  p.after = {{"ib.link_downed", {ReadingState::kValue, UINT64_MAX}},
             {"ib.port_xmit_data", {ReadingState::kAbsent, 0}}};
  h.ports = {p};
  return h;
}

std::string refusal(const nlohmann::ordered_json& json) {
  try {
    host_facts_from_json(json);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(FabricFactsJson, KeepsEveryField) {
  const auto json = to_json(host_with_all_fields());
  EXPECT_EQ(json["ports"][0].size(), 49u);  // all of PortFacts: no field may be missing
  EXPECT_EQ(json["memlock_bytes"], UINT64_MAX);
  EXPECT_EQ(json["ports"][0]["before"]["ib.port_xmit_data"], "N/A");
  const auto text = nlohmann::ordered_json::parse(json.dump());
  const HostFacts back = host_facts_from_json(text);
  EXPECT_EQ(to_json(back), json);
  EXPECT_EQ(back.ports[0].before.at("hw.odd").state, ReadingState::kUnreadable);
  EXPECT_EQ(back.ports[0].after.at("ib.port_xmit_data").state, ReadingState::kAbsent);
  EXPECT_EQ(back.ports[0].cc_parameters[1].second, "48");
}

TEST(FabricFactsJson, LeavesOutWhatIsAbsent) {
  HostFacts host;
  host.host = "h0";
  host.ports.emplace_back().device = "eth0";
  const auto json = to_json(host);
  EXPECT_FALSE(json.contains("governor"));
  EXPECT_EQ(json["ports"][0].size(), 5u) << json;
  const HostFacts back = host_facts_from_json(json);
  EXPECT_FALSE(back.ports[0].mtu.has_value());
  EXPECT_EQ(back.ports[0].device, "eth0");
}

TEST(FabricFactsJson, RefusesAndNamesWhatIsWrong) {
  const auto good = to_json(host_with_all_fields());
  const auto with = [&](const char* pointer, const nlohmann::ordered_json& value) {
    auto json = good;
    json[nlohmann::ordered_json::json_pointer(pointer)] = value;
    return refusal(json);
  };
  EXPECT_EQ(refusal(good), "");
  EXPECT_THAT(with("/ports/0/mtu_bytes", "abc"),
              AllOf(HasSubstr("host h3: ports[0].mtu_bytes is \"abc\""),
                    HasSubstr("no whole number"), HasSubstr("same version of weft")));
  EXPECT_THAT(with("/ports/0/mtu_bytes", 1e300), HasSubstr("no whole number"));
  EXPECT_THAT(with("/ports/0/rail", std::int64_t{1} << 40), HasSubstr("no whole number in range"));
  EXPECT_THAT(with("/ports/0/carrier", 1), HasSubstr("no Boolean"));
  EXPECT_THAT(with("/ports/0/before/ib.link_downed", -1), HasSubstr("before.ib.link_downed is -1"));
  EXPECT_THAT(with("/ports/0/before/ib.link_downed", "broken"), HasSubstr("no counter"));
  EXPECT_THAT(with("/ports/0/before", 7), HasSubstr("no object"));
  EXPECT_THAT(with("/ports/0/gids", "none"), HasSubstr("no list"));
  EXPECT_THAT(with("/ports/0/gids/0/index", nullptr), HasSubstr("ports[0].gids[0].index is null"));
  EXPECT_THAT(with("/ports/0", 5), HasSubstr("ports[0] is not an object"));
  EXPECT_THAT(with("/ports", nlohmann::ordered_json::object()), HasSubstr("no list"));
  EXPECT_THAT(with("/memlock_bytes", -1), HasSubstr("memlock_bytes is -1, and no whole number"));
  auto headless = good;
  headless.erase("host");
  EXPECT_THAT(refusal(headless), HasSubstr("lacks \"host\""));
  EXPECT_THAT(refusal(nlohmann::ordered_json::array()), HasSubstr("not an object"));
  EXPECT_THAT(refusal(nlohmann::ordered_json(std::string(1000, '\xff'))), HasSubstr("not an object"));
}

}  // namespace
}  // namespace weft::fabric
