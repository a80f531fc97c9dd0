// The cards: their PCIe link and their firmware.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>

#include "perf/validate/checks/counters.h"

namespace weft::fabric {
namespace {

// Payload rate of a PCIe link in Gb/s, after coding and headers (about a tenth).
double pcie_gbps(const std::string& speed, int lanes) {
  const double gts = std::atof(speed.c_str());  // "32.0 GT/s PCIe"
  const double coding = gts < 8 ? 0.8 : 128.0 / 130;
  return gts * coding * 0.9 * lanes;
}

constexpr double kEnoughOfRate = 0.93;  // fraction of a port's rate, equal to warn_rate

double generation_of(const PortFacts& port) {
  return port.pcie_speed ? std::atof(port.pcie_speed->c_str()) : 0;
}

// Reports each rail that one host lacks and other hosts have.
Judged port_missing(const Check& check, const Observed& observed) {
  Judged all;
  for (const HostFacts& host : observed.facts.hosts)
    for (const PortFacts& port : host.ports) {
      if (excluded(observed, port)) continue;
      std::vector<Finding> findings;
      if (port.absent)
        findings.push_back(
            text_finding(check, at_port(host, port), *port.absent, "a port of the job"));
      add_outcome(std::move(findings), all);
    }
  return all;
}

Outcome judge_pcie_link(const Check& check, const HostFacts& host, const PortFacts& port,
                        double baseline_generation) {
  if (!port.pcie_speed && !port.pcie_width) {
    if (!port.rdma || is_soft(port)) return std::nullopt;
    return std::vector{make_unknown(check, at_port(host, port))};
  }
  const Where where = at_port(host, port);
  // The maximum that both card and slot support.
  const auto gts = [](const std::optional<std::string>& speed) {
    return speed ? std::atof(speed->c_str()) : 0;
  };
  std::optional<std::string> most_speed = port.pcie_most_speed;
  if (gts(port.slot_most_speed) > 0 && gts(port.slot_most_speed) < gts(most_speed))
    most_speed = port.slot_most_speed;
  std::optional<int> most_width = port.pcie_most_width;
  if (most_width && port.slot_most_width) most_width = std::min(*most_width, *port.slot_most_width);
  const bool trained_low = (gts(port.pcie_speed) > 0 && gts(port.pcie_speed) < gts(most_speed)) ||
                           (port.pcie_width && most_width && *port.pcie_width < *most_width);
  const double carried =
      port.pcie_width ? pcie_gbps(port.pcie_speed.value_or(""), *port.pcie_width) : 0;
  // A port that is down has no meaningful rate.
  const double rate = port.state == "DOWN" ? 0 : port.rate_gbps.value_or(0);
  // A slot slower than the card matters only if it cannot carry the port's rate.
  const bool starved = carried > 0 && carried < kEnoughOfRate * rate;
  const bool less_than_card = gts(most_speed) < gts(port.pcie_most_speed) ||
                              most_width.value_or(0) < port.pcie_most_width.value_or(0);
  if (!trained_low && !(starved && less_than_card)) return std::vector<Finding>{};
  const bool narrower = port.pcie_width && most_width && *port.pcie_width < *most_width;
  if (trained_low && !narrower && rate > 0 && carried > rate &&
      generation_of(port) >= baseline_generation)
    return std::vector<Finding>{};  // all slots have this generation, which suffices
  const auto describe = [](const std::optional<std::string>& speed, std::optional<int> width) {
    return fmt::format("{} x{}", speed.value_or("?"), width.value_or(0));
  };
  Finding finding =
      text_finding(check, where, describe(port.pcie_speed, port.pcie_width),
                   trained_low ? describe(most_speed, most_width)
                               : describe(port.pcie_most_speed, port.pcie_most_width));
  if (!trained_low || (carried > 0 && carried > rate && rate > 0))
    finding.severity = Severity::kWarn;
  if (carried > 0 && rate > 0) add_number(finding, "pcie_gbps", carried, Unit::kGbps, rate);
  return std::vector{finding};
}

Judged pcie_link(const Check& check, const Observed& observed) {
  const double baseline_generation = baseline_of(observed, generation_of);
  return each_port(observed, [&](const HostFacts& host, const PortFacts& port) {
    return judge_pcie_link(check, host, port, baseline_generation);
  });
}

Judged pcie_errors(const Check& check, const Observed& observed) {
  static constexpr std::array<std::string_view, 2> kLost = {"pci.TOTAL_ERR_FATAL",
                                                            "pci.TOTAL_ERR_NONFATAL"};
  static constexpr std::array<std::string_view, 1> kRepaired = {"pci.TOTAL_ERR_COR"};
  return each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    Outcome lost = judge_counters(check, observed, host, port, {.names = kLost});
    if (lost && !lost->empty()) return lost;
    Outcome repaired = judge_counters(check, observed, host, port, {.names = kRepaired});
    if (!repaired) return lost;
    for (Finding& finding : *repaired) finding.severity = Severity::kWarn;
    return repaired;
  });
}

