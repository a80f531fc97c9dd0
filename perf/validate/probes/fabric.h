// A fabric under test, as the conductor of the probes sees it: rounds go in, samples come out. Real
// ports (sockets, queue pairs) and simulated ones stand behind this one interface.
#pragma once

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
  // Runs the flows of a round at the same time and returns a sample per flow, in order. Throws
  // JobFailed or Error when the job, not a link, has failed; a dead link is a sample.
  virtual std::vector<FlowSample> run(const Round& round) = 0;
  // What the hosts have reported since the fabric was made and cannot be true.
  virtual std::vector<FalseReport> false_reports() const { return {}; }
  virtual double now_s() const = 0;  // virtual time where the fabric is simulated
};

}  // namespace weft::fabric
