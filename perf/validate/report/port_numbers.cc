// Medians of samples by port and by path.
#include "perf/validate/report/port_numbers.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace weft::fabric {
namespace {

// Drops non-finite values, which a faulty host may report: they cannot be sorted.
void add(std::vector<double>& values, double value) {
  if (std::isfinite(value)) values.push_back(value);
}

// Values of the flows of one port or path.
struct FlowsOf {
  std::vector<double> gbps, received_gbps, lowest_gbps, p50_us, p99_us, p999_us;
  std::uint64_t packets = 0, retransmits = 0;  // sums over flows that count packets

  void add_latency(const LatencySample& latency) {
    add(p50_us, latency.p50_us);
    add(p99_us, latency.p99_us);
    add(p999_us, latency.p999_us);
  }
  void add_packets(const FlowSample& flow) {
    if (!flow.packets || !flow.retransmits) return;
    packets += *flow.packets;
    retransmits += *flow.retransmits;
  }
  std::optional<double> lost() const {
    if (packets == 0) return {};
    return static_cast<double>(retransmits) / static_cast<double>(packets);
  }
};

std::optional<double> median(std::vector<double> values) {
  if (values.empty()) return {};
  const std::size_t half = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half),
                   values.end());
  const double upper = values[half];
  if (values.size() % 2 == 1) return upper;
  return (upper +
          *std::max_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half))) /
         2;
}

std::optional<double> smallest(const std::vector<double>& values) {
  if (values.empty()) return {};
  return *std::min_element(values.begin(), values.end());
}

const PortInfo* info_of(const Report& report, Port port) {
  const auto h = static_cast<std::size_t>(port.host), r = static_cast<std::size_t>(port.rail);
  if (port.host < 0 || h >= report.hosts.size()) return nullptr;
  if (port.rail < 0 || r >= report.hosts[h].ports.size()) return nullptr;
  return &report.hosts[h].ports[r];
}

double gbps_of(const FlowSample& flow) { return flow.reached ? flow.gbps() : 0; }

}  // namespace

std::vector<PortNumbers> port_numbers(const Report& report) {
  if (!report.ports.empty()) return report.ports;
  std::map<Port, FlowsOf> flows, received;
  for (const FlowSample& flow : report.samples.flows) {
    if (!info_of(report, flow.flow.from) || !info_of(report, flow.flow.to)) continue;
    const auto probe = report.samples.probe_of(flow);
    if (!probe) continue;
    FlowsOf& sent = flows[flow.flow.from];
    sent.add_packets(flow);
    received[flow.flow.to].add_packets(flow);
    if (probe == Probe::kLatency && flow.latency) sent.add_latency(*flow.latency);
    if (probe != Probe::kRate) continue;
    add(sent.gbps, gbps_of(flow));
    if (flow.reached) add(sent.lowest_gbps, flow.lowest_gbps());
    add(flows[flow.flow.to].received_gbps, gbps_of(flow));
  }
  std::vector<PortNumbers> rows;
  for (std::size_t h = 0; h < report.hosts.size(); ++h)
    for (std::size_t r = 0; r < report.hosts[h].ports.size(); ++r) {
      const PortInfo& info = report.hosts[h].ports[r];
      PortNumbers row;
      row.port = {static_cast<int>(h), static_cast<int>(r)};
      row.host = report.hosts[h].name;
      row.device = info.device;
      if (info.expected_gbps > 0) row.expected_gbps = info.expected_gbps;
      const FlowsOf& of = flows[row.port];
      row.transmit_gbps = median(of.gbps);
      row.receive_gbps = median(of.received_gbps);
      row.lowest_gbps = smallest(of.lowest_gbps);
      row.p50_us = median(of.p50_us);
      row.p99_us = median(of.p99_us);
      row.p999_us = median(of.p999_us);
      row.sent_lost = of.lost();
      row.received_lost = received[row.port].lost();
      rows.push_back(std::move(row));
    }
  return rows;
}

std::vector<PathNumbers> path_numbers(const Report& report) {
  struct Path {
    FlowsOf flows;
    bool tried = false, reached = false;
    std::string error;
  };
  std::map<std::pair<Port, Port>, Path> paths;
  for (const FlowSample& flow : report.samples.flows) {
    const auto probe = report.samples.probe_of(flow);
    if (probe != Probe::kRate && probe != Probe::kLatency && probe != Probe::kReach) continue;
    if (!info_of(report, flow.flow.from) || !info_of(report, flow.flow.to)) continue;
    Path& path = paths[{flow.flow.from, flow.flow.to}];
    path.reached |= flow.reached;
    if (!flow.reached) path.error = flow.error;
    if (flow.latency) path.flows.add_latency(*flow.latency);
    if (probe != Probe::kRate) continue;
    add(path.flows.gbps, gbps_of(flow));
  }
  std::vector<PathNumbers> rows;
  for (const auto& [ends, path] : paths) {
    PathNumbers row;
    std::tie(row.from, row.to) = ends;
    row.reached = path.reached;
    row.error = path.error;
    row.gbps = median(path.flows.gbps);
    row.p50_us = median(path.flows.p50_us);
    const double a = info_of(report, row.from)->expected_gbps;
    const double b = info_of(report, row.to)->expected_gbps;
    row.expected_gbps = a > 0 && b > 0 ? std::min(a, b) : std::max(a, b);
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const PathNumbers& a, const PathNumbers& b) {
    return a.from.rail < b.from.rail;
  });
  return rows;
}

}  // namespace weft::fabric
