// A finding: what is wrong (or unknown), where, and with which numbers. The registry's row of the
// id and the reports have the texts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::fabric {

enum class Severity { kInfo, kWarn, kFail, kFatal };  // ascending
enum class Direction { kBoth, kTransmit, kReceive };  // relative to `host`

// The place at fault. Fields of Where that do not apply to the kind of place are empty.
enum class PlaceKind { kFleet, kHost, kPort, kPath, kRail, kSwitch, kTester };

struct Where {
  PlaceKind kind = PlaceKind::kFleet;
  std::string host;  // for kHost, kPort, kPath (the sender)
  int rail = -1;     // for kPort, kPath, kRail, kSwitch; -1: all
  Direction direction = Direction::kBoth;
  std::string peer;    // for kPath: the receiver
  std::string device;  // "mlx5_0", for display
  bool operator==(const Where&) const = default;
};

// Units, as suffixes of JSON keys.
enum class Unit { kNone, kGbps, kMicroseconds, kPerPacket, kBytes, kCount, kShare, kRatio, kText };
std::string_view word_of(Unit unit);  // "gbps"; "" for kNone and kText

// A number that supports a finding.
struct Evidence {
  std::string name;  // "hw.out_of_sequence", "rate", "p99"
  std::string host;
  int rail = -1;
  double value = 0, expected = 0;
  Unit unit = Unit::kCount;
  std::string text;  // for Unit::kText: a non-numeric value ("fw 22.36.1010"), verbatim from
                     // its source
};

struct Finding {
  std::string id;  // registry id: "port-rate"
  Severity severity = Severity::kWarn;
  bool unknown = false;  // the check could not be evaluated; `severity` is that of a failure
  Where where;
  double value = 0, expected = 0;
  Unit unit = Unit::kNone;
  std::string text, expected_text;  // for Unit::kText
  double low = 0, high = 0;         // confidence interval of `value`; low == high: no interval
  // Agreement of the flows on this cause and place, from 0 to 1; not a probability.
  double score = 1;
  std::vector<Evidence> evidence;
  // Id of the finding at the same place that explains this one; empty: an independent fault.
  std::string explained_by;
  int reason = -1;  // index of that finding; -1: unknown
};

// How often findings with a given score had the right place and direction; docs/statistics.md has
// the rule and its table of simulated faults.
enum class Certainty { kPossible, kLikely, kCertain };  // ascending
Certainty certainty_of(double score);
std::string_view word_of(Certainty certainty);  // "certain"
std::optional<Certainty> certainty_from(std::string_view word);

enum class Verdict { kOk = 0, kWarn = 1, kCritical = 2, kUnknown = 3, kTester = 4 };  // exit codes

// Returns the most severe of: critical (kFail or worse), tester (kFail or worse at a kTester place:
// the tester itself prevented judgment), warn, unknown, ok. Ignores kInfo findings, and treats an
// unknown finding as kUnknown: UNKNOWN never hides a worse verdict.
Verdict verdict_of(const std::vector<Finding>& findings);

// Returns the fraction of its rate that a link retains with this finding; 1: no known loss. A loss
// of p per packet costs as much as with go-back-N and a window of 122 packets (400 Gb/s, 10 us, 4
// KiB).
double share_left(const Finding& finding);

nlohmann::ordered_json to_json(const Finding& finding);

}  // namespace weft::fabric
