// Groups findings by what explains them. This file decides no severity and no order.
#include "perf/validate/report/faults.h"

#include <fmt/format.h>

#include <algorithm>

#include "perf/validate/report/words.h"

namespace weft::fabric {
namespace {

// How well the finding of a fault explains `finding`; 0: not at all.
int explains(const Finding& first, const Finding& finding) {
  if (finding.explained_by.empty() || finding.explained_by != first.id || &first == &finding)
    return 0;
  const Where &a = first.where, &b = finding.where;
  const bool same_host = a.host.empty() || b.host.empty() || a.host == b.host || a.peer == b.host;
  const bool same_rail = a.rail < 0 || b.rail < 0 || a.rail == b.rail;
  if (!same_host || !same_rail) return 0;
  return 1 + (a.host == b.host) + (a.rail == b.rail) + (a.direction == b.direction);
}

}  // namespace

std::vector<Fault> faults_of(const Report& report) {
  std::vector<const Finding*> known;
  for (const Finding& finding : report.judgement.findings)
    if (!finding.unknown && finding.severity > Severity::kInfo) known.push_back(&finding);
  std::vector<Fault> faults;
  for (const Finding* finding : known)
    if (std::none_of(known.begin(), known.end(),
                     [&](const Finding* other) { return explains(*other, *finding) > 0; }))
      faults.push_back({finding, {}});
  for (const Finding* finding : known) {
    Fault* best = nullptr;
    int most = 0;
    for (Fault& fault : faults)
      if (const int score = explains(*fault.first, *finding); score > most) {
        most = score;
        best = &fault;
      }
    if (best) best->also.push_back(finding);
    // Where the explanation is itself explained, the finding stands for itself.
    const bool told = best || std::any_of(faults.begin(), faults.end(), [&](const Fault& fault) {
                        return fault.first == finding;
                      });
    if (!told) faults.push_back({finding, {}});
  }
  return faults;
}

std::vector<const Finding*> unknowns_of(const Report& report) {
  std::vector<const Finding*> unknowns;
  for (const Finding& finding : report.judgement.findings)
    if (finding.unknown) unknowns.push_back(&finding);
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
  // A critical verdict comes from the fabric, whatever the tester's own faults weigh.
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
        faults.size() > 1 ? fmt::format("; {} more", counted(faults.size() - 1, "fault")) : "";
    return in_words(*first->first) + others;
  }
  if (report.verdict == Verdict::kOk) {
    const std::string limits = limits_in_words(report.plan);
    return limits.empty() ? "no fault found" : "no fault found; would have seen " + limits;
  }
  const std::vector<const Finding*> unknowns = unknowns_of(report);
  return unknowns.empty() ? "no finding says why" : in_words(*unknowns[0]);
}

}  // namespace weft::fabric
