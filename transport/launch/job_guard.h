// The guard: a process that outlives a local job's launcher briefly, to kill the remaining
// processes of the job.
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

  // Forks the guard. The process must be single-threaded. Throws Error if the fork fails.
  void start();
  // Adds a process group that the guard kills after end() or this process's death.
  void add(pid_t group) { tell(group); }
  // Removes a process group.
  void forget(pid_t group) { tell(-group); }
  // Makes the guard kill its groups, and waits until it has exited.
  void end();

 private:
  void tell(pid_t group);

  Pipe pipe_;
  pid_t pid_ = -1;
};

}  // namespace weft
