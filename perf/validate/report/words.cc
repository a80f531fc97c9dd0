// Words for numbers, places and parts of a run.
#include "perf/validate/report/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace weft::fabric {
namespace {

// Length in bytes of the UTF-8 sequence at the front of `text`; 0: invalid.
std::size_t sequence_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t n = first < 0x80                    ? 1
                        : first >= 0xc2 && first < 0xe0 ? 2
                        : first >= 0xe0 && first < 0xf0 ? 3
                        : first >= 0xf0 && first < 0xf5 ? 4
                                                        : 0;
  if (n > text.size()) return 0;
  for (std::size_t i = 1; i < n; ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  return n;
}

std::string_view plain(Unit unit) {
  switch (unit) {
    case Unit::kGbps:
      return " Gb/s";
    case Unit::kMicroseconds:
      return " us";
    case Unit::kPerPacket:
      return " per packet";
    case Unit::kBytes:
      return " bytes";
    case Unit::kRatio:
      return " times";
    case Unit::kNone:
    case Unit::kCount:
    case Unit::kShare:
    case Unit::kText:
      break;
  }
  return "";
}

// Whole numbers exactly, all others with three digits.
std::string whole(double value) {
  return std::isfinite(value) && value == std::floor(value) && std::abs(value) < 1e15
             ? fmt::format("{:.0f}", value)
             : three_digits(value);
}

std::string bare(double value, Unit unit) {
  switch (unit) {
    case Unit::kPerPacket:
      return small_share(value);
    case Unit::kShare:
      return percent(value);
    case Unit::kBytes:
    case Unit::kCount:
    case Unit::kNone:
      return whole(value);
    default:
      return three_digits(value);
  }
}

}  // namespace

std::string_view severity_in_words(const Finding& finding) {
  if (finding.severity == Severity::kInfo) return "INFO";
  if (finding.unknown) return word_of(Verdict::kUnknown);
  if (finding.severity == Severity::kWarn) return word_of(Verdict::kWarn);
  return word_of(finding.where.kind == PlaceKind::kTester ? Verdict::kTester : Verdict::kCritical);
}

std::string_view word_of(Verdict verdict) {
  constexpr std::string_view words[] = {"OK", "WARN", "CRITICAL", "UNKNOWN", "TESTER"};
  return words[static_cast<int>(verdict)];
}

std::string_view word_of(Direction direction) {
  constexpr std::string_view words[] = {"both", "transmit", "receive"};
  return words[static_cast<int>(direction)];
}

std::string_view word_of(PlaceKind kind) {
  constexpr std::string_view words[] = {"fleet", "host",   "port",  "path",
                                        "rail",  "switch", "tester"};
  return words[static_cast<int>(kind)];
}

