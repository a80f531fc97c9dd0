// Worlds: what fabrics do to packets, as papers and operators tell it, without a thought of how
// anyone looks for faults. A world is data, made from parts by name and seed: "clos+slow-port".
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perf/validate/sim/sim_fabric.h"

namespace weft::fabric {

// Again and again, for a while. Seconds, each drawn uniformly; no period: always.
struct Spells {
  double least_period_s = 0, most_period_s = 0;  // from one beginning to the next
  double least_s = 0, most_s = 0;                // how long
};

struct Effect {
  enum class Kind {
    kRate,    // strength: share of the rate that is left
    kLoss,    // strength: losses per packet
    kCut,     // nothing passes
    kPauses,  // a receiver takes the share `strength`, and pauses (PFC) those before it
  };
  enum class Place {
    kPort,
    kMember,  // of a bonded port
    kNode,    // a host's NUMA node: its ports whose rail is `port.rail` modulo 2
    kPath,    // from `port` to `peer`
    kRail,
    kUplink,  // of the leaf above `port`: to or from one spine
  };
  std::string part;  // that brought the effect
  Kind kind = Kind::kRate;
  Place place = Place::kPort;
  FaultWay way = FaultWay::kBoth;  // seen from the port, host or leaf
  Port port, peer;
  int member = 0;  // of the bond, or number of the uplink
  double strength = 0;
  Spells spells = {};
};

// Deviations of the logarithm of rates. What is of the fleet or a host wanders with a correlation
// time, and dips: so many a second, for 50 to 500 ms, to a share of which the inverse is Pareto.
struct WorldNoise {
  double flow = 0.005, instant = 0.01, host = 0.005, fleet = 0.005;
  double correlation_s = 0.5;
  double fleet_dips_per_s = 0, host_dips_per_s = 0, pareto = 2;
};

enum class Recovery { kGoBackN, kSelective, kTcp };  // how a transport makes losses good

struct SimWorld {
  std::string name;
  std::uint64_t seed = 1;
  int hosts = 0, rails = 0;
  std::vector<std::vector<double>> port_gbps;  // by host and rail; a host may lack the last rails
  int leaf_hosts = 0;                          // below a leaf of a rail; 0: all
  int uplinks = 0;       // of a leaf, each with the rate of its rail's ports; 0: leaves never limit
  bool spray = false;    // packets of a flow take all uplinks; else a hash of the flow chooses one
  int members = 1;       // of each port; a hash of the flow chooses one
  double flow_gbps = 0;  // most that one connection reaches; 0: no limit
  int streams = 1;  // connections that the tester opens for a flow, until it sets another number
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
  const char* text;  // what it is, and whose numbers these are
  bool fault;        // may join any world that has the place
};
const std::vector<WorldPart>& world_parts();

// The world of the parts of `name`, which '+' joins. Throws Error with the list of parts where one
// of them is not known, and where a part does not fit the others or the fleet.
SimWorld make_world(const std::string& name, int hosts, int rails, double rate_gbps,
                    std::uint64_t seed);

// "slow-port: rate 0.5 at h3 rail 1 transmit".
std::string line_of(const Effect& effect);

}  // namespace weft::fabric
