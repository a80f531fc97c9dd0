// Detects whether the tester's process was stopped: by a signal, a debugger, a frozen or throttled
// cgroup, or a hypervisor.
#pragma once

#include <condition_variable>
#include <thread>

#include "perf/validate/facts/facts.h"
#include "topo/base/mutex.h"

namespace weft::fabric {

// Wakes every 5 ms in its own thread, from construction to destruction. A late wakeup that was not
// a wait for a core (see Starvation) is treated as a stop.
class Heartbeat {
 public:
  Heartbeat();
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  Stops stops() const;  // the stops since construction; thread-safe

 private:
  void beat();

  mutable Mutex mutex_;
  std::condition_variable_any ended_;
  bool end_ WEFT_GUARDED_BY(mutex_) = false;
  Stops stops_ WEFT_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace weft::fabric
