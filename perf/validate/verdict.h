// The result of a validation: items with a verdict each, and one verdict over all items.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace weft {

enum class Verdict { kPass, kSkip, kWarn, kUnknown, kFail };  // ascending in weight
const char* name(Verdict verdict);                            // "PASS", ...

struct Item {
  std::string section;  // "host", "pairs", "collectives", "ports", "rails", "job"
  std::string subject;  // "all_reduce ring", "rank 1 -> rank 3"
  Verdict verdict = Verdict::kPass;
  std::string detail;
  // Only where the verdict is not PASS:
  std::string fault;   // stable id: "pair-slow-bandwidth"
  std::string remedy;  // what to do or look at next
};

// Returns the heaviest verdict: FAIL, UNKNOWN, WARN, PASS; SKIP counts as PASS. No items: UNKNOWN.
Verdict overall(const std::vector<Item>& items);
int exit_code(Verdict overall);         // 0 OK, 1 WARN, 2 CRITICAL, 3 UNKNOWN
const char* in_words(Verdict overall);  // "OK", "WARN", "CRITICAL", "UNKNOWN"

// Formats the items of one section in columns, with verdicts coloured on a terminal.
std::string section_text(const std::string& section, const std::vector<Item>& items);
// Formats each fault with its remedy, and the verdict over all items.
std::string summary_text(const std::vector<Item>& items, double seconds);
nlohmann::ordered_json to_json(const Item& item);

}  // namespace weft
