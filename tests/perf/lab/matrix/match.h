// Reads the findings of a validation from its report (weft.validate/3), and compares them with the
// injected faults. All functions are pure, and independent of how faults are injected.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "perf/lab/matrix/fault.h"

namespace weft {

// A finding of WARN or above.
struct Claim {
  std::string id;
  std::string severity;   // "warn", "fail", "fatal"
  std::string place;      // "fleet", "host", "port", "path", "rail", "switch", "tester"
  std::string host;       // of a path: the sender
  int rail = -1;          // -1: all
  std::string direction;  // "both", "transmit", "receive"
  std::string peer;
  bool unknown = false;    // a finding that something is unknown
  bool explained = false;  // by another finding: not a separate fault
  std::string text;        // of findings whose value is a text, such as an error
};

struct Seen {
  std::string verdict;  // "ok", "warn", "critical", "unknown", "tester"; "none": no report
  std::vector<Claim> claims;
};

// Throws Error naming the missing field if the report does not have the schema weft.validate/3.
Seen seen_from_json(const nlohmann::ordered_json& report);

// How well the report identified one fault. A report with the verdict "unknown" names no fault,
// unless "unknown" is a correct verdict for it.
struct Named {
  bool kind = false;   // a claim at the fault's place, or near it, names the kind
  bool place = false;  // such claims cover host, rail and direction, no more and no less
};

struct Match {
  std::vector<Named> faults;              // as in the trial
  bool verdict = false;                   // is a correct one
  std::vector<std::string> false_alarms;  // "port-rate at port h3r1:tx": claims away from every
                                          // fault; "verdict unknown" where there was none
};

Match match(const Trial& trial, const Seen& seen, const MatrixLab& lab);

// "port-rate at port h3r1:tx", for people.
std::string in_words(const Claim& claim);

}  // namespace weft
