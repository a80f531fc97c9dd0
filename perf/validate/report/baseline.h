// Numbers of a healthy fleet, stored in a file, and the changes since.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "perf/validate/report/report.h"

namespace weft::fabric {

// Numbers of the ports by name: "port.h3.rail1.transmit_gbps", ".receive_gbps", ".p50_us",
// ".p99_us".
struct Baseline {
  std::string schema = "weft.baseline/1";
  std::string started;    // start time of the run
  std::string transport;  // rates over TCP do not compare with verbs
  bool emulated = false, simulated = false;
  int rails = 0;
  std::vector<std::string> hosts;
  std::map<std::string, double> numbers;
};

Baseline baseline_of(const Report& report);

// Replaces the file atomically. Throws Error naming the path and the reason if the file cannot be
// written.
void write_baseline(const Baseline& baseline, const std::string& path);

// Reads a baseline, or a report of --json. Throws Error naming the file and the problem.
Baseline read_baseline(const std::string& path);

// Returns the numbers of the run that differ from the baseline by more than the policy's
// thresholds: rates below `warn_rate` of the baseline, latencies above `warn_latency` times the
// baseline, and likewise for improvements; the worst first. Numbers present in only one of the two
// are left out. Throws Error if the baseline has other hosts, which it names, other rails or
// another transport.
std::vector<Drift> drift_since(const Baseline& baseline, const Report& report,
                               const std::string& path);

// `--baseline PATH`: if the file exists, sets the report's `baseline` and `drift` and returns true.
// Throws the errors of read_baseline() and drift_since().
bool compare_with_baseline(const std::string& path, Report& report);
// Stores the run's numbers and returns true. If the run's verdict makes them unsuitable as a
// baseline, sets the report's `baseline_note` instead. Throws Error as write_baseline().
bool store_baseline(const std::string& path, Report& report);

}  // namespace weft::fabric
