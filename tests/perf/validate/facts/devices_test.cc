// Facts of NICs and what is attached to them: neighbors, health, temperatures, PCIe settings,
// modules, and GPUs through a library that replaces NVML.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/ethtool_netlink.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <string>

#include "perf/validate/checks/registry.h"
#include "perf/validate/facts/ethtool.h"
#include "perf/validate/facts/netlink.h"
#include "perf/validate/facts/sources.h"
#include "perf/validate/facts/tree.h"
#include "support/process/read_file.h"
#include "support/process/recorded_host.h"

namespace weft::fabric {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using weft::testing::HostTree;
using Files = std::vector<weft::testing::TreeFile>;

std::uint64_t value_of(const Readings& readings, const std::string& name) {
  const auto it = readings.find(name);
  return it == readings.end() ? UINT64_MAX : it->second.value;
}

// The tree of a healthy host, and the output of its programs.
struct Host {
  HostTree tree{weft::testing::connectx_host()};
  Sources sources = tree.sources();
  explicit Host(const Files& files) {
    tree.write(files);
    sources.outputs = tree / "outputs";
  }
  HostFacts facts() const { return read_host(tree.rails(), sources); }
};

TEST(FabricDevices, NeighboursByTheNamesOfInterfaces) {
  const Host host(Files{{"outputs/lldp.json", R"({"lldp": {"interface": {"eth1": {
      "chassis": {"leaf-7": {"id": {"type": "mac", "value": "02:00:00:00:00:09"}}},
      "port": {"id": {"type": "ifname", "value": "Ethernet1/4"}}}}}})"}});
  const HostFacts facts = host.facts();
  EXPECT_FALSE(facts.ports[0].switch_name.has_value());
  EXPECT_EQ(facts.ports[1].switch_name, "leaf-7");
  EXPECT_EQ(facts.ports[1].switch_port, "Ethernet1/4");
}

TEST(FabricDevices, NeighboursInRecordedOutputs) {
  const std::string folder = weft::testing::recorded_folder() + "/lldp-json/";
  if (!std::filesystem::exists(folder))
    GTEST_SKIP() << "missing capability: recorded hosts in " << folder;
  const auto plugged = [&](const char* file, const char* netdev) {
    std::vector<PortFacts> ports(1);
    ports[0].netdev = netdev;
    take_neighbours(read_file(folder + file), ports);
    return ports[0].switch_name.value_or("") + " " + ports[0].switch_port.value_or("");
  };
  EXPECT_EQ(plugged("lldp-0.json", "ens11f0"), "switch-1 25GE1/0/39");
  EXPECT_EQ(plugged("lldp-1.json", "ens14f0np0"), "switch-2 Twenty-FiveGigE1/0/16");
  EXPECT_EQ(plugged("lldp-1.json", "eth0"), "switch-3 FourHundredGigE1/0/98");
  EXPECT_EQ(plugged("lldp-2.json", "eth1"), "switch-4 ethernet12a");
  EXPECT_EQ(plugged("lldp-2.json", "eth0"), " ");
  EXPECT_EQ(plugged("lldp-3.json", "eth0"), " ");
}

TEST(FabricDevices, NeighboursInOddTextsAreNone) {
  for (const char* text : {"", "no JSON", "[]", R"({"lldp": {"interface": 7}})",
                           R"({"lldp": {"interface": [7, {"eth0": []}]}})",
                           R"({"lldp": {"interface": [{"eth0": {"chassis": {"id": 3}}}]}})"}) {
    std::vector<PortFacts> ports(1);
    ports[0].netdev = "eth0";
    take_neighbours(text, ports);
    EXPECT_FALSE(ports[0].switch_name.has_value()) << text;
  }
}

