// The reports of `weft perf bw` and `weft perf lat`: perftest's columns, then weft's own; or JSON
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

// The result of one end at one size, as JSON, for the other ranks and the report.
struct EndResult {
  nlohmann::ordered_json json;
  static EndResult of_stream(const StreamResult& result, std::uint64_t bytes);
  static EndResult of_times(const Histogram& times, bool cut);
  void add_counters(int rail, const std::string& host, const std::vector<CounterDelta>& deltas);
};

struct PairRow {
  int client = 0, server = 0;  // ranks
  std::uint64_t bytes = 0;
  // The JSON of an EndResult, "counters", "trouble" (text) and "wrong" (text).
  nlohmann::ordered_json at_client, at_server;
  std::string client_host, server_host;
};

// With `named`, each line begins with the name of the pair.
std::string pair_header(const PairOptions& options, bool named);
std::string pair_line(const PairOptions& options, const PairRow& row, bool named);
// Returns lines about faults of either end; empty if there are none.
std::string pair_remarks(const PairRow& row);
// Returns a line for each port counter that changed at either end, for --ports.
std::string pair_ports(const PairRow& row);
// Names the slowest, median and fastest of many pairs at one size, and slow outliers; for all pairs
// of few ranks, also prints their matrix.
std::string pair_summary(const PairOptions& options, const std::vector<PairRow>& rows);

// Returns a line for each pair that did not reach --min-rate or --min-msgrate at its best size.
std::vector<std::string> missed_limits(const PairOptions& options,
                                       const std::vector<PairRow>& rows);

nlohmann::ordered_json to_json(const PairOptions& options, const std::vector<PairRow>& rows,
                               const std::vector<nlohmann::ordered_json>& pairs);

}  // namespace weft
