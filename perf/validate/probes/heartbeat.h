// Whether the tester's process ran all the time, or was stopped: by a signal, a debugger, a frozen
// or throttled control group, or a hypervisor.
#pragma once

#include <condition_variable>
#include <thread>

#include "perf/validate/facts/facts.h"
#include "topo/base/mutex.h"

namespace weft::fabric {

// Beats every 5 ms in a thread of its own, from construction to destruction. A beat that comes
// late for another reason than a wait for a core (see Starvation) is a stop.
class Heartbeat {
 public:
  Heartbeat();
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  Stops stops() const;  // until now; any thread

 private:
  void beat();

  mutable Mutex mutex_;
  std::condition_variable_any ended_;
  bool end_ WEFT_GUARDED_BY(mutex_) = false;
  Stops stops_ WEFT_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace weft::fabric