Judged pcie_stalls(const Check& check, const Observed& observed) {
  static constexpr std::array<std::string_view, 2> kNames = {"eth.outbound_pci_stalled_rd_events",
                                                             "eth.outbound_pci_stalled_wr_events"};
  return judge_counters(check, observed, {.names = kNames});
}

// Compares firmware among boards of one kind, and drivers and boards among ports of a rail.
Judged firmware(const Check& check, const Observed& observed) {
  std::map<std::string, std::vector<Setting>> firmware;
  SettingsOfRails boards, drivers;
  Judged all = each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    const Where where = at_port(host, port);
    if (port.driver) drivers[port.rail].push_back({where, *port.driver});
    if (port.board) boards[port.rail].push_back({where, *port.board});
    if (port.firmware && !port.firmware->empty()) {
      firmware[port.board.value_or("")].push_back({where, *port.firmware});
      return std::vector<Finding>{};
    }
    if (!is_mlx5(port)) return std::nullopt;
    return std::vector{make_unknown(check, where)};
  });
  std::map<std::pair<std::string, int>, Finding> by_port;
  const auto add = [&](const std::vector<Finding>& findings) {
    for (const Finding& finding : findings)
      by_port.try_emplace({finding.where.host, finding.where.rail}, finding);
  };
  for (const auto& [board, group] : firmware) {
    const auto it = observed.policy.firmware.find(board);
    const auto declared =
        it == observed.policy.firmware.end() ? std::nullopt : std::optional(it->second);
    add(unlike(check, group, declared, {}, "firmware"));
  }
  add(unlike_on_rails(check, boards, std::nullopt, "board"));
  add(unlike_on_rails(check, drivers, std::nullopt, "driver"));
  for (auto& [key, finding] : by_port) all.findings.push_back(std::move(finding));
  return all;
}

constexpr Check kHardwareRows[] = {
    {"port-missing", CheckKind::kPassive, Severity::kFatal, "every host has all rails",
     "topology: PCI slots, names of devices", "a port of the job",
     "This host has no such port, or does not count the port as a rail of the job, while other "
     "hosts do, so traffic of this rail uses other rails.",
     "Look with `weft topo` which ports the host has, and with `lspci` whether the card is there; "
     "reseat the card. WEFT_RAILS names the rails where they are meant to differ.",
     port_missing},
    {"pcie-link", CheckKind::kPassive, Severity::kFail, "PCIe link is at its full width and speed",
     "sysfs device/current_link_speed, current_link_width; max_link_* of the card and of the port "
     "above",
     "the maximum that card and slot both support",
     "The card's PCIe link trained slower or narrower than the card and its slot can, or the slot "
     "cannot carry the port's rate. That caps the port, and makes a lossless port send pause.",
     "Reseat the card and the riser, and check the slot and the BIOS (bifurcation, generation). "
     "`lspci -vv` names the link partner that is at fault.",
     pcie_link},
    {"pcie-errors", CheckKind::kPassive, Severity::kFail, "no PCIe errors",
     "sysfs device/aer_dev_correctable, aer_dev_nonfatal, aer_dev_fatal", "0 in the run",
     "The PCIe link of the card repeated or lost packets. Corrected errors cost bandwidth, others "
     "cost data.",
     "Reseat the card. If the errors return, replace the riser or the card; the kernel's log has "
     "the AER records.",
     pcie_errors},
    {"pcie-stalls", CheckKind::kPassive, Severity::kWarn, "PCIe keeps up with the port",
     "outbound_pci_stalled_rd_events, outbound_pci_stalled_wr_events", "0 in the run",
     "The NIC had to wait for PCIe more than it should, so that packets queue in the NIC and "
     "pause frames follow.",
     "Check PCIe width, relaxed ordering, the IOMMU (iommu=pt), ACS, and whether a GPU and the NIC "
     "share a switch.",
     pcie_stalls},
    {"firmware", CheckKind::kPassive, Severity::kWarn, "firmware, board and driver agree",
     "sysfs fw_ver, board_id; driver", "as declared, else as most ports",
     "This card's firmware, board or driver differs from that of other cards: faults and speeds of "
     "a mixed fleet are hard to explain.",
     "Update the card to the version of the others (`mlxfwmanager`, `devlink dev flash`), or "
     "declare the wanted version in the policy.",
     firmware},
};

}  // namespace

std::span<const Check> hardware_checks() { return kHardwareRows; }

}  // namespace weft::fabric
