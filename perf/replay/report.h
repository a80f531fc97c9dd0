// The report of `weft replay`, as text and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "perf/replay/ledger.h"
#include "perf/replay/trace.h"

namespace weft::replay {

// A trace played in one way.
struct Replay {
  Played played;
  double half_rail_us = 0;            // simulated step with rail 0 at half rate; 0: no rails
  std::vector<std::string> limiting;  // the busiest port or link of the simulation, by row
};

struct Report {
  const JobTrace* trace = nullptr;
  std::string where;                          // "4 hosts x 2 rails"
  std::string machine;                        // describes the simulated machine
  std::optional<Replay> measured, simulated;  // neither: the trace is empty
  int by_model = 0;  // number of calls too large to simulate, timed by the cost model
};

// "computation 61 %, exposed all_reduce of 4M 30 %, ...": the parts of the step, largest first.
std::string limits(const JobTrace& trace, const Replay& replay);

std::string text(const Report& report);
nlohmann::ordered_json to_json(const Report& report);

}  // namespace weft::replay
