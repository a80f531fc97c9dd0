// One verdict over findings, and findings as JSON.
#include "perf/validate/checks/finding.h"

#include <nlohmann/json.hpp>

namespace weft::fabric {
namespace {

const char* word(Severity severity) {
  switch (severity) {
    case Severity::kInfo:
      return "info";
    case Severity::kWarn:
      return "warn";
    case Severity::kFail:
      return "fail";
    case Severity::kFatal:
      break;
  }
  return "fatal";
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

// The end of a key that holds such a number.
const char* suffix(Unit unit) {
  switch (unit) {
    case Unit::kGbps:
      return "_gbps";
    case Unit::kMicroseconds:
      return "_us";
    case Unit::kPerPacket:
      return "_per_packet";
    case Unit::kBytes:
      return "_bytes";
    case Unit::kCount:
      return "_count";
    case Unit::kShare:
      return "_share";
    case Unit::kRatio:
      return "_ratio";
    case Unit::kNone:
    case Unit::kText:
      break;
  }
  return "";
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
  json["confidence"] = finding.confidence;
  if (!finding.explained_by.empty()) json["explained_by"] = finding.explained_by;
  json["evidence"] = nlohmann::ordered_json::array();
  for (const Evidence& one : finding.evidence) json["evidence"].push_back(evidence_json(one));
  return json;
}

}  // namespace weft::fabric
