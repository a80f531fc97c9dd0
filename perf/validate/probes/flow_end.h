// One end of a flow, on the host of the port. Does not depend on rounds, other flows or good rates.
//
// Both ends: offer() -> exchange -> connect() -> a barrier over all agents -> run(). No call
// throws: errors are in EndSample::error. Each end runs in its own thread.
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

// Returns the number of a stream of a labeled flow: it selects a source port.
constexpr int way_of(int label, int stream) { return label * kMostStreams + stream; }

// The orders for an end.
struct EndOrder {
  int flow = 0;  // index of the flow in the round
  int peer = 0;  // index of the host of the other end
  bool sends = false;
  Probe probe = Probe::kRate;
  int rail = 0, peer_rail = 0;
  double seconds = 0;
  double pace_gbps = 0;  // rate at which the sender sends; 0: unpaced
  int label = 0;
  bool victim = false;
  int streams = 1;
};

// Results of an end. The sender and the receiver each set the fields that they know.
struct EndSample : Measured {
  int flow = 0;
  bool sends = false;
  std::optional<int> arrived_rail;
  double starved = 0;
};
nlohmann::ordered_json to_json(const EndOrder& order);
EndOrder end_order_from_json(const nlohmann::ordered_json& json);
nlohmann::ordered_json to_json(const EndSample& sample);
// Throws if a field is missing or of the wrong type: another host wrote the JSON.
EndSample end_sample_from_json(const nlohmann::ordered_json& json);

// Why this sample is impossible, such as a negative time or windows with more bytes than arrived;
// empty if it is plausible.
std::string why_impossible(const EndSample& sample);

// Adds the results of an end's streams to the end: sums of bytes and packets, means of fractions,
// and the first error.
void add_streams(EndSample& end, const std::vector<EndSample>& streams);

// Joins the samples of both ends of a flow.
FlowSample join(const Flow& flow, const EndSample& sender, const EndSample& receiver);

class FlowEnd {
 public:
  virtual ~FlowEnd() = default;
  virtual std::string offer() = 0;  // the argument of connect() at the other end
  virtual void connect(const std::string& theirs) = 0;
  virtual EndSample run() = 0;
};

// Makes an end for streams and ping-pongs over TCP, with counters from TCP_INFO.
std::unique_ptr<FlowEnd> make_tcp_end(const EndOrder& order, const Nic& rail);
// Makes an end that measures path MTU and reachability by datagrams. `rails`: all rails of this
// host, since a datagram may arrive at a rail to which it was not sent.
std::unique_ptr<FlowEnd> make_datagram_end(const EndOrder& order, const std::vector<Nic>& rails);
// Makes an end for streams and ping-pongs over RDMA verbs. In builds without verbs, connect()
// fails.
std::unique_ptr<FlowEnd> make_verbs_end(const EndOrder& order, const Nic& rail);

}  // namespace weft::fabric
