// The real fabric: one rank of each host is its agent and runs the ends of that host's flows; rank
// 0 coordinates the rounds. Does not plan or judge.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "perf/validate/facts/facts.h"
#include "perf/validate/facts/policy.h"
#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/flow_end.h"
#include "perf/validate/probes/round_messages.h"
#include "topo/topology.h"
#include "transport/job/bootstrap.h"

namespace weft::fabric {

// Returns the lowest rank of each host, by host.
std::vector<Rank> agents_of(const Topology& topology);

// Gathers `mine` of all agents on rank 0, which calls take(host, text) for each host in order. Rank
// 0 holds the texts of at most 64 hosts at a time. Collective.
void gather_from_agents(Job& job, const Topology& topology, const std::string& mine,
                        const std::function<void(int, const std::string&)>& take);
// Broadcasts rank 0's `text`. Collective.
std::string told_by_root(Job& job, const std::string& text);

// Returns the payload rate that a port can reach: the declared rate (policy, then `declared_gbps`),
// or else the device's own, less the headers of the transport. Rates of virtual devices are
// ignored: a veth reports 10 Gb/s. 0: unknown.
double expected_gbps(const PortFacts& port, const Policy& policy, double declared_gbps,
                     const std::string& transport);

// Returns the number of concurrent flows of this rate that one machine's cores allow, at about 3
// Gb/s per core for both ends; 1 if the rate is unknown.
int flows_of_one_machine(int cores, double expected_gbps);

class AgentFabric final : public Fabric {
 public:
  // `transport` is "tcp" or "verbs", the same on all ranks. `facts` is used on rank 0 only.
  AgentFabric(Job& job, const Topology& topology, const FleetFacts& facts, const Policy& policy,
              double declared_gbps, std::string transport);

  const std::vector<FleetHost>& hosts() const override { return hosts_; }
  int most_flows() const override { return most_flows_; }
  bool supports(Probe probe) const override;
  std::vector<FlowSample> run(const Round& round) override;  // rank 0
  std::vector<FalseReport> false_reports() const override { return false_reports_; }
  void set_streams(int streams) override { streams_ = streams; }
  double now_s() const override;

  void serve();  // on all ranks but 0: takes part in rounds until stop()
  void stop();   // rank 0

 private:
  std::vector<std::string> gather(const std::string& mine);
  std::string scatter(const std::vector<std::string>& by_host, const std::string& others);
  void begin(const std::string& orders);
  std::unique_ptr<FlowEnd> make_end(const EndOrder& order) const;

  Job& job_;
  const std::string transport_;
  const std::vector<Rank> agents_;
  const std::vector<Nic> rails_;  // the rails of this host
  std::optional<AgentRound> round_;
  std::vector<FleetHost> hosts_;
  std::vector<FalseReport> false_reports_;
  int most_flows_ = 0;
  int streams_ = 1;       // streams per flow
  bool soft_ = false;     // at least one RDMA device is emulated in software
  bool labels_ = true;    // a flow's label selects its source port
  double full_pace_ = 0;  // pace of loopback ports: see orders_of()
};

}  // namespace weft::fabric
