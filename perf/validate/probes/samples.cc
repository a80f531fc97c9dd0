// Names, averages and JSON of samples.
#include "perf/validate/probes/samples.h"

#include <algorithm>
#include <numeric>

#include "perf/validate/probes/sample_fields.h"

namespace weft::fabric {
const char* name(Probe probe) {
  switch (probe) {
    case Probe::kRate:
      return "rate";
    case Probe::kLatency:
      return "latency";
    case Probe::kPathMtu:
      return "path_mtu";
    case Probe::kReach:
      return "reach";
    case Probe::kCrossRail:
      return "cross_rail";
    case Probe::kLoopback:
      return "loopback";
    case Probe::kIncast:
      return "incast";
    case Probe::kBisection:
      return "bisection";
    case Probe::kAllToAll:
      return "all_to_all";
    case Probe::kVictim:
      return "victim";
    case Probe::kEntropy:
      return "entropy";
    case Probe::kLowLoad:
      return "low_load";
  }
  return "unknown";
}

double FlowSample::gbps() const {
  if (window_gbps.empty()) return seconds > 0 ? 8e-9 * static_cast<double>(bytes) / seconds : 0;
  return std::accumulate(window_gbps.begin(), window_gbps.end(), 0.0) /
         static_cast<double>(window_gbps.size());
}

std::optional<Probe> Samples::probe_of(const FlowSample& sample) const {
  const auto round = static_cast<std::size_t>(sample.round);
  if (sample.round < 0 || round >= rounds.size()) return std::nullopt;
  return rounds[round].probe;
}

double FlowSample::lowest_gbps() const {
  return window_gbps.empty() ? gbps() : *std::min_element(window_gbps.begin(), window_gbps.end());
}

template <typename A, Of<FlowSample> T>
void fields(A& a, T& s) {
  a("round", s.round);
  a("from", s.flow.from);
  a("to", s.flow.to);
  a("pace_share", s.flow.pace, 1.0);
  a("label", s.flow.label, 0);
  a("victim", s.flow.victim, false);
  a("reached", s.reached);
  a("error", s.error);
  a("duration_s", s.seconds);
  a("received_bytes", s.bytes);
  a("sent_bytes", s.sent_bytes);
  if (!s.window_gbps.empty()) a("window_s", s.window_s);
  a("window_gbps", s.window_gbps);
  a("latency", s.latency);
  a("packets", s.packets);
  a("retransmits", s.retransmits);
  a("receiver_limited_share", s.receiver_limited);
  a("sender_limited_share", s.sender_limited);
  a("sender_idle_share", s.sender_idle);
  a("min_rtt_us", s.min_rtt_us);
  a("passed_mtu_bytes", s.passed_mtu);
  a("failed_mtu_bytes", s.failed_mtu);
  a("arrived_at", s.arrived_at);
  a("streams", s.streams);
  a("sender_starved_share", s.sender_starved);
  a("receiver_starved_share", s.receiver_starved);
}

nlohmann::ordered_json to_json(const FlowSample& sample) { return FieldWriter::written(sample); }

}  // namespace weft::fabric
