// A fabric under test: runs rounds and returns samples. Implemented by real ports (sockets, queue
// pairs) and by simulated ones.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "perf/validate/probes/samples.h"

namespace weft::fabric {

struct PortInfo {
  std::string device, address;
  double expected_gbps = 0;  // declared rate, or else advertised rate; 0: unknown
  int mtu = 0;               // MTU in bytes; 0: unknown
  bool usable = true;        // false: the rail has no port here that a flow can use
};

struct FleetHost {
  std::string name;
  bool emulated = false;        // the host shares its kernel with another host
  int cores = 1;                // number of cores that the tester may use
  std::vector<PortInfo> ports;  // ports by rail
};

class Fabric {
 public:
  virtual ~Fabric() = default;
  virtual const std::vector<FleetHost>& hosts() const = 0;
  // Returns the number of flows that can run concurrently without slowing each other; cores limit
  // it on a machine that emulates all hosts. 0: no limit.
  virtual int most_flows() const = 0;
  // Returns whether rounds of this probe are meaningful: for example, packets to the own host never
  // reach a plain interface.
  virtual bool supports(Probe probe) const {
    (void)probe;
    return true;
  }
  // Sets the streams (connections, queue pairs) per flow of all later rounds; initially 1.
  virtual void set_streams(int streams) { (void)streams; }
  // Runs the flows of a round concurrently and returns a sample per flow, in order. Throws
  // JobFailed or Error if the job fails; a failed link is reported in its sample.
  virtual std::vector<FlowSample> run(const Round& round) = 0;
  // Reports from hosts since construction that cannot be parsed or have impossible values.
  virtual std::vector<FalseReport> false_reports() const { return {}; }
  virtual double now_s() const = 0;  // virtual time if simulated
};

// Returns the streams of each flow of a round: `streams` for a flow that shares no port, divided
// among flows that share one. Pings, datagrams and flows with a label have one.
std::vector<int> streams_of(const Round& round, int streams);

inline constexpr int kMostStreams = 32;  // per flow

// Returns the fewest streams per flow that fill a port: tries 1, 2, 4, ... up to kMostStreams while
// the rate rises, and returns the fewest within 3 % of the best, by the upper quartile of the
// flows. rates_of(streams) returns the rates of some flows, always in the same order. Stops if one
// stream reaches 95 % of `expected` (0: unknown). If different numbers of streams fill different
// ports, a hash spreads streams over the links of a port: returns kMostStreams then, which reach
// all links of every port.
int streams_that_fill(double expected, const std::function<std::vector<double>(int)>& rates_of);

struct Streams {
  int of_flow = 1;
  // Rate of one stream if even kMostStreams streams do not fill a port; 0: they fill a port.
  double one_gbps = 0;
};
// Measures with short rounds of a few pairs how many streams fill a port, and sets that number.
Streams calibrate(Fabric& fabric);

}  // namespace weft::fabric
