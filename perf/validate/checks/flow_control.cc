// Flow control of Ethernet ports with RDMA: its configuration, time in pause, and whether RDMA
// stays in its class.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>

#include "perf/validate/checks/counters.h"

namespace weft::fabric {
namespace {

constexpr int kPriorities = 8;

// Settings of a port by name, in the words of `dcb` and `ethtool`.
using Settings = std::map<std::string, std::string>;

std::string on_off(bool on) { return on ? "on" : "off"; }

// "3", "3,4", "none".
std::string priorities(int bits) {
  std::string text;
  for (int p = 0; p < kPriorities; ++p)
    if (bits >> p & 1) text += fmt::format("{}{}", text.empty() ? "" : ",", p);
  return text.empty() ? "none" : text;
}

Settings settings_of(const Observed& observed, const PortFacts& port) {
  Settings settings;
  if (port.qos_trust) settings["trust"] = *port.qos_trust;
  if (port.pfc_priorities) settings["pfc"] = priorities(*port.pfc_priorities);
  if (port.pause_rx) settings["pause_rx"] = on_off(*port.pause_rx);
  if (port.pause_tx) settings["pause_tx"] = on_off(*port.pause_tx);
  if (const auto dscp = observed.policy.dscp; dscp && !port.dscp_map.empty()) {
    const auto it = std::ranges::find(port.dscp_map, *dscp, &PortFacts::DscpPriority::dscp);
    settings["dscp_priority"] =
        it == port.dscp_map.end() ? "none" : fmt::format("{}", it->priority);
  }
  return settings;
}

// Returns the settings that the policy declares.
Settings declared_settings(const Observed& observed) {
  const Policy& policy = observed.policy;
  Settings settings = {{"pause_rx", "off"}, {"pause_tx", "off"}};
  if (policy.trust) settings["trust"] = *policy.trust;
  if (policy.pfc_priority) {
    const int priority = *policy.pfc_priority;
    settings["pfc"] = priority < 0 ? "none" : priorities(1 << priority);
    if (policy.dscp && priority >= 0) settings["dscp_priority"] = fmt::format("{}", priority);
  }
  return settings;
}

// Adds the values of the majority of ports for settings that the policy does not declare.
void add_majority(const std::map<std::string, std::map<std::string, int>>& counts,
                  Settings& expected) {
  for (const auto& [name, values] : counts) {
    int all = 0;
    for (const auto& [value, number] : values) all += number;
    for (const auto& [value, number] : values)
      if (2 * number > all) expected.try_emplace(name, value);
  }
}

Outcome judge_settings(const Check& check, const Observed& observed, const HostFacts& host,
                       const PortFacts& port, const Settings& expected,
                       const std::map<std::string, std::map<std::string, int>>& counts) {
  if (!is_roce(port)) return std::nullopt;
  const Where where = at_port(host, port);
  const Settings settings = settings_of(observed, port);
  if (!settings.contains("pfc")) return std::vector{make_unknown(check, where)};
  Finding finding = make_finding(check, where);
  finding.unit = Unit::kText;
  const auto differs = [&](const std::string& name, const std::string& value,
                           const std::string& wanted) {
    if (finding.text.empty()) {
      finding.text = name + "=" + value;
      finding.expected_text = name + "=" + wanted;
    }
    add_text(finding, name, value);
  };
  for (const auto& [name, value] : settings) {
    if (const auto it = expected.find(name); it != expected.end()) {
      if (it->second != value) differs(name, value, it->second);
    } else if (const auto all = counts.find(name); all != counts.end() && all->second.size() > 1) {
      differs(name, value, "equal");  // no value has a majority
    }
  }
  if (finding.text.empty() && !observed.policy.pfc_priority && must_be_lossless(observed, port) &&
      std::popcount(static_cast<unsigned>(*port.pfc_priorities)) != 1) {
    finding.severity = Severity::kWarn;  // perhaps intended: nothing was declared
    differs("pfc", settings.at("pfc"), "one");
  }
  if (finding.text.empty()) return std::vector<Finding>{};
  return std::vector{finding};
}

Judged pfc_config(const Check& check, const Observed& observed) {
  // Number of ports, by setting and value.
  std::map<std::string, std::map<std::string, int>> counts;
  for (const HostFacts& host : observed.facts.hosts)
    for (const PortFacts& port : host.ports)
      if (is_roce(port) && !excluded(observed, port))
        for (const auto& [name, value] : settings_of(observed, port)) ++counts[name][value];
  Settings expected = declared_settings(observed);
  add_majority(counts, expected);
  return each_port(observed, [&](const HostFacts& host, const PortFacts& port) {
    return judge_settings(check, observed, host, port, expected, counts);
  });
}

// Returns the RDMA class of a port: the policy's, or else the only class with PFC; -1: unknown.
int class_of(const Observed& observed, const PortFacts& port) {
  if (observed.policy.pfc_priority) return *observed.policy.pfc_priority;
  const auto bits = static_cast<unsigned>(port.pfc_priorities.value_or(0));
  return std::popcount(bits) == 1 ? std::countr_zero(bits) : -1;
}

// Returns the seconds that the port spent in pause; nullopt: no such counter.
std::optional<double> paused_s(const PortFacts& port, std::string_view direction) {
  std::optional<double> sum;
  const auto add = [&](const std::string& name) {
    if (const auto us = change_of(port, name)) sum = sum.value_or(0) + *us / 1e6;
  };
  for (int p = 0; p < kPriorities; ++p)
    add(fmt::format("eth.{}_prio{}_pause_duration", direction, p));
  add(fmt::format("eth.{}_global_pause_duration", direction));
  return sum;
}

// How long the run loaded the network, and how long probes intentionally caused contention.
struct Load {
  double loaded_s = 0, contended_s = 0;
};
Load load_of(const Samples& samples) {
  Load load;
  for (const Round& round : samples.rounds) {
    const bool quiet = round.probe == Probe::kLatency || round.probe == Probe::kReach ||
                       round.probe == Probe::kPathMtu || round.probe == Probe::kLowLoad;
    if (!quiet) load.loaded_s += round.seconds;
    if (is_flooding(round.probe)) load.contended_s += round.seconds;
  }
  return load;
}

Judged pause_time(const Check& check, const Observed& observed) {
  const Load load = load_of(observed.samples);
  const Thresholds& limits = observed.policy.thresholds;
  const bool idle = load.loaded_s <= 0;
  const double seconds = observed.facts.seconds - load.contended_s;
  return each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    if (observed.facts.seconds <= 0) return std::nullopt;
    std::vector<Finding> findings;
    bool known = false;
    for (const bool sends : {true, false}) {
      const auto paused = paused_s(port, sends ? "tx" : "rx");
      if (!paused) continue;
      known = true;
      // Pause under contention is normal in a lossless network: ignore that time.
      const double share = std::max(0.0, *paused - load.contended_s) / std::max(seconds, 0.001);
      const double limit = idle ? limits.idle_pause : limits.loaded_pause;
      if (share <= limit) continue;
      // A port sends pause if it cannot keep up with arriving packets.
      Finding& finding = findings.emplace_back(make_finding(
          check, at_port(host, port, sends ? Direction::kReceive : Direction::kTransmit)));
      set_number(finding, Unit::kShare, std::min(1.0, share), limit);
      add_number(finding, sends ? "tx_pause_s" : "rx_pause_s", *paused, Unit::kNone, 0);
    }
    if (known) return findings;
    if (!is_mlx5_roce(port)) return std::nullopt;
    return std::vector{make_unknown(check, at_port(host, port))};
  });
}