std::string three_digits(double value) {
  if (!std::isfinite(value)) return "-";
  const double size = std::abs(value);
  if (size != 0 && (size < 0.001 || size >= 1e7)) return fmt::format("{:.3g}", value);
  std::string text = size >= 99.95   ? fmt::format("{:.0f}", value)
                     : size >= 9.995 ? fmt::format("{:.1f}", value)
                     : size >= 0.995 ? fmt::format("{:.2f}", value)
                                     : fmt::format("{:.3f}", value);
  if (text.find('.') == text.npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

std::string small_share(double value) {
  if (!std::isfinite(value)) return "-";
  if (value == 0) return "0";
  if (std::abs(value) >= 1e-3) return percent(value);
  std::string text = fmt::format("{:.1e}", value);  // "1.2e-04"
  if (const std::size_t zero = text.find("e-0"); zero != text.npos) text.erase(zero + 2, 1);
  if (const std::size_t zero = text.find(".0e"); zero != text.npos) text.erase(zero, 2);
  return text;
}

std::string percent(double share) { return three_digits(share * 100) + " %"; }

std::string in_unit(double value, Unit unit) {
  return bare(value, unit) + std::string(plain(unit));
}

std::string interval_in_words(const Finding& finding, double confidence) {
  if (!(finding.high > finding.low)) return "";
  return fmt::format("{} to {}{} at {}", bare(finding.low, finding.unit),
                     bare(finding.high, finding.unit), plain(finding.unit), percent(confidence));
}

std::string counted(std::size_t n, std::string_view noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t n = sequence_length(text);
    const auto first = static_cast<unsigned char>(text[0]);
    // U+0080 to U+009F are control characters, too.
    const bool control = (n == 1 && (first < 0x20 || first == 0x7f)) ||
                         (n == 2 && first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0);
    // The replacement character for invalid UTF-8 in a JSON document.
    const bool replaced = text.starts_with("\xef\xbf\xbd");
    if (n == 1 && (first == '\n' || first == '\r' || first == '\t'))
      out += ' ';
    else if (n == 0 || control || replaced)
      out += '?';
    else
      out += text.substr(0, n);
    text.remove_prefix(std::max<std::size_t>(n, 1));
  }
  return out;
}

std::string in_words(const Where& where) {
  const std::string host = printable(where.host), device = printable(where.device);
  const std::string rail = where.rail < 0 ? "" : fmt::format(" rail {}", where.rail);
  switch (where.kind) {
    case PlaceKind::kFleet:
      return "the fleet";
    case PlaceKind::kHost:
    case PlaceKind::kPort:
      return host + rail + (device.empty() ? "" : fmt::format(" ({})", device));
    case PlaceKind::kPath:
      return fmt::format("{} -> {}{}", host, printable(where.peer),
                         rail.empty() ? "" : " on" + rail);
    case PlaceKind::kRail:
      return rail.empty() ? "every rail" : rail.substr(1);
    case PlaceKind::kSwitch:
      return rail.empty() ? "the switches" : "the switch of" + rail;
    case PlaceKind::kTester:
      return host.empty() ? "the tester" : fmt::format("the tester on {}", host);
  }
  return "";
}

std::string in_words(const Evidence& e) {
  if (e.name == "flows")
    return counted(static_cast<std::size_t>(std::clamp(e.value, 0.0, 1e9)), "flow");
  std::string place = printable(e.host);
  if (e.rail >= 0) place += fmt::format("{}rail {}", place.empty() ? "" : " ", e.rail);
  std::string value = e.unit == Unit::kText ? printable(e.text) : in_unit(e.value, e.unit);
  if (e.unit != Unit::kText && !std::isnan(e.expected))
    value += fmt::format(", {} expected", bare(e.expected, e.unit));
  return fmt::format("{}{}{} {}", printable(e.name), place.empty() ? "" : " of ", place, value);
}

std::string port_in_words(const Report& report, Port port) {
  const auto h = static_cast<std::size_t>(port.host), r = static_cast<std::size_t>(port.rail);
  if (h >= report.hosts.size()) return fmt::format("host {} rail {}", port.host, port.rail);
  Where where{PlaceKind::kPort, report.hosts[h].name, port.rail, Direction::kBoth, "", ""};
  if (r < report.hosts[h].ports.size()) where.device = report.hosts[h].ports[r].device;
  return in_words(where);
}

std::string title_of(std::string_view id) {
  if (const Check* check = find_check(id)) return std::string(check->title);
  std::string words = printable(id);
  std::replace(words.begin(), words.end(), '-', ' ');
  return words;
}

namespace {

bool is_measured_rate(std::string_view id) {
  return id.ends_with("-rate") && id != "link-rate" && id != "drift";
}

// Returns the source of the expectation of a measured rate; "" for other findings.
std::string origin_in_words(const Finding& f, const Report& report) {
  if (f.unknown || f.unit != Unit::kGbps || !is_measured_rate(f.id) || !(f.expected > 0)) return "";
  const auto host = std::ranges::find(report.hosts, f.where.host, &FleetHost::name);
  const FleetHost* at = host != report.hosts.end() ? &*host
                        : report.hosts.empty()     ? nullptr
                                                   : &report.hosts[0];
  const int rail = std::max(f.where.rail, 0);
  if (!at || static_cast<std::size_t>(rail) >= at->ports.size()) return "";
  const double payload = at->ports[static_cast<std::size_t>(rail)].expected_gbps;
  if (!(payload > 0) || std::abs(f.expected - payload) > 0.02 * payload)
    return "; expected: the rate of other ports";
  const double declared = report.policy.declared_gbps(rail).value_or(report.declared_gbps);
  if (declared > 1.001 * payload)
    return fmt::format("; expected: declared {} Gb/s, less headers {}", three_digits(declared),
                       three_digits(payload));
  return declared > 0 ? "; expected: as declared" : "; expected: the port's rate, less headers";
}

}  // namespace

std::string detail_in_words(const Finding& f, const Report& report) {
  if (f.unknown) return "not known";
  std::string text(word_of(certainty_of(f.score)));
  const std::string interval = interval_in_words(f, report.policy.thresholds.confidence);
  if (!interval.empty()) text += ", " + interval;
  return text + origin_in_words(f, report);
}

std::string verdict_in_words(const Report& report) {
  return fmt::format("{}{}", word_of(report.verdict),
                     report.simulated  ? " (simulated)"
                     : report.emulated ? " (emulated)"
                                       : "");
}

std::string fleet_in_words(const Report& report) {
  const std::size_t hosts = std::max(report.hosts.size(), report.facts.hosts.size());
  std::string text = fmt::format("{} x {}", counted(hosts, "host"),
                                 counted(static_cast<std::size_t>(report.rails), "rail"));
  text += ", " + counted(static_cast<std::size_t>(report.ranks), "rank");
  if (!report.transport.empty()) text += ", " + printable(report.transport);
  return text;
}

std::string limits_in_words(const Plan& plan) {
  std::string text;
  if (plan.smallest_loss > 0 && plan.smallest_loss < 1)  // 1: no packets were counted
    text = fmt::format("loss >= {} per packet", small_share(plan.smallest_loss));
  if (plan.smallest_rate_cut > 0)
    text +=
        fmt::format("{}rate cuts >= {}", text.empty() ? "" : ", ", percent(plan.smallest_rate_cut));
  if (plan.smallest_share < 1)
    text += fmt::format("{}a port slow >= {} of the time", text.empty() ? "" : ", ",
                        percent(plan.smallest_share));
  return text;
}

std::string left_out_in_words(const Report& report) {
  const auto listed = [](const std::vector<Probe>& probes) {
    std::string text;
    for (const Probe probe : probes) text += (text.empty() ? "" : ", ") + std::string(name(probe));
    return text;
  };
  std::string text = listed(report.plan.left_out);
  if (!text.empty())
    text = fmt::format("no time in the budget of {:.0f} s: {}", report.budget_s, text);
  if (const std::string others = listed(report.plan.not_here); !others.empty())
    text += fmt::format("{}not with these hosts, rails and ports: {}", text.empty() ? "" : "; ",
                        others);
  return text;
}

// Remedies: the registry's text lists all possible reasons of a check's failure; these texts list
// only the reasons possible for the finding.
namespace {

struct Remedy {
  std::string_view id;
  bool (*holds)(const Finding& finding);
  std::string_view text;
};

bool sends(const Finding& f) { return f.where.direction == Direction::kTransmit; }
bool receives(const Finding& f) { return f.where.direction == Direction::kReceive; }
bool is_path(const Finding& f) { return f.where.kind == PlaceKind::kPath; }
bool is_port(const Finding& f) { return f.where.kind == PlaceKind::kPort; }
bool is_rail(const Finding& f) { return f.where.kind == PlaceKind::kRail; }
bool of_flows(const Finding& f) {
  return std::ranges::any_of(f.evidence, [](const Evidence& e) {
    return e.name == "share_of_flows" || e.name == "flow_label";
  });
}
bool of_time(const Finding& f) { return !of_flows(f); }

constexpr std::string_view kMembers =
    "Compare the members of the ECMP or link group on the way to the place; the named flow labels "
    "select the bad one.";

constexpr Remedy kKnown[] = {
    {"port-rate", sends,
     "Look at the host first: the port's PCIe link, its cores, its NIC. Then look at the link: "
     "rate, width, errors."},
    {"port-rate", receives,
     "Look at the switch port first: a shaper, a wrong speed, dropped packets. Then look at the "
     "link: rate, width, errors."},
    {"port-rate", is_port,
     "Both directions are slow: look at the link (rate, width, errors), at the port's PCIe link, "
     "and at the speed of the switch port."},
    {"unreachable", is_path,
     "Both ports reach others, so look between the two: routes, ARP, a firewall, or a dead member "
     "of a link group."},
    {"unreachable", is_port,
     "The port reaches nobody: look at its cable and at its switch port, then ping a peer over "
     "this very interface."},
    {"path-mtu", is_rail,
     "The hosts of the rail agree, so a switch is in the way: raise the MTU of the rail's switch "
     "ports and VLANs to that of the hosts, or lower that of all hosts to what passes."},
    {"path-mtu", is_port,
     "Raise the MTU of the switch port of this host (and of VLANs and tunnels on the way); all "
     "other ports let the packets pass."},
    {"unstable-rate", of_flows, kMembers},
    {"loss", of_flows, kMembers},
    {"congestion-loss", of_flows, kMembers},
    {"unstable-rate", of_time,
     "Look for flaps, pause, and loss at the place, then for other jobs that share the links."},
};

constexpr Remedy kUnknown[] = {
    {"nothing-measured", nullptr,
     "Start a rank on each of two or more hosts: mpirun -N 1, or srun --ntasks-per-node 1. Two "
     "ranks on one host measure no fabric."},
    {"probe-left-out", nullptr, "Run again with a larger --budget."},
    {"port-not-measured", nullptr,
     "Run again with a larger --budget. If the port is left out again, look at what else is found "
     "at its host."},
    {"collective-wrong", nullptr, "Run again with a larger --budget."},
};

// How jobs can avoid a slow port until it is repaired.
std::string told_to_jobs(const Finding& f) {
  if (f.id != "port-rate" || !is_port(f) || f.where.host.empty() || f.where.rail < 0) return "";
  return fmt::format(" Until then, all_reduce gives it less with WEFT_SLOW_PORTS={}:{}={:.2f}.",
                     printable(f.where.host), f.where.rail, std::max(share_left(f), 0.01));
}

}  // namespace

std::string remedy_of(const Finding& f) {
  if (f.unknown) {
    const auto* row = std::ranges::find(kUnknown, f.id, &Remedy::id);
    if (row != std::end(kUnknown)) return std::string(row->text);
    if (f.id != "rate-noise" && f.id != "declared" && find_check(f.id))
      return "Let weft read what the check needs (run as root, with /sys and debugfs of the host), "
             "or "
             "leave the check out: skipped_checks = [\"" +
             f.id + "\"] in the policy.";
  }
  for (const Remedy& row : kKnown)
    if (!f.unknown && row.id == f.id && row.holds(f))
      return std::string(row.text) + told_to_jobs(f);
  const Check* check = find_check(f.id);
  return check ? std::string(check->remedy) : "";
}

}  // namespace weft::fabric
