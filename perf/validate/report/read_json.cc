// Reads reports back: for baselines and for the history of a fleet.
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "perf/validate/report/report.h"
#include "perf/validate/report/report_fields.h"

namespace weft::fabric {

// Words of checks/finding.cc, which writes findings: one for both severities that fail a run.
template <>
struct EnumWords<Severity> {
  static constexpr std::string_view words[] = {"info", "warn", "critical", "fatal"};
};
template <>
struct EnumWords<Direction> {
  static constexpr std::string_view words[] = {"both", "transmit", "receive"};
};
template <>
struct EnumWords<PlaceKind> {
  static constexpr std::string_view words[] = {"fleet", "host",   "port",  "path",
                                               "rail",  "switch", "tester"};
};

template <>
struct FieldsOf<Where> {
  static constexpr bool named = true;
  template <typename A, typename T>
  static void visit(A& a, T& w) {
    a("kind", w.kind);
    a("host", w.host);
    a("rail", w.rail);
    a("direction", w.direction);
    a("peer", w.peer);
    a("device", w.device);
  }
};

namespace {

using Parsed = nlohmann::ordered_json;

constexpr int kDeepest = 64;  // levels of brackets; a report has 8

struct UnitSuffix {
  Unit unit;
  std::string_view suffix;
};
constexpr UnitSuffix kSuffixes[] = {{Unit::kGbps, "_gbps"},
                                    {Unit::kMicroseconds, "_us"},
                                    {Unit::kPerPacket, "_per_packet"},
                                    {Unit::kBytes, "_bytes"},
                                    {Unit::kCount, "_count"},
                                    {Unit::kShare, "_share"},
                                    {Unit::kRatio, "_ratio"},
                                    {Unit::kNone, ""}};

// Reads value and expectation, whose keys end in their unit. Returns the end of the keys.
template <typename T>
std::string take_value(const Parsed& json, const FieldReader& read, T& to) {
  for (const UnitSuffix& one : kSuffixes) {
    const std::string end(one.suffix);
    if (!json.contains("value" + end)) continue;
    to.unit = one.unit;
    read(("value" + end).c_str(), to.value);
    read(("expected" + end).c_str(), to.expected);
    return end;
  }
  to.unit = Unit::kText;
  return "";
}

Evidence evidence_from(const Parsed& json, const std::string& path) {
  Evidence evidence;
  const FieldReader read(json, path);
  read("name", evidence.name);
  read("host", evidence.host);
  read("rail", evidence.rail);
  read("text", evidence.text);
  take_value(json, read, evidence);
  return evidence;
}

Finding finding_from_json(const Parsed& json, const std::string& path) {
  Finding finding;
  const FieldReader read(json, path);
  for (const char* key : {"id", "severity", "where"}) read.demand(key);
  read("id", finding.id);
  if (json["severity"] == "fail")  // of weft.validate/2
    finding.severity = Severity::kFail;
  else
    read("severity", finding.severity);
  read("unknown", finding.unknown);
  read("where", finding.where);
  read("text", finding.text);
  read("expected_text", finding.expected_text);
  const std::string end = take_value(json, read, finding);
  read(("low" + end).c_str(), finding.low);
  read(("high" + end).c_str(), finding.high);
  read("score", finding.score);
  read("confidence", finding.score);  // of weft.validate/2
  read("explained_by", finding.explained_by);
  read("reason", finding.reason);
  for (const Parsed& item : json.value("evidence", Parsed::array()))
    finding.evidence.push_back(
        evidence_from(item, fmt::format("{}.evidence[{}]", path, finding.evidence.size())));
  return finding;
}

// Calls take(item, path) for each item of a list of the document, if there is one.
template <typename Take>
void each_item(const Parsed& json, const char* key, const Take& take) {
  const auto found = json.find(key);
  if (found == json.end()) return;
  if (!found->is_array()) throw Error(fmt::format("{} is no list", key));
  std::size_t i = 0;
  for (const Parsed& item : *found) take(item, fmt::format("{}[{}]", key, i++));
}

}  // namespace

Report report_from_json(const nlohmann::ordered_json& json) {
  const FieldReader read(json, "");
  for (const char* key : {"schema", "verdict", "hosts"}) read.demand(key);
  Report report;
  const std::string schema = report.schema;
  FieldReader::take(json, "", report);
  if (report.schema != schema && report.schema != "weft.validate/2")
    throw Error(fmt::format("the schema is \"{}\", and not {}", report.schema, schema));
  read("ports", report.ports);
  each_item(json, "findings", [&](const Parsed& item, const std::string& path) {
    report.judgement.findings.push_back(finding_from_json(item, path));
  });
  return report;
}

Report read_report(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::error_code ignored;
  if (!file || std::filesystem::is_directory(path, ignored))
    throw Error(fmt::format("cannot read the report {}: {}", path,
                            errno ? std::strerror(errno) : "a folder"));
  // What is read in the end is read by functions that call themselves for every level.
  const auto flat = [&](int depth, Parsed::parse_event_t, Parsed&) {
    if (depth > kDeepest) throw Error(fmt::format("{} is no report: nested too deeply", path));
    return true;
  };
  const Parsed json = Parsed::parse(file, flat, false);
  if (json.is_discarded() || !json.is_object())
    throw Error(fmt::format("{} is no report of `weft validate`: no JSON object", path));
  try {
    return report_from_json(json);
  } catch (const Error& e) {
    throw Error(fmt::format("{} is no report of `weft validate`: {}", path, e.what()));
  }
}

}  // namespace weft::fabric
