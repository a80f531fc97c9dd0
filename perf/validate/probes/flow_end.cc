// Orders and samples of the ends of a flow as JSON, and the sample that both ends make up.
#include "perf/validate/probes/flow_end.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace weft::fabric {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
void put(Json& json, const char* key, const std::optional<T>& value) {
  if (value) json[key] = *value;
}
template <typename T>
void get(const Json& json, const char* key, std::optional<T>& value) {
  if (json.contains(key)) value = json[key].template get<T>();
}

}  // namespace

Json to_json(const EndOrder& o) {
  return {{"flow", o.flow},       {"peer", o.peer},
          {"sends", o.sends},     {"probe", static_cast<int>(o.probe)},
          {"rail", o.rail},       {"peer_rail", o.peer_rail},
          {"seconds", o.seconds}, {"pace_gbps", o.pace_gbps},
          {"label", o.label},     {"victim", o.victim}};
}

EndOrder end_order_from_json(const Json& j) {
  EndOrder o;
  o.flow = j.at("flow");
  o.peer = j.at("peer");
  o.sends = j.at("sends");
  o.probe = static_cast<Probe>(j.at("probe").get<int>());
  o.rail = j.at("rail");
  o.peer_rail = j.at("peer_rail");
  o.seconds = j.at("seconds");
  o.pace_gbps = j.at("pace_gbps");
  o.label = j.at("label");
  o.victim = j.at("victim");
  return o;
}

Json to_json(const EndSample& s) {
  Json j = {{"flow", s.flow},
            {"sends", s.sends},
            {"seconds", s.seconds},
            {"bytes", s.bytes},
            {"starved", s.starved}};
  if (!s.error.empty()) j["error"] = s.error;
  if (!s.window_gbps.empty()) {
    j["window_gbps"] = s.window_gbps;
    j["window_s"] = s.window_s;
  }
  if (s.latency)
    j["latency_us"] = {s.latency->samples, s.latency->min_us,  s.latency->p50_us,
                       s.latency->p99_us,  s.latency->p999_us, s.latency->max_us};
  put(j, "packets", s.packets);
  put(j, "retransmits", s.retransmits);
  put(j, "receiver_limited", s.receiver_limited);
  put(j, "sender_limited", s.sender_limited);
  put(j, "sender_idle", s.sender_idle);
  put(j, "min_rtt_us", s.min_rtt_us);
  put(j, "passed_mtu", s.passed_mtu);
  put(j, "failed_mtu", s.failed_mtu);
  put(j, "arrived_rail", s.arrived_rail);
  return j;
}

EndSample end_sample_from_json(const Json& j) {
  EndSample s;
  s.flow = j.at("flow");
  s.sends = j.at("sends");
  s.seconds = j.at("seconds");
  s.bytes = j.at("bytes");
  s.starved = j.at("starved");
  s.error = j.value("error", "");
  if (j.contains("window_gbps")) {
    s.window_gbps = j["window_gbps"].get<std::vector<double>>();
    s.window_s = j.at("window_s");
  }
  if (j.contains("latency_us")) {
    const Json& l = j["latency_us"];
    s.latency = LatencySample{l.at(0), l.at(1), l.at(2), l.at(3), l.at(4), l.at(5)};
  }
  get(j, "packets", s.packets);
  get(j, "retransmits", s.retransmits);
  get(j, "receiver_limited", s.receiver_limited);
  get(j, "sender_limited", s.sender_limited);
  get(j, "sender_idle", s.sender_idle);
  get(j, "min_rtt_us", s.min_rtt_us);
  get(j, "passed_mtu", s.passed_mtu);
  get(j, "failed_mtu", s.failed_mtu);
  get(j, "arrived_rail", s.arrived_rail);
  return s;
}

FlowSample join(const Flow& flow, const EndSample& sender, const EndSample& receiver) {
  FlowSample s;
  s.flow = flow;
  // The receiver's clock counts: what the sender's kernel took may never have arrived.
  const EndSample& counted =
      receiver.window_gbps.empty() && !sender.window_gbps.empty() ? sender : receiver;
  s.seconds = counted.seconds;
  s.bytes = std::max(receiver.bytes, counted.bytes);
  s.window_gbps = counted.window_gbps;
  s.window_s = counted.window_s;
  s.latency = sender.latency;
  s.packets = sender.packets;
  s.retransmits = sender.retransmits;
  s.receiver_limited = sender.receiver_limited;
  s.sender_limited = sender.sender_limited;
  s.sender_idle = sender.sender_idle;
  s.min_rtt_us = sender.min_rtt_us;
  s.passed_mtu = sender.passed_mtu;
  s.failed_mtu = sender.failed_mtu;
  if (receiver.arrived_rail) s.arrived_at = Port{flow.to.host, *receiver.arrived_rail};
  s.sender_starved = sender.starved;
  s.receiver_starved = receiver.starved;
  s.error = !sender.error.empty() ? sender.error : receiver.error;
  s.reached = s.error.empty();
  return s;
}

}  // namespace weft::fabric
