// A counter of a port during a run: two readings and their difference.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace weft::fabric {

enum class ReadingState {
  kValue,         // a number was read
  kAbsent,        // the source has no such counter
  kNotAvailable,  // the source reports it as unavailable: "N/A (no PMA)"
  kUnreadable,    // the file or request exists, but reading fails
};

struct Reading {
  ReadingState state = ReadingState::kAbsent;
  std::uint64_t value = 0;  // valid only for kValue
  bool operator==(const Reading&) const = default;
};

enum class ChangeState {
  kKnown,      // `change` is exact
  kWrapped,    // the counter wrapped once, by less than half of its range: `change` is exact
  kReset,      // the counter was reset: `change` is the change since the reset, a lower bound
  kSaturated,  // the counter is at its maximum: any number of events may be missing
  kUnknown,    // at least one reading has no value
};

struct Change {
  ChangeState state = ChangeState::kUnknown;
  std::uint64_t change = 0;
  // False if `change` is only a lower bound or unknown.
  bool exact() const { return state == ChangeState::kKnown || state == ChangeState::kWrapped; }
};

// The width of a counter, and whether it saturates or wraps. Sources: IBTA 1.6, 16.1.3.5 (PMA
// counters saturate; data and packet counters have 32 bits only if the device lacks extended
// counters), mlx5 Q counters (32 bits, wrap), Linux interface statistics (64 bits).
struct CounterKind {
  int bits = 64;
  bool saturates = false;
};
CounterKind kind_of_counter(const std::string& name);

Change difference(const Reading& before, const Reading& after, CounterKind kind);

// Readings by name. Names: "ib.<file>" (IB/counters), "hw.<file>" (IB/hw_counters), "net.<file>"
// (interface statistics, and carrier_changes, carrier_up_count, carrier_down_count), "eth.<name>"
// (ethtool -S without per-queue statistics), "tcp.<name>" (Tcp of snmp and TcpExt of netstat in
// this network namespace; plain interfaces only), "pci.<name>" (AER: "pci.TOTAL_ERR_COR",
// "pci.TOTAL_ERR_NONFATAL", "pci.TOTAL_ERR_FATAL", and their components "pci.BadTLP",
// "pci.nonfatal.DLP", "pci.fatal.DLP").
using Readings = std::map<std::string, Reading>;

}  // namespace weft::fabric
