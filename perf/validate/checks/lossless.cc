// Packets that counters report as lost, repeated, out of order or refused. In a lossless class each
// such packet is a fault; on plain interfaces only a high rate is.
//
// An RDMA loss shows at two ports: the receiver finds a gap, and the sender must repeat. On a rail
// with one lossy port, one of the two kinds of events concentrates at that port, while the other
// is spread over its partners; blame_of() finds the port that way.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "perf/validate/checks/counters.h"
#include "perf/validate/locate/observations.h"
#include "perf/validate/probes/statistics.h"

namespace weft::fabric {
namespace {

// Counters of one meaning, by their names in mlx5, rxe, bnxt_re, ionic, efa, irdma, hns and hfi1.
// Counted by senders.
constexpr std::string_view kRepeated[] = {
    "hw.packet_seq_err",    "hw.implied_nak_seq_err", "hw.roce_adp_retrans",
    "hw.roce_slow_restart", "hw.rcvd_seq_err",        "hw.send_err",
    "hw.seq_err_naks_rcvd", "hw.req_rx_pkt_seq_err",  "hw.req_rx_impl_nak_seq_err",
    "hw.retrans_pkts",      "hw.tcpRetransSegs",      "hw.RcResend"};
// Counted by receivers.
constexpr std::string_view kDuplicates[] = {"hw.duplicate_request", "hw.dup_req",
                                            "hw.resp_rx_dup_request"};
// rxe, at both ends. Both counters count requests that the sender repeated because the
// acknowledgment was late. A lost request also counts in kRepeated and kGaps, once per packet.
constexpr std::string_view kLateAnswers[] = {"hw.completer_retry_err", "hw.duplicate_request"};
constexpr std::string_view kGaps[] = {"hw.out_of_sequence", "hw.out_of_seq_request",
                                      "hw.oos_drop_count", "hw.resp_rx_outouf_seq", "hw.RcSeqNak"};
constexpr std::string_view kTimeouts[] = {"hw.local_ack_timeout_err",
                                          "hw.roce_adp_retrans_to",
                                          "hw.req_transport_retries_exceeded",
                                          "hw.retry_exceeded_err",
                                          "hw.to_retransmits",
                                          "hw.max_retry_exceeded",
                                          "hw.tx_rdma_ack_timeout",
                                          "hw.req_tx_retry_excd_err",
                                          "hw.retrans_timeout_events",
                                          "hw.unresponsive_remote_events",
                                          "hw.RcTimeOut"};

// Events of a port as a sender and as a receiver.
struct Seen {
  const HostFacts* host = nullptr;
  const PortFacts* port = nullptr;
  Moves repeated, duplicates, gaps;
  Moves late;  // answers of a software port that its cores delayed; otherwise empty
};

Seen seen_by(const HostFacts& host, const PortFacts& port) {
  Seen seen = {&host, &port, moves_of(host, port, kRepeated), {}, moves_of(host, port, kGaps), {}};
  if (is_soft(port))
    seen.late = moves_of(host, port, kLateAnswers);
  else
    seen.duplicates = moves_of(host, port, kDuplicates);
  return seen;
}

void append(std::vector<Evidence>& to, const std::vector<Evidence>& from) {
  constexpr std::size_t kMost = 16;
  for (const Evidence& one : from)
    if (to.size() < kMost) to.push_back(one);
}

// The largest fraction of a rail's events at one port.
struct Peak {
  std::size_t port = 0;
  double share = 0, sum = 0;
};
template <typename Events>
Peak peak_of(const std::vector<Seen>& rail, Events events) {
  Peak peak;
  double most = 0;
  for (std::size_t i = 0; i < rail.size(); ++i) {
    peak.sum += events(rail[i]);
    if (events(rail[i]) > most) {
      most = events(rail[i]);
      peak.port = i;
    }
  }
  peak.share = peak.sum > 0 ? most / peak.sum : 0;
  return peak;
}

// The lossy place of a rail. kBoth without `peer`: the port in both directions; with `peer`: the
// path from `port` to `peer`. No port: the events are spread.
struct Blame {
  std::optional<std::size_t> port, peer;
  Direction direction = Direction::kBoth;
};

Blame blame_of(const std::vector<Seen>& rail) {
  constexpr double kMostly = 0.6, kMargin = 0.15, kHalf = 0.4, kNearlyAll = 0.9;
  constexpr double kPathEvents = 4;
  const Peak sent = peak_of(rail, [](const Seen& s) { return s.repeated.events; });
  const Peak received =
      peak_of(rail, [](const Seen& s) { return s.gaps.events + s.duplicates.events; });
  const bool same = sent.port == received.port;
  if (sent.sum > 0 && received.sum > 0 && same && sent.share >= kHalf && received.share >= kHalf)
    return {sent.port, std::nullopt, Direction::kBoth};
  // A few events may share both ports by chance.
  if (std::min(sent.sum, received.sum) >= kPathEvents && sent.share >= kMostly &&
      received.share >= kMostly && !same && std::abs(sent.share - received.share) < kMargin)
    return {sent.port, received.port, Direction::kTransmit};
  // Check whether both directions of one port together explain nearly all events.
  for (const std::size_t port : {received.port, sent.port}) {
    const double in = rail[port].gaps.events + rail[port].duplicates.events;
    const double out = rail[port].repeated.events, all = std::max(sent.sum, received.sum);
    if (in + out >= kNearlyAll * all - 1 && std::min(in, out) >= (1 - kNearlyAll) * all)
      return {port, std::nullopt, Direction::kBoth};
  }
  if (received.share >= kMostly &&
      std::pair(received.share, received.sum) > std::pair(sent.share, sent.sum))
    return {received.port, std::nullopt, Direction::kReceive};
  if (sent.share >= kMostly) return {sent.port, std::nullopt, Direction::kTransmit};
  return {};
}

std::map<int, std::vector<Seen>> seen_by_rail(const Observed& observed) {
  std::map<int, std::vector<Seen>> rails;
  for (const HostFacts& host : observed.facts.hosts)
    for (const PortFacts& port : host.ports)
      if (port.rdma && !excluded(observed, port)) rails[port.rail].push_back(seen_by(host, port));
  return rails;
}

// Where packets may be lost, the rate decides.
Finding loss_finding(const Check& check, const Observed& observed, const Seen& seen,
                     Direction direction, double events) {
  Finding finding = make_finding(check, at_port(*seen.host, *seen.port, direction));
  set_rate(finding, events, packets_of(*seen.port, direction),
           observed.policy.thresholds.confidence);
  if (!must_be_lossless(observed, *seen.port))
    finding.severity = severity_of_loss(observed.policy.thresholds,
                                        finding.unit == Unit::kPerPacket ? finding.low : 1);
  return finding;
}

void blame_rail(const Check& check, const Observed& observed, const std::vector<Seen>& rail,
                std::vector<Finding>& findings) {
  const auto events = [](const Seen& seen) {
    return std::max(seen.repeated.events, seen.gaps.events + seen.duplicates.events);
  };
  const Blame blame = blame_of(rail);
  if (blame.port) {
    const Seen& seen = rail[*blame.port];
    Finding finding = loss_finding(check, observed, seen, blame.direction, events(seen));
    if (blame.peer) {
      finding.where.kind = PlaceKind::kPath;
      finding.where.peer = rail[*blame.peer].host->host;
    }
    finding.score = 0.9;  // inferred from the distribution of events
    std::vector<Evidence> evidence;
    append(evidence, seen.repeated.moved);
    append(evidence, seen.gaps.moved);
    append(evidence, seen.duplicates.moved);
    append(evidence, finding.evidence);
    for (const Seen& other : rail) {
      if (&other == &seen) continue;
      append(evidence, other.repeated.moved);
      append(evidence, other.gaps.moved);
    }
    finding.evidence = std::move(evidence);
    findings.push_back(std::move(finding));
    return;
  }
  for (const Seen& seen : rail) {
    if (events(seen) <= 0) continue;
    const bool sends = seen.repeated.events > 0;
    const bool receives = seen.gaps.events + seen.duplicates.events > 0;
    const Direction direction = sends == receives ? Direction::kBoth
                                : sends           ? Direction::kTransmit
                                                  : Direction::kReceive;
    Finding finding = loss_finding(check, observed, seen, direction, events(seen));
    append(finding.evidence, seen.repeated.moved);
    append(finding.evidence, seen.gaps.moved);
    append(finding.evidence, seen.duplicates.moved);
    findings.push_back(std::move(finding));
  }
}

// Gaps without any repeats on the rail: packets were reordered.
bool is_only_reordered(const std::vector<Seen>& rail) {
  return std::ranges::all_of(rail, [](const Seen& seen) {
    return seen.repeated.events <= 0 && seen.duplicates.events <= 0;
  });
}

Outcome nothing_but_doubt(const Check& check, const HostFacts& host, const PortFacts& port,
                          Names names) {
  const Moves moves = moves_of(host, port, names);
  if (auto unknown = doubt(check, at_port(host, port), moves, is_mlx5(port)))
    return std::vector{*unknown};
  if (moves.present == 0) return std::nullopt;
  return std::vector<Finding>{};
}

// Reports repeats at software ports whose receivers missed nothing, as information.
void tell_late_answers(const Check& check, const Observed& observed, const std::vector<Seen>& rail,
                       std::vector<Finding>& findings) {
  for (const Seen& seen : rail) {
    if (seen.late.events <= 0 || seen.repeated.events + seen.gaps.events > 0) continue;
    Finding finding = loss_finding(check, observed, seen, Direction::kBoth, seen.late.events);
    finding.severity = Severity::kInfo;
    append(finding.evidence, seen.late.moved);
    findings.push_back(std::move(finding));
  }
}

Judged retransmits(const Check& check, const Observed& observed) {
  Judged all = each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    if (!port.rdma) return std::nullopt;
    return nothing_but_doubt(check, host, port, kRepeated);
  });
  for (const auto& [number, rail] : seen_by_rail(observed)) {
    if (!is_only_reordered(rail)) blame_rail(check, observed, rail, all.findings);
    tell_late_answers(check, observed, rail, all.findings);
  }
  return all;
}

