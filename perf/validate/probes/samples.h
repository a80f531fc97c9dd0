// The orders for the probes and their measurements. No judgments.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace weft::fabric {

// A port of the fleet: index of a host (FleetFacts::hosts) and a rail of that host.
struct Port {
  int host = 0, rail = 0;
  auto operator<=>(const Port&) const = default;
};

enum class Probe {
  kRate,       // streams; disjoint pairs of ports
  kLatency,    // ping-pong of 64 bytes, on an idle network
  kPathMtu,    // unfragmented datagrams: the path MTU between hosts
  kReach,      // whether packets arrive at all, and at which port (rail map)
  kCrossRail,  // streams from one rail to another
  kLoopback,   // streams between ports of one host
  kIncast,     // streams from many hosts to one port
  kBisection,  // streams across halves of the fleet
  kAllToAll,   // streams from every host to every other at once
  kVictim,     // latency of a flow while other ports are loaded
  kEntropy,    // one pair, many source ports or flow labels in turn
  kLowLoad,    // paced streams at a fifth of the rate: loss without congestion
};
const char* name(Probe probe);  // "rate"

struct Flow {
  Port from, to;
  double pace = 1;      // pace as a fraction of the expected rate; 1: unpaced
  int label = 0;        // selects the source port or flow label; 0: any
  bool victim = false;  // in kVictim: this flow measures latency, the others are load
};

// Flows that run concurrently.
struct Round {
  Probe probe = Probe::kRate;
  std::vector<Flow> flows;
  double seconds = 0.3;
  double at_s = 0;  // start time, relative to the run's start; set when the round runs
};

// One-way latencies in microseconds: half a round trip.
struct LatencySample {
  int samples = 0;
  double min_us = 0, p50_us = 0, p99_us = 0, p999_us = 0, max_us = 0;
};

// One of several streams of a flow: a TCP connection or a queue pair.
struct StreamSample {
  int port = 0;             // TCP or UDP source port; 0: chosen by the device
  std::uint64_t bytes = 0;  // bytes received or, at a sender, sent
  std::optional<std::uint64_t> packets, retransmits;
};

// What one end of a flow measures, and also the flow joined from both ends.
struct Measured {
  std::string error;  // verbatim from the operating system or provider: "connect: No route to host"
  double seconds = 0;
  std::uint64_t bytes = 0;          // bytes received; at a sending end: bytes sent
  std::vector<double> window_gbps;  // rates of consecutive windows, without the start-up
  double window_s = 0;              // length of one window
  std::optional<LatencySample> latency;
  // Packets and retransmits of this flow, if the transport counts them. Does not count spurious
  // retransmits, which the receiver reports as duplicates.
  std::optional<std::uint64_t> packets, retransmits;
  // Fraction of time limited by the receiver (TCP_INFO rwnd_limited).
  std::optional<double> receiver_limited;
  // Fraction of time limited by the sender's buffer (TCP_INFO sndbuf_limited).
  std::optional<double> sender_limited;
  std::optional<double> sender_idle;  // fraction of time without data to send (TCP_INFO busy_time)
  std::optional<double> min_rtt_us;
  std::optional<int> passed_mtu,
      failed_mtu;  // bytes: largest that arrived, smallest that did not
  // Each stream's part of the sums above, for flows of several streams or with a label.
  std::vector<StreamSample> streams;
};

// The result of a flow, joined from both ends.
struct FlowSample : Measured {
  int round = 0;  // index of the round in Samples::rounds
  Flow flow;
  bool reached = true;                      // bytes arrived; false: `error` has the reason
  std::optional<std::uint64_t> sent_bytes;  // bytes that the sender counted, if both ends count
  std::optional<Port> arrived_at;           // kReach: the port at which the packet arrived
  // Fraction of the flow's time for which the tester's threads waited for a core (schedstat), at
  // each end.
  double sender_starved = 0, receiver_starved = 0;

  // Returns the average over the windows, Gb/s.
  double gbps() const;
  double lowest_gbps() const;  // over the windows
};

// Result of a collective whose output was compared bit for bit.
struct CollectiveResult {
  std::string collective, algorithm;
  int cases = 0, wrong = 0, left_out = 0;
  std::string first_wrong;  // rank, chunk and element of the first difference
  double busbw_gbps = 0;    // bus bandwidth of the largest case; 0: not timed
  // Prediction from measured pairs, latencies and cores; 0: unknown.
  double predicted_busbw_gbps = 0;
  // Returns whether links limit the call more than latencies and cores.
  bool held_by_links() const { return predicted_busbw_gbps >= 0.8 * link_busbw_gbps; }
  std::string limiting_link;      // "h3 rail 1 transmit"
  std::string wrong_host = {};    // host whose messages arrive corrupted, if the messages show it
  bool wrong_sends = false;       // true: corrupted when it sends; false: when it receives
  double link_busbw_gbps = 0;     // upper bound from the rates of pairs alone; 0: unknown
  std::uint64_t timed_bytes = 0;  // size of the timed call
};

// An impossible report of a host.
struct FalseReport {
  std::string host;
  int rail = -1;     // -1: the report is not about a rail
  std::string name;  // name of the report: "facts", "samples"
  std::string text;  // the problem, verbatim: values, or a parser's message
};

// RailOutage::rail if no rail failed, but no rail could have taken over for another
// (Metrics::unheard).
inline constexpr int kNoRail = -1;
// An outage of a rail between two hosts, observed by a rank of `host`.
struct RailOutage {
  int rail = 0;
  std::string host, other;
  bool back = false;  // the rail works again
  std::string cause;
};

struct Samples {
  std::vector<Round> rounds;
  std::vector<FlowSample> flows;
  std::vector<FalseReport> false_reports;
  double seconds = 0;  // total duration of all rounds
  // Rate of one stream if even the maximum number of streams per flow does not fill a port; 0: it
  // does.
  double one_stream_gbps = 0;

  // Returns the probe of the sample's round; empty if the sample is not from these rounds.
  std::optional<Probe> probe_of(const FlowSample& sample) const;
};

nlohmann::ordered_json to_json(const FlowSample& sample);

}  // namespace weft::fabric
