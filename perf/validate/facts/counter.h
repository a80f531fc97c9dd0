// One counter of a port as a run sees it: two readings, and what lies between them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace weft::fabric {

enum class ReadingState {
  kValue,         // a number was read
  kAbsent,        // the source has no such counter
  kNotAvailable,  // the source says so itself: "N/A (no PMA)"
  kUnreadable,    // the file or request exists and fails
};

struct Reading {
  ReadingState state = ReadingState::kAbsent;
  std::uint64_t value = 0;  // only of kValue
  bool operator==(const Reading&) const = default;
};

enum class ChangeState {
  kKnown,      // `change` is exact
  kWrapped,    // the counter passed its width, once and by less than half of that; exact
  kReset,      // the counter fell otherwise; `change` is the value since the reset, a lower bound
  kSaturated,  // the counter stands at its ceiling: any number of events may be missing
  kUnknown,    // one of the readings is no value
};

struct Change {
  ChangeState state = ChangeState::kUnknown;
  std::uint64_t change = 0;
  // The change may be taken as it is.
  bool exact() const { return state == ChangeState::kKnown || state == ChangeState::kWrapped; }
};

// The width of a counter and what the counter does at its end. Source: IBTA 1.6, 16.1.3.5 (PMA
// counters saturate, the 32 bits of data and packets only where the device has no extended
// counters), mlx5 Q counters (32 bits, wrap), Linux interface statistics (64 bits).
struct CounterKind {
  int bits = 64;
  bool saturates = false;
};
CounterKind kind_of_counter(const std::string& name);

Change difference(const Reading& before, const Reading& after, CounterKind kind);

// Readings by name. Names: "ib.<file>" (IB/counters), "hw.<file>" (IB/hw_counters), "net.<file>"
// (statistics of the interface, and carrier_changes, carrier_up_count, carrier_down_count),
// "eth.<name>" (ethtool -S without single queues), "tcp.<name>" (Tcp of snmp and TcpExt of netstat
// of this network namespace; of plain interfaces only), "pci.<name>" (AER: "pci.TOTAL_ERR_COR",
// "pci.TOTAL_ERR_NONFATAL", "pci.TOTAL_ERR_FATAL", and their parts "pci.BadTLP",
// "pci.nonfatal.DLP", "pci.fatal.DLP").
using Readings = std::map<std::string, Reading>;

}  // namespace weft::fabric