TEST(FabricDevices, HealthOfTheCardThatIsAsked) {
  const Host host({{"outputs/devlink.json", R"({"health": {"pci/0000:30:00.0": [
          {"reporter": "fw", "state": "error", "error": 2, "recover": 1},
          {"reporter": "tx", "state": "healthy", "error": 1, "recover": 1}]}})"},
                   {"outputs/kmsg",
                    "3,10,500,-;mlx5_core 0000:30:00.0: health compromised\n SUBSYSTEM=pci\n"
                    "6,11,501,-;mlx5_core 0000:30:00.0: Port module event\n"
                    "3,12,502,-;mlx5_core 0000:31:00.0: another card"}});
  const HostFacts facts = host.facts();
  const Readings ill = read_counters(facts.ports[0], host.sources);
  EXPECT_EQ(value_of(ill, "devlink.errors"), 3u);
  EXPECT_EQ(value_of(facts.ports[0].gauges, "devlink.ill"), 1u);
  EXPECT_EQ(value_of(ill, "log.errors"), 1u);
  const Readings other = read_counters(facts.ports[1], host.sources);
  EXPECT_FALSE(other.contains("devlink.errors"));
  EXPECT_EQ(value_of(other, "log.errors"), 1u);
}

TEST(FabricDevices, TheHottestSensorOfEachKind) {
  const std::string monitor = "sys/class/infiniband/mlx5_0/device/hwmon/hwmon3/";
  const Host host(Files{{monitor + "temp1_input", "61000"},
                        {monitor + "temp1_label", "asic"},
                        {monitor + "temp1_crit", "105000"},
                        {monitor + "temp2_input", "58000"},
                        {monitor + "temp2_label", "Module0"},
                        {monitor + "temp2_max", "70000"},
                        {monitor + "temp3_input", "40000"}});
  const Readings gauges = host.facts().ports[0].gauges;
  EXPECT_EQ(value_of(gauges, "nic.celsius"), 61u);
  EXPECT_EQ(value_of(gauges, "nic.celsius.most"), 105u);
  EXPECT_EQ(value_of(gauges, "module.celsius"), 58u);
  EXPECT_EQ(value_of(gauges, "module.celsius.most"), 70u);
}

// A NIC below a switch port: hand-made configuration spaces, PCI Express at 0x40 and ACS at 0x100.
TEST(FabricDevices, SettingsOfPcie) {
  Host host(Files{});
  const std::string bridge = "sys/devices/pci0000:00/0000:2f:00.0/",
                    card = bridge + "0000:30:00.0/";
  host.tree.remove("sys/class/infiniband/mlx5_0/device");
  std::filesystem::create_directories(host.tree / card);
  std::filesystem::create_directory_symlink(host.tree / card,
                                            host.tree / "sys/class/infiniband/mlx5_0/device");
  const auto configure = [&](const std::string& folder, int control, int acs) {
    std::string bytes(512, '\0');
    bytes[0x34] = 0x40;
    bytes[0x40] = 0x10;
    bytes[0x48] = static_cast<char>(control & 255);
    bytes[0x49] = static_cast<char>(control >> 8);
    bytes[0x100] = 0x0d;
    bytes[0x106] = static_cast<char>(acs);
    std::ofstream(host.tree / folder + "config", std::ios::binary) << bytes;
  };
  configure(card, 5 << 12 | 1 << 4, 0);
  configure(bridge, 0, 0x1d);
  std::filesystem::create_directories(host.tree / card + "iommu_group");
  std::ofstream(host.tree / card + "iommu_group/type") << "DMA-FQ\n";
  std::ofstream(host.tree / bridge + "max_link_width") << "8\n";
  PortFacts port = host.facts().ports[0];
  EXPECT_THAT(port.settings,
              ElementsAre(Pair("relaxed ordering", "on"), Pair("read request", "4096"),
                          Pair("ACS redirect", "on"), Pair("IOMMU", "translates")));
  EXPECT_THAT(port.slot_most_width, ::testing::Optional(8));
  configure(card, 2 << 12, 0);
  configure(bridge, 0, 0x11);
  port = host.facts().ports[0];
  EXPECT_THAT(port.settings,
              ElementsAre(Pair("relaxed ordering", "off"), Pair("read request", "512"),
                          Pair("ACS redirect", "off"), Pair("IOMMU", "translates")));
}

TEST(FabricDevices, FecInTheOutputOfEthtool) {
  const Host host(Files{});
  std::ofstream(host.tree / "ethtool/eth0.txt", std::ios::app)
      << "FEC parameters for eth0:\nSupported/Configured FEC encodings: Auto\n"
         "Active FEC encoding: RS\n";
  EXPECT_THAT(host.facts().ports[0].settings, ElementsAre(Pair("FEC", "RS")));
  EXPECT_TRUE(host.facts().ports[1].settings.empty());
}

