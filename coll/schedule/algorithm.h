// The registry of algorithms: an algorithm is a pure function from a shape to one rank's schedule.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coll/schedule/schedule.h"
#include "coll/types.h"

namespace weft {

// A port of a host that is slower than the ports of other hosts on its rail.
struct SlowPort {
  int host = 0, local = 0;  // index into Shape::hosts, and of the rank there whose port it is
  double rate = 1;          // relative to the others; 0: dead
  bool operator==(const SlowPort&) const = default;
};

// A shape is all that an algorithm may know about the job. Ranks are ranks of the communicator.
struct Shape {
  Rank rank = 0;
  int nranks = 1;
  Rank root = 0;                         // of a rooted collective
  std::vector<std::vector<Rank>> hosts;  // ranks by host, ascending; empty: all on one host
  std::vector<double> rail_weight;       // relative speed of rail l (that of the l-th rank of each
                                         // host); empty: all rails are equal
  std::vector<SlowPort> slow_ports;      // in ascending order; empty: there are none
  std::vector<int> rail;                 // by rank; empty: there is one. See rail_contract.h
  std::vector<int> leaf;                 // by host: those of one leaf share an uplink to the other
                                         // leaves; empty: unknown
  // A reduction adds its operands in the order of ranks, whatever the algorithm: contributions
  // go unreduced to the rank that reduces all of them in one pass.
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
