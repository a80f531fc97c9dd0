// The state of hardware: temperatures, modules, FEC, health of NICs and GPUs, PCIe settings, and
// the switch to which a port is connected.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "perf/validate/checks/counters.h"

namespace weft::fabric {
namespace {

// Compares gauges of a kind ("nic.", "module.") with "NAME.most" and "NAME.least".
Judged gauges_of(const Check& check, const Observed& observed, std::string_view kind) {
  return each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    std::vector<Finding> findings;
    bool known = false;
    const auto beyond = [&](const std::string& name, const std::string& limit, bool above) {
      const auto now = port.gauges.find(name), bound = port.gauges.find(limit);
      if (now == port.gauges.end() || bound == port.gauges.end()) return;
      known = true;
      const std::uint64_t value = now->second.value, edge = bound->second.value;
      if (above ? value < edge : value >= edge) return;
      findings.push_back(
          text_finding(check, at_port(host, port), fmt::format("{} {}", name, value),
                       fmt::format("{} {}", above ? "less than" : "at least", edge)));
    };
    for (const auto& [name, reading] : port.gauges) {
      if (!name.starts_with(kind)) continue;
      beyond(name, name + ".most", true);
      beyond(name, name + ".least", false);
    }
    if (!known) return std::nullopt;
    return findings;
  });
}

Judged nic_temperature(const Check& check, const Observed& observed) {
  return gauges_of(check, observed, "nic.");
}

Judged module_state(const Check& check, const Observed& observed) {
  return gauges_of(check, observed, "module.");
}

std::optional<std::string> setting_of(const PortFacts& port, std::string_view name) {
  for (const auto& [key, value] : port.settings)
    if (key == name) return value;
  return std::nullopt;
}

Judged fec(const Check& check, const Observed& observed) {
  SettingsOfRails rails;
  Judged all = each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    const auto mode = setting_of(port, "FEC");
    if (!mode) return std::nullopt;
    rails[port.rail].push_back({at_port(host, port), *mode});
    return std::vector<Finding>{};
  });
  all.findings = unlike_on_rails(check, rails, std::nullopt, "FEC");
  return all;
}

Judged nic_health(const Check& check, const Observed& observed) {
  return each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    static constexpr std::string_view kNames[] = {"devlink.errors", "log.errors"};
    const auto ill = port.gauges.find("devlink.ill");
    if (ill != port.gauges.end() && ill->second.value > 0)
      return std::vector{text_finding(check, at_port(host, port), "error", "healthy")};
    return judge_counters(check, observed, host, port, {.names = kNames});
  });
}

// Settings that keep a NIC from reaching GPUs at full speed, with their right values.
constexpr std::pair<std::string_view, std::string_view> kPcieSettings[] = {
    {"ACS redirect", "off"}, {"IOMMU", "passthrough"}, {"relaxed ordering", "on"}};
constexpr int kLeastReadRequest = 512;  // bytes; drivers use 512 to 4096

Judged pcie_settings(const Check& check, const Observed& observed) {
  return each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    if (!port.rdma || is_soft(port)) return std::nullopt;
    Finding finding = text_finding(check, at_port(host, port), "", "");
    bool known = false;
    const auto compare = [&](std::string_view name, std::string_view value, bool right,
                             std::string_view wanted) {
      known = true;
      if (right) return;
      const char* comma = finding.text.empty() ? "" : ", ";
      finding.text += fmt::format("{}{} {}", comma, name, value);
      finding.expected_text += fmt::format("{}{}", comma, wanted);
    };
    for (const auto& [name, wanted] : kPcieSettings)
      if (const auto value = setting_of(port, name))
        compare(name, *value, *value == wanted, wanted);
    if (const auto bytes = setting_of(port, "read request"))
      compare("read request", *bytes, std::atoi(bytes->c_str()) >= kLeastReadRequest,
              std::to_string(kLeastReadRequest));
    if (!known) return std::nullopt;
    if (finding.text.empty()) return std::vector<Finding>{};
    if (host.gpus == 0) finding.severity = Severity::kInfo;  // hardly slows host memory traffic
    return std::vector{finding};
  });
}

// Reports each port that is connected to the switch of another rail, if each rail has its own
// switch.
Judged rail_switch(const Check& check, const Observed& observed) {
  std::map<int, std::map<std::string, std::size_t>> rails;  // number of ports at each switch
  std::map<int, std::size_t> ports;
  for (const HostFacts& host : observed.facts.hosts)
    for (const PortFacts& port : host.ports)
      if (port.switch_name && !excluded(observed, port)) {
        ++rails[port.rail][*port.switch_name];
        ++ports[port.rail];
      }
  std::map<int, std::string> own;  // the switch of more than half of the rail's ports
  for (const auto& [rail, switches] : rails)
    for (const auto& [name, count] : switches)
      if (2 * count > ports[rail] && ports[rail] > 1) own[rail] = name;
  return each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    if (!port.switch_name || !own.contains(port.rail)) return std::nullopt;
    const std::string& right = own[port.rail];
    const bool of_another = std::ranges::any_of(own, [&](const auto& one) {
      return one.first != port.rail && one.second == *port.switch_name;
    });
    if (*port.switch_name == right || !of_another) return std::vector<Finding>{};
    Finding finding = text_finding(check, at_port(host, port), *port.switch_name, right);
    add_text(finding, "switch_port", port.switch_port.value_or(""));
    return std::vector{finding};
  });
}

