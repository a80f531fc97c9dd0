// The report of `weft perf`: header and rows as text, or all as JSON (weft.perf/1).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "coll/types.h"
#include "perf/collective/rail_counts.h"
#include "perf/collective/stats.h"
#include "perf/predict/bound.h"
#include "topo/base/status.h"
#include "topo/topology.h"

namespace weft {

// What was measured of a case, out of place or in place.
struct PerfHalf {
  std::string algorithm;
  Summary time_us;
  double bound_us = 0;  // 0: unknown
  int iterations = 0;
  std::optional<std::uint64_t> wrong;  // empty: not checked
};

struct PerfRow {
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
  DType type = DType::kFloat32;
  RedOp op = RedOp::kSum;
  Rank root = kNoRank;
  std::optional<PerfHalf> out_of_place, in_place;  // at least one
};

struct PerfReport {
  Collective collective = Collective::kAllReduce;
  int ranks = 1, hosts = 1, rails = 1;
  bool emulated = false;              // several hosts on one machine
  int ranks_here = 1, cores = 1;      // of rank 0's machine
  bool unbound = false;               // a rank may move from core to core
  std::string transport;              // "auto", "shm", "tcp", "ucx", "verbs"
  std::string between_hosts = "tcp";  // with "auto"
  bool memory_shared = true;          // by the ranks of each host
  std::string buffers;                // "malloc", "weft", "cuda"
  bool out_of_place = true, in_place = true;  // the halves that are asked for
  bool back_to_back = false;
  RailRate rail;
  // Hosts that are emulated over shared memory have no rails, unless the user declares a rate.
  bool bound_by_rails() const { return hosts > 1 && (transport != "shm" || rail.gbps > 0); }
  std::vector<PerfRow> rows;
  std::vector<RailCount> counts;  // of the ports, during the whole run
  Status failure;
};

// Whether the ranks of each host share memory. They do not where they run in separate containers or
// as several users: then they use the rails.
bool hosts_share_memory(const Topology& topology);

// Returns "shm", "tcp", "shm inside a host, tcp between hosts" and the like.
std::string transports_in_words(const std::string& transport, int ranks, int hosts,
                                bool memory_shared, const std::string& between_hosts = "tcp");

// Whether the collective can be called with one buffer for input and output.
bool has_in_place(Collective collective);

// The half out of place, else the one in place.
const PerfHalf& first_half(const PerfRow& row);

const char* op_name(const PerfReport& report, const PerfRow& row);  // "none" where nothing reduces
double algbw(const PerfRow& row, const PerfHalf& half);
double busbw(const PerfReport& report, const PerfRow& row, const PerfHalf& half);
// Empty where no bound is known.
std::optional<double> of_bound(const PerfHalf& half);

std::string header(const PerfReport& report);  // '#' lines before the table's header
std::string footer(const PerfReport& report);  // '#' lines after the table
nlohmann::ordered_json to_json(const PerfReport& report);

}  // namespace weft
