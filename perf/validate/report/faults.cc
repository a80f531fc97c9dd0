// Groups findings by what explains them. This file decides no severity and no order.
#include "perf/validate/report/faults.h"

#include <fmt/format.h>

#include <algorithm>

#include "perf/validate/report/words.h"

namespace weft::fabric {
namespace {

// How near `reason` is to a finding that it may explain; 0: it does not.
int explains(const Finding& reason, const Finding& finding) {
  if (finding.explained_by != reason.id || &reason == &finding) return 0;
  const Where &a = reason.where, &b = finding.where;
  const bool same_host = a.host == b.host || a.host == b.peer || a.peer == b.host;
  return 1 + 8 * same_host + 4 * (a.rail == b.rail) + 2 * (a.direction == b.direction) +
         (a.kind == b.kind);
}

// The finding among `known` that explains known[i]; its own index: there is none.
std::size_t reason_of(const std::vector<const Finding*>& known, std::size_t i) {
  std::size_t best = i;
  int most = 0;
  for (std::size_t k = 0; k < known.size() && !known[i]->explained_by.empty(); ++k)
    if (const int score = explains(*known[k], *known[i]); score > most) {
      most = score;
      best = k;
    }
  return best;
}

}  // namespace

std::vector<Fault> faults_of(const Report& report) {
  std::vector<const Finding*> known;
  for (const Finding& finding : report.judgement.findings)
    if (!finding.unknown && finding.severity > Severity::kInfo) known.push_back(&finding);
  std::vector<std::size_t> reasons(known.size());
  for (std::size_t i = 0; i < known.size(); ++i) reasons[i] = reason_of(known, i);
  // The root of each chain of reasons; a chain that runs in a circle has its first finding as root.
  const auto root_of = [&](std::size_t i) {
    for (std::size_t steps = 0; reasons[i] != i; ++steps) {
      if (steps > known.size()) return *std::min_element(reasons.begin(), reasons.end());
      i = reasons[i];
    }
    return i;
  };
  std::vector<Fault> faults;
  std::vector<std::size_t> fault_of(known.size(), 0);
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (root_of(i) != i) continue;
    fault_of[i] = faults.size();
    faults.push_back({known[i], {}});
  }
  for (std::size_t i = 0; i < known.size(); ++i)
    if (const std::size_t root = root_of(i); root != i)
      faults[fault_of[root]].also.push_back(known[i]);
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
        faults.size() > 1 ? "; " + counted(faults.size() - 1, "more fault") : "";
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