Judged pause_storm(const Check& check, const Observed& observed) {
  return each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    static constexpr std::array<std::string_view, 1> kErrors = {"eth.tx_pause_storm_error_events"};
    static constexpr std::array<std::string_view, 2> kAll = {"eth.tx_pause_storm_error_events",
                                                             "eth.tx_pause_storm_warning_events"};
    Outcome outcome =
        judge_counters(check, observed, host, port,
                       {.names = kAll, .direction = Direction::kReceive, .required = is_mlx5_roce});
    // After a warning the NIC may stop pausing; after an error it has stopped.
    if (outcome && moves_of(host, port, kErrors).events <= 0)
      for (Finding& finding : *outcome)
        if (!finding.unknown) finding.severity = Severity::kWarn;
    return outcome;
  });
}

// Port_xmit_wait counts the time that a port waits for credits or arbitration: one tick per 8 or
// more bytes not sent, so the fraction of time is a lower bound. Source: NVIDIA's ibdiagnet manual,
// congestion assessment on InfiniBand links.
constexpr double kBitsOfTick = 64, kMostWaiting = 0.05;

Judged xmit_wait(const Check& check, const Observed& observed) {
  const Load load = load_of(observed.samples);
  return each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    static constexpr std::array<std::string_view, 1> kNames = {"ib.port_xmit_wait"};
    if (!is_infiniband(port) || !port.rate_gbps || observed.facts.seconds <= 0) return std::nullopt;
    const Moves moves = moves_of(host, port, kNames);
    const Where where = at_port(host, port, Direction::kTransmit);
    if (moves.present == 0) return std::nullopt;
    const double waited_s = moves.events * kBitsOfTick / (*port.rate_gbps * 1e9);
    // Senders wait by design under contention: ignore that time.
    const double share =
        (waited_s - load.contended_s) / std::max(observed.facts.seconds - load.contended_s, 0.001);
    if (share <= kMostWaiting) {
      if (auto unknown = doubt(check, where, moves, false)) return std::vector{*unknown};
      return std::vector<Finding>{};
    }
    Finding finding = make_finding(check, where);
    set_number(finding, Unit::kShare, std::min(1.0, share), kMostWaiting);
    finding.evidence = moves.moved;
    return std::vector{finding};
  });
}

