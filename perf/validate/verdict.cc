// Sums up items to one verdict, and formats them. Does not know what was checked.
#include "perf/validate/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "perf/cli/table.h"
#include "topo/base/exit_code.h"

namespace weft {
namespace {

std::string painted(Verdict verdict) {
  const std::string text = fmt::format("{:<7}", name(verdict));
  switch (verdict) {
    case Verdict::kPass:
      return paint(Paint::kGood, text);
    case Verdict::kSkip:
      return paint(Paint::kDim, text);
    case Verdict::kWarn:
    case Verdict::kUnknown:
      return paint(Paint::kWarn, text);
    case Verdict::kFail:
      return paint(Paint::kBad, text);
  }
  return text;
}

}  // namespace

const char* name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return "PASS";
    case Verdict::kSkip:
      return "SKIP";
    case Verdict::kWarn:
      return "WARN";
    case Verdict::kUnknown:
      return "UNKNOWN";
    case Verdict::kFail:
      return "FAIL";
  }
  return "?";
}

Verdict overall(const std::vector<Item>& items) {
  if (items.empty()) return Verdict::kUnknown;
  Verdict worst = Verdict::kPass;
  for (const Item& item : items) worst = std::max(worst, item.verdict);
  return worst == Verdict::kSkip ? Verdict::kPass : worst;
}

int exit_code(Verdict overall) {
  switch (overall) {
    case Verdict::kPass:
    case Verdict::kSkip:
      return kExitOk;
    case Verdict::kWarn:
      return kExitWarn;
    case Verdict::kFail:
      return kExitCritical;
    case Verdict::kUnknown:
      return kExitUnknown;
  }
  return kExitUnknown;
}

const char* in_words(Verdict overall) {
  constexpr std::array kWords = {"OK", "WARN", "CRITICAL", "UNKNOWN"};
  return kWords[static_cast<std::size_t>(exit_code(overall))];
}

std::string section_text(const std::string& section, const std::vector<Item>& items) {
  std::size_t width = 0;
  for (const Item& item : items)
    if (item.section == section) width = std::max(width, item.subject.size());
  if (width == 0) return "";
  std::string text = paint(Paint::kBold, section) + "\n";
  for (const Item& item : items)
    if (item.section == section)
      text += fmt::format("  {}  {:<{}}  {}\n", painted(item.verdict), item.subject, width,
                          item.detail);
  return text;
}

std::string summary_text(const std::vector<Item>& items, double seconds) {
  std::string text, counts;
  for (const Item& item : items) {
    if (item.verdict == Verdict::kPass || item.verdict == Verdict::kSkip) continue;
    if (text.empty()) text = paint(Paint::kBold, "what is wrong") + "\n";
    text += fmt::format("  {}  {}: {}: {}\n", painted(item.verdict), item.fault, item.subject,
                        item.detail);
    if (!item.remedy.empty()) text += fmt::format("           {}\n", item.remedy);
  }
  for (Verdict v :
       {Verdict::kPass, Verdict::kWarn, Verdict::kFail, Verdict::kUnknown, Verdict::kSkip})
    if (const auto n = std::count_if(items.begin(), items.end(),
                                     [v](const Item& i) { return i.verdict == v; }))
      counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", n, name(v));
  const Verdict verdict = overall(items);
  const Paint colour = verdict == Verdict::kPass   ? Paint::kGood
                       : verdict == Verdict::kFail ? Paint::kBad
                                                   : Paint::kWarn;
  return text + fmt::format("{}  ({}) in {:.1f} s\n",
                            paint(colour, fmt::format("verdict: {}", in_words(verdict))), counts,
                            seconds);
}

nlohmann::ordered_json to_json(const Item& item) {
  nlohmann::ordered_json json = {{"section", item.section},
                                 {"subject", item.subject},
                                 {"verdict", name(item.verdict)},
                                 {"detail", item.detail}};
  if (!item.fault.empty()) json["fault"] = item.fault;
  if (!item.remedy.empty()) json["remedy"] = item.remedy;
  return json;
}

}  // namespace weft
