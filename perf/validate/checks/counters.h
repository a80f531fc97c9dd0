// Changes of a port's counters during the run.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "perf/validate/checks/check.h"

namespace weft::fabric {

using Names = std::span<const std::string_view>;

// Counters that answer one question together.
struct Moves {
  double events = 0;            // sum of the changes; a lower bound if `doubtful` is not empty
  int present = 0;              // number of these counters that the port has
  std::vector<Evidence> moved;  // counters that changed, with their changes
  // Counters without an exact change: "saturated", "reset", "n/a", "unreadable", "vanished".
  std::vector<Evidence> doubtful;
};
Moves moves_of(const HostFacts& host, const PortFacts& port, Names names);

// Returns the change of one counter; nullopt: the counter is missing or its change is not exact.
std::optional<double> change_of(const PortFacts& port, std::string_view name);
// Returns the change of the first counter that exists and is exact.
std::optional<double> first_change(const PortFacts& port, Names names);

// Returns the packets that the port sent or received in the run; nullopt: no counter has them.
std::optional<double> packets_of(const PortFacts& port, Direction direction);

// A check's question about counters that must not change.
struct Question {
  Names names;
  Direction direction = Direction::kBoth;
  // Whether the port must have one of these counters; the result is UNKNOWN without one.
  bool (*required)(const PortFacts& port) = [](const PortFacts&) { return false; };
  bool per_packet = false;  // the finding's value is a rate per packet, with an interval
};
Outcome judge_counters(const Check& check, const Observed& observed, const HostFacts& host,
                       const PortFacts& port, const Question& question);
// Judges counters of all ports, or only of ports with RDMA.
enum class Asked { kAll, kRdma };
Judged judge_counters(const Check& check, const Observed& observed, const Question& question,
                      Asked asked = Asked::kAll);

// Sets value, unit and interval of a finding with this number of events.
void set_rate(Finding& finding, double events, std::optional<double> packets, double confidence);

// Returns a finding that names the counters without a usable value; nullopt: all counters have a
// usable value. kInfo if the only reason is saturation before the run.
std::optional<Finding> doubt(const Check& check, const Where& where, const Moves& moves,
                             bool required);

}  // namespace weft::fabric
