// The report of `weft perf`: header and rows as text, or all as JSON (weft.perf/1).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "coll/types.h"
#include "perf/collective/rail_counts.h"
#include "perf/predict/bound.h"
#include "perf/stats/stats.h"
#include "topo/base/status.h"
#include "topo/topology.h"

namespace weft {

// The measurements of a case, out of place or in place.
struct PerfHalf {
  std::string algorithm;
  Summary time_us;
  double bound_us = 0;      // lower bound of the time; 0: unknown
  double predicted_us = 0;  // time that the cost model predicts, for --expect; 0: not predicted
  int iterations = 0;
  std::optional<std::uint64_t> wrong;        // number of wrong elements; empty: not checked
  std::vector<std::vector<double>> rank_us;  // times per rank and iteration, with --per-iteration
  std::vector<double> group_us;              // median time of each group in a split run
};

struct PerfRow {
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
  DType type = DType::kFloat32;
  RedOp op = RedOp::kSum;
  Rank root = kNoRank;
  std::optional<PerfHalf> out_of_place, in_place;  // at least one half is set
  std::string finished;                            // "2026-11-26 14:03:59"
  // Changes of the ports' counters during the row, with --ports.
  std::vector<RailCount> ports;
};

// One group of a split run (NCCL_TESTS_SPLIT), with its own time in a row.
struct PerfGroup {
  int color = 0;
  std::vector<Rank> ranks;
};

// The limits that a run must reach; 0: no limit.
struct PerfLimits {
  double busbw = 0;          // busbw in GB/s at the largest size (--min-busbw)
  double share = 0;          // fraction of the predicted speed at every size (--expect)
  double average_busbw = 0;  // average busbw in GB/s (NCCL_TESTS_MIN_BW)
};

struct PerfReport {
  Collective collective = Collective::kAllReduce;
  int ranks = 1, hosts = 1, rails = 1;
  bool emulated = false;          // several hosts on one machine
  int ranks_here = 1, cores = 1;  // ranks and cores of rank 0's machine
  bool unbound = false;           // a rank may move from core to core
  std::string transport;          // "auto", "shm", "tcp", "ucx", "verbs"
  // The transport between hosts if `transport` is "auto".
  std::string between_hosts = "tcp";
  bool memory_shared = true;                  // the ranks of each host share memory
  std::string buffers;                        // "malloc", "weft", "cuda"
  std::string compress = "none";              // "none", "int8", "fp8"
  bool out_of_place = true, in_place = true;  // the requested halves
  bool back_to_back = false;
  OfRanks of_ranks = OfRanks::kMost;
  int aggregate = 1;        // operations that are timed together
  int skip_iterations = 0;  // first iterations excluded from the statistics of --per-iteration
  bool per_iteration = false, timestamps = false, ports = false;
  PerfLimits limits;
  std::string split;              // "NCCL_TESTS_SPLIT=MOD 2"; empty: one group
  std::vector<PerfGroup> groups;  // groups of a split run; the first is rank 0's group
  std::string memory;             // the text of --memory; empty: not requested
  RailRate rail;
  // Hosts that are emulated over shared memory have no rails, unless the user declares a rate.
  bool bound_by_rails() const { return hosts > 1 && (transport != "shm" || rail.gbps > 0); }
  std::vector<PerfRow> rows;
  std::vector<RailCount> counts;  // changes of the ports' counters during the whole run
  Status failure;
};

// Returns whether the ranks of each host share memory. Ranks in separate containers or of different
// users use the rails instead.
bool hosts_share_memory(const Topology& topology);

// Returns "shm", "tcp", "shm inside a host, tcp between hosts" and the like.
std::string transports_in_words(const std::string& transport, int ranks, int hosts,
                                bool memory_shared, const std::string& between_hosts = "tcp");

// Returns whether the collective can be called with one buffer for input and output.
bool has_in_place(Collective collective);

// Returns the out-of-place half if there is one, otherwise the in-place half.
const PerfHalf& first_half(const PerfRow& row);

const char* op_name(const PerfReport& report, const PerfRow& row);  // "none" if nothing is reduced
double algbw(const PerfRow& row, const PerfHalf& half);
double busbw(const PerfReport& report, const PerfRow& row, const PerfHalf& half);
// Returns the busbw of one group of a split run.
double busbw(const PerfReport& report, const PerfRow& row, const PerfHalf& half, std::size_t group);
// Returns the bound / the measured time; empty if the bound is unknown.
std::optional<double> of_bound(const PerfHalf& half);
double average_busbw(const PerfReport& report);
// Returns the statistics of --per-iteration, without the skipped first iterations.
IterationStats statistics(const PerfReport& report, const PerfHalf& half);

// Returns a line for each limit that was missed or could not be judged; `unknown` is the number of
// the latter.
std::vector<std::string> missed_limits(const PerfReport& report, std::size_t& unknown);

std::string header(const PerfReport& report);  // '#' lines before the table's header
std::string footer(const PerfReport& report);  // '#' lines after the table
std::string port_lines(const PerfRow& row);    // '#' lines below a row, with --ports
nlohmann::ordered_json to_json(const PerfReport& report);

}  // namespace weft
