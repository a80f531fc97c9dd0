// Everything that one run of `weft validate` found, in one struct; texts are made from it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "perf/validate/checks/finding.h"
#include "perf/validate/checks/registry.h"
#include "perf/validate/facts/facts.h"
#include "perf/validate/facts/policy.h"
#include "perf/validate/locate/cause.h"
#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/plan.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

struct Drift {       // against --baseline
  std::string name;  // "port.h3.rail1.transmit_gbps"
  double before = 0, now = 0;
};

struct Report {
  std::string schema = "weft.validate/2";
  std::string started;  // ISO 8601, UTC
  std::string version;
  double seconds = 0, budget_s = 0;
  bool emulated = false;  // hosts share a kernel: rates are not those of a fabric
  bool simulated = false;
  std::string transport;  // of the probes: "tcp", "verbs"
  int ranks = 0, rails = 0;
  FleetFacts facts;
  Policy policy;
  std::vector<FleetHost> hosts;
  Plan plan;
  Samples samples;
  std::vector<Cause> causes;
  std::vector<CollectiveResult> collectives;
  Judgement judgement;
  std::vector<Drift> drift;
  std::string baseline;  // file; empty: none
  std::string failure;   // of the job, verbatim; empty: none
  Verdict verdict = Verdict::kUnknown;
};

struct TextOptions {
  bool verbose = false, colour = false;
  int columns = 100;
};
// One screen: verdict, causes in order, what was covered and what was not.
std::string to_text(const Report& report, const TextOptions& options);
nlohmann::ordered_json to_json(const Report& report);
std::string to_html(const Report& report);        // self-contained, offline, light and dark
std::string to_prometheus(const Report& report);  // textfile collector; absent values omitted

// One line for people: "h3 rail 1 (mlx5_1) sends at 187 of 392 Gb/s".
std::string in_words(const Finding& finding);

// What a finding costs a job: slower steps, lost GPU-hours, energy and money, by the policy's
// prices.
struct Cost {
  double slower_step = 0;  // share
  double gpu_hours_per_day = 0, kwh_per_day = 0, usd_per_day = 0;
};
Cost cost_of(const Finding& finding, const Report& report);

}  // namespace weft::fabric