Judged out_of_sequence(const Check& check, const Observed& observed) {
  Judged all = each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    if (!port.rdma) return std::nullopt;
    return nothing_but_doubt(check, host, port, kGaps);
  });
  for (const auto& [number, rail] : seen_by_rail(observed)) {
    if (!is_only_reordered(rail)) continue;  // judged by retransmits()
    for (const Seen& seen : rail) {
      if (seen.gaps.events <= 0) continue;
      Finding& finding = all.findings.emplace_back(
          make_finding(check, at_port(*seen.host, *seen.port, Direction::kReceive)));
      set_rate(finding, seen.gaps.events, packets_of(*seen.port, Direction::kReceive),
               observed.policy.thresholds.confidence);
      append(finding.evidence, seen.gaps.moved);
      if (observed.policy.adaptive_routing) finding.severity = Severity::kInfo;
    }
  }
  return all;
}

Judged timeouts(const Check& check, const Observed& observed) {
  return judge_counters(check, observed,
                        {.names = kTimeouts,
                         .direction = Direction::kTransmit,
                         .required = is_mlx5,
                         .per_packet = true},
                        Asked::kRdma);
}

Judged rnr(const Check& check, const Observed& observed) {
  static constexpr std::string_view kNames[] = {"hw.rnr_nak_retry_err",
                                                "hw.out_of_buffer",
                                                "hw.req_rnr_retries_exceeded",
                                                "hw.rcvd_rnr_err",
                                                "hw.send_rnr_err",
                                                "hw.retry_rnr_exceeded_err",
                                                "hw.rnr_naks_rcvd",
                                                "hw.rx_out_of_buffer",
                                                "hw.req_rx_rnr_retry_err",
                                                "hw.resp_rx_outof_buf",
                                                "hw.RnrNak"};
  return judge_counters(
      check, observed,
      {.names = kNames, .direction = Direction::kReceive, .required = is_mlx5, .per_packet = true},
      Asked::kRdma);
}

