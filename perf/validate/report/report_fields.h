// JSON keys of the structs of a report. The keys include the units.
#pragma once

#include "perf/validate/probes/sample_fields.h"
#include "perf/validate/report/report.h"

namespace weft::fabric {

template <>
struct EnumWords<CauseKind> {
  static constexpr std::string_view words[] = {"rate", "latency", "loss",    "unreachable",
                                               "mtu",  "swapped", "unstable"};
};

template <>
struct EnumWords<CausePlace> {
  static constexpr std::string_view words[] = {"transmit",     "receive", "port", "host_transmit",
                                               "host_receive", "host",    "path", "pair",
                                               "rail",         "group",   "fleet"};
};

template <>
struct EnumWords<Verdict> {
  static constexpr std::string_view words[] = {"OK", "WARN", "CRITICAL", "UNKNOWN", "TESTER"};
};

template <typename A, Of<PortInfo> T>
void fields(A& a, T& port) {
  a("device", port.device);
  a("address", port.address);
  a("expected_gbps", port.expected_gbps);
  a("mtu_bytes", port.mtu);
}

template <typename A, Of<FleetHost> T>
void fields(A& a, T& host) {
  a("host", host.name);
  a("emulated", host.emulated);
  a("cores", host.cores);
  a("ports", host.ports);
}

// `value` and its interval are in Gb/s, microseconds, losses per packet or bytes, by `kind`.
template <typename A, Of<Cause> T>
void fields(A& a, T& c) {
  a("kind", c.kind);
  a("place", c.place);
  a("port", c.port);
  a("peer", c.peer);
  a("ports", c.ports);
  a("value", c.value);
  a("expected", c.expected);
  a("low", c.low);
  a("high", c.high);
  a("score", c.confidence);  // not a probability: docs/statistics.md
  a("flows", c.samples);
  a("loaded_only", c.loaded_only);
  if (c.kind != CauseKind::kUnstable) return;
  a("bad_share", c.share);
  a("bad_share_low", c.share_low);
  a("bad_share_high", c.share_high);
  a("spell_s", c.spell_s);
  a("period_s", c.period_s);
  a("of_flows", c.of_flows);
  a("labels", c.labels);
}

template <typename A, Of<CollectiveResult> T>
void fields(A& a, T& c) {
  a("collective", c.collective);
  a("algorithm", c.algorithm);
  a("cases", c.cases);
  a("wrong", c.wrong);
  a("left_out", c.left_out);
  a("first_wrong", c.first_wrong);
  a("busbw_gbps", c.busbw_gbps);
  a("predicted_busbw_gbps", c.predicted_busbw_gbps);
  a("link_busbw_gbps", c.link_busbw_gbps);
  a("timed_bytes", c.timed_bytes);
  a("limiting_link", c.limiting_link);
  a("wrong_host", c.wrong_host);
  a("wrong_sends", c.wrong_sends);
}

template <typename A, Of<Drift> T>
void fields(A& a, T& d) {
  a("name", d.name);
  a("before", d.before);
  a("now", d.now);
}

template <typename A, Of<Thresholds> T>
void fields(A& a, T& t) {
  a("warn_rate_share", t.warn_rate);
  a("fail_rate_share", t.fail_rate);
  a("warn_latency_ratio", t.warn_latency);
  a("fail_latency_ratio", t.fail_latency);
  a("warn_loss_per_packet", t.warn_loss);
  a("fail_loss_per_packet", t.fail_loss);
  a("idle_pause_share", t.idle_pause);
  a("loaded_pause_share", t.loaded_pause);
  a("victim_ratio", t.victim_ratio);
  a("incast_share", t.incast_share);
  a("bisection_share", t.bisection_share);
  a("class_leak_share", t.class_leak);
  a("confidence", t.confidence);
}

template <typename A, Of<Policy> T>
void fields(A& a, T& p) {
  a("file", p.file);
  a("rate_gbps", p.rate_gbps);
  a("rail_rate_gbps", p.rail_rate_gbps);
  a("firmware", p.firmware);
  a("mtu_bytes", p.mtu);
  a("rdma_mtu_bytes", p.rdma_mtu);
  a("pfc_priority", p.pfc_priority);
  a("dscp", p.dscp);
  a("trust", p.trust);
  a("dcqcn", p.dcqcn);
  a("cc_parameters", p.cc_parameters);
  a("lossless", p.lossless);
  a("excluded_devices", p.excluded_devices);
  a("skipped_checks", p.skipped_checks);
  a("thresholds", p.thresholds);
}

template <typename A, Of<PortNumbers> T>
void fields(A& a, T& p) {
  a("host", p.host);
  a("rail", p.port.rail);
  a("device", p.device);
  a("expected_gbps", p.expected_gbps);
  a("transmit_gbps", p.transmit_gbps);
  a("receive_gbps", p.receive_gbps);
  a("lowest_window_gbps", p.lowest_gbps);
  a("p50_us", p.p50_us);
  a("p99_us", p.p99_us);
  a("p999_us", p.p999_us);
  a("sent_lost_per_packet", p.sent_lost);
  a("received_lost_per_packet", p.received_lost);
}

// All fields except the rounds.
template <typename A, Of<Plan> T>
void fields(A& a, T& p) {
  a("time_s", p.seconds);
  a("smallest_loss_per_packet", p.smallest_loss);
  a("smallest_rate_cut_share", p.smallest_rate_cut);
  a("smallest_share_of_time", p.smallest_share);
  a("left_out", p.left_out);
  a("not_here", p.not_here);
  a("measured_paths_of_rails", p.measured_paths);
}

// The fields at the top level of the document.
template <typename A, Of<Report> T>
void fields(A& a, T& r) {
  a("schema", r.schema);
  a("verdict", r.verdict);
  a("started", r.started);
  a("weft_version", r.version);
  a("time_s", r.seconds);
  a("budget_s", r.budget_s);
  a("emulated", r.emulated);
  a("simulated", r.simulated);
  a("transport", r.transport);
  a("declared_gbps", r.declared_gbps);
  a("ranks", r.ranks);
  a("rails", r.rails);
  a("streams_of_flow", r.streams);
  a("failure", r.failure);
  a("plan", r.plan);
  a("collectives", r.collectives);
  a("baseline", r.baseline);
  a("drift", r.drift);
  a("policy", r.policy);
  a("hosts", r.hosts);
}

}  // namespace weft::fabric