// Judges the GPU readings with one of these names: "nvlinks_down" selects "gpu3.nvlinks_down". Each
// must be 0.
Judged gpus_of(const Check& check, const Observed& observed,
               std::span<const std::string_view> names) {
  return each_host(observed, [&](const HostFacts& host) -> Outcome {
    Finding finding = text_finding(check, at_host(host.host), "", "0");
    bool known = false;
    for (const auto& [name, reading] : host.gpu_state) {
      const std::string_view kind = std::string_view(name).substr(name.find('.') + 1);
      if (std::ranges::find(names, kind) == names.end()) continue;
      known = true;
      if (reading.value == 0) continue;
      finding.text += fmt::format("{}{} {}", finding.text.empty() ? "" : ", ", name, reading.value);
      add_number(finding, name, static_cast<double>(reading.value), Unit::kCount, 0);
    }
    if (!known) return std::nullopt;
    if (finding.text.empty()) return std::vector<Finding>{};
    return std::vector{finding};
  });
}

Judged gpu_errors(const Check& check, const Observed& observed) {
  static constexpr std::string_view kNames[] = {"ecc_uncorrected", "row_remap_pending",
                                                "row_remap_failed", "xids"};
  return gpus_of(check, observed, kNames);
}

Judged nvlink(const Check& check, const Observed& observed) {
  static constexpr std::string_view kNames[] = {"nvlinks_down", "nvlink_errors"};
  return gpus_of(check, observed, kNames);
}

Judged gpu_slowdown(const Check& check, const Observed& observed) {
  static constexpr std::string_view kNames[] = {"slowdowns"};
  return gpus_of(check, observed, kNames);
}

constexpr Check kStateRows[] = {
    {"fec", CheckKind::kPassive, Severity::kWarn, "error correction is configured consistently",
     "ethtool --show-fec; mlxlink", "as most ports of the rail",
     "The port corrects errors in another way (FEC) than the others of its rail: both ends of a "
     "link must agree, and a weaker code leaves errors for retransmission.",
     "Configure the port like the others, at the NIC (`ethtool --set-fec DEV encoding rs`) and at "
     "the switch.",
     fec},
    {"module", CheckKind::kPassive, Severity::kWarn, "transceivers are within their limits",
     "hwmon of the card; ethtool -m (SFF-8636; CMIS: seen on hardware: no); mlxlink -m",
     "within the module's own alarms",
     "The transceiver is hotter than its alarm allows, or gets too little light: it corrects more "
     "bits, and is the next to fail.",
     "Clean the fibre ends and look at the air flow of the host; replace the module if it stays.",
     module_state},
    {"nic-temperature", CheckKind::kPassive, Severity::kWarn, "the NIC is not too hot",
     "sysfs device/hwmon temp*_input, temp*_crit", "below the card's own limit",
     "The card has reached the temperature at which it protects itself: it slows down or goes "
     "away.",
     "Look at the fans, the air flow and the place of the card, and at the module in its cage.",
     nic_temperature},
    {"nic-health", CheckKind::kPassive, Severity::kFail, "the NIC and its driver are healthy",
     "devlink health show; /dev/kmsg (root)", "healthy, no error logged in the run",
     "The driver has reported that the NIC or its firmware is in error, or has logged errors of "
     "the card while the run went on.",
     "Read `devlink health show`, `devlink health diagnose` and `dmesg` for the named PCI address; "
     "reset the card or update its firmware; replace it if that returns.",
     nic_health},
    {"pcie-settings", CheckKind::kPassive, Severity::kWarn, "PCIe lets NICs reach GPUs",
     "sysfs config (root), iommu_group/type",
     "ACS redirect off, IOMMU passthrough, relaxed ordering on, read requests >= 512",
     "What goes from NIC to GPU takes the way through the processor (ACS, IOMMU), or the NIC waits "
     "for writes in order and for small reads: rates to GPU memory drop by half or more.",
     "Switch ACS off in the BIOS or with `setpci` on the switch ports, boot with iommu=pt, and set "
     "PCI_WR_ORDERING by `mlxconfig` and the read request by `setpci`.",
     pcie_settings},
    {"rail-switch", CheckKind::kPassive, Severity::kFail, "cables go to the rail's own switch",
     "lldpcli -f json show neighbors", "the switch of most ports of the rail",
     "The port is plugged into the switch of another rail, so its traffic crosses the spine and "
     "meets that rail's.",
     "Swap the cables of this host at the named switch ports, or correct the order of the rails.",
     rail_switch},
    {"gpu-errors", CheckKind::kPassive, Severity::kFail, "GPUs have no hardware errors",
     "NVML (ECC, remapped rows); /dev/kmsg (Xid, root). Seen on hardware: no", "0",
     "A GPU had memory errors that could not be corrected, waits for a reset to remap memory, or "
     "its driver has logged an error of the hardware (Xid).",
     "Drain the host and reset the GPU (`nvidia-smi --gpu-reset`); replace it if remapping failed "
     "or the Xid returns. `dcgmi diag -r 3` tests it.",
     gpu_errors},
    {"nvlink", CheckKind::kPassive, Severity::kFail, "NVLinks are up and healthy",
     "NVML (NVLink state and errors). Seen on hardware: no", "as many as the other GPUs, 0 errors",
     "A GPU has fewer NVLinks than the others of its host, or its links repeated what they sent: "
     "collectives inside the host run at the rate of the slowest GPU.",
     "Look at `nvidia-smi nvlink -s` and `-e`, at the fabric manager's log, and reset the GPUs.",
     nvlink},
    {"gpu-slowdown", CheckKind::kPassive, Severity::kWarn, "GPUs are not slowed down",
     "NVML (reasons of clocks). Seen on hardware: no", "none by heat, hardware or power brake",
     "A GPU protects itself from heat or from a lack of power by a lower clock: every step of a "
     "job waits for it.",
     "Look at the cooling and the power supplies of the host: `nvidia-smi -q -d PERFORMANCE`.",
     gpu_slowdown},
};

}  // namespace

std::span<const Check> state_checks() { return kStateRows; }

}  // namespace weft::fabric
