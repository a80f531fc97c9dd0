// Places, device kinds, and findings for causes; see check.h.
#include "perf/validate/checks/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>

#include "perf/validate/locate/observations.h"
#include "perf/validate/locate/suspects.h"
#include "topo/sysfs.h"

namespace weft::fabric {
namespace {

constexpr std::size_t kMostEvidence = 16;

}  // namespace

Finding make_finding(const Check& check, Where where) {
  Finding finding;
  finding.id = check.id;
  finding.severity = check.severity;
  finding.where = std::move(where);
  return finding;
}

Finding make_unknown(const Check& check, Where where) {
  Finding finding = make_finding(check, std::move(where));
  finding.unknown = true;
  return finding;
}

Finding text_finding(const Check& check, Where where, std::string text, std::string expected) {
  Finding finding = make_finding(check, std::move(where));
  finding.unit = Unit::kText;
  finding.text = std::move(text);
  finding.expected_text = std::move(expected);
  return finding;
}

void set_number(Finding& finding, Unit unit, double value, double expected) {
  finding.unit = unit;
  finding.value = value;
  finding.expected = expected;
}

void add_number(Finding& finding, std::string name, double value, Unit unit, double expected) {
  finding.evidence.push_back(
      number_evidence(std::move(name), finding.where, value, expected, unit));
}

void add_text(Finding& finding, std::string name, std::string text) {
  finding.evidence.push_back(text_evidence(std::move(name), finding.where, std::move(text)));
}

Where at_host(const std::string& host, Direction direction) {
  Where where;
  where.kind = PlaceKind::kHost;
  where.host = host;
  where.direction = direction;
  return where;
}

Where at_port(const HostFacts& host, const PortFacts& port, Direction direction) {
  Where where = at_host(host.host, direction);
  where.kind = PlaceKind::kPort;
  where.rail = port.rail;
  where.device = port.device;
  return where;
}

Where at_port(const Observed& observed, Port port, Direction direction) {
  Where where = at_host(host_name(observed, port.host), direction);
  where.kind = PlaceKind::kPort;
  where.rail = port.rail;
  if (const PortFacts* facts = port_of(observed, port)) {
    where.device = facts->device;
  } else if (const auto host = static_cast<std::size_t>(port.host); host < observed.hosts.size()) {
    const auto& ports = observed.hosts[host].ports;
    if (const auto rail = static_cast<std::size_t>(port.rail); rail < ports.size())
      where.device = ports[rail].device;
  }
  return where;
}

Where at_path(const Observed& observed, Port from, Port to) {
  Where where = at_port(observed, from, Direction::kTransmit);
  where.kind = PlaceKind::kPath;
  where.peer = host_name(observed, to.host);
  return where;
}

Where at_rail(int rail) {
  Where where;
  where.kind = PlaceKind::kRail;
  where.rail = rail;
  return where;
}

Evidence text_evidence(std::string name, const Where& where, std::string text) {
  Evidence evidence = number_evidence(std::move(name), where, 0, 0, Unit::kText);
  evidence.text = std::move(text);
  return evidence;
}

Evidence number_evidence(std::string name, const Where& where, double value, double expected,
                         Unit unit) {
  Evidence evidence;
  evidence.name = std::move(name);
  evidence.host = where.host;
  evidence.rail = where.rail;
  evidence.value = value;
  evidence.expected = expected;
  evidence.unit = unit;
  return evidence;
}

const HostFacts* host_of(const Observed& observed, int host) {
  const auto& hosts = observed.facts.hosts;
  return host >= 0 && static_cast<std::size_t>(host) < hosts.size()
             ? &hosts[static_cast<std::size_t>(host)]
             : nullptr;
}

const PortFacts* port_of(const Observed& observed, Port port) {
  const HostFacts* host = host_of(observed, port.host);
  if (!host) return nullptr;
  const auto it = std::ranges::find(host->ports, port.rail, &PortFacts::rail);
  return it == host->ports.end() ? nullptr : &*it;
}

std::string host_name(const Observed& observed, int host) {
  if (const HostFacts* facts = host_of(observed, host); facts && !facts->host.empty())
    return facts->host;
  const auto index = static_cast<std::size_t>(host);
  return host >= 0 && index < observed.hosts.size() ? observed.hosts[index].name : "";
}

double expected_gbps(const Observed& observed, Port port) {
  const auto host = static_cast<std::size_t>(port.host), rail = static_cast<std::size_t>(port.rail);
  if (port.host < 0 || port.rail < 0 || host >= observed.hosts.size()) return 0;
  const auto& ports = observed.hosts[host].ports;
  return rail < ports.size() ? ports[rail].expected_gbps : 0;
}

double expected_gbps(const Observed& observed, const Flow& flow) {
  const double from = expected_gbps(observed, flow.from), to = expected_gbps(observed, flow.to);
  return from > 0 && to > 0 ? std::min(from, to) : 0;
}

bool excluded(const Observed& observed, const PortFacts& port) {
  return std::ranges::find(observed.policy.excluded_devices, port.device) !=
         observed.policy.excluded_devices.end();
}

bool is_mlx5(const PortFacts& port) {
  return port.rdma &&
         (port.device.starts_with("mlx5") || port.driver.value_or("").starts_with("mlx5"));
}

bool is_soft(const PortFacts& port) { return port.rdma && !port.pci && !is_mlx5(port); }

bool is_roce(const PortFacts& port) {
  return port.rdma && !is_soft(port) && port.link_layer.value_or("") == "Ethernet";
}

bool is_infiniband(const PortFacts& port) {
  return port.rdma && port.link_layer.value_or("") == "InfiniBand";
}

bool is_mlx5_roce(const PortFacts& port) { return is_roce(port) && is_mlx5(port); }

bool must_be_lossless(const Observed& observed, const PortFacts& port) {
  return observed.policy.lossless.value_or(port.rdma);
}

bool has_remote_cores(const HostFacts& host, const PortFacts& port) {
  if (host.allowed_cpus && port.local_cpus) {
    const std::vector<int> allowed = sysfs::parse_cpulist(*host.allowed_cpus);
    std::vector<int> local = sysfs::parse_cpulist(*port.local_cpus), both;
    std::ranges::sort(local);
    return !allowed.empty() && !local.empty() && std::ranges::none_of(allowed, [&](int core) {
      return std::ranges::binary_search(local, core);
    });
  }
  return host.numa_node && port.numa_node && *host.numa_node >= 0 && *port.numa_node >= 0 &&
         *host.numa_node != *port.numa_node;
}

Severity severity_of_loss(const Thresholds& limits, double low) {
  if (low > limits.fail_loss) return Severity::kFail;
  return low > limits.warn_loss ? Severity::kWarn : Severity::kInfo;
}

double stopped_share(const HostFacts& host) {
  const Stops& stops = host.stops;
  return stops.watched_s > 0
             ? std::min(1.0, std::max(stops.stopped_s, stops.throttled_s) / stops.watched_s)
             : 0;
}

bool over_tcp(const FlowSample& sample) {
  return sample.min_rtt_us || sample.receiver_limited || sample.sender_limited;
}

std::vector<const FlowSample*> flows_of(const Observed& observed, Probe probe) {
  std::vector<const FlowSample*> flows;
  for (const FlowSample& sample : observed.samples.flows)
    if (observed.samples.probe_of(sample) == probe) flows.push_back(&sample);
  return flows;
}

Alone::Alone(const Observed& observed)
    : observed_(observed), baseline_(baseline_of_ports(observed.samples)) {}

double Alone::gbps(Port port, bool sends) const {
  const auto it = baseline_.find({port, sends});
  return it == baseline_.end() ? expected_gbps(observed_, port) : it->second;
}

Graded rates_of(const Observed& observed) {
  return rate_observations(observed.hosts, observed.samples, observed.policy.thresholds);
}

bool is_flooding(Probe probe) {
  return probe == Probe::kIncast || probe == Probe::kAllToAll || probe == Probe::kBisection ||
         probe == Probe::kVictim;
}

void add_outcome(Outcome outcome, Judged& all) {
  if (!outcome) return;
  ++all.total;
  if (std::ranges::none_of(*outcome, &Finding::unknown)) ++all.judged;
  std::ranges::move(*outcome, std::back_inserter(all.findings));
}

std::vector<Finding> unlike(const Check& check, const std::vector<Setting>& group,
                            const std::optional<std::string>& declared, const Where& all,
                            std::string_view name) {
  std::map<std::string_view, std::size_t> holders;
  for (const Setting& one : group) ++holders[one.value];
  std::optional<std::string> expected = declared;
  double score = 1;
  if (!declared) {
    if (holders.size() < 2) return {};
    const auto most = std::ranges::max_element(holders, {}, &decltype(holders)::value_type::second);
    if (2 * most->second > group.size()) {
      expected = most->first;
      score = static_cast<double>(most->second) / static_cast<double>(group.size());
    }
  }
  std::vector<Finding> findings;
  if (!expected) {
    Finding& finding = findings.emplace_back(make_finding(check, all));
    for (const auto& [value, number] : holders) {
      finding.evidence.push_back(number_evidence(fmt::format("{}={}", name, value), all,
                                                 static_cast<double>(number),
                                                 static_cast<double>(group.size()), Unit::kCount));
    }
    for (const Setting& one : group) {
      if (finding.evidence.size() >= kMostEvidence) break;
      finding.evidence.push_back(text_evidence(std::string(name), one.where, one.value));
    }
    return findings;
  }
  for (const Setting& one : group) {
    if (one.value == *expected) continue;
    Finding& finding = findings.emplace_back(text_finding(check, one.where, one.value, *expected));
    finding.score = score;
    finding.evidence.push_back(text_evidence(std::string(name), one.where, one.value));
  }
  return findings;
}

std::vector<Finding> unlike_on_rails(const Check& check, const SettingsOfRails& rails,
                                     const std::optional<std::string>& declared,
                                     std::string_view name) {
  std::vector<Finding> findings;
  for (const auto& [rail, group] : rails)
    std::ranges::move(unlike(check, group, declared, at_rail(rail), name),
                      std::back_inserter(findings));
  return findings;
}

Where place_of(const Observed& observed, const Cause& cause) {
  const auto host = [&](Direction direction) {
    return at_host(host_name(observed, cause.port.host), direction);
  };
  switch (cause.place) {
    case CausePlace::kTransmit:
      return at_port(observed, cause.port, Direction::kTransmit);
    case CausePlace::kReceive:
      return at_port(observed, cause.port, Direction::kReceive);
    case CausePlace::kPort:
      return at_port(observed, cause.port);
    case CausePlace::kHostTransmit:
      return host(Direction::kTransmit);
    case CausePlace::kHostReceive:
      return host(Direction::kReceive);
    case CausePlace::kHost:
      return host(Direction::kBoth);
    case CausePlace::kPath:
      return at_path(observed, cause.port, cause.peer);
    case CausePlace::kPair: {
      Where where = at_path(observed, cause.port, cause.peer);
      where.direction = Direction::kBoth;
      return where;
    }
    case CausePlace::kRail:
      return at_rail(cause.port.rail);
    case CausePlace::kGroup: {
      Where where = at_rail(cause.port.rail);
      where.kind = PlaceKind::kSwitch;
      return where;
    }
    case CausePlace::kFleet:
      break;
  }
  return {};
}

Finding finding_from(const Check& check, const Observed& observed, const Cause& cause, Unit unit) {
  Finding finding = make_finding(check, place_of(observed, cause));
  set_number(finding, unit, cause.value, cause.expected);
  finding.low = cause.low;
  finding.high = cause.high;
  constexpr double kMostOfCause = 0.9999;  // a score of 1 means a fact
  finding.score = std::min(kMostOfCause, cause.confidence);
  if (cause.samples > 0) add_count(finding, "flows", cause.samples);
  for (const Port port : cause.ports) {
    if (finding.evidence.size() >= kMostEvidence) break;
    const Where where = at_port(observed, port);
    finding.evidence.push_back(text_evidence("port", where, where.device));
  }
  return finding;
}

}  // namespace weft::fabric
