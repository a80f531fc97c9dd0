// Ports that run at a fraction of their rate, as users specify them ("3:1=0.5"), and as schedules
// see them (SlowPort, coll/schedule/algorithm.h). Does not measure them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "coll/schedule/algorithm.h"

namespace weft {

// A host's port on a rail.
struct PortRate {
  int host = 0, rail = 0;
  double rate = 1;  // relative to the other ports; 0: dead
  bool operator==(const PortRate&) const = default;
};

// The names by which users specify the ports of a job.
struct PortNames {
  std::vector<std::string> hosts;  // by host; "": the host has only a number
  std::vector<int> rails;          // by rail: its number
};

// Parses HOST:RAIL=FRACTION, or several with commas between them: "3:1=0.5" is the port of host 3
// on rail 1 at half its rate, "3:*=0.5" all ports of host 3, "*:1=0.5" rail 1 on all hosts; a
// fraction of 0 means dead. Returns the slow ports, sorted by host and rail. Throws Error that
// names `what` (the option or variable), the value and a remedy.
std::vector<PortRate> parse_slow_ports(std::string_view what, std::string_view text,
                                       const PortNames& names);

// Divides the ports of each rail by the rate of its fastest port, which it returns by rail (1 if
// some of the `hosts` hosts are not in `ports`). A rail that is dead on all hosts is unchanged.
std::vector<double> take_rail_rates(std::vector<PortRate>& ports, int hosts, int rails);

// Converts to ports of ranks, as schedules see them. `hosts`: as in Shape::hosts.
std::vector<SlowPort> ports_of_ranks(const std::vector<PortRate>& ports,
                                     const std::vector<std::vector<Rank>>& hosts,
                                     const std::function<int(Rank)>& rail_of);

}  // namespace weft
