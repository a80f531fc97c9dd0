// The registry of algorithms: an algorithm is a pure function from a shape to one rank's schedule.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coll/schedule/schedule.h"
#include "coll/types.h"

namespace weft {

// A port that is slower than the other hosts' ports on its rail.
struct SlowPort {
  // Index into Shape::hosts; the port's rank, as an index within that host.
  int host = 0, local = 0;
  double rate = 1;  // relative to the other hosts' ports; 0: dead
  bool operator==(const SlowPort&) const = default;
};

// The properties of a job that an algorithm depends on. Ranks are ranks of the communicator.
struct Shape {
  Rank rank = 0;
  int nranks = 1;
  Rank root = 0;                         // for rooted collectives
  std::vector<std::vector<Rank>> hosts;  // ranks by host, ascending; empty: all on one host
  std::vector<double> rail_weight;       // relative speed of rail l (the l-th rank of each host);
                                         // empty: all rails are equal
  std::vector<SlowPort> slow_ports;      // ascending; empty: none
  std::vector<int> rail;                 // by rank; empty: one rail for all. See rail_contract.h
  std::vector<int> leaf;                 // by host: hosts of one leaf share an uplink to the other
                                         // leaves; empty: unknown
  // Reductions add their operands in rank order, whatever the algorithm: contributions are sent
  // unreduced to the rank that reduces all of them in one pass.
  bool deterministic = false;
};

struct Algorithm {
  std::string_view name;  // "ring", "direct", ...
  Collective collective;
  std::string_view about;  // one line for `weft explain`
  bool (*applies)(const Shape&);
  Schedule (*build)(const Shape&);
};

// Every algorithm of every collective, in a fixed order.
std::span<const Algorithm> algorithms();
// Returns nullptr when the collective has no algorithm of that name.
const Algorithm* find_algorithm(Collective collective, std::string_view name);
// Returns "direct, ring, halving_doubling, ..." for error messages.
std::string algorithm_names(Collective collective);

}  // namespace weft
