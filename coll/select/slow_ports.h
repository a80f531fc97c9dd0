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

// Given instead of ports: the job measures them.
inline constexpr std::string_view kMeasurePorts = "measure";

// The names that users write for the ports of a job.
struct PortNames {
  std::vector<std::string> hosts;  // index: the host; "": the host has only a number
  std::vector<int> rails;          // index: the rail; value: the number that users write for it
};

// Parses HOST:RAIL=FRACTION, or several with commas between them: "3:1=0.5" is the port of host 3
// on rail 1 at half its rate, "3:*=0.5" all ports of host 3, "*:1=0.5" rail 1 on all hosts; a
// fraction of 0 means dead. Returns the slow ports, sorted by host and rail. Throws Error that
// names `what` (the option or variable), the value and a remedy.
std::vector<PortRate> parse_slow_ports(std::string_view what, std::string_view text,
                                       const PortNames& names);

// Formats ports as text that parse_slow_ports() accepts.
std::string text_of(const std::vector<PortRate>& ports, const PortNames& names);

// The slow ports among those measured, relative to what most of them reach, where `before` were
// known: the same as these unless rates say clearly otherwise. A rail that is slow on all hosts is
// so by the others. In ascending order, as parse_slow_ports() returns them.
std::vector<PortRate> slow_ports_of(const std::vector<PortRate>& measured,
                                    const std::vector<PortRate>& before);

// Takes out of the ports of `hosts` hosts what all hosts lack on a rail, and returns it: by rail,
// the rate of its fastest port. A rail that is dead on all hosts stays as it is.
std::vector<double> take_rail_rates(std::vector<PortRate>& ports, int hosts, int rails);

// Converts to ports of ranks, as schedules see them. `hosts`: as in Shape::hosts.
std::vector<SlowPort> ports_of_ranks(const std::vector<PortRate>& ports,
                                     const std::vector<std::vector<Rank>>& hosts,
                                     const std::function<int(Rank)>& rail_of);

}  // namespace weft
