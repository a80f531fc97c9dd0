// The algorithms: pure functions from a shape to the schedule of one rank.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coll/schedule/schedule.h"
#include "coll/types.h"

namespace weft {

// All that an algorithm may know about the job. Ranks are those of the communicator.
struct Shape {
  Rank rank = 0;
  int nranks = 1;
  Rank root = 0;                         // of the collectives that have one
  std::vector<std::vector<Rank>> hosts;  // ranks by host, ascending; empty: all on one host
  std::vector<double> rail_weight;       // relative speed of rail l (that of the l-th rank of each
                                         // host); empty: equal
  std::vector<int> rail;                 // of each rank; empty: there is one. See rail_contract.h
  // Reductions add up in the order of ranks, whatever the algorithm: contributions travel
  // unreduced to whoever reduces them, all in one go.
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
// nullptr when there is none of that name for that collective.
const Algorithm* find_algorithm(Collective collective, std::string_view name);
// "direct, ring, halving_doubling, ..." for error messages
std::string algorithm_names(Collective collective);

}  // namespace weft
