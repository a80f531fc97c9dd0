// Selects findings from the JSON of a report.
#include "perf/validate/slurm/drain.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "topo/base/status.h"

namespace weft::fabric {
namespace {

using Json = nlohmann::ordered_json;

// Slurm stores a reason as one line, and scontrol expects one quoted word.
std::string on_one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || c == '"' || c == '\'' || c == '\\' || c == '\x7f')
      c = ' ';
  constexpr std::size_t kLongest = 200;
  if (text.size() <= kLongest) return text;
  const std::size_t blank = text.rfind(' ', kLongest);
  return text.substr(0, blank == text.npos ? kLongest : blank);
}

// Returns the reason, from the report's own sentence.
std::string reason_of(const Json& finding) {
  return on_one_line("weft: " + finding.value("sentence", finding.at("id").get<std::string>()));
}

// weft.validate/2 has only the score, as a number.
Certainty certainty_in(const Json& finding) {
  if (const auto word = certainty_from(finding.value("certainty", ""))) return *word;
  return certainty_of(finding.value("confidence", 1.0));
}

bool is_of_a_node(const Json& finding, Certainty least) {
  const Json& where = finding.at("where");
  const auto kind = where.at("kind").get<std::string>();
  const auto severity = finding.at("severity").get<std::string>();
  return !finding.value("unknown", false) &&
         (severity == "critical" || severity == "fail" || severity == "fatal") &&
         (kind == "host" || kind == "port") && !where.value("host", "").empty() &&
         finding.value("explained_by", "").empty() && certainty_in(finding) >= least;
}

}  // namespace

std::vector<Drain> nodes_to_drain(const nlohmann::ordered_json& report, Certainty least) {
  if (!report.is_object() || (report.value("schema", "") != "weft.validate/3" &&
                              report.value("schema", "") != "weft.validate/2"))
    throw Error("the report is not of the schema weft.validate/3");
  std::vector<Drain> drains;
  try {
    if (report.at("exit_code").get<int>() != 2) return drains;
    for (const Json& finding : report.at("findings")) {  // most severe first
      if (!is_of_a_node(finding, least)) continue;
      const std::string node = finding.at("where").at("host").get<std::string>();
      if (std::any_of(drains.begin(), drains.end(),
                      [&](const Drain& drain) { return drain.node == node; }))
        continue;
      drains.push_back({node, reason_of(finding)});
    }
  } catch (const nlohmann::json::exception& error) {
    throw Error(fmt::format("the report is incomplete: {}", error.what()));
  }
  return drains;
}

}  // namespace weft::fabric
