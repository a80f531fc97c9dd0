// A simulated fabric: rails of leaf and spine switches at flow level, with faults, noise and
// virtual time. Tests and `weft validate --simulate` run the same plan and localization on
// SimFabric as on real ports.
#pragma once

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "perf/validate/probes/fabric.h"

namespace weft::fabric {

enum class FaultKind {
  kRate,       // `strength`: remaining fraction of the rate
  kLoss,       // `strength`: losses per packet
  kLatency,    // `strength`: microseconds added, one way
  kJitter,     // `strength`: mean microseconds added one way, exponentially distributed
  kMtu,        // `strength`: bytes; only for ports and hosts
  kBlackHole,  // only for paths: nothing passes
  kDead,       // only for ports and hosts: nothing passes
  kSwapped,    // the cables of `port` and `peer` are swapped
  kFlap,       // `strength`: seconds between starts of outages of 200 ms; only for ports and hosts
  kSlowCpu,    // `strength`: fraction of a core available to the tester; only for hosts
  kDuplicate,  // `port` has the address of `peer`
};

// kLeaf: the rail's leaf switch above `port`.
enum class FaultPlace { kPort, kHost, kRail, kLeaf, kPath };
enum class FaultWay { kBoth, kTransmit, kReceive };  // relative to the port, host or leaf

struct SimFault {
  FaultKind kind = FaultKind::kRate;
  FaultPlace place = FaultPlace::kPort;
  FaultWay way = FaultWay::kBoth;
  Port port;  // kPath: the sender
  Port peer;  // kPath: the receiver; kSwapped and kDuplicate: the other port
  double strength = 0;
};

struct SimOptions {
  int hosts = 8, rails = 2;
  int leaf_hosts = 0;      // hosts per leaf switch; 0: all, one switch per rail
  double rate_gbps = 400;  // rate of every port
  bool declared = true;    // whether PortInfo::expected_gbps is set
  int mtu = 4096;          // bytes
  // true: losses slow a flow as in Mathis' formula; false: as with go-back-N.
  bool tcp = false;
  double load_loss = 0;        // losses per packet of every flow at full speed, by design
  double noise = 0.01;         // standard deviation of log rate and log latency, flow to flow
  double latency_us = 5;       // one-way latency through one switch
  double busy_share = 0;       // fraction of flows whose ends wait for a core
  double round_cost_s = 0.05;  // overhead of a round
  int most_flows = 0;
  std::uint64_t seed = 1;
  std::vector<SimFault> faults;
};

// Not thread-safe.
class SimFabric : public Fabric {
 public:
  explicit SimFabric(const SimOptions& options);

  const std::vector<FleetHost>& hosts() const override { return hosts_; }
  int most_flows() const override { return options_.most_flows; }
  std::vector<FlowSample> run(const Round& round) override;
  double now_s() const override { return now_s_; }

 private:
  // Effects of faults on packets that cross one place in one direction.
  struct Link {
    double rate = 1, loss = 0, latency_us = 0, jitter_us = 0;
    bool dead = false;
  };

  int index(Port port) const { return port.host * options_.rails + port.rail; }
  int leaf(Port port) const { return port.host / leaf_hosts_ * options_.rails + port.rail; }
  void apply(const SimFault& fault);
  void apply_to_ports(const SimFault& fault);
  Link along(Port from, Port to) const;
  Port arrival(Port from, Port to) const;
  std::vector<double> rates(const Round& round);
  void measure_rate(FlowSample& sample, double gbps, const Link& link);
  void measure_latency(FlowSample& sample, const Link& there, const Link& back);
  void outages(FlowSample& sample);
  double noise(double deviation);

  SimOptions options_;
  int leaf_hosts_;
  std::vector<FleetHost> hosts_;
  double now_s_ = 0;
  std::mt19937_64 random_;
  std::vector<Link> transmit_, receive_;  // by port
  std::vector<Link> rail_, up_, down_;    // by rail, by leaf of a rail
  std::map<std::pair<Port, Port>, Link> path_;
  std::vector<int> mtu_;                  // by port
  std::vector<double> flap_s_, phase_s_;  // by port; 0: no flaps
  std::vector<double> cpu_;               // by host
  std::map<Port, Port> arrives_at_;       // arrival port of packets to a port, if different
};

}  // namespace weft::fabric