TEST(FabricDevices, MemoryOfAModule) {
  std::array<std::uint8_t, 640> memory{};
  const auto put = [&](std::size_t at, int value) {
    memory[at] = static_cast<std::uint8_t>(value >> 8);
    memory[at + 1] = static_cast<std::uint8_t>(value & 255);
  };
  Readings none;
  take_module(memory, none);
  EXPECT_TRUE(none.empty()) << "a passive cable of copper";
  put(22, 46 << 8 | 128);
  for (std::size_t lane = 0; lane < 4; ++lane) put(34 + 2 * lane, lane == 2 ? 310 : 9000);
  put(512, 75 << 8);
  put(562, 400);
  Readings gauges;
  take_module(memory, gauges);
  EXPECT_EQ(value_of(gauges, "module.celsius"), 46u);
  EXPECT_EQ(value_of(gauges, "module.celsius.most"), 75u);
  EXPECT_EQ(value_of(gauges, "module.received_tenth_uw"), 310u);
  EXPECT_EQ(value_of(gauges, "module.received_tenth_uw.least"), 400u);
}

TEST(FabricDevices, ModulesWithPages) {
  std::vector<std::uint8_t> lower(128), limits(128), monitors(128);
  const auto put = [](std::vector<std::uint8_t>& page, std::size_t at, int value) {
    page[at] = static_cast<std::uint8_t>(value >> 8);
    page[at + 1] = static_cast<std::uint8_t>(value & 255);
  };
  put(lower, 14, 61 << 8 | 77);
  put(limits, 0, 80 << 8);
  put(limits, 194 - 128, 500);
  for (std::size_t lane = 0; lane < 4; ++lane) put(monitors, 186 - 128 + 2 * lane, 8000);
  put(monitors, 186 - 128 + 2, 420);
  Readings none, gauges;
  take_cmis(lower, limits, monitors, none);
  EXPECT_TRUE(none.empty()) << "not by that standard";
  lower[0] = 0x19;
  take_cmis(lower, limits, monitors, gauges);
  EXPECT_EQ(value_of(gauges, "module.celsius"), 61u);
  EXPECT_EQ(value_of(gauges, "module.celsius.most"), 80u);
  EXPECT_EQ(value_of(gauges, "module.received_tenth_uw"), 420u);
  EXPECT_EQ(value_of(gauges, "module.received_tenth_uw.least"), 500u);
  take_cmis(lower, {}, {}, none);
  EXPECT_EQ(none.size(), 1u) << "flat memory has a temperature, and no limits";
}

TEST(FabricDevices, ErrorsThatFecCorrects) {
  std::vector<std::byte> statistics, answer;
  const std::uint64_t corrected[] = {900, 400, 500}, lost = 2;  // of all lanes, then of each
  add_attribute(statistics, ETHTOOL_A_FEC_STAT_CORRECTED, std::as_bytes(std::span(corrected)));
  add_attribute(statistics, ETHTOOL_A_FEC_STAT_UNCORR, std::as_bytes(std::span(&lost, 1)));
  add_attribute(answer, ETHTOOL_A_FEC_STATS | NLA_F_NESTED, statistics);
  Readings readings;
  take_fec_errors(answer, readings);
  EXPECT_THAT(readings,
              ElementsAre(Pair("fec.corrected_blocks", Reading{ReadingState::kValue, 900}),
                          Pair("fec.uncorrectable_blocks", Reading{ReadingState::kValue, 2})));
  Readings none;
  ask_fec_errors("lo", none);
  ask_cmis("lo", none);
  EXPECT_TRUE(none.empty());
}

