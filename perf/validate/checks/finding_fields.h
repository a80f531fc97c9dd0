// JSON keys of findings. Keys of numbers end in the unit.
#pragma once

#include "perf/validate/checks/finding.h"
#include "perf/validate/facts/json_fields.h"

namespace weft::fabric {

template <>
struct EnumWords<Severity> {  // kFail and kFatal share a word
  static constexpr std::string_view words[] = {"info", "warn", "critical", "critical"};
};
template <>
struct EnumWords<Certainty> {
  static constexpr std::string_view words[] = {"possible", "likely", "certain"};
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

template <typename A, Of<Where> T>
void fields(A& a, T& w) {
  a("kind", w.kind);
  a("host", w.host);
  a("rail", w.rail, -1);
  a("direction", w.direction, Direction::kBoth);
  a("peer", w.peer);
  a("device", w.device);
}

// Returns the suffix of a key whose number has this unit.
inline std::string suffix_of(Unit unit) {
  const std::string_view word = word_of(unit);
  return word.empty() ? "" : "_" + std::string(word);
}

// Value, expectation and, for a finding, the interval; or a text instead of these.
template <typename A, typename T>
void value_fields(A& a, T& to) {
  if constexpr (!std::is_const_v<T>) {
    to.unit = Unit::kNone;
    while (to.unit != Unit::kText && !a.has(("value" + suffix_of(to.unit)).c_str()))
      to.unit = static_cast<Unit>(static_cast<int>(to.unit) + 1);
  }
  if (to.unit == Unit::kText) {
    a.always("text", to.text);
    return;
  }
  const std::string end = suffix_of(to.unit);
  a(("value" + end).c_str(), to.value);
  a(("expected" + end).c_str(), to.expected);
  if constexpr (requires { to.low; })
    if (!std::is_const_v<T> || to.low != to.high) {
      a(("low" + end).c_str(), to.low);
      a(("high" + end).c_str(), to.high);
    }
  a("text", to.text);
}

template <typename A, Of<Evidence> T>
void fields(A& a, T& evidence) {
  a.always("name", evidence.name);
  a("host", evidence.host);
  a("rail", evidence.rail, -1);
  value_fields(a, evidence);
}

template <typename A, Of<Finding> T>
void fields(A& a, T& f) {
  if constexpr (!std::is_const_v<T>)
    for (const char* key : {"id", "severity", "where"}) a.demand(key);
  a.always("id", f.id);
  a("severity", f.severity);
  a("unknown", f.unknown);
  a("where", f.where);
  value_fields(a, f);
  a("expected_text", f.expected_text);
  if constexpr (std::is_const_v<T>) a("certainty", certainty_of(f.score));
  a("score", f.score);
  a("explained_by", f.explained_by);
  a("reason", f.reason, -1);
  a.always("evidence", f.evidence);
}

}  // namespace weft::fabric
