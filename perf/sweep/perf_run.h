// Times and checks a collective over a range of sizes, on one rank of a job.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coll/api/communicator.h"
#include "perf/cli/table.h"
#include "perf/collective/exercise.h"
#include "perf/predict/bound.h"
#include "perf/sweep/groups.h"
#include "perf/sweep/nccl_json.h"
#include "perf/sweep/perf_flags.h"
#include "perf/sweep/perf_report.h"

namespace weft {

class PerfRun {
 public:
  // All arguments must outlive the PerfRun. `report` and `nccl` are outputs, complete on rank 0.
  PerfRun(World& world, const PerfFlags& flags, PerfReport& report, NcclRun& nccl);

  // Prints rows as they are measured, on rank 0. Returns the exit code. Throws JobFailed, Error.
  int run();

 private:
  using Times = std::vector<std::vector<double>>;  // times of the runs, by rank of the job

  void split();
  void describe();
  void check_roots();
  void make_memory();
  void sweep(DType type, RedOp op, Rank root, const std::function<void(const PerfRow&)>& show);
  PerfRow measure(Case what);
  PerfHalf measure_half(const Case& what);
  Times time(Exercise& exercise, const std::string& label, int runs, Rhythm rhythm);
  double bound_us(const Case& what);
  double predicted_us(const Case& what, const std::string& algorithm) const;
  std::string memory_in_words();
  // Returns the number of wrong elements on all ranks; rank 0 prints the first one.
  std::uint64_t count_wrong(const Exercise& exercise, const Case& what);
  int exit_code() const;
  bool speaks() const { return world_.rank() == 0; }
  Shape lead_shape(Rank root) const { return shape_of(world_.topology(), lead_, 0, root); }

  World& world_;
  Communicator all_, comm_;  // all ranks, and this rank's group
  const PerfFlags& flags_;
  PerfPlan plan_;
  PerfReport& report_;
  NcclRun& nccl_;
  Groups groups_;
  std::vector<Rank> lead_;  // rank 0's group, which the rows show
  Progress progress_;
  std::uint64_t largest_ = 0;  // bytes
  std::unique_ptr<Memory> memory_;
  std::vector<std::int64_t> resident_;  // bytes of resident memory: at the start, with buffers
  std::map<std::pair<std::uint64_t, int>, MemoryRate> memory_rates_;  // by bytes and writers
};

}  // namespace weft
