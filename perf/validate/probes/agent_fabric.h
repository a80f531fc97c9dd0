// The real fabric: one rank of each host is its agent and runs the ends of that host's flows; rank
// 0 conducts. Does not plan or judge.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "coll/api/communicator.h"
#include "perf/validate/facts/facts.h"
#include "perf/validate/facts/policy.h"
#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/flow_end.h"

namespace weft::fabric {

// The agent of each host, by host: its lowest rank.
std::vector<Rank> agents_of(const Topology& topology);

// Gathers what each agent passes at rank 0, in the order of hosts; empty elsewhere. Collective.
std::vector<std::string> gather_from_agents(World& world, const std::string& mine);

// The rate of payload that a port can have: of the declared rate (policy, then `declared_gbps`),
// else of what the device says of itself, less the headers of the transport. Virtual devices say
// nothing that counts: a veth calls itself 10 Gb/s. 0: not known.
double expected_gbps(const PortFacts& port, const Policy& policy, double declared_gbps,
                     const std::string& transport);

// How many flows of this rate the cores of one machine can carry at once, at about 3 Gb/s a core of
// both ends together; 1 where the rate is not known.
int flows_of_one_machine(int cores, double expected_gbps);

class AgentFabric final : public Fabric {
 public:
  // `transport` is "tcp" or "verbs", the same on all ranks. `facts` matters on rank 0 only.
  AgentFabric(World& world, const FleetFacts& facts, const Policy& policy, double declared_gbps,
              std::string transport);

  const std::vector<FleetHost>& hosts() const override { return hosts_; }
  int most_flows() const override { return most_flows_; }
  bool supports(Probe probe) const override;
  std::vector<FlowSample> run(const Round& round) override;  // rank 0
  double now_s() const override;

  void serve();  // the other ranks: takes part in rounds until stop()
  void stop();   // rank 0

 private:
  std::vector<std::string> exchange(const std::vector<std::string>& mine);
  std::string take_part(const std::string& orders);
  std::unique_ptr<FlowEnd> make_end(const EndOrder& order) const;

  World& world_;
  const std::string transport_;
  const std::vector<Rank> agents_;
  const std::vector<Nic> rails_;  // of this host
  // Of the last round: a queue pair that only receives has to outlive the sender at the other host.
  std::vector<std::unique_ptr<FlowEnd>> ends_;
  std::vector<FleetHost> hosts_;
  int most_flows_ = 0;
  bool paced_ = false;  // also at full speed: the ports are those of loopback
};

}  // namespace weft::fabric
