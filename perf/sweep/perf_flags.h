// The options of `weft perf COLLECTIVE`: weft's own, and the one-letter options of nccl-tests.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "coll/jobs/session.h"
#include "coll/types.h"

namespace weft {

struct PerfFlags {
  JobFlags job;
  std::string collective, begin = "8", end = "64M", step, type = "float", op = "sum";
  std::uint64_t factor = 4;
  int root = 0;                       // -1: each rank in turn
  int warm_up = -1, iterations = -1;  // -1: chosen from an operation's time
  std::string algorithm = "auto", buffers = "malloc", compress = "none", json;
  bool in_place = false, out_of_place = false;  // measure only in place, or only out of place
  bool percentiles = false, back_to_back = false, ports = false;
  double min_busbw = 0, expect = 0;
  // Values of nccl-tests' options.
  int check = 1, gpus = 1, threads = 1, aggregate = 1, cycles = 1, average = 3, blocking = 3;
  int per_iteration = 0, skip_iterations = 0, unalign = 0, timestamps = 0, memory = 0,
      registered = 0;
  int timeout_s = 0;
  std::string nccl_json;
};

// The parsed flags.
struct PerfPlan {
  Collective collective;
  std::vector<std::uint64_t> sizes;
  std::uint64_t step = 0;  // step between sizes in bytes; 0: sizes grow by `factor`
  std::vector<DType> types;
  std::vector<RedOp> ops;
  std::vector<Rank> roots;  // empty: all ranks
};

void add_perf_flags(CLI::App& command, PerfFlags& flags);

// Interprets the one-letter options of nccl-tests, and refuses options that this collective would
// ignore. Returns a warning for each option with less effect than in nccl-tests.
std::vector<std::string> settle(const CLI::App& command, PerfFlags& flags);

PerfPlan plan_of(const PerfFlags& flags);

}  // namespace weft
