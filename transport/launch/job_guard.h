// A process that outlives the launcher of a local job by a moment, to kill what it left behind.
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

  // Forks it. Call while the process has one thread. Throws Error when that is refused.
  void start();
  // Process groups to kill when this process ends without having called end(), and when it has.
  void add(pid_t group) { tell(group); }
  void forget(pid_t group) { tell(-group); }
  // Lets the guard do its work, and waits for it.
  void end();

 private:
  void tell(pid_t group);

  Pipe pipe_;
  pid_t pid_ = -1;
};

}  // namespace weft
