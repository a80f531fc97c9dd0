// JSON of the orders and samples of ends, and the joined sample of both ends.
#include "perf/validate/probes/flow_end.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "topo/base/status.h"

namespace weft::fabric {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
void put(Json& json, const char* key, const std::optional<T>& value) {
  if (value) json[key] = *value;
}
// The value of a field. Throws Error if the JSON has another type or the number is out of range;
// nlohmann::json would convert it.
template <typename T>
T strict(const Json& json, const char* key) {
  const Json& value = json.at(key);
  bool right = true;
  if constexpr (std::is_same_v<T, bool>)
    right = value.is_boolean();
  else if constexpr (std::is_floating_point_v<T>)
    right = value.is_number();
  else if constexpr (std::is_integral_v<T>)
    right = value.is_number_unsigned()
                ? std::in_range<T>(value.get<std::uint64_t>())
                : value.is_number_integer() && std::in_range<T>(value.get<std::int64_t>());
  if (!right) throw Error(fmt::format("{} is {}", key, value.dump()));
  return value.get<T>();
}
template <typename T>
void get(const Json& json, const char* key, std::optional<T>& value) {
  if (json.contains(key)) value = strict<T>(json, key);
}

}  // namespace

Json to_json(const EndOrder& o) {
  return {{"flow", o.flow},       {"peer", o.peer},
          {"sends", o.sends},     {"probe", static_cast<int>(o.probe)},
          {"rail", o.rail},       {"peer_rail", o.peer_rail},
          {"seconds", o.seconds}, {"pace_gbps", o.pace_gbps},
          {"label", o.label},     {"victim", o.victim},
          {"streams", o.streams}};
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
  o.streams = j.at("streams");
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
  for (const StreamSample& stream : s.streams) {
    Json& one = j["streams"].emplace_back(Json{{"port", stream.port}, {"bytes", stream.bytes}});
    put(one, "packets", stream.packets);
    put(one, "retransmits", stream.retransmits);
  }
  return j;
}

