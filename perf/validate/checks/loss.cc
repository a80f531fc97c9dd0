// Packet losses of flows at two loads. A bad link damages bits at any load; a full queue drops only
// under load. A single TCP flow loses packets at its bottleneck by design, to find its rate: not a
// fault.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "perf/validate/checks/check.h"
#include "perf/validate/locate/causes.h"
#include "perf/validate/locate/observations.h"
#include "perf/validate/probes/statistics.h"

namespace weft::fabric {
namespace {

// With this many losses expected at low load, zero losses are significant: their probability is
// 0.7%.
constexpr double kFewEvents = 5;

// Packets of some flows, and the number of lost ones.
struct Tally {
  double packets = 0, lost = 0;
  std::set<std::pair<Port, Port>> paths;  // paths with losses
  bool tcp = false;

  void add(const FlowSample& sample) {
    packets += static_cast<double>(*sample.packets);
    lost += static_cast<double>(*sample.retransmits);
    if (*sample.retransmits > 0) paths.emplace(sample.flow.from, sample.flow.to);
    tcp = tcp || over_tcp(sample);
  }
  double rate() const { return packets > 0 ? std::min(1.0, lost / packets) : 0; }
};

// Returns the load of a flow: 0 low, 1 full; -1: not usable for loss (intended congestion, or its
// transport does not count).
int load_of(const Observed& observed, const FlowSample& sample) {
  if (!sample.packets || !sample.retransmits) return -1;
  const auto probe = observed.samples.probe_of(sample);
  if (probe == Probe::kLowLoad) return 0;
  return probe == Probe::kRate ? 1 : -1;
}

struct Loads {
  Tally low, full;
};

Loads tally_of(const Observed& observed, const Cause& cause) {
  Loads loads;
  for (const FlowSample& sample : observed.samples.flows) {
    const int load = load_of(observed, sample);
    if (load < 0 || !passes(cause, sample.flow.from, sample.flow.to)) continue;
    (load == 0 ? loads.low : loads.full).add(sample);
  }
  return loads;
}

enum class LossKind {
  kAnyLoad,    // at low load, too
  kUnderLoad,  // only at full load; low load would have shown the loss
  kUnclear,    // too few packets at low load
};

LossKind kind_of_loss(const Loads& loads, double rate) {
  if (loads.low.lost > 0) return LossKind::kAnyLoad;
  return loads.low.packets * rate >= kFewEvents ? LossKind::kUnderLoad : LossKind::kUnclear;
}

void add_loads(const Observed& observed, const Loads& loads, Finding& finding) {
  const auto add = [&](const char* name, const Tally& tally) {
    if (tally.packets <= 0) return;
    const Interval interval = wilson(std::min(tally.lost, tally.packets), tally.packets,
                                     observed.policy.thresholds.confidence);
    const auto rate = [&](const std::string& what, double value) {
      add_number(finding, std::string(name) + what, value, Unit::kPerPacket, 0);
    };
    rate("", tally.rate());
    rate(".low", interval.low);
    rate(".high", interval.high);
    add_count(finding, std::string(name) + ".packets", tally.packets);
  };
  add("loss_at_low_load", loads.low);
  add("loss_at_full_load", loads.full);
}

// RDMA at this place must not lose packets. TCP over the interface of an RDMA port may.
bool lossless_at(const Observed& observed, const Cause& cause, const Loads& loads) {
  if (observed.policy.lossless) return *observed.policy.lossless;
  if (loads.low.tcp || loads.full.tcp) return false;
  const PortFacts* port = port_of(observed, cause.port);
  return port && must_be_lossless(observed, *port);
}

bool is_slow(const Observed& observed, const Cause& cause) {
  return std::ranges::any_of(observed.causes, [&](const Cause& other) {
    return other.kind == CauseKind::kRate && other.place == cause.place &&
           other.port == cause.port &&
           (cause.place != CausePlace::kPath || other.peer == cause.peer);
  });
}

bool went_down(const Observed& observed, Port port) {
  const PortFacts* facts = port_of(observed, port);
  if (!facts) return false;
  const auto before = facts->before.find("net.carrier_changes");
  const auto after = facts->after.find("net.carrier_changes");
  return before != facts->before.end() && after != facts->after.end() &&
         after->second.value != before->second.value;
}

// Returns whether most losses were on flows to or from ports whose links went down.
bool is_of_flaps(const Observed& observed, const Cause& cause) {
  double lost = 0, at_flaps = 0;
  for (const FlowSample& sample : observed.samples.flows) {
    if (load_of(observed, sample) < 0 || !passes(cause, sample.flow.from, sample.flow.to)) continue;
    const auto events = static_cast<double>(*sample.retransmits);
    lost += events;
    if (went_down(observed, sample.flow.from) || went_down(observed, sample.flow.to))
      at_flaps += events;
  }
  return lost > 0 && at_flaps >= 0.8 * lost;
}

// The loss of a cause, if it is of the requested kind; `under_load` requests congestion.
std::optional<Finding> judge_cause(const Check& check, const Observed& observed, const Cause& cause,
                                   bool under_load) {
  const Loads loads = tally_of(observed, cause);
  // Paced flows took other paths than the flows of this cause.
  const LossKind kind = cause.of_flows ? LossKind::kAnyLoad : kind_of_loss(loads, cause.value);
  const bool lossless = lossless_at(observed, cause, loads);
  const bool slow = is_slow(observed, cause);
  // A slow place without losses at low load drops the excess over its rate.
  const bool congested = kind == LossKind::kUnderLoad || (kind == LossKind::kUnclear && slow);
  if (congested != under_load) return std::nullopt;
  Finding finding = finding_from(check, observed, cause, Unit::kPerPacket);
  if (finding.low == 0 && finding.high == 0) {
    const Tally& tally = loads.low.lost > 0 ? loads.low : loads.full;
    const Interval interval =
        wilson(tally.lost, tally.packets, observed.policy.thresholds.confidence);
    finding.low = interval.low;
    finding.high = interval.high;
  }
  if (!cause.of_flows) add_loads(observed, loads, finding);
  for (const int label : cause.labels) add_count(finding, "flow_label", label);
  if (is_of_flaps(observed, cause)) finding.explained_by = "link-flaps";
  if (lossless) return finding;
  finding.severity = severity_of_loss(observed.policy.thresholds, finding.low);
  if (!under_load) return finding;
  // TCP fills the queue of a bottleneck (a slow port, or the whole fleet) until it drops.
  const bool by_design = slow || cause.place == CausePlace::kFleet;
  finding.severity = by_design ? Severity::kInfo : std::min(finding.severity, Severity::kWarn);
  return finding;
}

// Returns the losses of flows that cross no place of a known loss.
Tally unexplained(const Observed& observed, int wanted) {
  Tally tally;
  for (const FlowSample& sample : observed.samples.flows) {
    if (load_of(observed, sample) != wanted) continue;
    const bool known = std::ranges::any_of(observed.causes, [&](const Cause& cause) {
      return (cause.kind == CauseKind::kLoss || cause.kind == CauseKind::kUnstable) &&
             passes(cause, sample.flow.from, sample.flow.to);
    });
    if (!known) tally.add(sample);
  }
  return tally;
}

// Returns the port and direction that most of the paths share, if any.
std::optional<std::pair<Port, Direction>> common_end(const std::set<std::pair<Port, Port>>& paths) {
  std::map<std::pair<Port, Direction>, std::size_t> ends;
  for (const auto& [from, to] : paths) {
    ++ends[{from, Direction::kTransmit}];
    ++ends[{to, Direction::kReceive}];
  }
  const auto most = std::ranges::max_element(ends, {}, [](const auto& end) { return end.second; });
  if (most == ends.end() || most->second < 2 || 3 * most->second < 2 * paths.size()) return {};
  return most->first;
}

constexpr std::size_t kFewPaths = 3;  // losses of fewer TCP flows may be timeouts of a late core

// Returns a finding for losses that localization attributes to no place.
std::optional<Finding> judge_rest(const Check& check, const Observed& observed, int load) {
  const Tally tally = unexplained(observed, load);
  if (tally.lost <= 0) return std::nullopt;
  const auto [from, to] = *tally.paths.begin();
  const auto end = common_end(tally.paths);
  const PortFacts* port = port_of(observed, from);
  const bool lossless = observed.policy.lossless.value_or(!tally.tcp && port && port->rdma);
  Finding finding = make_finding(check, tally.paths.size() == 1 ? at_path(observed, from, to)
                                        : end ? at_port(observed, end->first, end->second)
                                              : Where{});
  const Interval interval =
      wilson(tally.lost, tally.packets, observed.policy.thresholds.confidence);
  finding.unit = Unit::kPerPacket;
  finding.value = tally.rate();
  finding.low = interval.low;
  finding.high = interval.high;
  add_count(finding, "packets", tally.packets);
  for (const auto& [sender, receiver] : tally.paths) {
    if (finding.evidence.size() > 8) break;
    finding.evidence.push_back(text_evidence("path", at_path(observed, sender, receiver),
                                             host_name(observed, receiver.host)));
  }
  if (lossless) return finding;
  if (load != 0 || tally.paths.size() < kFewPaths) return std::nullopt;
  finding.severity = severity_of_loss(observed.policy.thresholds, finding.low);
  // If the policy requests warnings, a loss below the failing level is reported as well.
  const Thresholds& limits = observed.policy.thresholds;
  if (finding.low <= (limits.warn_loss > 0 ? limits.warn_loss : limits.fail_loss))
    return std::nullopt;
  return finding;
}

// Returns the coverage: flows at this load, and those that count their packets.
Judged counting(const Observed& observed, int load) {
  Judged all;
  for (const FlowSample& sample : observed.samples.flows) {
    all.total += observed.samples.probe_of(sample) == (load == 0 ? Probe::kLowLoad : Probe::kRate);
    all.judged += load_of(observed, sample) == load;
  }
  return all;
}

template <bool under_load>
Judged judge_losses(const Check& check, const Observed& observed) {
  Judged all = counting(observed, under_load ? 1 : 0);
  for (const Cause& cause : observed.causes) {
    if (cause.kind != CauseKind::kLoss) continue;
    if (auto finding = judge_cause(check, observed, cause, under_load))
      all.findings.push_back(std::move(*finding));
  }
  if (auto finding = judge_rest(check, observed, under_load ? 1 : 0))
    all.findings.push_back(std::move(*finding));
  return all;
}

constexpr int kLeastIncasts = 2;  // a single incast may hit a stalled machine

// Returns ports that lose far more than others in incasts.
std::vector<Finding> judge_incasts(const Check& check, const Observed& observed) {
  std::vector<Finding> findings;
  const double confidence = observed.policy.thresholds.confidence;
  for (const OddIncast& odd : odd_incasts(observed.samples, confidence)) {
    Finding& finding = findings.emplace_back(
        make_finding(check, at_port(observed, odd.target, Direction::kReceive)));
    finding.severity = odd.rounds >= kLeastIncasts ? Severity::kWarn : Severity::kInfo;
    const Interval interval = wilson(odd.lost, odd.packets, confidence);
    set_number(finding, Unit::kPerPacket, odd.lost / odd.packets, odd.baseline);
    finding.low = interval.low;
    finding.high = interval.high;
    add_number(finding, "loss_under_incast", finding.value, Unit::kPerPacket, odd.baseline);
    add_count(finding, "loss_under_incast.packets", odd.packets);
    add_count(finding, "incasts", odd.rounds);
  }
  return findings;
}

Judged congestion_loss(const Check& check, const Observed& observed) {
  Judged all = judge_losses<true>(check, observed);
  std::ranges::move(judge_incasts(check, observed), std::back_inserter(all.findings));
  return all;
}

constexpr Check kLossRows[] = {
    {"loss", CheckKind::kActive, Severity::kFail, "nothing is lost on idle links",
     "packets and repeats of each flow, at a fifth of the rate and at the full rate",
     "0 lossless; <= fail_loss on TCP",
     "Packets are lost at this place whatever the load, as a damaged link, a bad optic or a "
     "faulty line card loses them.",
     "Look at the CRC and symbol errors of both ends of the link, then replace cable and optic. "
     "If no end counts errors, the loss is inside a switch.",
     judge_losses<false>},
    {"congestion-loss", CheckKind::kActive, Severity::kFail, "load loses no packets",
     "packets and repeats of each flow, at a fifth of the rate and at the full rate",
     "0 lossless; TCP may",
     "Packets are lost under load, and none without: a queue is full and drops. The cable is not "
     "at fault.",
     "On a lossless class check PFC, headroom and ECN of the switches on the way. On TCP look at "
     "shapers, at small buffers, and at links with less rate than their neighbours.",
     congestion_loss},
};

}  // namespace

std::span<const Check> loss_checks() { return kLossRows; }

}  // namespace weft::fabric
