// PortCounters reads the port counters of this rank's rails while the rank runs: evidence for
// errors, slow operations, verdicts and reports.
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
  // Watches the rails of `place` from now on. All ranks of a host report the same port counters,
  // but each rank reports its own connections.
  PortCounters(const Place& place, std::string host);

  // trouble() counts from this moment on.
  void mark();
  // Returns the totals of the ports' counters, by rail.
  std::vector<CounterSnapshot> read() const;
  // Returns the signs of trouble since the mark, one line for each rail that has any, in rail
  // order: "rail 1 host h2: out_of_seq_request +299".
  std::vector<std::string> trouble() const;
  std::string trouble(int rail) const;  // empty: none
  // Returns all lines of trouble() as one; empty: none.
  std::string all_trouble() const;

 private:
  std::vector<Nic> rails_;
  std::string host_;
  mutable Mutex mutex_;
  std::vector<CounterSnapshot> mark_ WEFT_GUARDED_BY(mutex_);
};

// Reads the counters of a port. For a plain interface, as TCP uses it, reads the retransmissions of
// this process's own connections on the interface (TCP_INFO), and of the whole host.
CounterSnapshot read_rail(const Nic& rail);

}  // namespace weft
