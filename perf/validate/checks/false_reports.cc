// Hosts with impossible reports: malformed texts, numbers that contradict themselves or the other
// end of a flow, counters that run backwards.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "perf/validate/checks/check.h"

namespace weft::fabric {
namespace {

// Tolerance for late counting by the sender's kernel, and for rounding.
constexpr double kMostReceived = 1.01;
constexpr std::uint64_t kSlackBytes = 1 << 20;

bool is_contradiction(const FlowSample& s) {
  return s.sent_bytes &&
         static_cast<double>(s.bytes) >
             kMostReceived * static_cast<double>(*s.sent_bytes) + static_cast<double>(kSlackBytes);
}

// Attributes contradictions between two ends to the host with the most of them, then repeats this
// for the rest. -1: two hosts contradict only each other.
std::vector<std::pair<int, std::vector<const FlowSample*>>> by_culprit(
    std::vector<const FlowSample*> flows) {
  std::vector<std::pair<int, std::vector<const FlowSample*>>> culprits;
  while (!flows.empty()) {
    std::map<int, std::set<int>> partners;
    for (const FlowSample* s : flows) {
      partners[s->flow.from.host].insert(s->flow.to.host);
      partners[s->flow.to.host].insert(s->flow.from.host);
    }
    const auto most = std::ranges::max_element(
        partners, {}, [](const auto& entry) { return entry.second.size(); });
    const int host = most->first;
    const bool named = most->second.size() > 1;
    const auto has = [&](const FlowSample* s) {
      return s->flow.from.host == host || s->flow.to.host == host;
    };
    const auto rest = std::stable_partition(flows.begin(), flows.end(), has);
    culprits.emplace_back(named ? host : -1, std::vector(flows.begin(), rest));
    flows.erase(flows.begin(), rest);
  }
  return culprits;
}

constexpr std::size_t kMostNamed = 8;

void add_contradictions(const Check& check, const Observed& observed, Judged& all) {
  std::vector<const FlowSample*> flows;
  for (const FlowSample& s : observed.samples.flows)
    if (is_contradiction(s)) flows.push_back(&s);
  for (const auto& [host, its] : by_culprit(std::move(flows))) {
    const FlowSample& first = *its.front();
    Finding& finding = all.findings.emplace_back(
        make_finding(check, host < 0 ? at_path(observed, first.flow.from, first.flow.to)
                                     : at_host(host_name(observed, host))));
    set_number(finding, Unit::kBytes, static_cast<double>(first.bytes),
               static_cast<double>(*first.sent_bytes));
    for (const FlowSample* s : its)
      if (finding.evidence.size() < kMostNamed)
        finding.evidence.push_back(number_evidence(
            "received_of_sent", at_path(observed, s->flow.from, s->flow.to),
            static_cast<double>(s->bytes), static_cast<double>(*s->sent_bytes), Unit::kBytes));
  }
}

// A reset clears all kernel counters of an interface. If one counter falls while others continue,
// the interface was not reset.
void add_backward_counters(const Check& check, const HostFacts& host, const PortFacts& port,
                           Judged& all) {
  constexpr std::uint64_t kCounted = 1000;  // before the run: large enough to be conclusive
  for (const std::string_view family : {"net.", "tcp."}) {
    std::string fell;
    bool goes_on = false;
    for (const auto& [name, before] : port.before) {
      const auto after = port.after.find(name);
      if (!name.starts_with(family) || after == port.after.end() || before.value < kCounted)
        continue;
      const Change change = difference(before, after->second, kind_of_counter(name));
      if (change.state == ChangeState::kReset) fell = name;
      goes_on = goes_on || change.state == ChangeState::kKnown;
    }
    if (fell.empty() || !goes_on) continue;
    Finding& finding = all.findings.emplace_back(make_finding(check, at_port(host, port)));
    finding.severity = Severity::kWarn;  // some drivers' counters fall, too
    set_number(finding, Unit::kCount, static_cast<double>(port.after.at(fell).value),
               static_cast<double>(port.before.at(fell).value));
    add_number(finding, fell, finding.value, Unit::kCount, finding.expected);
  }
}

Judged false_report(const Check& check, const Observed& observed) {
  Judged all;
  std::set<int> reporting;  // hosts with reports that can be cross-checked
  for (const FlowSample& s : observed.samples.flows)
    if (s.sent_bytes) reporting.insert({s.flow.from.host, s.flow.to.host});
  for (std::size_t h = 0; h < observed.facts.hosts.size(); ++h)
    if (std::ranges::any_of(observed.facts.hosts[h].ports,
                            [](const PortFacts& port) { return !port.before.empty(); }))
      reporting.insert(static_cast<int>(h));
  all.total = static_cast<int>(observed.facts.hosts.size());
  all.judged = static_cast<int>(reporting.size());
  std::map<std::string, std::vector<const FalseReport*>> by_host;
  for (const FalseReport& one : observed.samples.false_reports) by_host[one.host].push_back(&one);
  for (const auto& [host, reports] : by_host) {
    Finding& finding = all.findings.emplace_back(text_finding(
        check, at_host(host), fmt::format("{}: {}", reports[0]->name, reports[0]->text), ""));
    for (const FalseReport* one : reports) {
      if (finding.evidence.size() >= kMostNamed) break;
      Where where = at_host(host);
      where.rail = one->rail;
      finding.evidence.push_back(text_evidence(one->name, where, one->text));
    }
  }
  add_contradictions(check, observed, all);
  for (const HostFacts& host : observed.facts.hosts)
    for (const PortFacts& port : host.ports) add_backward_counters(check, host, port, all);
  return all;
}

constexpr Check kFalseReportRows[] = {
    {"false-report", CheckKind::kActive, Severity::kFail, "reports of hosts are plausible",
     "reports of all agents, and both ends of each flow", "no contradiction",
     "A host sends impossible reports: a malformed text, a number that contradicts itself or the "
     "other end of a flow, or a counter that runs backward.",
     "Do not trust other numbers of this host. Compare its weft version with that of other hosts, "
     "then check its memory (ECC), its clock and its NIC driver.",
     false_report},
};

}  // namespace

std::span<const Check> false_report_checks() { return kFalseReportRows; }

}  // namespace weft::fabric
