// Hosts of a fictitious job, for tests of messages between agents and rank 0.
#pragma once

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "perf/validate/probes/fabric.h"
#include "topo/topology.h"

namespace weft::fabric {

// `hosts` hosts h0, h1, ... with ranks_per_host ranks each; all rails are the loopback device.
inline Topology loopback_topology(int hosts, int ranks_per_host, int rails) {
  Nic nic;
  nic.name = nic.netdev = "lo";
  nic.address = "127.0.0.1";
  nic.up = true;
  std::vector<weft::Place> places;
  for (int h = 0; h < hosts; ++h)
    for (int r = 0; r < ranks_per_host; ++r) {
      weft::Place& place = places.emplace_back();
      place.host = place.machine = fmt::format("h{}", h);
      place.rails.assign(static_cast<std::size_t>(rails), nic);
    }
  return Topology(std::move(places));
}

inline std::vector<FleetHost> fleet_hosts(int hosts, int rails) {
  std::vector<FleetHost> fleet;
  for (int h = 0; h < hosts; ++h) {
    FleetHost& host = fleet.emplace_back();
    host.name = fmt::format("h{}", h);
    host.ports.assign(static_cast<std::size_t>(rails), PortInfo{"lo", "127.0.0.1", 100, 9000});
  }
  return fleet;
}

}  // namespace weft::fabric
