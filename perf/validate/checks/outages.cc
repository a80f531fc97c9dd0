// Judges rails that failed during a validation, or that could not have taken over for others.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "perf/validate/checks/check.h"

namespace weft::fabric {
namespace {

bool between(const RailOutage& o, const std::string& host) {
  return o.host == host || o.other == host;
}

// Returns hosts that explain all outages, greedily by number of partners. Empty if the rail is at
// fault: either host of a remaining pair may be, or more than half of the hosts would be.
std::vector<std::string> hosts_at_fault(const std::vector<RailOutage>& outages) {
  std::set<std::string> hosts;
  for (const RailOutage& o : outages) hosts.insert({o.host, o.other});
  std::vector<RailOutage> left = outages;
  std::vector<std::string> fault;
  while (!left.empty()) {
    std::map<std::string, std::set<std::string>> others;
    for (const RailOutage& o : left) {
      others[o.host].insert(o.other);
      others[o.other].insert(o.host);
    }
    const auto most =
        std::ranges::max_element(others, {}, [](const auto& entry) { return entry.second.size(); });
    if (most->second.size() < 2) return {};
    fault.push_back(most->first);
    std::erase_if(left, [&](const RailOutage& o) { return between(o, fault.back()); });
  }
  std::ranges::sort(fault);
  return 2 * fault.size() <= hosts.size() ? fault : std::vector<std::string>();
}

// kNoRail: messages pass between the hosts but datagrams do not, so no rail could have taken over
// for another.
Finding finding_of(int rail, const std::string& host, const std::vector<RailOutage>& all) {
  const bool back = std::ranges::all_of(all, &RailOutage::back);
  Finding f;
  f.id = rail == kNoRail ? "no-failover" : "rail-out";
  f.severity = back || rail == kNoRail ? Severity::kWarn : Severity::kFail;
  f.where.kind = host.empty()      ? rail == kNoRail ? PlaceKind::kFleet : PlaceKind::kRail
                 : rail == kNoRail ? PlaceKind::kHost
                                   : PlaceKind::kPort;
  f.where.host = host;
  f.where.rail = rail;
  f.value = static_cast<double>(all.size());
  f.unit = Unit::kCount;
  for (const RailOutage& o : all)
    f.evidence.push_back({"outage." + o.other, o.host, o.rail, 1, 0, Unit::kText, o.cause});
  return f;
}

}  // namespace

std::vector<Finding> judge_outages(std::span<const RailOutage> outages) {
  std::map<int, std::vector<RailOutage>> rails;
  for (const RailOutage& o : outages) rails[o.rail].push_back(o);
  std::vector<Finding> findings;
  for (const auto& [rail, all] : rails) {
    const std::vector<std::string> fault = hosts_at_fault(all);
    if (rail == kNoRail) {
      for (const std::string& host : fault) findings.push_back(finding_of(rail, host, all));
      if (fault.empty()) findings.push_back(finding_of(rail, "", all));
      continue;
    }
    if (fault.empty()) findings.push_back(finding_of(rail, "", all));
    for (const std::string& host : fault) {
      std::vector<RailOutage> its;
      std::ranges::copy_if(all, std::back_inserter(its),
                           [&](const RailOutage& o) { return between(o, host); });
      // An outage between two hosts at fault may be due to either: prefer others.
      const auto of_two = std::stable_partition(its.begin(), its.end(), [&](const RailOutage& o) {
        return std::ranges::none_of(
            fault, [&](const std::string& other) { return other != host && between(o, other); });
      });
      if (of_two != its.begin()) its.erase(of_two, its.end());
      findings.push_back(finding_of(rail, host, its));
    }
  }
  return findings;
}

Judged outages_of_check(const Check& check, const Observed& observed) {
  Judged all;
  all.judged = all.total = !observed.collectives.empty();
  all.findings = judge_outages(observed.outages);
  std::erase_if(all.findings, [&](const Finding& finding) { return finding.id != check.id; });
  return all;
}

}  // namespace weft::fabric
