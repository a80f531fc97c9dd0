// Worlds: how fabrics treat packets according to papers and operators, independent of how faults
// are located. A world is data, made from parts by name and seed: "clos+slow-port".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perf/validate/sim/sim_fabric.h"

namespace weft::fabric {

// Recurring intervals in seconds, each drawn uniformly; no period: always active.
struct Spells {
  double least_period_s = 0, most_period_s = 0;  // between starts
  double least_s = 0, most_s = 0;                // duration
};

struct Effect {
  enum class Kind {
    kRate,    // strength: remaining fraction of the rate
    kLoss,    // strength: losses per packet
    kCut,     // nothing passes
    kPauses,  // a receiver takes only `strength` of its rate and pauses its senders (PFC)
  };
  enum class Place {
    kPort,
    kMember,  // one member of a bonded port
    kNode,    // a NUMA node of a host: its ports whose rail is `port.rail` modulo 2
    kPath,    // from `port` to `peer`
    kRail,
    kUplink,  // an uplink of the leaf above `port`: to or from one spine
  };
  std::string part;  // name of the part with this effect
  Kind kind = Kind::kRate;
  Place place = Place::kPort;
  FaultWay way = FaultWay::kBoth;  // relative to the port, host or leaf
  Port port, peer;
  int member = 0;  // index in the bond, or index of the uplink
  double strength = 0;
  Spells spells = {};
};

// Standard deviations of log rates. Fleet and host noise is correlated over time, with dips at the
// given rates per second, for 50 to 500 ms, to a fraction whose inverse is Pareto-distributed.
struct WorldNoise {
  double flow = 0.005, instant = 0.01, host = 0.005, fleet = 0.005;
  double correlation_s = 0.5;
  double fleet_dips_per_s = 0, host_dips_per_s = 0, pareto = 2;
};

enum class Recovery { kGoBackN, kSelective, kTcp };  // how a transport recovers losses

struct SimWorld {
  std::string name;
  std::uint64_t seed = 1;
  int hosts = 0, rails = 0;
  std::vector<std::vector<double>> port_gbps;  // by host and rail; a host may lack the last rails
  int leaf_hosts = 0;                          // per leaf of a rail; 0: all
  int uplinks = 0;       // per leaf, each with the port rate of its rail; 0: leaves never limit
  bool spray = false;    // packets of a flow use all uplinks; otherwise a hash selects one
  int members = 1;       // per port; a hash of the flow selects one
  double flow_gbps = 0;  // most Gb/s of one connection; 0: no limit
  int streams = 1;       // initial connections per flow of the tester
  Recovery recovery = Recovery::kGoBackN;
  WorldNoise noise;
  std::vector<Effect> effects;

  bool has(Port port) const {
    return port.rail < static_cast<int>(port_gbps[static_cast<std::size_t>(port.host)].size());
  }
  double gbps(Port port) const {
    return port_gbps[static_cast<std::size_t>(port.host)][static_cast<std::size_t>(port.rail)];
  }
  int leaf(Port port) const {
    return (leaf_hosts > 0 ? port.host / leaf_hosts : 0) * rails + port.rail;
  }
};

struct WorldPart {
  const char* name;
  const char* text;  // description, with the source of the numbers
  bool fault;        // can be added to any world that has the place
};
const std::vector<WorldPart>& world_parts();

// The world of the parts in `name`, joined by '+'. Throws Error with the list of parts if one is
// unknown, and if a part does not fit the others or the fleet.
SimWorld make_world(const std::string& name, int hosts, int rails, double rate_gbps,
                    std::uint64_t seed);

// "slow-port: rate 0.5 at h3 rail 1 transmit".
std::string line_of(const Effect& effect);

}  // namespace weft::fabric