// Part of the output of `mlxlink -m -c`.
TEST(FabricDevices, LinksInATextOfMlxlink) {
  const auto text = [](const char* hot, int errors) {
    return fmt::format(
        "Speed                : NDR\nFEC                  : Standard RS-FEC - "
        "RS(544,514)\nTemperature [C]      : {} [-5..75]\n"
        "Rx Power Current [dBm] : 1.00,-12.00,0.90,1.10 [-10.41..6.00]\n"
        "Effective Physical Errors : {}\nRaw Physical Errors Per Lane : 5,6,7,8\n"
        "Raw Physical BER     : 15E-255\n",
        hot, errors);
  };
  const auto with = [&](const char* hot, int errors) {
    Host host(Files{{"outputs/mlxlink.mlx5_0.txt", text(hot, errors)}});
    host.tree.remove("ethtool");
    HostFacts facts = host.facts();
    facts.ports[0].after = read_counters(facts.ports[0], host.sources);
    return facts.ports[0];
  };
  const PortFacts port = with("52", 3), cold = with("N/A", 0);
  EXPECT_THAT(port.settings, ::testing::Contains(Pair("FEC", "RS")));
  EXPECT_EQ(value_of(port.gauges, "module.celsius"), 52u);
  EXPECT_EQ(value_of(port.gauges, "module.celsius.most"), 75u);
  EXPECT_EQ(value_of(port.gauges, "module.received_tenth_uw"), 630u) << "of the darkest lane";
  EXPECT_EQ(value_of(port.gauges, "module.received_tenth_uw.least"), 909u);
  EXPECT_EQ(value_of(port.after, "mlxlink.effective_errors"), 3u);
  EXPECT_EQ(value_of(port.after, "mlxlink.raw_errors"), 26u);
  EXPECT_FALSE(cold.gauges.contains("module.celsius")) << "N/A is not known";
  const Check& check = *find_check("module");
  const auto findings = [&](const PortFacts& one) {
    FleetFacts fleet;
    fleet.hosts.emplace_back().ports = {one};
    return check.judge(check, {fleet, {}, {}, {}, {}}).findings.size();
  };
  EXPECT_EQ(findings(port), 1u) << "a lane is dark";

  const std::string recorded =
      testing::recorded_folder() + "/mlxlink-bf3-healthy/mlxlink-m-c.p0.txt";
  if (!std::filesystem::exists(recorded))
    GTEST_SKIP() << "missing capability: recorded hosts in " << testing::recorded_folder();
  PortFacts healthy;
  Readings counters;
  take_mlxlink(read_file(recorded), healthy);
  take_mlxlink_counters(read_file(recorded), counters);
  EXPECT_THAT(healthy.settings, ElementsAre(Pair("FEC", "RS")));
  EXPECT_TRUE(healthy.gauges.empty()) << "a passive cable";
  EXPECT_EQ(value_of(counters, "mlxlink.effective_errors"), 0u);
  EXPECT_EQ(findings(healthy), 0u);
}

TEST(FabricDevices, NvlinksInATextOfNvidiaSmi) {
  Readings state;
  take_nvlinks(
      "GPU 0: NVIDIA H100 (UUID: GPU-0)\n\t Link 0: 26.562 GB/s\n\t Link 1: 26.562 GB/s\n"
      "GPU 1: NVIDIA H100 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"
      "GPU 1: NVIDIA H100 (UUID: GPU-1)\n\t Link 0: Replay Errors: 4\n"
      "\t Link 0: CRC Errors: 1\n",
      state);
  EXPECT_EQ(value_of(state, "gpu0.nvlinks_down"), 0u);
  EXPECT_EQ(value_of(state, "gpu1.nvlinks_down"), 1u);
  EXPECT_EQ(value_of(state, "gpu1.nvlink_errors"), 5u);
  EXPECT_FALSE(state.contains("gpu0.nvlink_errors"));
  for (const char* odd : {"", "GPU", "Link 0: 25 GB/s", "GPU 0: x\n Link"}) {
    Readings none;
    take_nvlinks(odd, none);
    EXPECT_TRUE(none.empty()) << odd;
  }
  const std::string recorded = testing::recorded_folder() + "/nvlink-a100/nvidia-smi-nvlink-s.txt";
  if (!std::filesystem::exists(recorded))
    GTEST_SKIP() << "missing capability: recorded hosts in " << testing::recorded_folder();
  Readings a100;
  take_nvlinks(read_file(recorded), a100);
  EXPECT_EQ(a100.size(), 8u);
  for (const auto& [name, reading] : a100) EXPECT_EQ(reading.value, 0u) << name;
}

