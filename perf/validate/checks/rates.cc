// Rates that are too low: located causes, and the fleet compared with absolute rates.
#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <iterator>
#include <set>
#include <vector>

#include "perf/validate/checks/check.h"
#include "perf/validate/locate/observations.h"
#include "perf/validate/locate/suspects.h"
#include "perf/validate/probes/statistics.h"

namespace weft::fabric {
namespace {

bool is_rate(const Observed& observed, const FlowSample& sample) {
  return sample.reached && observed.samples.probe_of(sample) == Probe::kRate;
}

// A port is not known to be slow if it was measured from cores of another socket.
void doubt_remote_cores(const Observed& observed, const Cause& cause, Finding& finding) {
  const HostFacts* host = host_of(observed, cause.port.host);
  const PortFacts* port = port_of(observed, cause.port);
  if (finding.where.kind != PlaceKind::kPort && finding.where.kind != PlaceKind::kHost) return;
  if (!host || !port || !has_remote_cores(*host, *port)) return;
  finding.unknown = true;
  add_text(finding, "allowed_cpus", host->allowed_cpus.value_or(""));
}

// Downgrades a low rate if stops of the tester explain it. A stop costs twice its duration: the
// stream needs as long again to reach full rate. Uses the stops of the ends of a port or path, and
// the median over all hosts for places without a host (a rail, a switch, the fleet).
void excuse_by_stops(const Observed& observed, const Cause* cause, double share, Finding& finding) {
  double stopped = 0;
  if (cause && !finding.where.host.empty()) {
    const bool path = cause->place == CausePlace::kPath || cause->place == CausePlace::kPair;
    for (const int index : {cause->port.host, path ? cause->peer.host : cause->port.host})
      if (const HostFacts* host = host_of(observed, index))
        stopped = std::max(stopped, stopped_share(*host));
  } else if (!observed.facts.hosts.empty()) {
    std::vector<double> shares;
    for (const HostFacts& host : observed.facts.hosts) shares.push_back(stopped_share(host));
    stopped = median_of(shares);
  }
  if (stopped <= 0 || share < 1 - 2 * stopped) return;
  finding.severity = Severity::kInfo;
  finding.evidence.push_back(number_evidence("stopped", {}, stopped, 0, Unit::kShare));
}

// Returns whether cores limit the rate: the hosts share a kernel, and their software devices have
// no declared rate. Kernel threads move the bytes, and no flow waits for these threads.
bool is_rate_of_cores(const Observed& observed, const Cause& cause) {
  const HostFacts* host = host_of(observed, cause.port.host);
  const PortFacts* port = port_of(observed, cause.port);
  const bool path = cause.place == CausePlace::kPath || cause.place == CausePlace::kPair;
  const Flow flow{cause.port, path ? cause.peer : cause.port};
  return host && port && host->emulated && is_soft(*port) && expected_gbps(observed, flow) <= 0;
}

// Returns findings for rate causes at `places`; the severity follows from the remaining share of
// the rate.
template <CausePlace... places>
Judged rates_at(const Check& check, const Observed& observed) {
  const Thresholds& limits = observed.policy.thresholds;
  Judged all;
  for (const FlowSample& sample : observed.samples.flows) all.total += is_rate(observed, sample);
  all.judged = std::min(all.total, static_cast<int>(rates_of(observed).observations.size()));
  for (const Cause& cause : observed.causes) {
    if (cause.kind != CauseKind::kRate || ((cause.place != places) && ...)) continue;
    const double share = cause.expected > 0 ? cause.value / cause.expected : 0;
    if (share >= limits.warn_rate) continue;
    Finding finding = finding_from(check, observed, cause, Unit::kGbps);
    if (share >= limits.fail_rate) finding.severity = Severity::kWarn;
    if (is_rate_of_cores(observed, cause)) finding.severity = Severity::kInfo;
    doubt_remote_cores(observed, cause, finding);
    excuse_by_stops(observed, &cause, share, finding);
    all.findings.push_back(std::move(finding));
  }
  return all;
}

// "port.<host>.rail<rail>.<number>"
Where place_of(const std::string& number) {
  constexpr std::size_t kPrefix = std::size("port.") - 1, kRail = std::size(".rail") - 1;
  const std::size_t rail = number.rfind(".rail");
  Where where;
  where.kind = PlaceKind::kPort;
  where.host = number.substr(kPrefix, rail - kPrefix);
  where.rail = std::atoi(number.c_str() + rail + kRail);
  if (number.ends_with(".transmit_gbps")) where.direction = Direction::kTransmit;
  if (number.ends_with(".receive_gbps")) where.direction = Direction::kReceive;
  return where;
}

// Degradations since the baseline. Tail latency alone is too noisy for a verdict. No node is
// drained for a change: a link may be slow because of its other end.
Judged drift(const Check& check, const Observed& observed) {
  constexpr double kScore = 0.5;
  const Thresholds& limits = observed.policy.thresholds;
  Judged all;
  if (!observed.drift) return all;
  all.judged = all.total = 1;
  for (const Drift& d : *observed.drift) {
    const bool rate = d.name.ends_with("_gbps");
    if (rate ? d.now >= d.before : d.now <= d.before) continue;
    Finding& finding = all.findings.emplace_back(make_finding(check, place_of(d.name)));
    const bool far =
        rate ? d.now < limits.fail_rate * d.before : d.now > limits.fail_latency * d.before;
    if (far) finding.severity = Severity::kFail;
    if (d.name.ends_with(".p99_us")) finding.severity = Severity::kInfo;
    set_number(finding, rate ? Unit::kGbps : Unit::kMicroseconds, d.now, d.before);
    finding.score = kScore;
  }
  return all;
}

// Hosts limit the rate of one stream. If even the most streams per flow cannot fill a port, the
// port is not known to be slow.
void excuse_by_streams(const Observed& observed, Finding& finding) {
  const double one = observed.samples.one_stream_gbps;
  if (one <= 0) return;
  finding.severity = Severity::kInfo;
  add_number(finding, "one_stream", one, Unit::kGbps);
  add_count(finding, "streams", kMostStreams);
}

// Compares the fleet with the declared or advertised rates, unless a cause already reports it.
Judged fleet_rate(const Check& check, const Observed& observed) {
  const Thresholds& limits = observed.policy.thresholds;
  Judged all = rates_at<CausePlace::kFleet>(check, observed);
  for (Finding& finding : all.findings) excuse_by_streams(observed, finding);
  std::vector<double> shares, rates;
  bool hardware = false;
  const Graded graded = rates_of(observed);
  const std::set<const FlowSample*> silent(graded.silent.begin(), graded.silent.end());
  const std::set<const FlowSample*> met = met_others(observed.hosts, observed.samples, limits);
  for (const FlowSample& sample : observed.samples.flows) {
    if (!is_rate(observed, sample) || silent.contains(&sample) || met.contains(&sample)) continue;
    const PortFacts* port = port_of(observed, sample.flow.from);
    hardware = hardware || (port && port->rdma && !is_soft(*port));
    rates.push_back(sample.gbps());
    const double expected = expected_gbps(observed, sample.flow);
    if (expected > 0) shares.push_back(sample.gbps() / expected);
  }
  all.judged = static_cast<int>(shares.size());
  if (!all.findings.empty() || rates.empty()) return all;
  if (shares.empty()) {
    // The rate of the ports is unknown. RDMA ports should report their rate.
    Finding& finding = all.findings.emplace_back(make_unknown(check, {}));
    if (!hardware) finding.severity = Severity::kInfo;
    finding.unit = Unit::kGbps;
    finding.value = median_of(rates);
    return all;
  }
  const double share = median_of(shares), rate = median_of(rates);
  if (share >= limits.warn_rate) return all;
  // If most flows waited for cores, the other flows lacked cores, too.
  if (silent.size() > shares.size()) {
    all.judged = 0;
    return all;
  }
  // Several independently faulty ports, or a few rails, are not a fault of the fleet.
  const bool named = std::ranges::any_of(observed.causes, [](const Cause& cause) {
    return cause.kind == CauseKind::kRate && cause.place == CausePlace::kRail;
  });
  if (named) return all;
  Finding& finding = all.findings.emplace_back(make_finding(check, {}));
  if (share >= limits.fail_rate) finding.severity = Severity::kWarn;
  set_number(finding, Unit::kGbps, rate, rate / share);
  add_count(finding, "flows", shares.size());
  excuse_by_streams(observed, finding);
  excuse_by_stops(observed, nullptr, share, finding);
  return all;
}

// Rates that look healthy but are too noisy to distinguish a slow port from a fast one.
Judged rate_noise(const Check& check, const Observed& observed) {
  const Thresholds& limits = observed.policy.thresholds;
  const Graded graded = rates_of(observed);
  if (graded.observations.empty()) return {};  // see nothing_measured(), port_not_measured()
  const double cut = smallest_rate_cut(observed.hosts, observed.samples, limits);
  if (cut > 0 && cut <= rate_cut_to_see(limits)) return {{}, 1, 1};
  Finding finding = make_unknown(check, {});
  const double unseen = cut > 0 ? cut : 1;  // waits for a core may have hidden any cut
  set_number(finding, Unit::kShare, unseen, rate_cut_to_see(limits));
  add_number(finding, "noise", graded.sigma, Unit::kShare);
  add_count(finding, "flows", graded.observations.size());
  add_number(finding, "held_up", static_cast<double>(graded.silent.size()), Unit::kCount, 0);
  return {{finding}, 0, 1};
}

Judged unstable_rate(const Check& check, const Observed& observed) {
  Judged all;
  for (const FlowSample& sample : observed.samples.flows) {
    if (!is_rate(observed, sample) || sample.window_gbps.empty()) continue;
    ++all.total;
    all.judged += !starved(sample);
  }
  const Thresholds& limits = observed.policy.thresholds;
  for (const Cause& cause : observed.causes) {
    if (cause.kind != CauseKind::kUnstable) continue;
    Finding& finding = all.findings.emplace_back(finding_from(check, observed, cause, Unit::kGbps));
    // A job gets the average rate of the place.
    const double depth = cause.expected > 0 ? 1 - cause.value / cause.expected : 1;
    const double left = 1 - cause.share * depth;
    if (cause.share > 0 && left < limits.fail_rate) finding.severity = Severity::kFail;
    if (is_rate_of_cores(observed, cause)) finding.severity = Severity::kInfo;
    if (cause.share > 0) excuse_by_stops(observed, &cause, left, finding);
    const auto add = [&](const char* name, double value, Unit unit) {
      if (value > 0) add_number(finding, name, value, unit);
    };
    add(cause.of_flows ? "share_of_flows" : "share_of_time", cause.share, Unit::kShare);
    add("share.low", cause.share_low, Unit::kShare);
    add("share.high", cause.share_high, Unit::kShare);
    add("spell", 1e6 * cause.spell_s, Unit::kMicroseconds);
    add("period", 1e6 * cause.period_s, Unit::kMicroseconds);
    for (const int label : cause.labels) add("flow_label", label, Unit::kCount);
  }
  return all;
}

constexpr Check kRatesRows[] = {
    {"port-rate", CheckKind::kActive, Severity::kFail, "every port reaches its rate",
     "streams of disjoint pairs, averages over windows", ">= 93 % of the rate; < 87 % fails",
     "All flows through this port, in this direction, are slow, while its peers are fast with "
     "others.",
     "Look at the port's link (rate, width, errors), its PCIe link, and the switch port: a shaper, "
     "or a wrong speed. A port that only sends slowly points at the host, one that only receives "
     "slowly at the switch port.",
     rates_at<CausePlace::kTransmit, CausePlace::kReceive, CausePlace::kPort>},
    {"host-rate", CheckKind::kActive, Severity::kFail, "every host reaches its rates",
     "streams of disjoint pairs, on all rails", ">= 93 % of the rate; < 87 % fails",
     "All ports of this host are equally slow, so the host is at fault rather than its links.",
     "Look at CPU limits, NUMA, memory bandwidth, power capping, the IOMMU, and PCIe switches of "
     "the host.",
     rates_at<CausePlace::kHostTransmit, CausePlace::kHostReceive, CausePlace::kHost>},
    {"path-rate", CheckKind::kActive, Severity::kFail, "every path reaches its rate",
     "streams of disjoint pairs", ">= 93 % of the rate; < 87 % fails",
     "One pair of hosts is slow, and both are fast with all others: the fault lies on the path "
     "between them.",
     "Trace the path through the switches (route, ECMP member, link group) and look at the "
     "counters of the links that only this path uses.",
     rates_at<CausePlace::kPath, CausePlace::kPair>},
    {"rail-rate", CheckKind::kActive, Severity::kFail, "every rail reaches its rate",
     "streams of disjoint pairs, compared between rails", ">= 93 % of the rate; < 87 % fails",
     "All ports of a rail are equally slow, so that rail's switch, or its configuration, is at "
     "fault.",
     "Compare the switches of this rail with those of a good rail: port speed, buffers, uplinks, "
     "flow control.",
     rates_at<CausePlace::kRail>},
    {"switch-rate", CheckKind::kActive, Severity::kFail, "every switch carries its ports' rate",
     "streams of disjoint pairs, ports grouped", ">= 93 % of the rate; < 87 % fails",
     "Some ports of a rail are slow together, as ports behind one switch are.",
     "Find what the named ports share (a leaf, a line card, an uplink) and look there; hosts need "
     "not be touched.",
     rates_at<CausePlace::kGroup>},
    {"fleet-rate", CheckKind::kActive, Severity::kFail, "the fleet reaches the declared rate",
     "the median of all streams against the declared or advertised rate",
     ">= 93 % of the rate; < 87 % fails",
     "All ports are equally slow: something that they share, or the expectation, is wrong.",
     "Compare the declared rate with the hardware. Then look at what all hosts share: MTU, "
     "encryption, flow control, the number of streams, a setting that was rolled out.",
     fleet_rate},
    {"rate-noise", CheckKind::kActive, Severity::kFail, "rates are steady enough to judge",
     "variation of repeated flows on each path, and the number of flows of each port",
     "a cut of 3 % below a warning would be seen",
     "No place was found slow, but the rates differ so much without a fault that a port of less "
     "than the warned rate could look like the others.",
     "Run again while the network and the hosts' cores are idle, or with a larger --budget: more "
     "flows per port give a better estimate. If the noise persists, look for other users of the "
     "links.",
     rate_noise},
    {"unstable-rate", CheckKind::kActive, Severity::kWarn, "rates are stable over time",
     "streams at many times of the run, each from a source port of its own",
     "no intermittently slow port or path; < 87 % on average fails",
     "The place is slow intermittently, or only for some flows; repeats of the same source ports "
     "distinguish the two. Averages hide such a fault, and synchronous jobs wait for each spell.",
     "Slow at times: look for flaps, pause, and loss at the place, then for other jobs that share "
     "the links. Slow for some flows: compare the members of the ECMP or link group on the way to "
     "the place; the named flow labels select the bad one.",
     unstable_rate},
    {"drift", CheckKind::kActive, Severity::kWarn, "no port is worse than in the baseline",
     "rates and latencies of the ports against the file of --baseline",
     "within the thresholds, relative to the baseline",
     "A port sends or receives less than when the baseline was stored, or takes longer for a "
     "message. If all ports do, they agree with each other, and only the baseline reveals it.",
     "Look for what changed since: a setting, firmware, a cable, an optic, other jobs on the "
     "links. Remove the file to store a new baseline where the change is wanted.",
     drift},
};

}  // namespace

std::span<const Check> rate_checks() { return kRatesRows; }

}  // namespace weft::fabric
