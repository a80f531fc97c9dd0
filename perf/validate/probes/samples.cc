// Names, averages and JSON of samples.
#include "perf/validate/probes/samples.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

namespace weft::fabric {
namespace {

nlohmann::ordered_json port_json(const Port& port) {
  return {{"host", port.host}, {"rail", port.rail}};
}

}  // namespace

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

double FlowSample::lowest_gbps() const {
  return window_gbps.empty() ? gbps() : *std::min_element(window_gbps.begin(), window_gbps.end());
}

nlohmann::ordered_json to_json(const FlowSample& sample) {
  nlohmann::ordered_json json = {{"round", sample.round},
                                 {"from", port_json(sample.flow.from)},
                                 {"to", port_json(sample.flow.to)}};
  if (sample.flow.pace != 1) json["pace_share"] = sample.flow.pace;
  if (sample.flow.label != 0) json["label"] = sample.flow.label;
  if (sample.flow.victim) json["victim"] = true;
  json["reached"] = sample.reached;
  if (!sample.error.empty()) json["error"] = sample.error;
  json["duration_s"] = sample.seconds;
  json["received_bytes"] = sample.bytes;
  if (sample.sent_bytes) json["sent_bytes"] = *sample.sent_bytes;
  if (!sample.window_gbps.empty()) {
    json["window_s"] = sample.window_s;
    json["window_gbps"] = sample.window_gbps;
  }
  if (sample.latency) {
    const LatencySample& l = *sample.latency;
    json["latency"] = {{"samples", l.samples}, {"min_us", l.min_us},   {"p50_us", l.p50_us},
                       {"p99_us", l.p99_us},   {"p999_us", l.p999_us}, {"max_us", l.max_us}};
  }
  const auto put = [&](const char* key, const auto& value) {
    if (value) json[key] = *value;
  };
  put("packets", sample.packets);
  put("retransmits", sample.retransmits);
  put("receiver_limited_share", sample.receiver_limited);
  put("sender_limited_share", sample.sender_limited);
  put("sender_idle_share", sample.sender_idle);
  put("min_rtt_us", sample.min_rtt_us);
  put("passed_mtu_bytes", sample.passed_mtu);
  put("failed_mtu_bytes", sample.failed_mtu);
  if (sample.arrived_at) json["arrived_at"] = port_json(*sample.arrived_at);
  for (const StreamSample& stream : sample.streams) {
    auto& one = json["streams"].emplace_back();
    one = {{"source_port", stream.port}, {"bytes", stream.bytes}};
    if (stream.packets) one["packets"] = *stream.packets;
    if (stream.retransmits) one["retransmits"] = *stream.retransmits;
  }
  json["sender_starved_share"] = sample.sender_starved;
  json["receiver_starved_share"] = sample.receiver_starved;
  return json;
}

}  // namespace weft::fabric
