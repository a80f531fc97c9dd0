// One run of `weft validate`, on every rank of the job: facts, probes, collectives, facts again; on
// rank 0 then the checks and the report. Knows the order of things, and leaves each to its room.
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
  std::string transport = "auto";  // of the probes: tcp, verbs, or what the job uses between hosts
  double declared_gbps = 0;        // of a rail; 0: not declared
  Sources sources;
  std::string baseline;  // a file to compare with, or to store in; empty: none
  std::function<void(const std::string&)> soak_line;  // gets a line a minute; rank 0
};

class Validation {
 public:
  // `show` gets a word on what is going on; rank 0 calls it.
  Validation(const ValidationOptions& options, std::function<void(const std::string&)> show);

  // Returns the verdict, the same on every rank; report() is whole on rank 0. Throws JobFailed and
  // GatherFailed.
  Verdict run(World& world);
  // Puts the failure of the job into the report, with what is known so far on this rank.
  void fail(const Status& failure);

  // On rank 0: why the baseline could not be used, as it is of another fleet; empty: it could.
  const std::string& baseline_error() const { return baseline_error_; }

  const Report& report() const { return report_; }
  // On every rank: the nodes that the report wants drained, with reasons, a line each.
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
  std::optional<Heartbeat> heartbeat_;      // of agents
  std::vector<FalseReport> false_reports_;  // of facts and outages; rank 0
  bool agent_ = false;
  std::vector<std::string> host_of_;  // by rank
  std::vector<RailOutage> outages_;
  std::string baseline_error_, drains_;
  Report report_;
};

}  // namespace weft::fabric
