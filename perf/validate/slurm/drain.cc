// Reads findings of a report as JSON.
#include "perf/validate/slurm/drain.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "topo/base/status.h"

namespace weft::fabric {
namespace {

using Json = nlohmann::ordered_json;

// Ends of keys that hold a number, and the unit for people.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kUnits = {{
    {"_gbps", " Gb/s"},
    {"_us", " us"},
    {"_per_packet", " per packet"},
    {"_bytes", " bytes"},
    {"_count", ""},
    {"_share", ""},
    {"_ratio", ""},
    {"", ""},
}};

std::string numbers_of(const Json& finding) {
  for (const auto& [end, unit] : kUnits) {
    const auto value = finding.find(fmt::format("value{}", end));
    if (value == finding.end() || !value->is_number()) continue;
    const auto expected = finding.find(fmt::format("expected{}", end));
    std::string text = fmt::format(", {:.3g}", value->get<double>());
    if (expected != finding.end() && expected->is_number())
      text += fmt::format(" of {:.3g}", expected->get<double>());
    return text + std::string(unit);
  }
  return finding.contains("text") ? ", " + finding["text"].get<std::string>() : "";
}

// Slurm keeps a reason in one line, and scontrol takes a quoted word.
std::string on_one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || c == '"' || c == '\'' || c == '\\' || c == '\x7f')
      c = ' ';
  constexpr std::size_t kLongest = 200;
  return text.substr(0, kLongest);
}

std::string reason_of(const Json& finding) {
  const Json& where = finding.at("where");
  std::string text = "weft: " + finding.at("id").get<std::string>();
  if (where.contains("rail")) text += fmt::format(" at rail {}", where["rail"].get<int>());
  if (where.contains("direction")) text += " " + where["direction"].get<std::string>();
  return on_one_line(text + numbers_of(finding));
}

bool is_of_a_node(const Json& finding, double confidence) {
  const Json& where = finding.at("where");
  const auto kind = where.at("kind").get<std::string>();
  const auto severity = finding.at("severity").get<std::string>();
  return !finding.value("unknown", false) && (severity == "fail" || severity == "fatal") &&
         (kind == "host" || kind == "port") && !where.value("host", "").empty() &&
         finding.value("explained_by", "").empty() &&
         finding.value("confidence", 1.0) >= confidence;
}

}  // namespace

std::vector<Drain> nodes_to_drain(const nlohmann::ordered_json& report, double confidence) {
  if (!report.is_object() || (report.value("schema", "") != "weft.validate/3" && report.value("schema", "") != "weft.validate/2"))
    throw Error("the report is not of the schema weft.validate/3");
  std::vector<Drain> drains;
  try {
    if (report.at("exit_code").get<int>() != 2) return drains;
    for (const Json& finding : report.at("findings")) {  // the heaviest first
      if (!is_of_a_node(finding, confidence)) continue;
      const std::string node = finding.at("where").at("host").get<std::string>();
      if (std::any_of(drains.begin(), drains.end(),
                      [&](const Drain& drain) { return drain.node == node; }))
        continue;
      drains.push_back({node, reason_of(finding)});
    }
  } catch (const nlohmann::json::exception& error) {
    throw Error(fmt::format("the report lacks something: {}", error.what()));
  }
  return drains;
}

}  // namespace weft::fabric
