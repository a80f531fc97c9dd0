// The verdict over findings, and findings as JSON.
#include "perf/validate/checks/finding.h"

#include <algorithm>

#include "perf/validate/checks/finding_fields.h"
#include "perf/validate/probes/goodput.h"

namespace weft::fabric {

Verdict verdict_of(const std::vector<Finding>& findings) {
  bool critical = false, tester = false, warn = false, unknown = false;
  for (const Finding& finding : findings) {
    if (finding.severity == Severity::kInfo) continue;
    const bool fails = finding.severity >= Severity::kFail;
    if (finding.unknown) {
      unknown = true;
    } else if (finding.where.kind == PlaceKind::kTester) {
      (fails ? tester : warn) = true;
    } else {
      (fails ? critical : warn) = true;
    }
  }
  if (critical) return Verdict::kCritical;
  if (tester) return Verdict::kTester;
  if (warn) return Verdict::kWarn;
  return unknown ? Verdict::kUnknown : Verdict::kOk;
}

double share_left(const Finding& finding) {
  constexpr double kWindowPackets = 122;
  if (finding.unknown) return 1;
  if (finding.unit == Unit::kGbps && finding.expected > 0)
    return std::clamp(finding.value / finding.expected, 0.0, 1.0);
  if (finding.unit == Unit::kPerPacket && finding.id.find("loss") != std::string::npos)
    return go_back_n_goodput(std::clamp(finding.value, 0.0, 1.0), kWindowPackets);
  return 1;
}

Certainty certainty_of(double score) {
  constexpr double kLikely = 0.95, kCertain = 1;
  return score >= kCertain  ? Certainty::kCertain
         : score >= kLikely ? Certainty::kLikely
                            : Certainty::kPossible;
}

std::string_view word_of(Certainty certainty) {
  return EnumWords<Certainty>::words[static_cast<int>(certainty)];
}

std::optional<Certainty> certainty_from(std::string_view word) {
  for (const auto one : {Certainty::kPossible, Certainty::kLikely, Certainty::kCertain})
    if (word == word_of(one)) return one;
  return std::nullopt;
}

std::string_view word_of(Unit unit) {
  constexpr std::string_view words[] = {"",      "gbps",  "us", "per_packet", "bytes", "count",
                                        "share", "ratio", ""};
  return words[static_cast<int>(unit)];
}

nlohmann::ordered_json to_json(const Finding& finding) { return FieldWriter::written(finding); }

}  // namespace weft::fabric
