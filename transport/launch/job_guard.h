// A process that outlives a local job's launcher by a moment, to kill the processes left behind.
#pragma once

#include <sys/types.h>

#include "transport/launch/job_streams.h"

namespace weft {

class Guard {
 public:
  Guard() = default;
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard() { end(); }

  // Forks the guard. The process must have one thread. Throws Error when the fork is refused.
  void start();
  // Adds a process group to those that the guard kills after end() or this process's death.
  void add(pid_t group) { tell(group); }
  // Removes a process group from them.
  void forget(pid_t group) { tell(-group); }
  // Makes the guard kill its groups, and waits until it has.
  void end();

 private:
  void tell(pid_t group);

  Pipe pipe_;
  pid_t pid_ = -1;
};

}  // namespace weft
