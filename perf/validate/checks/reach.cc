// Whether packets arrive: at all, at the right port, complete, and in time.
#include <algorithm>
#include <map>
#include <set>

#include "perf/validate/checks/check.h"
#include "perf/validate/locate/causes.h"
#include "perf/validate/locate/observations.h"
#include "perf/validate/probes/statistics.h"

namespace weft::fabric {
namespace {

constexpr std::size_t kMostPaths = 64;  // findings of paths; more become one fleet finding

bool is_explained(const Observed& observed, const Flow& flow, CauseKind kind) {
  return std::ranges::any_of(observed.causes, [&](const Cause& cause) {
    return cause.kind == kind && passes(cause, flow.from, flow.to);
  });
}

// Merges many faulty paths into one finding of the fleet, with the first paths as evidence.
void merge_paths(const Check& check, Judged& all) {
  if (all.findings.size() <= kMostPaths) return;
  Finding whole = make_finding(check, {});
  whole.unit = Unit::kCount;
  whole.value = static_cast<double>(all.findings.size());
  for (std::size_t i = 0; i < 8; ++i)
    whole.evidence.push_back(
        text_evidence("path", all.findings[i].where, all.findings[i].where.peer));
  all.findings = {whole};
}

using Paths = std::map<std::pair<Port, Port>, Finding>;

// Merges paths that all leave, or all reach, one port into a finding of that port, if no path of
// this direction is good.
void merge_ends(const Observed& observed, const std::set<std::pair<Port, Port>>& judged,
                Paths& paths, Judged& all) {
  for (const bool sends : {true, false}) {
    std::map<Port, std::pair<std::vector<std::pair<Port, Port>>, std::size_t>> ends;
    for (const auto& [path, finding] : paths)
      ends[sends ? path.first : path.second].first.push_back(path);
    for (const auto& path : judged)
      if (const auto end = ends.find(sends ? path.first : path.second); end != ends.end())
        ++end->second.second;
    for (const auto& [port, end] : ends) {
      const auto& [bad, tried] = end;
      if (bad.size() < 2 || bad.size() < tried) continue;
      Finding whole = paths.at(bad.front());
      whole.where = at_port(observed, port, sends ? Direction::kTransmit : Direction::kReceive);
      for (const auto& path : bad) paths.erase(path);
      all.findings.push_back(std::move(whole));
    }
  }
}

// Returns findings of paths without a cause. `judge(sample, finding)` fills in the problem of a
// flow.
template <typename Judge>
Judged each_path(const Check& check, const Observed& observed, CauseKind kind, Judge judge) {
  Judged all;
  Paths paths;
  std::set<std::pair<Port, Port>> judged;
  for (const FlowSample& sample : observed.samples.flows) {
    std::optional<Finding> finding;
    if (!judge(sample, finding)) continue;
    ++all.total;
    ++all.judged;
    judged.insert({sample.flow.from, sample.flow.to});
    if (finding && !is_explained(observed, sample.flow, kind))
      paths.try_emplace({sample.flow.from, sample.flow.to}, *finding);
  }
  merge_ends(observed, judged, paths, all);
  for (auto& [path, finding] : paths) all.findings.push_back(std::move(finding));
  merge_paths(check, all);
  return all;
}

// True for probes with intended congestion: packets missing there are due to the load, not to a
// dead link.
bool meets_others(Probe probe) {
  return probe == Probe::kIncast || probe == Probe::kVictim || probe == Probe::kBisection ||
         probe == Probe::kAllToAll;
}

Judged unreachable(const Check& check, const Observed& observed) {
  std::map<std::pair<Port, Port>, int> arrived;
  std::set<std::pair<Port, bool>> alive;  // true: the port sends
  for (const FlowSample& sample : observed.samples.flows)
    if (sample.reached) {
      ++arrived[{sample.flow.from, sample.flow.to}];
      alive.insert({{sample.flow.from, true}, {sample.flow.to, false}});
    }
  const auto filtered = without_datagrams(observed.samples);
  Judged all = each_path(
      check, observed, CauseKind::kUnreachable,
      [&](const FlowSample& sample, std::optional<Finding>& finding) {
        const Probe probe = observed.samples.probe_of(sample).value_or(Probe::kRate);
        // Rails need not reach each other; see the checks of those paths.
        if (probe == Probe::kCrossRail || probe == Probe::kLoopback) return false;
        if (meets_others(probe) && alive.contains({sample.flow.from, true}) &&
            alive.contains({sample.flow.to, false}))
          return false;
        // A filter of datagrams is not a dead link; see `no-failover`. Some filters pass the
        // broadcasts of `reach`.
        const bool lost = sends_datagrams(probe) && !sample.reached;
        if (lost && (filtered.contains({sample.flow.from, true}) ||
                     filtered.contains({sample.flow.to, false})))
          return false;
        if (lost && probe == Probe::kPathMtu &&
            arrived.contains({sample.flow.from, sample.flow.to}))
          return false;
        if (sample.reached) return true;
        finding = make_finding(check, at_path(observed, sample.flow.from, sample.flow.to));
        if (arrived.contains({sample.flow.from, sample.flow.to}))
          finding->severity = Severity::kFail;  // intermittent
        finding->unit = Unit::kText;
        finding->text = sample.error;
        return true;
      });
  for (const Cause& cause : observed.causes) {
    if (cause.kind != CauseKind::kUnreachable) continue;
    Finding& finding = all.findings.emplace_back(finding_from(check, observed, cause, Unit::kNone));
    const auto sample = std::ranges::find_if(observed.samples.flows, [&](const FlowSample& one) {
      return !one.reached && passes(cause, one.flow.from, one.flow.to);
    });
    if (sample == observed.samples.flows.end() || sample->error.empty()) continue;
    finding.evidence.push_back(text_evidence(
        "error", at_path(observed, sample->flow.from, sample->flow.to), sample->error));
  }
  return all;
}

Judged cables_swapped(const Check& check, const Observed& observed) {
  Judged all = each_path(
      check, observed, CauseKind::kSwapped,
      [&](const FlowSample& sample, std::optional<Finding>& finding) {
        if (!sample.arrived_at) return false;
        if (*sample.arrived_at == sample.flow.to) return true;
        finding = make_finding(check, at_path(observed, sample.flow.from, sample.flow.to));
        const Where there = at_port(observed, *sample.arrived_at);
        finding->evidence.push_back(text_evidence("arrived_at", there, there.device));
        return true;
      });
  for (const Cause& cause : observed.causes) {
    if (cause.kind != CauseKind::kSwapped) continue;
    Finding& finding = all.findings.emplace_back(finding_from(check, observed, cause, Unit::kNone));
    finding.value = finding.expected = finding.low = finding.high = 0;
    const Where other = at_port(observed, cause.peer);
    finding.evidence.push_back(text_evidence("swapped_with", other, other.device));
  }
  return all;
}

int mtu_of(const Observed& observed, Port port) {
  const auto host = static_cast<std::size_t>(port.host), rail = static_cast<std::size_t>(port.rail);
  if (port.host >= 0 && port.rail >= 0 && host < observed.hosts.size() &&
      rail < observed.hosts[host].ports.size() && observed.hosts[host].ports[rail].mtu > 0)
    return observed.hosts[host].ports[rail].mtu;
  const PortFacts* facts = port_of(observed, port);
  return facts ? facts->mtu.value_or(0) : 0;
}

Judged path_mtu(const Check& check, const Observed& observed) {
  Judged all = each_path(
      check, observed, CauseKind::kMtu,
      [&](const FlowSample& sample, std::optional<Finding>& finding) {
        const int mtu =
            std::min(mtu_of(observed, sample.flow.from), mtu_of(observed, sample.flow.to));
        if (mtu <= 0 || (!sample.passed_mtu && !sample.failed_mtu)) return false;
        const bool passed = sample.passed_mtu && *sample.passed_mtu >= mtu;
        const bool failed = sample.failed_mtu && *sample.failed_mtu <= mtu;
        if (passed || !failed) return true;
        finding = make_finding(check, at_path(observed, sample.flow.from, sample.flow.to));
        set_number(*finding, Unit::kBytes, sample.passed_mtu.value_or(0), mtu);
        return true;
      });
  for (const Cause& cause : observed.causes)
    if (cause.kind == CauseKind::kMtu)
      all.findings.push_back(finding_from(check, observed, cause, Unit::kBytes));
  return all;
}

Judged latency(const Check& check, const Observed& observed) {
  Judged all;
  const bool by_least = least_tells_latency(observed.samples);
  for (const FlowSample& sample : observed.samples.flows) {
    if (observed.samples.probe_of(sample) != Probe::kLatency) continue;
    ++all.total;
    all.judged += !sample.reached || (sample.latency && (by_least || !starved(sample)));
  }
  const Thresholds& limits = observed.policy.thresholds;
  for (const Cause& cause : observed.causes) {
    if (cause.kind != CauseKind::kLatency) continue;
    Finding finding = finding_from(check, observed, cause, Unit::kMicroseconds);
    const double ratio = cause.expected > 0 ? cause.value / cause.expected : limits.fail_latency;
    if (ratio <= limits.fail_latency) finding.severity = Severity::kWarn;
    if (ratio <= limits.warn_latency) finding.severity = Severity::kInfo;
    const HostFacts* host = host_of(observed, cause.port.host);
    const PortFacts* port = port_of(observed, cause.port);
    const bool of_port = finding.where.kind == PlaceKind::kPort;
    finding.unknown = of_port && host && port && has_remote_cores(*host, *port);
    if (by_least) {
      if (cause.samples < 2)
        finding.severity = Severity::kInfo;  // one flow may have had no undisturbed ping
      add_text(finding, "of_each_flow", "the fastest ping");
    }
    all.findings.push_back(std::move(finding));
  }
  return all;
}

constexpr double kLeastTailUs = 100;   // schedulers cause shorter tails
constexpr double kMostTimesFleet = 5;  // p99 / p50 of a host relative to the fleet's median

Judged latency_tail(const Check& check, const Observed& observed) {
  struct Tail {
    std::vector<double> ratios, p99_us;
  };
  std::map<int, Tail> hosts;
  for (const FlowSample& sample : observed.samples.flows) {
    if (observed.samples.probe_of(sample) != Probe::kLatency || !sample.latency) continue;
    if (sample.latency->p50_us <= 0 || starved(sample)) continue;
    for (const int host : {sample.flow.from.host, sample.flow.to.host}) {
      hosts[host].ratios.push_back(sample.latency->p99_us / sample.latency->p50_us);
      hosts[host].p99_us.push_back(sample.latency->p99_us);
    }
  }
  std::vector<double> all_ratios;
  for (const auto& [host, tail] : hosts) all_ratios.push_back(median_of(tail.ratios));
  const double baseline = median_of(all_ratios);
  Judged all;
  for (const auto& [host, tail] : hosts) {
    ++all.total;
    ++all.judged;
    const double ratio = median_of(tail.ratios), p99 = median_of(tail.p99_us);
    if (hosts.size() < 3 || ratio <= kMostTimesFleet * baseline || p99 < kLeastTailUs) continue;
    Finding& finding =
        all.findings.emplace_back(make_finding(check, at_host(host_name(observed, host))));
    const HostFacts* facts = host_of(observed, host);
    if (facts && facts->emulated) finding.severity = Severity::kInfo;
    set_number(finding, Unit::kRatio, ratio, baseline);
    add_number(finding, "p99", p99, Unit::kMicroseconds, 0);
  }
  return all;
}

constexpr Check kReachRows[] = {
    {"unreachable", CheckKind::kActive, Severity::kFatal, "every port reaches its peers",
     "a connection and bytes in each direction", "all arrive",
     "Packets do not arrive: a link is dead, a route is missing, or a device swallows them.",
     "Ping the peer over this interface. A port that reaches no peer has a bad link; a single bad "
     "path points to routes, ARP, a firewall, or a dead member of a link group.",
     unreachable},
    {"cables-swapped", CheckKind::kActive, Severity::kFail, "each rail is wired to its own leaf",
     "the port at which packets of each rail arrive", "the same rail as they left",
     "Packets for one port arrive at another: two cables are swapped, so rails that should be "
     "apart share switches.",
     "Exchange the two named cables at the hosts or at the leaf, and compare with the wiring plan.",
     cables_swapped},
    {"path-mtu", CheckKind::kActive, Severity::kFatal, "packets of the full MTU pass",
     "datagrams that must not be fragmented, both ways", "MTU of the interfaces passes",
     "Packets as large as the interfaces allow are lost on the way: small messages work, and "
     "large ones hang.",
     "Raise the MTU of the switch ports on this path (and of VLANs and tunnels), or lower that of "
     "all hosts.",
     path_mtu},
    {"latency", CheckKind::kActive, Severity::kFail, "latency is that of the fleet",
     "ping-pong of 64 bytes on an idle network, p50; the fastest where most ends waited for a core",
     "<= 2 x the fleet's median; > 5 x fails",
     "Messages at this place take far longer than elsewhere while the network is idle.",
     "Look for a detour (a wrong route, a slow or saturated link), for energy-saving states of "
     "cores and PCIe, and for interrupt moderation that differs.",
     latency},
    {"latency-tail", CheckKind::kActive, Severity::kWarn, "no host stalls",
     "ping-pong of 64 bytes, p99 / p50 by host", "< 5 x the fleet's median",
     "This host intermittently answers late although its median is normal: something interrupts "
     "its cores. The link is not at fault.",
     "Look for other processes, interrupts on the same cores, memory compaction, and frequency "
     "scaling on that host.",
     latency_tail},
};

}  // namespace

std::span<const Check> reach_checks() { return kReachRows; }

}  // namespace weft::fabric
