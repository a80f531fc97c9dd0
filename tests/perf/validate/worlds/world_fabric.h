// A world as a fabric under test: flows share links, in steps of virtual time.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "perf/validate/facts/counter.h"
#include "perf/validate/worlds/spells.h"
#include "perf/validate/worlds/world.h"

namespace weft::fabric {

// Not thread-safe.
class WorldFabric : public Fabric {
 public:
  explicit WorldFabric(SimWorld world);

  const std::vector<FleetHost>& hosts() const override { return hosts_; }
  int most_flows() const override { return 0; }
  void set_streams(int streams) override { streams_ = streams; }
  // A flow has streams_of() connections. Without a label, their source ports are new in each round,
  // like those chosen by a kernel; with a label, they use the same links in every round. Throws
  // Error if an end of a flow does not exist.
  std::vector<FlowSample> run(const Round& round) override;
  double now_s() const override { return now_s_; }

  // Counters of the port since construction: "hw.out_of_sequence" if packets of a flow use several
  // paths; otherwise empty.
  Readings counters(Port port) const;
  // The largest fraction of its nominal rate that any link has carried at any time.
  double fullest_link() const { return fullest_; }

 private:
  struct Link {
    double nominal = 0, rate = 1, loss = 0;
    bool cut = false;
  };
  struct Running {         // a connection of a flow in a round
    std::size_t flow = 0;  // index in the round
    int streams = 1;       // number of its flow's streams
    std::vector<int> links;
    double own = 1;   // factor on the connection's rate
    double loss = 0;  // per packet, in this step
    double lost = 0;  // packets, total
    double silent_until_s = 0;
    bool queued = false;       // gets less than it could send
    std::vector<double> gbps;  // by step
  };

  int port_link(Port port, bool transmits, int member) const;
  int uplink(int leaf, bool up, int number) const;
  std::vector<int> way(const Flow& flow, int stream);
  void apply(const Effect& effect, std::vector<Link>& links) const;
  bool advance(double time_s);
  std::vector<double> share(const Round& round, std::vector<Running>& flows) const;
  void step(const Round& round, std::vector<Running>& flows, double time_s, bool first);
  void measure_rate(FlowSample& sample, Running& flow, double step_s, std::size_t steps_a_window);
  void measure_latency(FlowSample& sample, const Running& flow, double hosts_factor);
  double noise(double deviation);

  const SimWorld world_;
  int streams_;  // streams of a flow that shares no port
  std::vector<FleetHost> hosts_;
  double now_s_ = 0, fullest_ = 0;
  std::uint64_t connections_ = 0;
  std::mt19937_64 random_;
  std::vector<Link> links_, now_;   // as built, and in this step
  std::vector<SpellClock> clocks_;  // by effect
  std::vector<bool> active_;
  Wander fleet_;
  std::vector<Wander> host_;
  std::vector<double> share_, asked_, host_factor_;  // by flow, by link, by host
  double fleet_factor_ = 1;
  std::vector<double> out_of_order_;  // packets, by port
};

}  // namespace weft::fabric
