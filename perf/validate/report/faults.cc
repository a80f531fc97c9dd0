// Groups findings by their reasons. Decides neither severity nor order.
#include "perf/validate/report/faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "perf/validate/report/words.h"

namespace weft::fabric {
namespace {

// Returns the index of the finding that explains findings[i]; i if there is none. Reports of the
// previous version name only the reason's check.
std::size_t reason_of(const std::vector<Finding>& findings, std::size_t i) {
  const Finding& f = findings[i];
  if (f.reason >= 0 && static_cast<std::size_t>(f.reason) < findings.size())
    return static_cast<std::size_t>(f.reason);
  const auto found = std::ranges::find(findings, f.explained_by, &Finding::id);
  return f.explained_by.empty() || found == findings.end()
             ? i
             : static_cast<std::size_t>(found - findings.begin());
}

// Returns the end of the chain of reasons; for a cycle, its first finding.
std::size_t root_of(const std::vector<Finding>& findings, std::size_t i) {
  std::size_t least = i;
  for (std::size_t steps = 0; steps < 2 * findings.size(); ++steps) {
    const std::size_t reason = reason_of(findings, i);
    if (reason == i) return i;
    i = reason;
    least = steps < findings.size() ? i : std::min(least, i);
  }
  return least;
}

bool is_fault(const Finding& f) { return !f.unknown && f.severity > Severity::kInfo; }

}  // namespace

std::vector<Fault> faults_of(const Report& report) {
  const std::vector<Finding>& findings = report.judgement.findings;
  std::vector<Fault> faults;
  std::map<std::size_t, std::size_t> fault_of;
  for (const bool causes : {true, false})
    for (std::size_t i = 0; i < findings.size(); ++i) {
      if (!is_fault(findings[i])) continue;
      std::size_t root = root_of(findings, i);
      if (!is_fault(findings[root])) root = i;
      if ((root == i) != causes) continue;
      if (causes) {
        fault_of[i] = faults.size();
        faults.push_back({&findings[i], {}});
      } else {
        faults[fault_of.at(root)].also.push_back(&findings[i]);
      }
    }
  return faults;
}

std::vector<Fault> unknowns_of(const Report& report) {
  std::vector<Fault> unknowns;
  for (const Finding& finding : report.judgement.findings) {
    if (!finding.unknown || finding.severity == Severity::kInfo || !finding.explained_by.empty())
      continue;
    const auto known = std::ranges::find_if(
        unknowns, [&](const Fault& fault) { return fault.first->id == finding.id; });
    if (known == unknowns.end())
      unknowns.push_back({&finding, {}});
    else
      ++known->places;
  }
  return unknowns;
}

std::string headline(const Report& report) {
  const std::vector<Fault> faults = faults_of(report);
  if (report.verdict == Verdict::kTester) {
    for (const Fault& fault : faults)
      if (fault.first->where.kind == PlaceKind::kTester)
        return in_words(*fault.first) + "; no link is judged";
    return "the tester itself is at fault; no link is judged";
  }
  // A critical verdict is about the fabric, even if the tester has faults as well.
  const auto of_fabric = std::find_if(faults.begin(), faults.end(), [](const Fault& fault) {
    return fault.first->where.kind != PlaceKind::kTester;
  });
  const Fault* first = of_fabric != faults.end() ? &*of_fabric
                       : faults.empty()          ? nullptr
                                                 : &faults[0];
  const bool heavy = first && first->first->severity >= Severity::kFail;
  if (!report.failure.empty() && !heavy)
    return fmt::format("the job failed: {}", printable(report.failure));
  if (first) {
    const std::string others =
        faults.size() > 1 ? "; " + counted(faults.size() - 1, "more cause") : "";
    return in_words(*first->first) + others;
  }
  if (report.verdict == Verdict::kOk) {
    const std::string limits = limits_in_words(report.plan);
    return limits.empty() ? "no fault found" : "no fault found; would have seen " + limits;
  }
  const std::vector<Fault> unknowns = unknowns_of(report);
  return unknowns.empty() ? "no finding has the reason" : in_words(*unknowns[0].first);
}

}  // namespace weft::fabric
