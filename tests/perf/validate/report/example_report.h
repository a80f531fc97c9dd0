// Hand-made reports: a healthy fleet, and several faults.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "perf/validate/report/report.h"

namespace weft::fabric {

inline std::string example_host(int h) { return "h" + std::to_string(h); }

// Hosts h0, h1, ... with `rails` ports of 400 Gb/s each, which all send at 392 Gb/s in 2.1 us.
// Every pair of hosts has a rate and a latency flow per direction and rail. `gbps` may set other
// rates.
template <typename Gbps>
Report example_report(int hosts, int rails, Gbps gbps) {
  Report report;
  report.started = "2026-11-25T04:00:00Z";
  report.version = "0.1.0";
  report.seconds = 21.4;
  report.budget_s = 60;
  report.transport = "verbs";
  report.ranks = hosts * rails;
  report.rails = rails;
  report.verdict = Verdict::kOk;
  report.facts.seconds = 20.5;
  for (int h = 0; h < hosts; ++h) {
    FleetHost host{example_host(h), false, 16, {}};
    HostFacts facts;
    facts.host = facts.hostname = host.name;
    facts.kernel = "6.1.0";
    facts.first_rank = h * rails;
    facts.ranks = rails;
    facts.cores = 16;
    facts.gpus = 8;
    for (int r = 0; r < rails; ++r) {
      const std::string device = "mlx5_" + std::to_string(r);
      const std::string address = "10." + std::to_string(r) + ".0." + std::to_string(h + 1);
      host.ports.push_back({device, address, 400, 9000});
      PortFacts port;
      port.rail = r;
      port.device = device;
      port.rdma = true;
      port.ib_port = 1;
      port.rate_gbps = 400;
      port.state = "ACTIVE";
      port.firmware = "28.39.1002";
      port.before = {{"hw.out_of_sequence", {ReadingState::kValue, 7}},
                     {"net.tx_bytes", {ReadingState::kValue, 1000}},
                     {"hw.roce_slow_restart", {ReadingState::kNotAvailable, 0}}};
      port.after = {{"hw.out_of_sequence", {ReadingState::kValue, 7}},
                    {"net.tx_bytes", {ReadingState::kValue, 5000001000}},
                    {"hw.roce_slow_restart", {ReadingState::kNotAvailable, 0}}};
      facts.ports.push_back(port);
    }
    report.hosts.push_back(host);
    report.facts.hosts.push_back(facts);
  }
  report.plan.seconds = 20;
  report.plan.smallest_loss = 2e-6;
  report.plan.smallest_rate_cut = 0.05;
  report.plan.measured_paths.assign(static_cast<std::size_t>(rails), hosts * (hosts - 1));
  for (const Probe probe : {Probe::kLatency, Probe::kRate}) {
    for (int shift = 1; shift < hosts; ++shift) {
      Round round{probe, {}, 0.3};
      for (int r = 0; r < rails; ++r)
        for (int h = 0; h < hosts; ++h) {
          FlowSample sample;
          sample.round = static_cast<int>(report.samples.rounds.size());
          sample.flow.from = {h, r};
          sample.flow.to = {(h + shift) % hosts, r};
          sample.seconds = 0.3;
          if (probe == Probe::kLatency) {
            sample.latency = LatencySample{1000, 1.9, 2.1, 2.6, 3.4, 9.1};
          } else {
            const double rate = gbps(sample.flow.from, sample.flow.to);
            sample.reached = rate > 0;
            if (!sample.reached) sample.error = "connect: No route to host";
            sample.window_gbps = {rate, rate};
            sample.window_s = 0.1;
            constexpr double kAbsurd = 1e9;  // Gb/s; the byte count would exceed 64 bits
            if (rate < kAbsurd) sample.bytes = static_cast<std::uint64_t>(rate * 0.2 / 8e-9);
            sample.packets = sample.bytes / 4096;
            sample.retransmits = 0;
          }
          round.flows.push_back(sample.flow);
          report.samples.flows.push_back(sample);
        }
      report.samples.rounds.push_back(round);
    }
  }
  report.samples.seconds = 18.5;
  const int ports = hosts * rails;
  report.judgement.coverage = {{"link-state", ports, ports},     {"link-flaps", ports, ports},
                               {"port-rate", ports, ports},      {"loss", ports, ports},
                               {"latency", ports, ports},        {"firmware", ports, ports},
                               {"retransmits", ports, ports},    {"rails-differ", hosts, hosts},
                               {"host-setup", hosts - 1, hosts}, {"pfc-config", 0, ports},
                               {"ecn-marking", 0, ports},        {"ib-subnet", 0, 0}};
  report.plan.left_out = {Probe::kBisection, Probe::kEntropy};
  report.collectives = {{"all_reduce", "ring", 24, 0, 2, "", 340, 352, "h1 rail 0 transmit"},
                        {"all_gather", "ring", 12, 0, 0, "", 0, 0, ""}};
  return report;
}

inline Report healthy_report(int hosts = 4, int rails = 2) {
  return example_report(hosts, rails, [](Port, Port) { return 392.0; });
}

// A FAIL finding at a port of `host`.
inline Finding port_finding(const std::string& id, const std::string& host, int rail,
                            Direction direction, double value, double expected, Unit unit) {
  Finding finding;
  finding.id = id;
  finding.severity = Severity::kFail;
  finding.where = {PlaceKind::kPort, host, rail, direction, "", "mlx5_" + std::to_string(rail)};
  finding.value = value;
  finding.expected = expected;
  finding.unit = unit;
  return finding;
}

// h3 sends at 187 of 392 Gb/s on rail 1, and its link lost packets for the same reason.
inline Report slow_port_report() {
  Report report = example_report(4, 2, [](Port from, Port) {
    return from == Port{3, 1} ? 187.0 : 392.0;
  });
  Finding slow = port_finding("port-rate", "h3", 1, Direction::kTransmit, 187, 392, Unit::kGbps);
  slow.low = 183;
  slow.high = 191;
  slow.score = 0.992;
  slow.evidence = {{"rate", "h3", 1, 187, 392, Unit::kGbps, ""}};
  Finding resent = port_finding("retransmits", "h3", 1, Direction::kTransmit, 98, 0, Unit::kCount);
  resent.explained_by = "port-rate";
  report.judgement.findings = {slow, resent};
  report.causes = {
      {CauseKind::kRate, CausePlace::kTransmit, {3, 1}, {}, {}, 187, 392, 183, 191, 0.992, 6}};
  report.facts.hosts[3].ports[1].after["hw.out_of_sequence"].value = 105;
  report.verdict = Verdict::kCritical;
  return report;
}

// h1 loses packets on rail 0.
inline Report loss_report() {
  Report report = healthy_report();
  Finding loss = port_finding("loss", "h1", 0, Direction::kReceive, 1.2e-4, 0, Unit::kPerPacket);
  loss.low = 0.9e-4;
  loss.high = 1.6e-4;
  loss.score = 0.97;
  report.judgement.findings = {loss};
  report.verdict = Verdict::kCritical;
  return report;
}

// A slow port and a lossy one.
inline Report two_faults_report() {
  Report report = slow_port_report();
  report.judgement.findings.push_back(loss_report().judgement.findings[0]);
  return report;
}

// A deviating firmware version, and ambiguous counters.
inline Report warn_and_unknown_report() {
  Report report = healthy_report();
  Finding firmware = port_finding("firmware", "h2", 0, Direction::kBoth, 0, 0, Unit::kText);
  firmware.severity = Severity::kWarn;
  firmware.text = "22.36.1010";
  firmware.expected_text = "28.39.1002";
  Finding saturated = port_finding("link-flaps", "h0", 1, Direction::kBoth, 0, 0, Unit::kText);
  saturated.unknown = true;
  saturated.text = "ib.link_downed stands at its ceiling of 255";
  Finding other = saturated;
  other.where.host = "h1";
  report.judgement.findings = {firmware, saturated, other};
  report.verdict = Verdict::kWarn;
  return report;
}

// The tester waited for a core.
inline Report tester_report() {
  Report report = slow_port_report();
  Finding starved;
  starved.id = "tester-starved";
  starved.severity = Severity::kFail;
  starved.where = {PlaceKind::kTester, "h2", -1, Direction::kBoth, "", ""};
  starved.value = 0.41;
  starved.expected = 0.02;
  starved.unit = Unit::kShare;
  report.judgement.findings = {starved};
  report.causes.clear();
  report.verdict = Verdict::kTester;
  return report;
}

inline Report emulated_report() {
  Report report = healthy_report();
  report.emulated = true;
  report.transport = "tcp";
  for (FleetHost& host : report.hosts) host.emulated = true;
  return report;
}

inline Report job_failed_report() {
  Report report = healthy_report();
  report.failure = "peer failed: rank 5 on host h2: connection closed (while at rate)";
  report.verdict = Verdict::kUnknown;
  report.plan = {};
  report.judgement = {};
  report.samples = {};
  report.collectives = {};
  return report;
}

}  // namespace weft::fabric
