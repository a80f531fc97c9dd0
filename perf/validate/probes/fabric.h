// A fabric under test, as the conductor of the probes sees it: rounds go in, samples come out. Real
// ports (sockets, queue pairs) and simulated ones stand behind this one interface.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "perf/validate/probes/samples.h"

namespace weft::fabric {

struct PortInfo {
  std::string device, address;
  double expected_gbps = 0;  // declared, else advertised; 0: not known
  int mtu = 0;               // bytes; 0: not known
  bool usable = true;        // false: a hole, which no flow can use
};

struct FleetHost {
  std::string name;
  bool emulated = false;        // shares its kernel with another host
  int cores = 1;                // that the tester may use
  std::vector<PortInfo> ports;  // by rail
};

class Fabric {
 public:
  virtual ~Fabric() = default;
  virtual const std::vector<FleetHost>& hosts() const = 0;
  // How many flows may run at once without disturbing each other: on one machine that emulates all
  // hosts the cores limit them. 0: no limit.
  virtual int most_flows() const = 0;
  // Whether rounds of this probe tell anything here: a host's own packets never reach a plain
  // interface, for example.
  virtual bool supports(Probe probe) const {
    (void)probe;
    return true;
  }
  // How many streams (connections, queue pairs) the flows of all later rounds have; 1 until then.
  virtual void set_streams(int streams) { (void)streams; }
  // Runs the flows of a round at the same time and returns a sample per flow, in order. Throws
  // JobFailed or Error when the job, not a link, has failed; a dead link is a sample.
  virtual std::vector<FlowSample> run(const Round& round) = 0;
  // What the hosts have reported since the fabric was made and cannot be true.
  virtual std::vector<FalseReport> false_reports() const { return {}; }
  virtual double now_s() const = 0;  // virtual time where the fabric is simulated
};

// How many streams each flow of a round has, where one that has its ports to itself has `streams`:
// those that share a port share them, and pings, datagrams and the flows of a label have one.
std::vector<int> streams_of(const Round& round, int streams);

inline constexpr int kMostStreams = 32;  // of a flow

// The fewest streams a flow that fill a port: 1, 2, 4, ... up to kMostStreams are tried for as long
// as more of them reach more, and the fewest that come within 3 % of the best are kept, by
// the upper quartile of the flows.
// rates_of(streams) returns the rates of some flows, always in the same order. Where one stream
// reaches 95 % of `expected` (0: not known), nothing more is tried. Where as many streams fill one
// port and not another that other numbers fill, a hash chooses a link of the port for each stream:
// then kMostStreams are taken, which meet all links of every port.
int streams_that_fill(double expected, const std::function<std::vector<double>(int)>& rates_of);

struct Streams {
  int of_flow = 1;
  double one_gbps = 0;  // what one reaches, where not even kMostStreams fill a port; 0: they do
};
// Finds by short rounds of some pairs how many streams fill a port, and sets that.
Streams calibrate(Fabric& fabric);

}  // namespace weft::fabric
