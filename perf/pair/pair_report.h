// What `weft perf bw` and `weft perf lat` print: perftest's columns, then weft's own; and as JSON
// (weft.pair/1).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "perf/collective/histogram.h"
#include "perf/pair/pair_options.h"
#include "perf/pair/pair_run.h"
#include "topo/counters.h"

namespace weft {

// What one end found at one size. It travels as JSON, and stands in the report as it is.
struct EndResult {
  nlohmann::ordered_json json;
  static EndResult of_stream(const StreamResult& result, std::uint64_t bytes);
  static EndResult of_times(const Histogram& times, bool cut);
  void add_counters(int rail, const std::string& host, const std::vector<CounterDelta>& deltas);
};

struct PairRow {
  int client = 0, server = 0;  // ranks
  std::uint64_t bytes = 0;
  // Of both ends, each with what it measured, "counters", "trouble" (text) and "wrong" (text).
  nlohmann::ordered_json at_client, at_server;
};

// `named`: each line begins with the pair.
std::string pair_header(const PairOptions& options, bool named);
std::string pair_line(const PairOptions& options, const PairRow& row, bool named);
// Lines about what looks wrong at either end; empty for nothing.
std::string pair_remarks(const PairRow& row);
// Of many pairs at one size: the slowest, the middle and the fastest.
std::string pair_summary(const PairOptions& options, const std::vector<PairRow>& rows);

nlohmann::ordered_json to_json(const PairOptions& options, const std::vector<PairRow>& rows,
                               const std::vector<nlohmann::ordered_json>& pairs);

}  // namespace weft
