// Differences of the readings of all ports. This file judges none of them.
#include "perf/validate/report/counters.h"

namespace weft::fabric {

std::vector<CounterChange> counter_changes(const Report& report) {
  std::vector<CounterChange> rows;
  for (const HostFacts& host : report.facts.hosts)
    for (const PortFacts& port : host.ports) {
      Readings before = port.before, after = port.after;
      for (const auto& [name, reading] : port.before) after.try_emplace(name);
      for (const auto& [name, reading] : after)
        rows.push_back({host.host, port.device, port.rail, name,
                        difference(before[name], reading, kind_of_counter(name))});
    }
  return rows;
}

std::string_view word_of(ChangeState state) {
  constexpr std::string_view words[] = {"known", "wrapped", "reset", "saturated", "unknown"};
  return words[static_cast<int>(state)];
}

}  // namespace weft::fabric
