// The texts that rank 0 and the agents exchange in a round of probes:
//
//     orders_of() -> AgentRound::offers() -> route_offers() -> AgentRound::connect()
//       -> AgentRound::run() -> join_samples()
//
// Rank 0 does not trust received texts: an impossible text becomes a FalseReport, not an error.
// This file does not depend on the job: agent_fabric.cc transfers the texts.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/flow_end.h"

namespace weft::fabric {

// Returns the orders for each host's ends, by host; "[]" for a host without any. Flows at full
// speed are paced at `full_pace` times the expected rate; 0: not paced. `streams` is divided among
// the flows of a port: see streams_of(). kEntropy flows have one stream, because other streams
// would use the bandwidth that a bad path leaves.
std::vector<std::string> orders_of(const Round& round, const std::vector<FleetHost>& hosts,
                                   double full_pace = 0, int streams = 1);

// `offers` is indexed by the host that made them, the result by the host that needs them.
std::vector<std::string> route_offers(const Round& round, const std::vector<FleetHost>& hosts,
                                      const std::vector<std::string>& offers,
                                      std::vector<FalseReport>& false_reports);

// `samples` is indexed by the host that took them; returns a sample per flow. For an end without a
// sample, the flow's error says so.
std::vector<FlowSample> join_samples(const Round& round, const std::vector<FleetHost>& hosts,
                                     const std::vector<std::string>& samples,
                                     std::vector<FalseReport>& false_reports);

// A host's part of a round. Must live until the next round: a queue pair that only receives must
// outlive the sender on the other host.
class AgentRound {
 public:
  using Maker = std::function<std::unique_ptr<FlowEnd>(const EndOrder&)>;
  AgentRound(const std::string& orders, const Maker& make);
  std::string offers();
  void connect(const std::string& offers);
  std::string run();

 private:
  std::vector<EndOrder> told_;
  std::vector<std::unique_ptr<FlowEnd>> ends_;
};

}  // namespace weft::fabric
