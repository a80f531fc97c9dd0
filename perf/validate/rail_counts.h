// What the ports of all hosts counted during a run, for reports.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "coll/api/communicator.h"
#include "perf/validate/verdict.h"
#include "topo/counters.h"

namespace weft {

struct RailCount {
  int rail = 0;
  std::string host;
  std::vector<CounterDelta> changes;
};

// What has changed since `before` (World::rail_counters), of every host that any rank of the World
// is on, by rail and host. Every rank calls it, and all get the same. Ranks of a host see the same
// ports, and each its own TCP connections: these are added up.
std::vector<RailCount> count_rails(World& world, const std::vector<CounterSnapshot>& before);

// [{"rail": 1, "host": "h2", "counters": {"net.tx_bytes": 123, ...}, "trouble": "..."}, ...];
// trouble only where there is any.
nlohmann::ordered_json to_json(const std::vector<RailCount>& counts);

// "rail 1 host h2: tcp.retransmits +12", for each rail with signs of trouble.
std::vector<std::string> trouble(const std::vector<RailCount>& counts);

// An item for each port, and one more for each whose link damaged bits or went down meanwhile.
std::vector<Item> judge_ports(const std::vector<RailCount>& counts);

}  // namespace weft
