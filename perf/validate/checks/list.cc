// The rows of the registry as a table, a JSON document, and sections of a page.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "perf/validate/checks/registry.h"

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

// Splits at blanks into lines of at most `columns`; a longer word gets a line of its own.
std::vector<std::string> wrapped(std::string_view text, std::size_t columns) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    std::size_t length = std::min(columns, text.size());
    if (length < text.size()) {
      std::size_t blank = text.rfind(' ', length);
      if (blank == std::string_view::npos || blank == 0) blank = text.find(' ', length);
      length = std::min(blank, text.size());
    }
    lines.emplace_back(text.substr(0, length));
    text.remove_prefix(std::min(text.size(), text.find_first_not_of(' ', length)));
  }
  return lines;
}

}  // namespace

std::string list_text() {
  constexpr std::size_t kHealthy = 22, kSource = 38;  // columns; the other ones use 40
  std::string text = fmt::format("{:<17}  {:<7}  {:<8}  {:<{}}  {}\n", "check", "kind", "fails",
                                 "healthy", kHealthy, "source");
  for (const Check& check : checks()) {
    const auto healthy = wrapped(check.healthy, kHealthy), source = wrapped(check.source, kSource);
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

std::string list_markdown() {
  std::string text;
  for (const Check& check : checks())
    text +=
        fmt::format("### {}\n\n{} ({}, {}). Source: {}. Healthy: {}.\n\n{}\n\n*What to do.* {}\n\n",
                    check.id, check.title, word_for(check.kind), word_for(check), check.source,
                    check.healthy, check.meaning, check.remedy);
  return text;
}

}  // namespace weft::fabric
