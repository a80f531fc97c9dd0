// Reasons for an invalid verdict: nothing measured, ports left out, a tester without enough cores,
// a failed job. Also judges the collectives, which the run compares bit for bit.
#include <algorithm>
#include <map>
#include <set>

#include "perf/validate/checks/check.h"
#include "perf/validate/locate/observations.h"
#include "perf/validate/probes/statistics.h"

namespace weft::fabric {
namespace {

// A check without its own judgment: the job adds these findings when it detects them.
Judged said_by_the_job(const Check&, const Observed&) { return {}; }

Judged job_failed(const Check&, const Observed& observed) {
  return {{}, observed.failure.empty(), 1};
}

Judged nothing_measured(const Check& check, const Observed& observed) {
  int ranks = 0;
  for (const HostFacts& host : observed.facts.hosts) ranks += host.ranks;
  std::size_t rates = 0;
  for (const FlowSample& sample : observed.samples.flows)
    rates += observed.samples.probe_of(sample) == Probe::kRate &&
             sample.flow.from.host != sample.flow.to.host;
  if (rates > 0) return {{}, 1, 1};
  Finding finding = make_unknown(check, {});
  set_number(finding, Unit::kCount, 0, 1);
  add_count(finding, "ranks", ranks);
  add_count(finding, "hosts", observed.hosts.size());
  add_count(finding, "flows", observed.samples.flows.size());
  return {{finding}, 0, 1};
}

// The number of flows of a port in one direction.
struct Flows {
  int all = 0, silent = 0;
};
using FlowsByPort = std::map<std::pair<Port, bool>, Flows>;  // true: the port sends

// `by_own`: a flow is silent only if the port's own host lacked cores.
FlowsByPort rate_flows(const Observed& observed, bool by_own) {
  const Graded graded = rates_of(observed);
  const std::set<const FlowSample*> silent(graded.silent.begin(), graded.silent.end());
  FlowsByPort flows;
  for (const FlowSample& sample : observed.samples.flows) {
    if (observed.samples.probe_of(sample) != Probe::kRate) continue;
    for (const bool sends : {true, false}) {
      Flows& one = flows[{sends ? sample.flow.from : sample.flow.to, sends}];
      const double starved = sends ? sample.sender_starved : sample.receiver_starved;
      ++one.all;
      one.silent += silent.contains(&sample) && (!by_own || starved > kStarved);
    }
  }
  return flows;
}

// Returns hosts whose probes, even without streams, waited for a core far more than probes of other
// hosts: a quota or another program takes the cores. Buffers of streams may hide the waits.
std::set<int> short_of_cores(const Observed& observed) {
  constexpr double kWaitsMost = 0.5, kTimesOthers = 3;
  constexpr std::size_t kLeastFlows = 3;
  std::map<int, std::vector<double>> shares;
  for (const FlowSample& sample : observed.samples.flows) {
    if (observed.samples.probe_of(sample) != Probe::kLatency || !sample.reached) continue;
    shares[sample.flow.from.host].push_back(sample.sender_starved);
    shares[sample.flow.to.host].push_back(sample.receiver_starved);
  }
  std::set<int> hosts;
  for (const auto& [host, own] : shares) {
    std::vector<double> others;
    for (const auto& [other, theirs] : shares)
      if (other != host) others.push_back(median_of(theirs));
    const double share = median_of(own);
    if (own.size() >= kLeastFlows && !others.empty() && share >= kWaitsMost &&
        share >= kTimesOthers * median_of(others))
      hosts.insert(host);
  }
  return hosts;
}

constexpr double kFewStops = 0.02, kManyStops = 0.05;  // fractions of the time
constexpr int kLeastStops = 5;                         // fewer are accidental on a shared machine

// Returns a finding for a host whose tester was stopped although its core was free; nullopt: it was
// not.
std::optional<Finding> stopped_finding(const Check& check, const HostFacts& host) {
  const Stops& stops = host.stops;
  if (stops.watched_s <= 0) return std::nullopt;
  const double share = stopped_share(host);
  const bool often = stops.count >= kLeastStops || stops.throttled_s > 0;
  // A kernel shared by emulated hosts stops for the work of all of them.
  const bool of_the_kernel = host.emulated && stops.throttled_s <= 0;
  if (share < (of_the_kernel ? kManyStops : kFewStops) || !often) return std::nullopt;
  Where where = at_host(host.host);
  where.kind = PlaceKind::kTester;
  Finding finding = make_finding(check, where);
  if (share < kManyStops) finding.severity = Severity::kWarn;
  set_number(finding, Unit::kShare, share, 0);
  add_number(finding, "throttled", 1e6 * stops.throttled_s, Unit::kMicroseconds);
  add_count(finding, "stops", stops.count);
  add_number(finding, "longest_stop", 1e6 * stops.longest_s, Unit::kMicroseconds);
  return finding;
}

Judged tester_starved(const Check& check, const Observed& observed) {
  struct Host {
    double most = 0;
    bool spoilt = false, blind = false;
  };
  std::map<int, Host> hosts;
  for (const FlowSample& sample : observed.samples.flows) {
    if (observed.samples.probe_of(sample) != Probe::kRate) continue;
    Host& from = hosts[sample.flow.from.host];
    Host& to = hosts[sample.flow.to.host];
    from.most = std::max(from.most, sample.sender_starved);
    to.most = std::max(to.most, sample.receiver_starved);
  }
  for (const auto& [port, flows] : rate_flows(observed, true)) {
    Host& host = hosts[port.first.host];
    host.spoilt = host.spoilt || flows.silent > 0;
    host.blind = host.blind || (flows.silent > 0 && flows.silent == flows.all);
  }
  for (const int index : short_of_cores(observed)) hosts[index].spoilt = hosts[index].blind = true;
  for (std::size_t h = 0; h < observed.facts.hosts.size(); ++h)
    if (observed.facts.hosts[h].stops.watched_s > 0) hosts.try_emplace(static_cast<int>(h));
  Judged all;
  for (const auto& [index, host] : hosts) {
    ++all.total;
    if (!host.blind) ++all.judged;
    const HostFacts* facts = host_of(observed, index);
    if (auto stopped = facts ? stopped_finding(check, *facts) : std::nullopt) {
      all.findings.push_back(std::move(*stopped));
      continue;  // stops also make threads wait
    }
    if (!host.spoilt) continue;
    Where where = at_host(host_name(observed, index));
    where.kind = PlaceKind::kTester;
    Finding& finding = all.findings.emplace_back(make_finding(check, where));
    if (!host.blind) finding.severity = Severity::kInfo;  // other flows sufficed
    set_number(finding, Unit::kShare, host.most, kStarved);
    if (const auto i = static_cast<std::size_t>(index); i < observed.hosts.size())
      add_count(finding, "cores", observed.hosts[i].cores);
  }
  return all;
}

Judged port_not_measured(const Check& check, const Observed& observed) {
  const FlowsByPort flows = rate_flows(observed, false);
  Judged all;
  if (flows.empty() || observed.hosts.size() < 2) return all;  // see nothing_measured()
  for (std::size_t h = 0; h < observed.hosts.size(); ++h)
    for (std::size_t r = 0; r < observed.hosts[h].ports.size(); ++r)
      for (const bool sends : {true, false}) {
        const Port port = {static_cast<int>(h), static_cast<int>(r)};
        if (const PortFacts* facts = port_of(observed, port); facts && excluded(observed, *facts))
          continue;
        const auto it = flows.find({port, sends});
        ++all.total;
        if (it != flows.end() && it->second.silent < it->second.all) {
          ++all.judged;
          continue;
        }
        Finding& finding = all.findings.emplace_back(make_unknown(
            check, at_port(observed, port, sends ? Direction::kTransmit : Direction::kReceive)));
        set_number(finding, Unit::kCount, 0, 1);
      }
  return all;
}

Judged probe_left_out(const Check& check, const Observed& observed) {
  if (observed.samples.rounds.empty()) return {};  // see nothing_measured()
  Judged all{{}, 1, 1};
  if (observed.left_out.empty()) return all;
  all.judged = 0;
  Finding& finding = all.findings.emplace_back(make_unknown(check, {}));
  set_number(finding, Unit::kCount, static_cast<double>(observed.left_out.size()), 0);
  for (const Probe probe : observed.left_out) add_text(finding, "probe", name(probe));
  return all;
}

Finding wrong_collective(const Check& check, const CollectiveResult& result) {
  Where where;
  if (!result.wrong_host.empty()) {
    where = at_host(result.wrong_host);
    where.direction = result.wrong_sends ? Direction::kTransmit : Direction::kReceive;
  }
  Finding finding = make_finding(check, where);
  finding.unit = Unit::kCount;
  finding.value = result.wrong;
  finding.text = result.first_wrong;
  finding.evidence.push_back(text_evidence("collective", {}, result.collective));
  finding.evidence.push_back(text_evidence("algorithm", {}, result.algorithm));
  finding.evidence.push_back(number_evidence("cases", {}, result.cases, 0, Unit::kCount));
  if (!result.first_wrong.empty())
    finding.evidence.push_back(text_evidence("first_wrong", {}, result.first_wrong));
  return finding;
}

// One host that corrupts data makes every collective wrong. Merges such findings into one.
void add_wrong(Finding finding, const CollectiveResult& result, std::vector<Finding>& findings) {
  const auto same = std::ranges::find_if(findings, [&](const Finding& other) {
    return !result.wrong_host.empty() && other.where.host == finding.where.host &&
           other.where.direction == finding.where.direction;
  });
  if (same == findings.end()) {
    findings.push_back(std::move(finding));
    return;
  }
  same->value += finding.value;
  same->evidence.push_back(text_evidence(
      "also", {},
      result.algorithm.empty() ? result.collective : result.collective + " " + result.algorithm));
}

// Results without cases were only timed. A collective is unknown if none of its algorithms ran.
Judged collective_wrong(const Check& check, const Observed& observed) {
  Judged all;
  std::map<std::string, bool> ran;
  for (const CollectiveResult& result : observed.collectives) {
    const bool tested = result.cases > 0 || result.wrong > 0;
    if (!tested && result.left_out == 0) continue;
    ++all.total;
    all.judged += tested;
    ran[result.collective] = ran[result.collective] || tested;
    if (result.wrong > 0) add_wrong(wrong_collective(check, result), result, all.findings);
  }
  Finding untested = make_unknown(check, {});
  for (const auto& [collective, tested] : ran)
    if (!tested) add_text(untested, "left_out", collective);
  if (!untested.evidence.empty()) all.findings.push_back(std::move(untested));
  return all;
}

constexpr double kLeastOfPredicted = 0.8;

Judged busbw(const Check& check, const Observed& observed) {
  const bool emulated = std::ranges::any_of(observed.hosts, &FleetHost::emulated);
  Judged all;
  for (const CollectiveResult& result : observed.collectives) {
    if (result.busbw_gbps <= 0 || result.predicted_busbw_gbps <= 0) continue;
    ++all.total;
    ++all.judged;
    if (result.busbw_gbps >= kLeastOfPredicted * result.predicted_busbw_gbps) continue;
    Finding& finding = all.findings.emplace_back(make_finding(check, {}));
    // Emulated hosts share the cores that copy, and the model of latencies and cores is too
    // coarse for a warning.
    if (emulated || !result.held_by_links()) finding.severity = Severity::kInfo;
    set_number(finding, Unit::kGbps, result.busbw_gbps, result.predicted_busbw_gbps);
    add_text(finding, "collective", result.collective);
    if (!result.limiting_link.empty()) add_text(finding, "limiting_link", result.limiting_link);
  }
  return all;
}

constexpr Check kTesterRows[] = {
    {"job-failed", CheckKind::kActive, Severity::kFatal, "the run completed",
     "the job of the tester itself", "no rank fails",
     "The run stopped early because a rank died, hung or could not connect; results that were not "
     "measured are unknown.",
     "Look at the named rank's host: the process, its memory, its network. `weft doctor` looks "
     "for the common reasons.",
     job_failed},
    {"not-run", CheckKind::kActive, Severity::kFatal, "the run can begin",
     "limits, ports, secrets and options of the ranks", "every rank takes part",
     "A rank could not take part because of how it was started: a limit of its host, a port that "
     "is in use, a secret or a number of ranks that differs. The run does not assess the fabric.",
     "Do what the message says, and run again. Do not drain the host for this.", said_by_the_job},
    {"rank-lost", CheckKind::kActive, Severity::kFatal, "every rank lives", "the job of the tester",
     "no rank is lost", "A rank of the run died or is unresponsive, and its measurements are lost.",
     "Look at the named host: is it up, did the kernel kill the process (`dmesg`), does its "
     "control network work.",
     said_by_the_job},
    {"deadline-passed", CheckKind::kActive, Severity::kFatal, "no wait exceeds its timeout",
     "deadlines of the job of the tester", "every wait ends in time",
     "The run waited longer than its timeout: a rank is hung, or the link for its message is "
     "broken.",
     "Look at the ranks that the failure names (`weft doctor`), then at the links between them.",
     said_by_the_job},
    {"rail-out", CheckKind::kActive, Severity::kFail, "no rail fails over",
     "outages that the transport bridged", "none",
     "A rail failed during the collectives, and other rails carried its messages.",
     "Look at the link of the named port, or at the switch of the named rail.", outages_of_check},
    {"no-failover", CheckKind::kActive, Severity::kWarn, "rails can stand in for each other",
     "datagrams between hosts", "datagrams pass",
     "Messages pass between hosts, and datagrams do not: no rail could take over for another one.",
     "Let UDP pass between the hosts (firewall, security groups).", outages_of_check},
    {"nothing-measured", CheckKind::kActive, Severity::kFail, "rates between hosts were measured",
     "flows between hosts", "one flow at least",
     "The run measured no rate between two hosts: there was one rank, one host, or no time. It "
     "does not assess the network.",
     "Start weft by a launcher that it knows (mpirun of Open MPI, srun --mpi=pmix, weft launch) on "
     "two hosts or more, or give a larger --budget.",
     nothing_measured},
    {"tester-starved", CheckKind::kActive, Severity::kFail, "the tester is not starved of cores",
     "/proc/self/task/*/schedstat at both ends of each flow; a thread that beats every 5 ms; "
     "cpu.stat of control groups",
     "waits < 5 % of the time, stopped < 2 % (from 5 % up, nothing else is judged)",
     "The tester's threads waited for a core and the rates of this host fell short, or the process "
     "was stopped although its core was free: a CPU quota, a frozen control group, a hypervisor. "
     "The measurements reflect the host's load, not the network; a job on this host would wait, "
     "too.",
     "Stop what else runs on the host, raise the CPU limit of the job (cgroup, --cpus-per-task; "
     "cpu.max and nr_throttled of cpu.stat show it), look at steal time (`vmstat`), and run again. "
     "Do not drain the host for this.",
     tester_starved},
    {"port-not-measured", CheckKind::kActive, Severity::kFail, "every port was measured",
     "rate flows from and to each port", "one healthy flow in each direction",
     "No healthy flow crossed this port in this direction, so the state of the port is unknown.",
     "Give a larger --budget, and look at why the host's other findings kept the flows away.",
     port_not_measured},
    {"probe-left-out", CheckKind::kActive, Severity::kFail, "every probe had its time",
     "the plan of rounds against the budget", "none is left out",
     "The budget was too short for some probes, so their faults would not have been detected.",
     "Give a larger --budget, or name the checks that do not matter to you under `skipped_checks` "
     "in the policy.",
     probe_left_out},
    {"collective-wrong", CheckKind::kActive, Severity::kFatal, "collectives are exact",
     "collectives of integers, compared bit by bit", "no wrong element",
     "A collective delivered a wrong value: data was corrupted between the ranks without being "
     "detected.",
     "Do not start a job. The first wrong rank and chunk point at a path; test its NICs, and the "
     "memory of its hosts.",
     collective_wrong},
    {"busbw", CheckKind::kActive, Severity::kWarn,
     "collectives reach the rate that the pairs allow",
     "busbw of an all_reduce against the cost model of the measured pairs",
     ">= 80 % of the prediction",
     "A collective is slower than the slowest of its measured links explains. Where latencies or "
     "cores hold it up more than links do, this is information only.",
     "Look for contention that pairs do not show (bisection, all-to-all, incast), and at the "
     "cores and memory of the hosts.",
     busbw},
};

}  // namespace

std::span<const Check> tester_checks() { return kTesterRows; }

}  // namespace weft::fabric
