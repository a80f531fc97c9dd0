// All checks, one row each. `weft validate --list` prints the rows; reports use their texts.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "perf/validate/checks/finding.h"
#include "perf/validate/facts/facts.h"
#include "perf/validate/facts/policy.h"
#include "perf/validate/locate/cause.h"
#include "perf/validate/probes/fabric.h"
#include "perf/validate/probes/samples.h"

namespace weft::fabric {

// A number of a run that differs from the --baseline run.
struct Drift {
  std::string name;  // "port.h3.rail1.transmit_gbps"
  double before = 0, now = 0;
};

// The input of all checks.
struct Observed {
  const FleetFacts& facts;
  const std::vector<FleetHost>& hosts;
  const Samples& samples;
  const std::vector<Cause>& causes;  // from localization
  const Policy& policy;
  std::span<const CollectiveResult> collectives = {};
  std::string_view failure = {};         // failure of the job, verbatim; empty: none
  std::span<const Probe> left_out = {};  // probes omitted for lack of time
  std::span<const RailOutage> outages = {};
  const std::vector<Drift>* drift = nullptr;  // nullptr: no baseline
};

enum class CheckKind { kPassive, kActive };

// The findings of a check, and on how many ports (or hosts, or paths) the check could be evaluated.
struct Judged {
  std::vector<Finding> findings;
  int judged = 0, total = 0;
};

struct Check {
  std::string_view id;  // stable, kebab-case
  CheckKind kind;
  Severity severity;         // severity of a failure
  std::string_view title;    // "link state and rate"
  std::string_view source;   // what is read or run
  std::string_view healthy;  // the healthy value
  std::string_view meaning;  // what a wrong value means
  std::string_view remedy;   // how to repair it
  Judged (*judge)(const Check& check, const Observed& observed);
};

std::span<const Check> checks();
const Check* find_check(std::string_view id);  // nullptr: none

// The coverage of a check, see Judged. `total` is the number of places to which the check applies.
struct Coverage {
  std::string_view id;
  int judged = 0, total = 0;
};

struct Judgement {
  std::vector<Finding> findings;   // most serious first
  std::vector<Coverage> coverage;  // one row per check
};

// Sorts known findings before unknown findings, and faults before the findings that they explain.
void sort_heaviest_first(std::vector<Finding>& findings);

// Runs all checks except those that the policy skips.
Judgement judge(const Observed& observed);

// Returns all rows as a table of at most 100 columns: id, kind, severity, healthy value, source.
std::string list_text();
// Returns all rows as a document of the schema weft.checks/1.
std::string list_json();

}  // namespace weft::fabric
