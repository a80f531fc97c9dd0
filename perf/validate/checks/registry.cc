// The order of all checks, their list as people read it, and the run of all of them over one
// observation.
#include "perf/validate/checks/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <tuple>

#include "perf/validate/checks/check.h"

namespace weft::fabric {
namespace {

bool is_alike(const Finding& a, const Finding& b) {
  const auto what = [](const Finding& f) {
    return std::tie(f.severity, f.unknown, f.where.kind, f.unit, f.value, f.expected, f.text,
                    f.expected_text);
  };
  return what(a) == what(b);
}

constexpr std::size_t kLeastAlike = 3;

// Where every place to which a check applies has the same finding, the finding is of the fleet.
void merge_alike(Judged& judged) {
  auto& findings = judged.findings;
  if (findings.size() < kLeastAlike || findings.size() != static_cast<std::size_t>(judged.total))
    return;
  const bool alike = std::ranges::all_of(
      findings, [&](const Finding& finding) { return is_alike(finding, findings.front()); });
  const PlaceKind kind = findings.front().where.kind;
  if (!alike || (kind != PlaceKind::kPort && kind != PlaceKind::kHost)) return;
  Finding whole = findings.front();
  const bool hosts = kind == PlaceKind::kHost;
  whole.where = {};
  whole.evidence.push_back(number_evidence(hosts ? "hosts" : "ports", {},
                                           static_cast<double>(findings.size()), judged.total,
                                           Unit::kCount));
  findings = {std::move(whole)};
}

// The heaviest first: what is known before what is not, faults before what these explain.
bool is_heavier(const Finding& a, const Finding& b) {
  const auto weight = [](const Finding& f) {
    const bool known = !f.unknown && f.severity > Severity::kInfo;
    return std::tuple(known, f.severity, f.explained_by.empty(), f.confidence);
  };
  return weight(a) > weight(b);
}

std::string_view word_for(CheckKind kind) {
  return kind == CheckKind::kPassive ? "passive" : "active";
}

std::string_view word_for(Severity severity) {
  constexpr std::array<std::string_view, 4> kWords = {"INFO", "WARN", "FAIL", "FATAL"};
  return kWords[static_cast<std::size_t>(severity)];
}

// Lines of at most `columns`, broken at blanks; a word that is longer has a longer line to itself.
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

std::span<const Check> checks() {
  static const std::vector<Check> all = [] {
    std::vector<Check> rows;
    for (const auto family :
         {link_checks(), bit_checks(), flow_control_checks(), congestion_checks(),
          lossless_checks(), addressing_checks(), hardware_checks(), host_checks(), tester_checks(),
          false_report_checks(), reach_checks(), rate_checks(), loss_checks(), load_checks(),
          way_checks()})
      std::ranges::copy(family, std::back_inserter(rows));
    return rows;
  }();
  return all;
}

const Check* find_check(std::string_view id) {
  const auto all = checks();
  const auto row = std::ranges::find(all, id, &Check::id);
  return row == all.end() ? nullptr : &*row;
}

std::string list_text() {
  constexpr std::size_t kHealthy = 25, kSource = 38;  // columns; the others take 37
  std::string text = fmt::format("{:<17}  {:<7}  {:<5}  {:<{}}  {}\n", "check", "kind", "fails",
                                 "healthy", kHealthy, "source");
  for (const Check& check : checks()) {
    const auto healthy = wrapped(check.healthy, kHealthy), source = wrapped(check.source, kSource);
    for (std::size_t i = 0; i < std::max(healthy.size(), source.size()); ++i) {
      const bool first = i == 0;
      std::string line = fmt::format(
          "{:<17}  {:<7}  {:<5}  {:<{}}  {}", first ? check.id : "",
          first ? word_for(check.kind) : "", first ? word_for(check.severity) : "",
          i < healthy.size() ? healthy[i] : "", kHealthy, i < source.size() ? source[i] : "");
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    }
  }
  return text;
}

std::string list_markdown() {
  std::string text;
  for (const Check& check : checks())
    text +=
        fmt::format("### {}\n\n{} ({}, {}). Source: {}. Healthy: {}.\n\n{}\n\n*What to do.* {}\n\n",
                    check.id, check.title, word_for(check.kind), word_for(check.severity),
                    check.source, check.healthy, check.meaning, check.remedy);
  return text;
}

void sort_heaviest_first(std::vector<Finding>& findings) {
  std::ranges::stable_sort(findings, is_heavier);
}

Judgement judge(const Observed& observed) {
  Judgement judgement;
  const auto& skipped = observed.policy.skipped_checks;
  for (const Check& check : checks()) {
    if (std::ranges::find(skipped, check.id) != skipped.end()) continue;
    Judged judged = check.judge(check, observed);
    merge_alike(judged);
    judgement.coverage.push_back({check.id, judged.judged, judged.total});
    std::ranges::move(judged.findings, std::back_inserter(judgement.findings));
  }
  explain(judgement.findings);
  sort_heaviest_first(judgement.findings);
  return judgement;
}

}  // namespace weft::fabric
