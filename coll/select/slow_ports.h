// Ports that run at a fraction of their rate: in the format that users write ("3:1=0.5"), and in
// the format of schedules (SlowPort, coll/schedule/algorithm.h). Does not measure them.
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

// A value in place of a list of ports: the job measures the ports.
inline constexpr std::string_view kMeasurePorts = "measure";

// The names of a job's ports in the text that users write.
struct PortNames {
  std::vector<std::string> hosts;  // index: the host; "": the host has only a number
  std::vector<int> rails;          // rail numbers in the user's text, by rail index
};

// Parses a comma-separated list of HOST:RAIL=FRACTION: "3:1=0.5" is the port of host 3 on rail 1 at
// half its rate, "3:*=0.5" all ports of host 3, "*:1=0.5" rail 1 on all hosts; a fraction of 0
// means dead. Returns the slow ports, sorted by host and rail. Throws Error with `what` (the name
// of the option or variable), the value and a remedy.
std::vector<PortRate> parse_slow_ports(std::string_view what, std::string_view text,
                                       const PortNames& names);

// Formats ports as text that parse_slow_ports() accepts.
std::string text_of(const std::vector<PortRate>& ports, const PortNames& names);

// Returns the slow ports among the measured ones, with rates relative to the usual rate of the
// other ports. `before`: the slow ports so far, which are returned unchanged unless the measured
// rates differ clearly. A rail that is slow on all hosts is compared with the other rails. In
// ascending order, like parse_slow_ports().
std::vector<PortRate> slow_ports_of(const std::vector<PortRate>& measured,
                                    const std::vector<PortRate>& before);

// Divides the rates of the ports of `hosts` hosts by the rate of the fastest port of their rail,
// and returns that rate by rail. A rail that is dead on all hosts is not changed.
std::vector<double> take_rail_rates(std::vector<PortRate>& ports, int hosts, int rails);

// Converts to ports of ranks, the format of schedules. `hosts`: as in Shape::hosts.
std::vector<SlowPort> ports_of_ranks(const std::vector<PortRate>& ports,
                                     const std::vector<std::vector<Rank>>& hosts,
                                     const std::function<int(Rank)>& rail_of);

}  // namespace weft
