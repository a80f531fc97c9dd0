// The order of all checks, and their run over one observation.
#include "perf/validate/checks/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "perf/validate/checks/check.h"

namespace weft::fabric {
namespace {

bool is_alike(const Finding& a, const Finding& b) {
  const auto what = [](const Finding& f) {
    return std::tie(f.severity, f.unknown, f.where.kind, f.unit, f.value, f.expected, f.text,
                    f.expected_text);
  };
  return what(a) == what(b);
}

constexpr std::size_t kLeastAlike = 3;

// Merges findings that are the same at every place of the check into one finding of the fleet.
void merge_fleet(Judged& judged) {
  auto& findings = judged.findings;
  if (findings.size() < kLeastAlike || findings.size() != static_cast<std::size_t>(judged.total))
    return;
  const bool alike = std::ranges::all_of(
      findings, [&](const Finding& finding) { return is_alike(finding, findings.front()); });
  const PlaceKind kind = findings.front().where.kind;
  if (!alike || (kind != PlaceKind::kPort && kind != PlaceKind::kHost)) return;
  Finding whole = findings.front();
  const bool hosts = kind == PlaceKind::kHost;
  whole.where = {};
  whole.evidence.push_back(number_evidence(hosts ? "hosts" : "ports", {},
                                           static_cast<double>(findings.size()), judged.total,
                                           Unit::kCount));
  findings = {std::move(whole)};
}

// Merges findings that are the same at all ports (two or more) of a host into one of the host.
void merge_hosts(const Observed& observed, Judged& judged) {
  std::map<std::string_view, std::vector<const Finding*>> of_host;
  for (const Finding& finding : judged.findings)
    if (finding.where.kind == PlaceKind::kPort) of_host[finding.where.host].push_back(&finding);
  std::set<std::string, std::less<>> whole;
  for (const HostFacts& host : observed.facts.hosts) {
    const auto found = of_host.find(host.host);
    if (found == of_host.end() || host.ports.size() < 2) continue;
    if (found->second.size() == host.ports.size() &&
        std::ranges::all_of(found->second, [&](const Finding* finding) {
          return is_alike(*finding, *found->second.front());
        }))
      whole.insert(host.host);
  }
  std::set<std::string, std::less<>> merged;
  std::erase_if(judged.findings, [&](Finding& finding) {
    if (finding.where.kind != PlaceKind::kPort || !whole.contains(finding.where.host)) return false;
    if (!merged.insert(finding.where.host).second) return true;
    finding.where = at_host(finding.where.host, finding.where.direction);
    return false;
  });
}

// Returns the fraction by which a finding extends the run time of a job that waits for its slowest
// link; the highest value if the job cannot run.
double cost_to_job(const Finding& f) {
  constexpr double kStops = 1e9, kSmallMessages = 0.1;  // time in small messages, a fraction
  if (f.unknown) return 0;
  if (f.severity == Severity::kFatal && f.unit != Unit::kGbps) return kStops;
  const double left = share_left(f);
  if (left < 1) return left > 0 ? std::min(kStops, 1 / left - 1) : kStops;
  if (f.unit == Unit::kMicroseconds && f.expected > 0)
    return kSmallMessages * std::max(0.0, f.value / f.expected - 1);
  return 0;
}

}  // namespace

std::span<const Check> checks() {
  static const std::vector<Check> all = [] {
    std::vector<Check> rows;
    for (const auto family :
         {link_checks(), lane_checks(), bit_checks(), flow_control_checks(), congestion_checks(),
          lossless_checks(), addressing_checks(), hardware_checks(), state_checks(), host_checks(),
          declared_checks(), tester_checks(), false_report_checks(), reach_checks(), rate_checks(),
          loss_checks(), load_checks(), way_checks()})
      std::ranges::copy(family, std::back_inserter(rows));
    return rows;
  }();
  return all;
}

const Check* find_check(std::string_view id) {
  const auto all = checks();
  const auto row = std::ranges::find(all, id, &Check::id);
  return row == all.end() ? nullptr : &*row;
}

// Order: causes by their cost to a job, including findings that they explain; then explained
// findings; then unknown findings.
void sort_heaviest_first(std::vector<Finding>& findings) {
  const std::size_t n = findings.size();
  const auto root_of = [&](std::size_t i) {
    for (std::size_t steps = 0; steps < n && findings[i].reason >= 0; ++steps)
      i = static_cast<std::size_t>(findings[i].reason);
    return i;
  };
  // Known (2), unknown (1) or information (0); fails the run; a cause; cost; severity; score.
  std::vector<std::tuple<int, bool, bool, double, Severity, double>> weights(n);
  for (std::size_t i = 0; i < n; ++i) {
    const Finding& f = findings[i];
    weights[i] = {f.severity == Severity::kInfo ? 0
                  : f.unknown                   ? 1
                                                : 2,
                  f.severity >= Severity::kFail,
                  f.explained_by.empty(),
                  cost_to_job(f),
                  f.severity,
                  f.score};
  }
  for (std::size_t i = 0; i < n; ++i) {
    auto& root = weights[root_of(i)];
    std::get<1>(root) |= std::get<0>(weights[i]) == 2 && std::get<1>(weights[i]);
    std::get<3>(root) = std::max(std::get<3>(root), std::get<3>(weights[i]));
  }
  std::vector<std::size_t> order(n), now(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return weights[a] > weights[b]; });
  for (std::size_t i = 0; i < n; ++i) now[order[i]] = i;
  std::vector<Finding> sorted;
  for (const std::size_t i : order) sorted.push_back(std::move(findings[i]));
  for (Finding& f : sorted)
    if (f.reason >= 0) f.reason = static_cast<int>(now[static_cast<std::size_t>(f.reason)]);
  findings = std::move(sorted);
}

