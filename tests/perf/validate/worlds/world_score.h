// Scores a report about a world. This file depends on findings and effects, but not on how findings
// were made.
#pragma once

#include <string>
#include <vector>

#include "perf/validate/report/report.h"
#include "perf/validate/worlds/world.h"

namespace weft::fabric {

struct WorldScore {
  struct Fault {
    bool found = false;   // a finding of WARN or worse at a place with the fault's port
    bool placed = false;  // ... and with the fault's own place and direction
  };
  // A finding of WARN or worse that no other finding explains.
  struct Claim {
    Certainty certainty = Certainty::kCertain;
    bool right = false;  // its place and direction are those of a fault
  };
  std::vector<Fault> faults;  // by effect of the world
  std::vector<Claim> claims;
  int innocents = 0;  // findings of WARN or worse at places that share no host, leaf or rail with a
                      // fault; in a world without effects, all of them
  bool unknown = false;      // the verdict is UNKNOWN or about the tester
  bool false_alarm = false;  // the world has no effects, but the verdict is not OK
};

// A finding of the whole fleet names no place, so it finds no fault and counts as innocent.
WorldScore score(const SimWorld& world, const Report& report);

}  // namespace weft::fabric
