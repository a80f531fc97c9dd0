// Changes of ports' counters during the run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perf/validate/report/report.h"

namespace weft::fabric {

struct CounterChange {
  std::string host, device;
  int rail = 0;      // -1: of the host, as TCP counters are
  std::string name;  // "hw.out_of_sequence"
  Change change;
};

// Returns one row per changed counter, by host, rail and name; counters of the whole host appear
// once.
std::vector<CounterChange> counter_changes(const Report& report);

std::string_view word_of(ChangeState state);  // "known"

}  // namespace weft::fabric
