// Reads the counters of ports and TCP connections, and detects signs of trouble in them. This file
// is independent of operations.
#include "coll/observe/port_counters.h"

#include <fmt/format.h>

#include <utility>

namespace weft {

namespace {

// Retransmissions of all TCP connections of the host.
constexpr const char* kOfHost = "tcp.host_retransmits";

}  // namespace

CounterSnapshot read_rail(const Nic& rail) {
  CounterSnapshot counters = read_counters(rail);
  if (rail.rdma) return counters;
  if (auto host = counters.extract("tcp.retransmits"); !host.empty()) {
    host.key() = kOfHost;
    counters.insert(std::move(host));
  }
  counters.merge(read_connections(rail.address));
  return counters;
}

PortCounters::PortCounters(const Place& place, std::string host)
    : rails_(place.rails), host_(std::move(host)) {
  mark();
}

std::vector<CounterSnapshot> PortCounters::read() const {
  std::vector<CounterSnapshot> all;
  for (const Nic& rail : rails_) {
    all.push_back(read_rail(rail));
    if (!rail.rdma) all.back().erase(kOfHost);
  }
  return all;
}

void PortCounters::mark() {
  std::vector<CounterSnapshot> now;
  for (const Nic& rail : rails_) now.push_back(read_rail(rail));
  const MutexLock lock(mutex_);
  mark_ = std::move(now);
}

std::string PortCounters::trouble(int rail) const {
  const auto r = static_cast<std::size_t>(rail);
  CounterSnapshot now = read_rail(rails_[r]);
  const MutexLock lock(mutex_);
  // When a connection closes, its counters disappear, and only the host's counter includes its
  // retransmissions. A connection may also have opened and closed since mark(); the host's counter
  // shows this only on a host with one rail.
  if (!rails_[r].rdma && mark_[r].contains(kOfHost)) {
    const CounterSnapshot& then = mark_[r];
    const bool none = rails_.size() == 1 && now["tcp.retransmits"] <= then.at("tcp.retransmits");
    if (none || now["tcp.connections"] < then.at("tcp.connections"))
      now["tcp.retransmits"] = then.at("tcp.retransmits") + now[kOfHost] - then.at(kOfHost);
    now.erase(kOfHost);
  }
  return evidence(rail, host_, signs_of_trouble(difference(mark_[r], now)));
}

std::vector<std::string> PortCounters::trouble() const {
  std::vector<std::string> lines;
  for (int r = 0; r < static_cast<int>(rails_.size()); ++r)
    if (std::string line = trouble(r); !line.empty()) lines.push_back(std::move(line));
  return lines;
}

std::string PortCounters::all_trouble() const {
  return fmt::format("{}", fmt::join(trouble(), "; "));
}

}  // namespace weft