// Judges drops counted by class, and drops counted in total.
Outcome judge_rdma_discards(const Check& check, const Observed& observed, const HostFacts& host,
                            const PortFacts& port) {
  static constexpr std::string_view kAny[] = {"eth.rx_discards_phy",
                                              "eth.tx_discards_phy",
                                              "ib.port_xmit_discards",
                                              "eth.rx_steer_missed_packets",
                                              "eth.rx_out_of_buffer",
                                              "hw.rx_roce_discards",
                                              "hw.rx_drops",
                                              "hw.ip4InDiscards",
                                              "hw.ip6InDiscards",
                                              "hw.rx_err_pkt",
                                              "hw.PktDrop"};
  const auto bits = static_cast<unsigned>(port.pfc_priorities.value_or(0));
  std::vector<std::string> of_class;
  for (int p = 0; p < 8; ++p) {
    if (observed.policy.pfc_priority ? p != *observed.policy.pfc_priority : (bits >> p & 1) == 0)
      continue;
    for (const char* what : {"discards", "buf_discard", "cong_discard"})
      of_class.push_back(fmt::format("eth.rx_prio{}_{}", p, what));
  }
  const std::vector<std::string_view> names(of_class.begin(), of_class.end());
  const Question in_class = {.names = names, .direction = Direction::kReceive, .per_packet = true};
  Outcome lost = judge_counters(check, observed, host, port, in_class);
  if (lost && !lost->empty()) return lost;
  Outcome any = judge_counters(
      check, observed, host, port,
      {.names = kAny, .direction = Direction::kReceive, .required = is_mlx5, .per_packet = true});
  if (!any) return lost;
  // If the counters of the lossless class show no loss, the drops were of other traffic.
  if (lost || !must_be_lossless(observed, port))
    for (Finding& finding : *any)
      if (!finding.unknown) finding.severity = Severity::kWarn;
  return any;
}

