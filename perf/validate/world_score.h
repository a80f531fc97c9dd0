// How right a report was about a world. Knows findings and effects, and nothing of how findings
// came about.
#pragma once

#include <string>
#include <vector>

#include "perf/validate/report/report.h"
#include "perf/validate/sim/world.h"

namespace weft::fabric {

struct WorldScore {
  struct Fault {
    bool found = false;   // a finding of WARN or more at a place that has the fault's port
    bool placed = false;  // ... that is the fault's own place and direction
  };
  // A finding of WARN or more that no other explains.
  struct Claim {
    Certainty certainty = Certainty::kCertain;
    bool right = false;  // its place and direction are a fault's own
  };
  std::vector<Fault> faults;  // by effect of the world
  std::vector<Claim> claims;
  int innocents = 0;  // findings of WARN or more at places that share no host, leaf or rail with a
                      // fault; of a world without effects, all of them
  bool unknown = false;      // the verdict is UNKNOWN or about the tester itself
  bool false_alarm = false;  // the world has no effects, and the verdict is not OK
};

// A finding of the whole fleet names no place, so it finds no fault and blames innocents.
WorldScore score(const SimWorld& world, const Report& report);

}  // namespace weft::fabric
