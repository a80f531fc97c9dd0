// What the counters of ports did within the run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perf/validate/report/report.h"

namespace weft::fabric {

struct CounterChange {
  std::string host, device;
  int rail = 0;      // -1: of the host, as those of TCP are
  std::string name;  // "hw.out_of_sequence"
  Change change;
};

// A row for every counter that moved, by host, rail and name; those of the whole host come once.
std::vector<CounterChange> counter_changes(const Report& report);

std::string_view word_of(ChangeState state);  // "known"

}  // namespace weft::fabric