EndSample end_sample_from_json(const Json& j) {
  EndSample s;
  s.flow = strict<int>(j, "flow");
  s.sends = strict<bool>(j, "sends");
  s.seconds = strict<double>(j, "seconds");
  s.bytes = strict<std::uint64_t>(j, "bytes");
  s.starved = strict<double>(j, "starved");
  s.error = j.value("error", "");
  if (j.contains("window_gbps")) {
    s.window_gbps = j["window_gbps"].get<std::vector<double>>();
    s.window_s = strict<double>(j, "window_s");
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
  for (const Json& one : j.value("streams", Json::array())) {
    StreamSample& stream = s.streams.emplace_back();
    stream.port = strict<int>(one, "port");
    stream.bytes = strict<std::uint64_t>(one, "bytes");
    get(one, "packets", stream.packets);
    get(one, "retransmits", stream.retransmits);
  }
  return s;
}

std::string why_impossible(const EndSample& s) {
  // The kernel counts in jiffies: a fraction may exceed 1 slightly.
  const auto is_share = [](const std::optional<double>& share) {
    return !share || (*share >= 0 && *share <= 2);
  };
  if (!(s.seconds >= 0 && s.seconds < 1e6)) return fmt::format("duration_s {}", s.seconds);
  if (!is_share(s.starved)) return fmt::format("starved_share {}", s.starved);
  if (!is_share(s.receiver_limited) || !is_share(s.sender_limited) || !is_share(s.sender_idle))
    return "a fraction of the time is out of range";
  if (s.min_rtt_us && *s.min_rtt_us < 0) return fmt::format("min_rtt_us {}", *s.min_rtt_us);
  const auto too_many = [](const auto& sample, std::uint64_t streams) {
    constexpr std::uint64_t kHandshakes = 64;  // retransmitted handshakes are not counted as data
    return sample.retransmits && sample.packets &&
                   *sample.retransmits > *sample.packets + kHandshakes * streams
               ? fmt::format("retransmits {} of {} packets", *sample.retransmits, *sample.packets)
               : std::string();
  };
  if (s.streams.size() > kMostStreams) return fmt::format("{} streams", s.streams.size());
  if (const auto why = too_many(s, std::max<std::size_t>(s.streams.size(), 1)); !why.empty())
    return why;
  std::uint64_t in_streams = 0;
  for (const StreamSample& stream : s.streams) {
    if (stream.port < 0 || stream.port > 65535) return fmt::format("source port {}", stream.port);
    if (const std::string why = too_many(stream, 1); !why.empty()) return why;
    if (stream.bytes > s.bytes - in_streams)
      return fmt::format("more than {} bytes in streams", s.bytes);
    in_streams += stream.bytes;
  }
  double in_windows = 0;
  for (const double gbps : s.window_gbps) {
    if (!(gbps >= 0 && gbps < 1e6)) return fmt::format("window_gbps {}", gbps);
    in_windows += gbps * 1e9 / 8 * s.window_s;
  }
  if (!s.window_gbps.empty() && !(s.window_s > 0)) return fmt::format("window_s {}", s.window_s);
  if (in_windows > 1.001 * static_cast<double>(s.bytes) + 1)
    return fmt::format("{:.0f} bytes in windows, {} in all", in_windows, s.bytes);
  if (const auto& l = s.latency) {
    const double ascending[] = {0, l->min_us, l->p50_us, l->p99_us, l->p999_us, l->max_us};
    if (l->samples < 0 || !std::ranges::is_sorted(ascending))
      return fmt::format("latency p50_us {}, p99_us {}", l->p50_us, l->p99_us);
  }
  return "";
}

void add_streams(EndSample& end, const std::vector<EndSample>& streams) {
  const auto sum = [](auto& all, const auto& one) {
    if (one) all = all.value_or(0) + *one;
  };
  const auto mean = [&](auto& all, const auto& one) {
    if (one) all = all.value_or(0) + *one / static_cast<double>(streams.size());
  };
  for (const EndSample& one : streams) {
    if (end.error.empty()) end.error = one.error;
    end.seconds = std::max(end.seconds, one.seconds);
    end.bytes += one.bytes;
    end.starved += one.starved / static_cast<double>(streams.size());
    sum(end.packets, one.packets);
    sum(end.retransmits, one.retransmits);
    mean(end.receiver_limited, one.receiver_limited);
    mean(end.sender_limited, one.sender_limited);
    mean(end.sender_idle, one.sender_idle);
    if (one.min_rtt_us)
      end.min_rtt_us = std::min(*one.min_rtt_us, end.min_rtt_us.value_or(*one.min_rtt_us));
    end.streams.insert(end.streams.end(), one.streams.begin(), one.streams.end());
  }
}

FlowSample join(const Flow& flow, const EndSample& sender, const EndSample& receiver) {
  FlowSample s;
  s.flow = flow;
  // Use the receiver's clock: bytes that the sender's kernel accepted may not have arrived.
  const EndSample& counted =
      receiver.window_gbps.empty() && !sender.window_gbps.empty() ? sender : receiver;
  s.seconds = counted.seconds;
  s.bytes = std::max(receiver.bytes, counted.bytes);
  if (!receiver.window_gbps.empty() && sender.bytes > 0) s.sent_bytes = sender.bytes;
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
  s.streams = sender.streams;  // packets come from the sender, received bytes from the receiver
  if (receiver.bytes > 0)
    for (std::size_t i = 0; i < std::min(s.streams.size(), receiver.streams.size()); ++i)
      s.streams[i].bytes = receiver.streams[i].bytes;
  s.sender_starved = sender.starved;
  s.receiver_starved = receiver.starved;
  s.error = !sender.error.empty() ? sender.error : receiver.error;
  s.reached = s.error.empty();
  return s;
}

}  // namespace weft::fabric
