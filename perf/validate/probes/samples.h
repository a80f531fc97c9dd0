// What the probes are asked to do and what they measured. A probe judges nothing.
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
  kPathMtu,    // datagrams that may not be fragmented, at the interface's MTU and one byte above
  kReach,      // does any packet arrive at all, and at which port (rail map)
  kCrossRail,  // streams from one rail to another
  kLoopback,   // streams between ports of one host
  kIncast,     // streams of many hosts to one port
  kBisection,  // streams across halves of the fleet
  kAllToAll,   // streams of everyone to everyone at once
  kVictim,     // latency of a flow while other ports of the network are loaded
  kEntropy,    // one pair, many source ports or flow labels, one after the other
  kLowLoad,    // paced streams at a fifth of the rate: loss without congestion
};
const char* name(Probe probe);  // "rate"

struct Flow {
  Port from, to;
  double pace = 1;      // share of the expected rate; 1: as fast as the flow can
  int label = 0;        // selects the source port or flow label; 0: any
  bool victim = false;  // of kVictim: this flow measures latency, the others are load
};

// Flows that run at the same time.
struct Round {
  Probe probe = Probe::kRate;
  std::vector<Flow> flows;
  double seconds = 0.3;
  double at_s = 0;  // when it began, from the start of the run; set as it is run
};

// Latencies in microseconds, one way: half a round trip.
struct LatencySample {
  int samples = 0;
  double min_us = 0, p50_us = 0, p99_us = 0, p999_us = 0, max_us = 0;
};

// A stream of a flow that has several: a TCP connection, or a queue pair.
struct StreamSample {
  int port = 0;             // the source port of TCP or UDP; 0: the device's own choice
  std::uint64_t bytes = 0;  // that arrived, else (of a sender) that were sent
  std::optional<std::uint64_t> packets, retransmits;
};

// What one end of a flow saw.
struct FlowSample {
  int round = 0;  // index into Samples::rounds
  Flow flow;
  bool reached = true;  // bytes arrived; false: `error` says what the probe got
  std::string
      error;  // of the operating system or the provider, verbatim: "connect: No route to host"
  double seconds = 0;
  std::uint64_t bytes = 0;                  // that arrived at the receiver
  std::optional<std::uint64_t> sent_bytes;  // as the sender counts, where both ends count
  std::vector<double> window_gbps;          // of consecutive windows, the first (start-up) left out
  double window_s = 0;                      // length of one window
  std::optional<LatencySample> latency;
  // Packets and their fate, of this flow only, where the transport says so. Packets that were sent
  // again needlessly, as the receiver says, are no retransmits.
  std::optional<std::uint64_t> packets, retransmits;
  std::optional<double> receiver_limited;  // share of time (TCP_INFO rwnd_limited)
  std::optional<double> sender_limited;    // share of time (TCP_INFO sndbuf_limited)
  std::optional<double> sender_idle;  // share of time without data to send (TCP_INFO busy_time)
  std::optional<double> min_rtt_us;
  std::optional<int> passed_mtu,
      failed_mtu;                  // bytes: the largest that arrived, the smallest that did not
  std::optional<Port> arrived_at;  // of kReach: the port at which the packet came in
  // Of a flow of several streams, or with a label: each stream's part of the sums above.
  std::vector<StreamSample> streams;
  // The share of the flow's time that the tester's threads waited for a core (schedstat), at each
  // end.
  double sender_starved = 0, receiver_starved = 0;

  // Average over the windows, Gb/s.
  double gbps() const;
  double lowest_gbps() const;  // of the windows
};

// A collective that was run and compared bit by bit.
struct CollectiveResult {
  std::string collective, algorithm;
  int cases = 0, wrong = 0, left_out = 0;
  std::string first_wrong;          // rank, chunk and element, where any
  double busbw_gbps = 0;            // of the largest case; 0: not timed
  double predicted_busbw_gbps = 0;  // what measured pairs, latencies and cores allow; 0: not known
  // Whether links hold the call up, more than latencies and cores do.
  bool held_by_links() const { return predicted_busbw_gbps >= 0.8 * link_busbw_gbps; }
  std::string limiting_link;      // "h3 rail 1 transmit"
  std::string wrong_host = {};    // whose messages arrive changed, where messages told so
  bool wrong_sends = false;       // the host sends them; false: it receives them
  double link_busbw_gbps = 0;     // what the pairs alone would allow; 0: not known
  std::uint64_t timed_bytes = 0;  // of the call that was timed
};

// Something that a host reports and that cannot be true.
struct FalseReport {
  std::string host;
  int rail = -1;     // -1: of no rail
  std::string name;  // what was reported: "facts", "samples"
  std::string text;  // what is wrong with it, verbatim: values, or a parser's words
};

// The rail of an outage in which no rail failed, but no rail could stand in for another
// (Metrics::unheard).
inline constexpr int kNoRail = -1;
// An outage of a rail between two hosts, as a rank of `host` saw it.
struct RailOutage {
  int rail = 0;
  std::string host, other;
  bool back = false;  // the rail answers again
  std::string cause;
};

struct Samples {
  std::vector<Round> rounds;
  std::vector<FlowSample> flows;
  std::vector<FalseReport> false_reports;
  double seconds = 0;  // that all rounds took
  // What a stream reaches where as many as a flow may have do not fill a port; 0: they do.
  double one_stream_gbps = 0;

  std::optional<Probe> probe_of(const FlowSample& sample) const;  // empty: of no round here
};

nlohmann::ordered_json to_json(const FlowSample& sample);

}  // namespace weft::fabric
