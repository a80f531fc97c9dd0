// Differences between the readings of all ports. Judges nothing.
#include "perf/validate/report/counters.h"

namespace weft::fabric {

std::vector<CounterChange> counter_changes(const Report& report) {
  std::vector<CounterChange> rows;
  for (const HostFacts& host : report.facts.hosts) {
    std::vector<CounterChange> of_host;
    for (const PortFacts& port : host.ports)
      for (const auto& [name, reading] : port.after) {
        const auto before = port.before.find(name);
        if (before == port.before.end()) continue;
        const Change change = difference(before->second, reading, kind_of_counter(name));
        if (change.state == ChangeState::kUnknown || (change.exact() && change.change == 0))
          continue;
        if (!name.starts_with("tcp."))
          rows.push_back({host.host, port.device, port.rail, name, change});
        else if (&port == &host.ports.front())
          of_host.push_back({host.host, "", -1, name, change});
      }
    rows.insert(rows.end(), of_host.begin(), of_host.end());
  }
  return rows;
}

std::string_view word_of(ChangeState state) {
  constexpr std::string_view words[] = {"known", "wrapped", "reset", "saturated", "unknown"};
  return words[static_cast<int>(state)];
}

}  // namespace weft::fabric
