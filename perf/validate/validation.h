// One run of `weft validate`, on every rank of the job: facts, probes, collectives, counters again;
// then checks and report on rank 0. Defines the order; other folders do the work.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "coll/api/communicator.h"
#include "perf/validate/facts/facts.h"
#include "perf/validate/facts/policy.h"
#include "perf/validate/probes/heartbeat.h"
#include "perf/validate/probes/plan.h"
#include "perf/validate/report/report.h"

namespace weft::fabric {

struct ValidationOptions {
  PlanOptions plan;
  Policy policy;
  std::string transport = "auto";  // for probes: tcp, verbs, or auto: as the job between hosts
  double declared_gbps = 0;        // rate of a rail; 0: not declared
  Sources sources;
  std::string baseline;  // file to compare with, or to store in; empty: none
  std::function<void(const std::string&)> soak_line;  // receives one line per minute; rank 0
};

class Validation {
 public:
  // Rank 0 calls `show` with a description of the present step.
  Validation(const ValidationOptions& options, std::function<void(const std::string&)> show);

  // Returns the verdict, the same on every rank; report() is complete on rank 0. Throws JobFailed
  // and GatherFailed.
  Verdict run(World& world);
  // Adds the job's failure to the report, with the results so far on this rank.
  void fail(const Status& failure);

  // On rank 0: why the baseline is not usable, such as another fleet; empty: usable or none.
  const std::string& baseline_error() const { return baseline_error_; }

  const Report& report() const { return report_; }
  // On every rank: the nodes to drain according to the report, one line each with the reason.
  const std::string& drains() const { return drains_; }

 private:
  void describe(World& world);
  void gather_facts(World& world);
  void probe(World& world);
  void collectives(World& world);
  Observed observed() const;
  void count_again(World& world);
  double left_s() const;

  const ValidationOptions& options_;
  const std::function<void(const std::string&)> show_;
  const double start_s_;
  std::string phase_ = "start";
  HostFacts mine_;
  std::optional<Heartbeat> heartbeat_;      // on agents
  std::vector<FalseReport> false_reports_;  // from facts and outages; rank 0
  bool agent_ = false;
  std::vector<std::string> host_of_;  // by rank
  std::vector<RailOutage> outages_;
  std::string baseline_error_, drains_;
  Report report_;
};

}  // namespace weft::fabric
