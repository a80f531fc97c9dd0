// The report of `weft perf` in the JSON that nccl-tests writes with -J (its version 3), so that
// scripts for this format can read it. Does not measure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "perf/sweep/perf_report.h"

namespace weft {

// A rank, as nccl-tests lists devices.
struct NcclDevice {
  int group = 0, pid = 0, device = 0;
  std::string host, info;
};

struct NcclRun {
  std::string started, ended;                              // "2026-11-26 14:03:59"
  std::vector<NcclDevice> devices;                         // devices by rank
  std::uint64_t begin = 0, end = 0, factor = 0, step = 0;  // `step` > 0 replaces `factor`
  int warm_up = -1, checks = 1, blocking = 0;
};

// `args` and `env` describe this process. `env` has only variables of weft, NCCL and launchers, and
// never WEFT_SECRET, since reports are shared.
nlohmann::ordered_json to_nccl_json(const PerfReport& report, const NcclRun& run);

std::string time_stamp();  // the current time, in nccl-tests' format

}  // namespace weft
