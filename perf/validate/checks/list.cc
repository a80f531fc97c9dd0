// The rows of the registry as a table and as a JSON document.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "perf/validate/checks/registry.h"
#include "topo/base/text.h"

namespace weft::fabric {
namespace {

std::string_view word_for(CheckKind kind) {
  return kind == CheckKind::kPassive ? "passive" : "active";
}

std::string_view word_for(const Check& check) {
  return check.severity == Severity::kInfo   ? "INFO"
         : check.severity == Severity::kWarn ? "WARN"
                                             : "CRITICAL";
}

std::vector<std::string> lines_of(std::string_view text, std::size_t columns) {
  std::istringstream whole(wrapped(std::string(text), columns));
  std::vector<std::string> lines;
  for (std::string line; std::getline(whole, line);) lines.push_back(line);
  return lines;
}

}  // namespace

std::string list_text() {
  constexpr std::size_t kHealthy = 22, kSource = 38;  // widths; the other columns use 40
  std::string text = fmt::format("{:<17}  {:<7}  {:<8}  {:<{}}  {}\n", "check", "kind", "fails",
                                 "healthy", kHealthy, "source");
  for (const Check& check : checks()) {
    const auto healthy = lines_of(check.healthy, kHealthy),
               source = lines_of(check.source, kSource);
    for (std::size_t i = 0; i < std::max(healthy.size(), source.size()); ++i) {
      const bool first = i == 0;
      std::string line = fmt::format(
          "{:<17}  {:<7}  {:<8}  {:<{}}  {}", first ? check.id : "",
          first ? word_for(check.kind) : "", first ? word_for(check) : "",
          i < healthy.size() ? healthy[i] : "", kHealthy, i < source.size() ? source[i] : "");
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    }
  }
  return text;
}

std::string list_json() {
  auto list = nlohmann::ordered_json::array();
  for (const Check& check : checks())
    list.push_back({{"id", check.id},
                    {"kind", word_for(check.kind)},
                    {"severity", word_for(check)},
                    {"title", check.title},
                    {"source", check.source},
                    {"healthy", check.healthy},
                    {"meaning", check.meaning},
                    {"remedy", check.remedy}});
  return nlohmann::ordered_json{{"schema", "weft.checks/1"}, {"checks", std::move(list)}}.dump(1) +
         "\n";
}

}  // namespace weft::fabric
