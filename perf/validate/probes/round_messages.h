// What rank 0 and the agents of the hosts tell each other in a round of probes, as texts:
//
//     orders_of() -> AgentRound::offers() -> route_offers() -> AgentRound::connect()
//       -> AgentRound::run() -> join_samples()
//
// All that rank 0 gets is taken for what another machine says: a text that cannot be true becomes a
// FalseReport, and no error. Knows no job: who carries the texts is agent_fabric.cc.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/flow_end.h"

namespace weft::fabric {

// By host: the orders for its ends; "[]" for a host without any. Flows at full speed are paced at
// `full_pace` times the expected rate; 0: not paced. `streams`: of a flow, or of all flows of a
// port together where these are fewer. Pings have one stream, and flows of kEntropy, too, where
// others would take what a bad way leaves.
std::vector<std::string> orders_of(const Round& round, const std::vector<FleetHost>& hosts,
                                   double full_pace = 0, int streams = 1);

// `offers` by the host that made them; returns them by the host that needs them.
std::vector<std::string> route_offers(const Round& round, const std::vector<FleetHost>& hosts,
                                      const std::vector<std::string>& offers,
                                      std::vector<FalseReport>& false_reports);

// `samples` by the host that took them; returns a sample per flow. An end without a sample has an
// error that says so.
std::vector<FlowSample> join_samples(const Round& round, const std::vector<FleetHost>& hosts,
                                     const std::vector<std::string>& samples,
                                     std::vector<FalseReport>& false_reports);

// A host's part of a round. Lives until the next round: a queue pair that only receives has to
// outlive the sender at the other host.
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
