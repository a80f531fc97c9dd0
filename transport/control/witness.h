// A Witness reports a rank's state while the rank's program is busy: the control plane's thread
// calls it if a rank or an observer outside the job requests snapshots of all ranks.
#pragma once

#include <string>
#include <vector>

namespace weft {

// Calls must return quickly and must not call the Job. The control plane serializes them.
class Witness {
 public:
  virtual ~Witness() = default;
  // Returns snapshots of this rank and of ranks of its machine that do not respond themselves, at
  // most kMaxTestimonyBytes; longer texts are dropped.
  virtual std::string snapshot() = 0;
  // Returns whether an outside observer requests snapshots. Called at every heartbeat.
  virtual bool asked() = 0;
  // Delivers the snapshots to the observer, by rank; an entry is empty if the rank did not respond.
  virtual void answer(const std::vector<std::string>& snapshots) = 0;
  // Called at every heartbeat.
  virtual void beat() {}
};

inline constexpr std::size_t kMaxTestimonyBytes = std::size_t{1} << 19;

}  // namespace weft
