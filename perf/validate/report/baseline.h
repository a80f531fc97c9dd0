// What a fleet measured when all was well, as a file, and what has changed since.
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
  std::string started;    // of the run
  std::string transport;  // rates over TCP say nothing of verbs
  bool emulated = false, simulated = false;
  int rails = 0;
  std::vector<std::string> hosts;
  std::map<std::string, double> numbers;
};

Baseline baseline_of(const Report& report);

// Replaces the file: a reader finds the old baseline or the new one. Throws Error naming the path
// and the reason where the file cannot be written.
void write_baseline(const Baseline& baseline, const std::string& path);

// Reads a baseline, or a report of --json in its place. Throws Error naming the file and what is
// wrong with the file.
Baseline read_baseline(const std::string& path);

// Numbers of the run that left the range which the policy's thresholds allow: rates below
// `warn_rate` of the baseline's, latencies above `warn_latency` times the baseline's, and the same
// for the better; the furthest off first. A number that only one of both has is left out. Throws
// Error where the baseline is of other hosts, which it names, other rails or another transport.
std::vector<Drift> drift_since(const Baseline& baseline, const Report& report,
                               const std::string& path);

// `--baseline PATH`: where there is such a file, sets `baseline` and `drift` of the report and
// returns true. Throws Error as the above.
bool compare_with_baseline(const std::string& path, Report& report);
// Stores the run's numbers, unless its verdict says that they are no measure for later runs: then
// `baseline_note` of the report says so. Returns true. Throws Error as write_baseline().
bool store_baseline(const std::string& path, Report& report);

}  // namespace weft::fabric
