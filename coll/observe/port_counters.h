// PortCounters reads the port counters of this rank's rails while the rank runs. Errors, slow
// operations, verdicts and reports include them as evidence.
#pragma once

#include <string>
#include <vector>

#include "topo/base/mutex.h"
#include "topo/counters.h"
#include "topo/topology.h"

namespace weft {

// Thread-safe.
class PortCounters {
 public:
  // Monitors the rails of `place` from construction on. All ranks of a host report the same port
  // counters, but each rank reports its own connections.
  PortCounters(const Place& place, std::string host);

  // Sets the start of the interval that trouble() reports.
  void mark();
  // Returns the totals of the ports' counters, by rail.
  std::vector<CounterSnapshot> read() const;
  // Returns the signs of trouble since mark(), one line for each rail with any, in rail order:
  // "rail 1 host h2: out_of_seq_request +299".
  std::vector<std::string> trouble() const;
  std::string trouble(int rail) const;  // empty: none
  // Returns all lines of trouble() as one line; empty: none.
  std::string all_trouble() const;

 private:
  std::vector<Nic> rails_;
  std::string host_;
  mutable Mutex mutex_;
  std::vector<CounterSnapshot> mark_ WEFT_GUARDED_BY(mutex_);
};

// Reads the counters of a port. For a plain interface, as used by TCP, reads the retransmissions of
// this process's own connections on the interface (TCP_INFO), and of the whole host.
CounterSnapshot read_rail(const Nic& rail);

}  // namespace weft
