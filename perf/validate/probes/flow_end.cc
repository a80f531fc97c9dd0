// JSON of the orders and samples of ends, and the joined sample of both ends.
#include "perf/validate/probes/flow_end.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "perf/validate/probes/sample_fields.h"

namespace weft::fabric {

template <typename A, Of<EndOrder> T>
void fields(A& a, T& o) {
  a("flow", o.flow);
  a("peer", o.peer);
  a("sends", o.sends);
  a("probe", o.probe);
  a("rail", o.rail);
  a("peer_rail", o.peer_rail);
  a("seconds", o.seconds);
  a("pace_gbps", o.pace_gbps);
  a("label", o.label);
  a("victim", o.victim);
  a("streams", o.streams);
}

template <typename A, Of<EndSample> T>
void fields(A& a, T& s) {
  a("flow", s.flow);
  a("sends", s.sends);
  a("seconds", s.seconds);
  a("bytes", s.bytes);
  a("starved", s.starved);
  a("error", s.error, std::string());
  a("window_gbps", s.window_gbps);
  if (!s.window_gbps.empty()) a("window_s", s.window_s);
  a("latency", s.latency);
  a("packets", s.packets);
  a("retransmits", s.retransmits);
  a("receiver_limited", s.receiver_limited);
  a("sender_limited", s.sender_limited);
  a("sender_idle", s.sender_idle);
  a("min_rtt_us", s.min_rtt_us);
  a("passed_mtu", s.passed_mtu);
  a("failed_mtu", s.failed_mtu);
  a("arrived_rail", s.arrived_rail);
  a("streams", s.streams);
}

nlohmann::ordered_json to_json(const EndOrder& order) { return FieldWriter::written(order); }
EndOrder end_order_from_json(const nlohmann::ordered_json& json) {
  return read_fields<EndOrder>(json, Missing::kIsRefused);
}
nlohmann::ordered_json to_json(const EndSample& sample) { return FieldWriter::written(sample); }
EndSample end_sample_from_json(const nlohmann::ordered_json& json) {
  return read_fields<EndSample>(json, Missing::kIsRefused);
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
  static_cast<Measured&>(s) = sender;
  s.flow = flow;
  // Use the receiver's clock: bytes that the sender's kernel accepted may not have arrived.
  const EndSample& counted =
      receiver.window_gbps.empty() && !sender.window_gbps.empty() ? sender : receiver;
  s.seconds = counted.seconds;
  s.bytes = std::max(receiver.bytes, counted.bytes);
  if (!receiver.window_gbps.empty() && sender.bytes > 0) s.sent_bytes = sender.bytes;
  s.window_gbps = counted.window_gbps;
  s.window_s = counted.window_s;
  if (receiver.arrived_rail) s.arrived_at = Port{flow.to.host, *receiver.arrived_rail};
  if (receiver.bytes > 0)  // the sender counts packets, the receiver counts received bytes
    for (std::size_t i = 0; i < std::min(s.streams.size(), receiver.streams.size()); ++i)
      s.streams[i].bytes = receiver.streams[i].bytes;
  s.sender_starved = sender.starved;
  s.receiver_starved = receiver.starved;
  s.error = !sender.error.empty() ? sender.error : receiver.error;
  s.reached = s.error.empty();
  return s;
}

}  // namespace weft::fabric