constexpr double kLeastClassBytes = 1e6;  // fewer are too few for a fraction

Judged class_leak(const Check& check, const Observed& observed) {
  return each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    const int priority = class_of(observed, port);
    if (!is_roce(port) || priority < 0) return std::nullopt;
    std::vector<Finding> findings;
    for (const bool sends : {true, false}) {
      // RDMA bytes are counted in 4-byte words.
      const auto words = change_of(port, sends ? "ib.port_xmit_data" : "ib.port_rcv_data");
      const auto in_class =
          change_of(port, fmt::format("eth.{}_prio{}_bytes", sends ? "tx" : "rx", priority));
      const Where where = at_port(host, port, sends ? Direction::kTransmit : Direction::kReceive);
      if (!words || !in_class) {
        if (is_mlx5(port)) findings.push_back(make_unknown(check, where));
        continue;
      }
      const double rdma = 4 * *words, leak = rdma > 0 ? std::max(0.0, 1 - *in_class / rdma) : 0;
      if (rdma < kLeastClassBytes || leak <= observed.policy.thresholds.class_leak) continue;
      Finding& finding = findings.emplace_back(make_finding(check, where));
      set_number(finding, Unit::kShare, leak, observed.policy.thresholds.class_leak);
      add_number(finding, "rdma_bytes", rdma, Unit::kBytes, 0);
      add_number(finding, fmt::format("prio{}_bytes", priority), *in_class, Unit::kBytes, rdma);
    }
    return findings;
  });
}

constexpr Check kFlowControlRows[] = {
    {"pfc-config", CheckKind::kPassive, Severity::kFail, "flow control is configured consistently",
     "DCB netlink (pfc, app), qos/trust, ethtool pause",
     "trust and PFC as declared, no global pause",
     "Flow control of this port differs from the policy or from the other hosts, so RDMA packets "
     "travel in a class that drops them as soon as the network is busy.",
     "Configure the port like the others: `mlnx_qos -i DEV --trust dscp --pfc 0,0,0,1,0,0,0,0`, "
     "and `ethtool -A DEV rx off tx off`. Declare pfc_priority = -1 if this fleet runs without "
     "PFC.",
     pfc_config},
    {"pause", CheckKind::kPassive, Severity::kWarn, "little time in pause",
     "rx/tx_prioN_pause_duration, rx/tx_global_pause_duration", "none idle, < 1 % of time loaded",
     "The port spends time paused. A port that sends pause frames cannot take in what arrives; a "
     "port that receives them is held back by the network.",
     "For sent pause look at this host: PCIe width, NUMA, memory bandwidth. For received pause "
     "follow the pause to the slow receiver; its tx counters move.",
     pause_time},
    {"xmit-wait", CheckKind::kPassive, Severity::kWarn, "senders do not wait for credits",
     "port_xmit_wait", "< 5 % of the time",
     "The InfiniBand port had data and could not send for lack of credits: the receiver at the "
     "other end, or a congested switch on the way, is too slow. The fraction of time is a lower "
     "bound from the counter.",
     "Look for the slow receiver: its PCIe width, its memory, a path at which flows meet. Clear "
     "the counter (`perfquery -R`) where the report says that it was saturated.",
     xmit_wait},
    {"pause-storm", CheckKind::kPassive, Severity::kFatal, "no pause storm",
     "tx_pause_storm_warning_events, tx_pause_storm_error_events", "0 in the run",
     "The NIC paused its peer so long that its watchdog fired. After an error event the NIC stops "
     "pausing and drops packets instead.",
     "Take the host out of service and look for what blocks the NIC: a hung GPU or driver, a PCIe "
     "fault, firmware. One such host can stop a whole PFC domain.",
     pause_storm},
    {"class-leak", CheckKind::kPassive, Severity::kFail, "RDMA stays in its class",
     "rx/tx_prioN_bytes against port_xmit_data, port_rcv_data", ">= 99 % of RDMA bytes",
     "RDMA packets travel on another priority than the one with PFC, so that they can be dropped "
     "and are not protected from other traffic.",
     "Compare the DSCP that applications set (NCCL_IB_TC, the CM's default) with the map of DSCP "
     "to priority on NICs and switches.",
     class_leak},
};

}  // namespace

std::span<const Check> flow_control_checks() { return kFlowControlRows; }

}  // namespace weft::fabric
