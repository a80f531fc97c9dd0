// One fault causes findings of many checks. Determines which findings follow from others at the
// same place, so that a report shows each fault once, with the other findings as evidence.
#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "perf/validate/checks/check.h"

namespace weft::fabric {
namespace {

// Maximum distance of a finding from its reason.
enum class Reach {
  kPlace,   // at the same port, host or path
  kHost,    // at another port of a host at an end of the flow
  kRail,    // anywhere on the rail: partners of a faulty port see its effects
  kWithin,  // at any port in the place of the finding, which concerns several ports
};

using Ids = std::array<std::string_view, 15>;  // unused entries at the end are empty

struct Rule {
  std::string_view id;
  Reach reach;
  Ids reasons;  // nearest first
};

constexpr Ids kRates = {"link-state", "link-flaps",  "link-rate",         "link-width",
                        "pcie-link",  "pause-storm", "duplicate-address", "rails-one-subnet",
                        "loss",       "host-rate",   "cables-swapped",    "unreachable",
                        "path-mtu",   "false-report"};
constexpr Ids kPackets = {
    "link-state",  "link-flaps", "duplicate-address", "cables-swapped", "mtu", "path-mtu",
    "unreachable", "loss",       "congestion-loss",   "discards"};
constexpr Ids kSums = {"link-state",  "link-rate",     "link-flaps",     "cables-swapped",
                       "unreachable", "loss",          "host-rate",      "port-rate",
                       "path-rate",   "rail-rate",     "switch-rate",    "fleet-rate",
                       "path-mtu",    "unstable-rate", "congestion-loss"};
constexpr Ids kVictim = {"latency", "latency-tail", "loss"};
constexpr Ids kDamage = {"loss", "link-flaps"};

constexpr Rule kRules[] = {
    {"unreachable",
     Reach::kPlace,
     {"link-state", "link-flaps", "duplicate-address", "rails-one-subnet", "cables-swapped",
      "ib-subnet", "gid", "false-report"}},
    {"cables-swapped", Reach::kPlace, {"rails-one-subnet"}},
    {"link-rate", Reach::kPlace, {"link-width"}},
    {"path-mtu", Reach::kPlace, {"mtu", "rails-one-subnet", "cables-swapped", "unreachable"}},
    {"loss", Reach::kPlace, {"link-state", "link-flaps", "duplicate-address", "rails-one-subnet"}},
    {"congestion-loss",
     Reach::kPlace,
     {"mtu", "path-mtu", "unreachable", "port-rate", "host-rate", "path-rate", "rail-rate",
      "switch-rate", "fleet-rate"}},
    {"port-rate", Reach::kPlace, kRates},
    {"host-rate", Reach::kPlace, kRates},
    {"path-rate", Reach::kPlace, kRates},
    {"latency", Reach::kPlace, {"link-flaps", "duplicate-address", "loss", "unstable-rate"}},
    {"latency-tail", Reach::kPlace, {"link-flaps", "loss", "unstable-rate"}},
    {"loopback", Reach::kHost, kSums},
    {"unstable-rate",
     Reach::kPlace,
     {"link-state", "link-flaps", "unreachable", "loss", "port-rate", "host-rate", "path-rate"}},
    {"bit-errors", Reach::kPlace, kDamage},
    {"corrected-bits", Reach::kPlace, {"loss", "link-flaps", "bit-errors"}},
    {"crc-errors", Reach::kPlace, kDamage},
    {"icrc-errors", Reach::kPlace, kDamage},
    {"pause", Reach::kPlace, {"pause-storm", "pcie-link", "host-rate", "port-rate"}},
    {"pcie-stalls", Reach::kPlace, {"pcie-link"}},
    {"discards", Reach::kPlace, {"loss", "congestion-loss"}},
    {"retransmits", Reach::kRail, kPackets},
    {"out-of-sequence", Reach::kRail, kPackets},
    {"timeouts",
     Reach::kRail,
     {"link-state", "link-flaps", "duplicate-address", "mtu", "unreachable", "path-mtu", "loss",
      "congestion-loss", "discards", "retransmits"}},
    {"incast", Reach::kPlace, kSums},
    {"victim-flow", Reach::kHost, kVictim},
    {"victim-flow", Reach::kPlace, kSums},
    {"bisection", Reach::kWithin, kSums},
    {"all-to-all", Reach::kWithin, kSums},
    {"cross-rail", Reach::kHost, kSums},
    {"ecmp-entropy", Reach::kPlace, kSums},
    {"busbw", Reach::kWithin, kSums},
    {"drift", Reach::kPlace, kSums},
    {"port-not-measured",
     Reach::kPlace,
     {"tester-starved", "link-state", "unreachable", "job-failed", "false-report"}},
    {"nothing-measured", Reach::kWithin, {"job-failed", "tester-starved", "unreachable"}},
};

bool overlap(Direction a, Direction b) {
  return a == Direction::kBoth || b == Direction::kBoth || a == b;
}

bool same_rail(const Where& a, const Where& b) {
  return a.rail < 0 || b.rail < 0 || a.rail == b.rail;
}

Direction turned(Direction direction) {
  return direction == Direction::kTransmit  ? Direction::kReceive
         : direction == Direction::kReceive ? Direction::kTransmit
                                            : Direction::kBoth;
}

// Returns whether `host` is an end of `where` in this direction.
bool touches(const Where& where, const std::string& host, Direction direction) {
  if (where.host == host && overlap(where.direction, direction)) return true;
  return where.kind == PlaceKind::kPath && where.peer == host &&
         overlap(turned(where.direction), direction);
}

// Returns whether `where` is the other of two ports with swapped cables.
bool is_swapped_with(const Finding& reason, const Where& where) {
  return reason.id == "cables-swapped" &&
         std::ranges::any_of(reason.evidence, [&](const Evidence& one) {
           return one.name == "swapped_with" && (where.rail < 0 || one.rail == where.rail) &&
                  touches(where, one.host, Direction::kBoth);
         });
}

bool is_place_of_switch(const Finding& reason, const std::string& host) {
  return std::ranges::any_of(
      reason.evidence, [&](const Evidence& one) { return one.name == "port" && one.host == host; });
}

// Returns whether effects of a fault at the place of `reason` appear at `where`.
bool covers(const Finding& reason, const Where& where) {
  const Where& place = reason.where;
  switch (place.kind) {
    case PlaceKind::kFleet:
      return true;
    case PlaceKind::kRail:
      return place.rail == where.rail;
    case PlaceKind::kSwitch:
      return place.rail == where.rail && is_place_of_switch(reason, where.host);
    case PlaceKind::kHost:
    case PlaceKind::kTester:
    case PlaceKind::kPort:
      return (same_rail(place, where) && touches(where, place.host, place.direction)) ||
             is_swapped_with(reason, where);
    case PlaceKind::kPath:
      if (!same_rail(place, where)) return false;
      if (where.kind == PlaceKind::kPath)
        return (where.host == place.host && where.peer == place.peer) ||
               (place.direction == Direction::kBoth && where.host == place.peer &&
                where.peer == place.host);
      return touches(place, where.host, where.direction);
  }
  return false;
}

bool is_within(const Where& place, const Where& where) {
  return where.kind == PlaceKind::kFleet ||
         (where.kind == PlaceKind::kRail && same_rail(place, where));
}

// Findings of one id, indexed by place.
struct Reasons {
  // Indices of findings of ports, hosts and paths.
  std::map<std::string, std::vector<std::size_t>> by_host;
  // Indices of findings of rails, switches and the fleet.
  std::vector<std::size_t> wide;
  std::map<int, std::size_t> by_rail;  // the first of each rail; -1: all rails
};

void add(Reasons& reasons, const Finding& finding, std::size_t index) {
  const Where& where = finding.where;
  reasons.by_rail.try_emplace(where.rail, index);
  if (where.host.empty()) {
    reasons.wide.push_back(index);
    return;
  }
  reasons.by_host[where.host].push_back(index);
  if (!where.peer.empty()) reasons.by_host[where.peer].push_back(index);
  for (const Evidence& one : finding.evidence)
    if (one.name == "swapped_with" && one.host != where.host)
      reasons.by_host[one.host].push_back(index);
}

std::optional<std::size_t> reason_among(const Reasons& reasons,
                                        const std::vector<Finding>& findings, std::size_t symptom,
                                        Reach reach) {
  const Where& where = findings[symptom].where;
  std::vector<std::size_t> candidates = reasons.wide;
  for (const std::string& host : {where.host, where.peer})
    if (const auto it = reasons.by_host.find(host); !host.empty() && it != reasons.by_host.end())
      candidates.insert(candidates.end(), it->second.begin(), it->second.end());
  for (const std::size_t index : candidates)
    if (index != symptom && covers(findings[index], where)) return index;
  if (reach == Reach::kPlace) return std::nullopt;
  if (reach == Reach::kHost) {
    for (const std::size_t index : candidates) {
      const Where& place = findings[index].where;
      if (index != symptom && place.kind != PlaceKind::kPath && !place.host.empty()) return index;
    }
    return std::nullopt;
  }
  for (const auto& [rail, index] : reasons.by_rail) {
    if (index == symptom) continue;
    const Where& place = findings[index].where;
    if (reach == Reach::kRail ? same_rail(place, where) : is_within(place, where)) return index;
  }
  return std::nullopt;
}

void add_evidence(const Finding& symptom, Finding& reason) {
  constexpr std::size_t kMost = 24;
  if (reason.evidence.size() >= kMost) return;
  Evidence one =
      number_evidence(symptom.id, symptom.where, symptom.value, symptom.expected, symptom.unit);
  one.text = symptom.text;
  reason.evidence.push_back(std::move(one));
  for (std::size_t i = 0; i < std::min<std::size_t>(3, symptom.evidence.size()); ++i)
    if (reason.evidence.size() < kMost) reason.evidence.push_back(symptom.evidence[i]);
}

}  // namespace

void explain(std::vector<Finding>& findings) {
  std::map<std::string_view, Reasons> reasons;
  for (std::size_t i = 0; i < findings.size(); ++i) {
    const Finding& finding = findings[i];
    if (finding.unknown && finding.id != "job-failed") continue;
    // A shared subnet explains other findings only if packets arrived at another port.
    const Severity least = finding.id == "rails-one-subnet" ? Severity::kFail : Severity::kWarn;
    if (finding.severity >= least) add(reasons[finding.id], finding, i);
  }
  for (std::size_t i = 0; i < findings.size(); ++i) {
    const bool unmeasured = findings[i].id.ends_with("-measured");
    if (findings[i].unknown && !unmeasured) continue;
    for (const Rule& rule : kRules) {
      if (rule.id != findings[i].id || findings[i].reason >= 0) continue;
      for (const std::string_view id : rule.reasons) {
        const auto it = reasons.find(id);
        if (id.empty() || it == reasons.end()) continue;
        const auto reason = reason_among(it->second, findings, i, rule.reach);
        if (!reason) continue;
        findings[i].explained_by = id;
        findings[i].reason = static_cast<int>(*reason);
        add_evidence(findings[i], findings[*reason]);
        break;
      }
    }
  }
}

}  // namespace weft::fabric
