// What the counters of a port did during the run.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "perf/validate/checks/check.h"

namespace weft::fabric {

using Names = std::span<const std::string_view>;

// Counters of one question, taken together.
struct Moves {
  double events = 0;            // sum of the changes; a lower bound where `doubtful` is not empty
  int present = 0;              // counters that the port has
  std::vector<Evidence> moved;  // with their changes
  std::vector<Evidence> doubtful;  // "saturated", "reset", "n/a", "unreadable", "vanished"
};
Moves moves_of(const HostFacts& host, const PortFacts& port, Names names);

// The change of one counter; empty: the counter is not there or its change is not exact.
std::optional<double> change_of(const PortFacts& port, std::string_view name);
// The first of the counters that is there and exact.
std::optional<double> first_change(const PortFacts& port, Names names);

// Packets that the port sent or received in the run; empty: no counter says so.
std::optional<double> packets_of(const PortFacts& port, Direction direction);

// What a check asks of counters of which none may move.
struct Question {
  Names names;
  Direction direction = Direction::kBoth;
  bool owed = false;        // a device of this class has such counters: none is UNKNOWN
  bool per_packet = false;  // the value is a rate per packet, with an interval
};
Outcome judge_counters(const Check& check, const Observed& observed, const HostFacts& host,
                       const PortFacts& port, const Question& question);

// Sets value, unit and interval of a finding of so many events.
void set_rate(Finding& finding, double events, std::optional<double> packets, double confidence);

// Of counters that should say something and do not: a finding that says which; empty: all spoke. It
// is information where no more than full counters, which moved nothing, are in doubt.
std::optional<Finding> doubt(const Check& check, const Where& where, const Moves& moves, bool owed);

}  // namespace weft::fabric
