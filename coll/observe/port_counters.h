// PortCounters reads what the ports of this rank's rails count while the rank runs: evidence for
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
  // Watches the rails of `place` from now on. All ranks of a host report the same counters of a
  // port, but each rank reports its own connections.
  PortCounters(const Place& place, std::string host);

  // Sets the mark from which trouble() counts to now.
  void mark();
  // Returns, by rail, all that the ports have counted so far, ever.
  std::vector<CounterSnapshot> read() const;
  // Returns the signs of trouble since the mark, a line for each rail that has any, in the order of
  // rails: "rail 1 host h2: out_of_seq_request +299".
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

// Reads the counters of a port. For a plain interface, which TCP uses, reads the retransmissions of
// this process's own connections on the interface (TCP_INFO), and those of the whole host.
CounterSnapshot read_rail(const Nic& rail);

}  // namespace weft
