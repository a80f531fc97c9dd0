// The verdict over findings, and findings as JSON.
#include "perf/validate/checks/finding.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "perf/validate/probes/goodput.h"

namespace weft::fabric {
namespace {

const char* word(Severity severity) {
  return severity == Severity::kInfo ? "info" : severity == Severity::kWarn ? "warn" : "critical";
}

const char* word(Direction direction) {
  return direction == Direction::kTransmit  ? "transmit"
         : direction == Direction::kReceive ? "receive"
                                            : "both";
}

const char* word(PlaceKind kind) {
  switch (kind) {
    case PlaceKind::kFleet:
      return "fleet";
    case PlaceKind::kHost:
      return "host";
    case PlaceKind::kPort:
      return "port";
    case PlaceKind::kPath:
      return "path";
    case PlaceKind::kRail:
      return "rail";
    case PlaceKind::kSwitch:
      return "switch";
    case PlaceKind::kTester:
      break;
  }
  return "tester";
}

// The suffix of a key with a number of this unit.
std::string suffix(Unit unit) {
  const std::string_view word = word_of(unit);
  return word.empty() ? "" : "_" + std::string(word);
}

nlohmann::ordered_json where_json(const Where& where) {
  nlohmann::ordered_json json = {{"kind", word(where.kind)}};
  if (!where.host.empty()) json["host"] = where.host;
  if (where.rail >= 0) json["rail"] = where.rail;
  if (where.direction != Direction::kBoth) json["direction"] = word(where.direction);
  if (!where.peer.empty()) json["peer"] = where.peer;
  if (!where.device.empty()) json["device"] = where.device;
  return json;
}

nlohmann::ordered_json evidence_json(const Evidence& evidence) {
  nlohmann::ordered_json json = {{"name", evidence.name}};
  if (!evidence.host.empty()) json["host"] = evidence.host;
  if (evidence.rail >= 0) json["rail"] = evidence.rail;
  if (evidence.unit == Unit::kText) {
    json["text"] = evidence.text;
  } else {
    const std::string end = suffix(evidence.unit);
    json["value" + end] = evidence.value;
    json["expected" + end] = evidence.expected;
  }
  return json;
}

}  // namespace

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
  constexpr std::string_view words[] = {"possible", "likely", "certain"};
  return words[static_cast<int>(certainty)];
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

nlohmann::ordered_json to_json(const Finding& finding) {
  nlohmann::ordered_json json = {{"id", finding.id},
                                 {"severity", word(finding.severity)},
                                 {"unknown", finding.unknown},
                                 {"where", where_json(finding.where)}};
  if (finding.unit == Unit::kText) {
    json["text"] = finding.text;
    if (!finding.expected_text.empty()) json["expected_text"] = finding.expected_text;
  } else {
    const std::string end = suffix(finding.unit);
    json["value" + end] = finding.value;
    json["expected" + end] = finding.expected;
    if (finding.low != finding.high) {
      json["low" + end] = finding.low;
      json["high" + end] = finding.high;
    }
    if (!finding.text.empty()) json["text"] = finding.text;
  }
  json["certainty"] = word_of(certainty_of(finding.score));
  json["score"] = finding.score;
  if (!finding.explained_by.empty()) json["explained_by"] = finding.explained_by;
  if (finding.reason >= 0) json["reason"] = finding.reason;
  json["evidence"] = nlohmann::ordered_json::array();
  for (const Evidence& one : finding.evidence) json["evidence"].push_back(evidence_json(one));
  return json;
}

}  // namespace weft::fabric
