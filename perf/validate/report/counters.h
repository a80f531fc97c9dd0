// What every counter of every port did within the run.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perf/validate/report/report.h"

namespace weft::fabric {

struct CounterChange {
  std::string host, device;
  int rail = 0;
  std::string name;  // "hw.out_of_sequence"
  Change change;
};

// A row for every counter that was read before or after, by host, rail and name.
std::vector<CounterChange> counter_changes(const Report& report);

std::string_view word_of(ChangeState state);  // "known"

}  // namespace weft::fabric
