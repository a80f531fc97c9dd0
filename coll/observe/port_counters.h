// What the ports of this rank's rails count while it runs: evidence for an error, a slow operation,
// a verdict, a report.
#pragma once

#include <string>
#include <vector>

#include "topo/counters.h"
#include "topo/base/mutex.h"
#include "topo/topology.h"

namespace weft {

// Thread-safe.
class PortCounters {
 public:
  // Of the rails of `place`; what is told begins now. Several ranks of a host tell the same of a
  // port, and each its own of its connections.
  PortCounters(const Place& place, std::string host);

  // What is told begins anew.
  void mark();
  // By rail: all that has been counted so far, ever.
  std::vector<CounterSnapshot> read() const;
  // Signs of trouble since the mark, a line for each rail that has any: "rail 1 host h2:
  // out_of_seq_request +299". In the order of rails.
  std::vector<std::string> trouble() const;
  std::string trouble(int rail) const;  // empty: none
  // All lines as one; empty: none.
  std::string all_trouble() const;

 private:
  std::vector<Nic> rails_;
  std::string host_;
  mutable Mutex mutex_;
  std::vector<CounterSnapshot> mark_ WEFT_GUARDED_BY(mutex_);
};

// The counters of a port; of a plain interface, whose transport uses TCP, the retransmissions of
// this process's own connections on it (TCP_INFO), and beside them those of the whole host.
CounterSnapshot read_rail(const Nic& rail);

}  // namespace weft
