// One end of one flow, at the host that owns the port. Two ends meet by an offer, connect, and run
// at the same time. Does not know rounds, other flows or what a good rate is.
//
// The two ends: offer() -> exchange -> connect() -> a barrier over all agents -> run(). No call
// throws: what goes wrong is in EndSample::error. Each end runs in a thread of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/samples.h"
#include "topo/topology.h"

namespace weft::fabric {

// The number that a label gives to a stream of its flow: it stands for a source port.
constexpr int way_of(int label, int stream) { return label * kMostStreams + stream; }

// What an end is told to do.
struct EndOrder {
  int flow = 0;  // index in the round
  int peer = 0;  // index of the host of the other end
  bool sends = false;
  Probe probe = Probe::kRate;
  int rail = 0, peer_rail = 0;
  double seconds = 0;
  double pace_gbps = 0;  // 0: as fast as the flow can
  int label = 0;
  bool victim = false;
  int streams = 1;
};

// What an end saw. The sender and the receiver each fill in what they know.
struct EndSample {
  int flow = 0;
  bool sends = false;
  std::string error;  // empty: none
  double seconds = 0;
  std::uint64_t bytes = 0;
  std::vector<double> window_gbps;
  double window_s = 0;
  std::optional<LatencySample> latency;
  std::optional<std::uint64_t> packets, retransmits;
  std::optional<double> receiver_limited, sender_limited, sender_idle, min_rtt_us;
  std::optional<int> passed_mtu, failed_mtu;
  std::optional<int> arrived_rail;
  double starved = 0;
  std::vector<StreamSample> streams;  // see FlowSample
};
nlohmann::ordered_json to_json(const EndOrder& order);
EndOrder end_order_from_json(const nlohmann::ordered_json& json);
nlohmann::ordered_json to_json(const EndSample& sample);
// Throws where a field is missing or of the wrong type: another host wrote the JSON.
EndSample end_sample_from_json(const nlohmann::ordered_json& json);

// Why an end cannot have seen this: a negative time, windows that hold more than came; empty: it
// can.
std::string why_impossible(const EndSample& sample);

// Adds what the streams of an end saw to what the end saw: sums of bytes and packets, means of
// shares, and the first error.
void add_streams(EndSample& end, const std::vector<EndSample>& streams);

// Joins what the two ends of a flow saw.
FlowSample join(const Flow& flow, const EndSample& sender, const EndSample& receiver);

class FlowEnd {
 public:
  virtual ~FlowEnd() = default;
  virtual std::string offer() = 0;  // the argument of connect() at the other end
  virtual void connect(const std::string& theirs) = 0;
  virtual EndSample run() = 0;
};

// Streams and ping-pongs over TCP, and their counters from TCP_INFO.
std::unique_ptr<FlowEnd> make_tcp_end(const EndOrder& order, const Nic& rail);
// Path MTU and reach, by datagrams. `rails` are those of this host: a datagram may come in at
// another rail than the one that it was sent to.
std::unique_ptr<FlowEnd> make_datagram_end(const EndOrder& order, const std::vector<Nic>& rails);
// Streams and ping-pongs over RDMA verbs. Where the build has no verbs, connect() fails.
std::unique_ptr<FlowEnd> make_verbs_end(const EndOrder& order, const Nic& rail);

}  // namespace weft::fabric