Judgement judge(const Observed& observed) {
  Judgement judgement;
  const auto& skipped = observed.policy.skipped_checks;
  for (const Check& check : checks()) {
    if (std::ranges::find(skipped, check.id) != skipped.end()) continue;
    Judged judged = check.judge(check, observed);
    merge_fleet(judged);
    merge_hosts(observed, judged);
    judgement.coverage.push_back({check.id, judged.judged, judged.total});
    std::ranges::move(judged.findings, std::back_inserter(judgement.findings));
  }
  explain(judgement.findings);
  sort_heaviest_first(judgement.findings);
  return judgement;
}

// Reports settings that the policy declares but that could not be read at some ports: without this
// check, the run would be OK although they were not compared.
namespace {

struct DeclaredKey {
  std::string_view name;
  bool (*is_declared)(const Policy& policy);
  bool (*is_read)(const Policy& policy, const PortFacts& port);  // for the key's check
};

bool has_parameters(const Policy& policy, const PortFacts& port) {
  return std::ranges::all_of(policy.cc_parameters, [&](const auto& one) {
    return std::ranges::find(port.cc_parameters, one.first,
                             &std::pair<std::string, std::string>::first) !=
           port.cc_parameters.end();
  });
}

constexpr DeclaredKey kDeclaredKeys[] = {
    {"mtu", [](const Policy& p) { return p.mtu.has_value(); },
     [](const Policy&, const PortFacts& port) { return port.mtu && !is_infiniband(port); }},
    {"rdma_mtu", [](const Policy& p) { return p.rdma_mtu.has_value(); },
     [](const Policy&, const PortFacts& port) { return port.active_mtu.has_value(); }},
    {"pfc_priority", [](const Policy& p) { return p.pfc_priority.has_value(); },
     [](const Policy&, const PortFacts& port) { return port.pfc_priorities.has_value(); }},
    {"trust", [](const Policy& p) { return p.trust.has_value(); },
     [](const Policy&, const PortFacts& port) { return port.qos_trust.has_value(); }},
    {"dscp", [](const Policy& p) { return p.dscp.has_value(); },
     [](const Policy&, const PortFacts& port) { return !port.dscp_map.empty(); }},
    {"dcqcn", [](const Policy& p) { return p.dcqcn.has_value(); },
     [](const Policy&, const PortFacts& port) {
       return port.ecn_np_priorities || port.ecn_rp_priorities;
     }},
    {"cc_parameters", [](const Policy& p) { return !p.cc_parameters.empty(); }, has_parameters},
    {"firmware", [](const Policy& p) { return !p.firmware.empty(); },
     [](const Policy& p, const PortFacts& port) {
       return port.firmware && port.board && p.firmware.contains(*port.board);
     }},
};

Judged declared(const Check& check, const Observed& observed) {
  Judged all;
  std::string unread;
  for (const DeclaredKey& key : kDeclaredKeys) {
    if (!key.is_declared(observed.policy)) continue;
    int ports = 0, read = 0;
    for (const HostFacts& host : observed.facts.hosts)
      for (const PortFacts& port : host.ports) {
        if (excluded(observed, port)) continue;
        ++ports;
        read += key.is_read(observed.policy, port);
      }
    ++all.total;
    if (read == ports && ports > 0)
      ++all.judged;
    else
      unread += fmt::format("{}{} (read at {} of {} ports)", unread.empty() ? "" : ", ", key.name,
                            read, ports);
  }
  if (unread.empty()) return all;
  Finding& finding = all.findings.emplace_back(make_unknown(check, {}));
  finding.unit = Unit::kText;
  finding.text = unread;
  return all;
}

constexpr Check kDeclaredRows[] = {
    {"declared", CheckKind::kPassive, Severity::kFail, "what the policy declares can be read",
     "keys of the policy compared with the facts of all ports", "each key at all ports",
     "The policy declares a setting that could not be read at some ports, so it was not compared "
     "there: the port lacks the setting, or weft may not read it.",
     "Let weft read what is declared (run as root, with /sys and debugfs of the host; PFC and DSCP "
     "are of RoCE ports), or take the key out of the policy.",
     declared},
};

}  // namespace

std::span<const Check> declared_checks() { return kDeclaredRows; }

}  // namespace weft::fabric