TEST(FabricDevices, AModuleInATextOfEthtool) {
  const HostTree tree(
      Files{{"eth0.txt",
             "\tIdentifier                                : 0x19 (OSFP)\n"
             "\tModule temperature                        : 58.50 degrees C / 137.3 "
             "degrees F\n"
             "\tRcvr signal avg optical power (Channel 1) : 0.8123 mW / -0.90 dBm\n"
             "\tRcvr signal avg optical power (Channel 2) : 0.0150 mW / -18.24 dBm\n"
             "\tModule temperature high alarm threshold   : 75.00 degrees C\n"
             "\tLaser rx power low alarm threshold        : 0.0400 mW / -13.98 dBm"}});
  const Readings module = settings_in_text(tree / "eth0.txt").module;
  EXPECT_EQ(value_of(module, "module.celsius"), 58u);
  EXPECT_EQ(value_of(module, "module.celsius.most"), 75u);
  EXPECT_EQ(value_of(module, "module.received_tenth_uw"), 150u);
  EXPECT_EQ(value_of(module, "module.received_tenth_uw.least"), 400u);
}

// Two GPUs with 18 links; the second one has lost two links, has an uncorrected error and a slow
// clock.
constexpr const char* kNvml = R"(
typedef unsigned long long Long;
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void** device) { *device = (void*)(Long)(i + 1); return 0; }
int nvmlDeviceGetTotalEccErrors(void* d, int kind, int counter, Long* count) {
  *count = kind == 1 && counter == 0 && d == (void*)2 ? 3 : 0;
  return 0;
}
int nvmlDeviceGetRemappedRows(void* d, unsigned* a, unsigned* b, unsigned* pending, unsigned* failed) {
  *a = *b = *failed = 0;
  *pending = d == (void*)2;
  return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* d, Long* reasons) {
  *reasons = d == (void*)2 ? 0x41 : 0x05;
  return 0;
}
int nvmlDeviceGetNvLinkState(void* d, unsigned link, int* active) {
  *active = !(d == (void*)2 && link < 2);
  return 0;
}
int nvmlDeviceGetNvLinkErrorCounter(void* d, unsigned link, int kind, Long* count) {
  *count = d == (void*)1 && link == 5 && kind == 2 ? 7 : 0;
  return 0;
}
int nvmlDeviceGetTemperature(void* d, int sensor, unsigned* celsius) { return 3; }
)";

TEST(FabricDevices, GpusByALibraryThatStandsForNvml) {
  Host host(Files{{"nvml.c", kNvml},
                  {"outputs/kmsg",
                   "4,1,9,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.\n"
                   "4,2,9,-;NVRM: Xid (PCI:0000:1b:00): 31, pid=1, a fault of the program"}});
  host.sources.nvml = host.tree / "nvml.so";
  const std::string made = "cc -shared -fPIC -w -o '" + host.sources.nvml + "' '" +
                           (host.tree / "nvml.c") + "' 2>/dev/null";
  if (std::system(made.c_str()) != 0) GTEST_SKIP() << "missing capability: a C compiler (cc)";
  const Readings state = host.facts().gpu_state;
  EXPECT_EQ(value_of(state, "xids"), 1u);
  EXPECT_EQ(value_of(state, "gpu0.ecc_uncorrected"), 0u);
  EXPECT_EQ(value_of(state, "gpu1.ecc_uncorrected"), 3u);
  EXPECT_EQ(value_of(state, "gpu1.row_remap_pending"), 1u);
  EXPECT_EQ(value_of(state, "gpu0.slowdowns"), 0u) << "idle, and at its power cap";
  EXPECT_EQ(value_of(state, "gpu1.slowdowns"), 0x40u);
  EXPECT_EQ(value_of(state, "gpu0.nvlinks_down"), 0u);
  EXPECT_EQ(value_of(state, "gpu1.nvlinks_down"), 2u);
  EXPECT_EQ(value_of(state, "gpu0.nvlink_errors"), 7u);
  EXPECT_FALSE(state.contains("gpu0.celsius")) << "the library refuses";
  host.sources.nvml += ".missing";
  EXPECT_EQ(host.facts().gpu_state.size(), 1u) << "only the log is left";
}

}  // namespace
}  // namespace weft::fabric
