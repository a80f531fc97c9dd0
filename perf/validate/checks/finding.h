// A finding: what is wrong (or could not be known), where, by which numbers. No English: texts
// belong to the registry's row of the id, and to the reports.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::fabric {

enum class Severity { kInfo, kWarn, kFail, kFatal };  // ascending
enum class Direction { kBoth, kTransmit, kReceive };  // seen from `host`

// What is at fault. The empty fields of Where do not matter for that kind of place.
enum class PlaceKind { kFleet, kHost, kPort, kPath, kRail, kSwitch, kTester };

struct Where {
  PlaceKind kind = PlaceKind::kFleet;
  std::string host;  // of kHost, kPort, kPath (the sender)
  int rail = -1;     // of kPort, kPath, kRail, kSwitch; -1: all
  Direction direction = Direction::kBoth;
  std::string peer;    // of kPath: the receiver
  std::string device;  // "mlx5_0", for people
  bool operator==(const Where&) const = default;
};

// Units as suffixes of keys in JSON.
enum class Unit { kNone, kGbps, kMicroseconds, kPerPacket, kBytes, kCount, kShare, kRatio, kText };
std::string_view word_of(Unit unit);  // "gbps"; "" of kNone and kText

// A number that a finding rests on.
struct Evidence {
  std::string name;  // "hw.out_of_sequence", "rate", "p99"
  std::string host;
  int rail = -1;
  double value = 0, expected = 0;
  Unit unit = Unit::kCount;
  std::string text;  // of Unit::kText: a value that is no number ("fw 22.36.1010"), verbatim from
                     // its source
};

struct Finding {
  std::string id;  // of the registry: "port-rate"
  Severity severity = Severity::kWarn;
  bool unknown =
      false;  // what the check asks could not be known; severity is then its weight had it failed
  Where where;
  double value = 0, expected = 0;
  Unit unit = Unit::kNone;
  std::string text, expected_text;  // of Unit::kText
  double low = 0, high = 0;         // interval of confidence of `value`; equal: none
  double score = 1;  // how well the flows agree on this cause and place, 0 to 1; no probability
  std::vector<Evidence> evidence;
  // Id of the finding at the same place that explains this one; empty: a fault of its own.
  std::string explained_by;
  int reason = -1;  // its index among the findings; -1: not known
};

// How often findings of such a score were right about place and direction; docs/statistics.md has
// the rule, and the table over simulated faults that it rests on.
enum class Certainty { kPossible, kLikely, kCertain };  // ascending
Certainty certainty_of(double score);
std::string_view word_of(Certainty certainty);  // "certain"
std::optional<Certainty> certainty_from(std::string_view word);

enum class Verdict { kOk = 0, kWarn = 1, kCritical = 2, kUnknown = 3, kTester = 4 };  // exit codes

// The heaviest of: critical (a finding of kFail or more), tester (one of kFail or more at a kTester
// place: the tester itself kept the checks from judging), warn, unknown, ok. A finding of kInfo
// weighs nothing, and an unknown one weighs kUnknown: a worse verdict is never hidden by UNKNOWN.
Verdict verdict_of(const std::vector<Finding>& findings);

// The share of its rate that a link still has by this finding; 1: nothing is known to be lost. A
// loss of p per packet costs what go-back-N with a window of 122 packets (400 Gb/s, 10 us, 4 KiB)
// loses.
double share_left(const Finding& finding);

nlohmann::ordered_json to_json(const Finding& finding);

}  // namespace weft::fabric