Judged discards(const Check& check, const Observed& observed) {
  static constexpr std::array<std::string_view, 5> kPlain = {
      "net.rx_dropped", "net.tx_dropped", "net.rx_missed_errors", "net.rx_fifo_errors",
      "eth.rx_discards_phy"};
  return each_port(observed, [&](const HostFacts& host, const PortFacts& port) -> Outcome {
    if (port.rdma) return judge_rdma_discards(check, observed, host, port);
    // An emulated wire drops packets if a core is busy: not a fault of the network.
    if (host.emulated) return std::nullopt;
    Outcome outcome =
        judge_counters(check, observed, host, port,
                       {.names = kPlain, .direction = Direction::kReceive, .per_packet = true});
    if (!outcome || must_be_lossless(observed, port)) return outcome;
    // A few frames of protocols without a listener are dropped as well.
    std::erase_if(*outcome, [&](const Finding& finding) {
      return !finding.unknown && finding.unit == Unit::kPerPacket &&
             finding.low <= observed.policy.thresholds.fail_loss;
    });
    for (Finding& finding : *outcome) finding.severity = Severity::kWarn;
    return outcome;
  });
}

constexpr Check kLosslessRows[] = {
    {"discards", CheckKind::kPassive, Severity::kFail, "no packet of the lossless class dropped",
     "rx_discards_phy, rx_prioN_discards, tx_discards_phy, port_xmit_discards; rx_roce_discards, "
     "rx_drops of other makes",
     "0 in the run",
     "A port or NIC dropped packets because its buffers were full. On a lossless class that must "
     "not happen: flow control does not work, or does not cover this traffic.",
     "Check PFC and headroom at both ends of the link, and the class of the dropped traffic. On "
     "plain Ethernet look at ring sizes and at the cores that serve them.",
     discards},
    {"retransmits", CheckKind::kPassive, Severity::kFail, "no retransmissions",
     "hw_counters packet_seq_err, implied_nak_seq_err, duplicate_request, roce_adp_retrans, "
     "rcvd_seq_err; seq_err_naks_rcvd (bnxt_re), retrans_pkts (efa), req_rx_pkt_seq_err (ionic)",
     "0 in the run",
     "RDMA packets were lost, and sent again. One lost packet in ten thousand costs a fast link "
     "about one per cent of its rate, and one in a hundred half of it.",
     "Look at the errors and discards at the named port first. Without any, the loss is in the "
     "switches between the ports: look at the discards of the queues there.",
     retransmits},
    {"out-of-sequence", CheckKind::kPassive, Severity::kWarn, "packets arrive in order",
     "hw_counters out_of_sequence, out_of_seq_request", "0 in the run",
     "Packets overtook each other, and none had to be repeated: the network spreads packets of one "
     "flow over several paths.",
     "Harmless with adaptive routing and NICs set up for that: declare adaptive_routing = true in "
     "the policy. Otherwise find the switch that spreads packets instead of flows.",
     out_of_sequence},
    {"timeouts", CheckKind::kPassive, Severity::kFatal, "no acknowledgement times out",
     "hw_counters local_ack_timeout_err, req_transport_retries_exceeded", "0 in the run",
     "The last packets of a message, or all of them, were lost: a sender waited for the whole "
     "acknowledgement time-out, and the job stalls meanwhile.",
     "Look for a path that swallows packets: wrong routes, a dead member of a link group, ARP. "
     "Then look at the loss that the other counters show.",
     timeouts},
    {"rnr", CheckKind::kPassive, Severity::kWarn, "receivers are ready",
     "hw_counters rnr_nak_retry_err, out_of_buffer, rcvd_rnr_err", "0 in the run",
     "A receiver had no buffer posted when a message arrived. The software of that host is late; "
     "the network is not at fault.",
     "Look at the load and the binding of the receiving process, and post more receives.", rnr},
};

}  // namespace

std::span<const Check> lossless_checks() { return kLosslessRows; }

}  // namespace weft::fabric
