// Reads reports back: for baselines and for the history of a fleet.
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "perf/validate/checks/finding_fields.h"
#include "perf/validate/report/report.h"
#include "perf/validate/report/report_fields.h"

namespace weft::fabric {
namespace {

using Parsed = nlohmann::ordered_json;

constexpr int kDeepest = 64;  // levels of nesting; a report has 8

// Translates weft.validate/2 to weft.validate/3.
void renew(Parsed& json) {
  if (!json.contains("findings") || !json["findings"].is_array()) return;
  for (Parsed& finding : json["findings"]) {
    if (!finding.is_object()) continue;
    const auto severity = finding.find("severity");
    if (severity != finding.end() && (*severity == "fail" || *severity == "fatal"))
      *severity = "critical";
    if (finding.contains("confidence")) finding["score"] = finding["confidence"];
  }
}

}  // namespace

Report report_from_json(const nlohmann::ordered_json& json) {
  const FieldReader document(json, "");
  for (const char* key : {"schema", "verdict", "hosts"}) document.demand(key);
  const std::string schema = Report().schema;
  auto report = read_fields<Report>(json);
  if (report.schema != schema && report.schema != "weft.validate/2")
    throw Error(fmt::format("the schema is \"{}\", and not {}", report.schema, schema));
  Parsed renewed = json;
  if (report.schema != schema) renew(renewed);
  const FieldReader read(renewed, "");
  read("ports", report.ports);
  read("findings", report.judgement.findings);
  return report;
}

Report read_report(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::error_code ignored;
  if (!file || std::filesystem::is_directory(path, ignored))
    throw Error(fmt::format("cannot read the report {}: {}", path,
                            errno ? std::strerror(errno) : "a folder"));
  // The result is read recursively, so limit the depth.
  const auto flat = [&](int depth, Parsed::parse_event_t, Parsed&) {
    if (depth > kDeepest) throw Error(fmt::format("{} is not a report: nested too deeply", path));
    return true;
  };
  const Parsed json = Parsed::parse(file, flat, false);
  if (json.is_discarded() || !json.is_object())
    throw Error(fmt::format("{} is not a report of `weft validate`: no JSON object", path));
  try {
    return report_from_json(json);
  } catch (const Error& e) {
    throw Error(fmt::format("{} is not a report of `weft validate`: {}", path, e.what()));
  }
}

}  // namespace weft::fabric
