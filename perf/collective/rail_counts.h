// Collects changes of the port counters of all hosts during a run, for reports.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "coll/api/communicator.h"
#include "topo/counters.h"

namespace weft {

struct RailCount {
  int rail = 0;
  std::string host;
  std::vector<CounterDelta> changes;
};

// Returns the changes since `before` (World::rail_counters) on every host of the World, by rail and
// host. Collective over the World; all ranks get the same result. Ranks of a host see the same
// ports, but each has its own TCP connections, whose counters are added.
std::vector<RailCount> count_rails(World& world, const std::vector<CounterSnapshot>& before);

// Returns [{"rail": 1, "host": "h2", "counters": {"net.tx_bytes": 123, ...}, "trouble": "..."},
// ...]; "trouble" only if a port has signs of trouble.
nlohmann::ordered_json to_json(const std::vector<RailCount>& counts);

// Returns "rail 1 host h2: tcp.retransmits +12" for each port with signs of trouble.
std::vector<std::string> trouble(const std::vector<RailCount>& counts);

}  // namespace weft
