// A Witness reports a rank's state while the rank's program is busy: the control plane's thread
// calls it when a rank or an observer outside the job wants snapshots of all ranks.
#pragma once

#include <string>
#include <vector>

namespace weft {

// Calls must be quick and must not call the Job. The control plane serializes them.
class Witness {
 public:
  virtual ~Witness() = default;
  // Returns a snapshot of this rank and of neighbors that do not answer themselves, at most
  // kMaxTestimonyBytes; longer ones are dropped.
  virtual std::string snapshot() = 0;
  // Returns whether an outside observer requests snapshots. Called at every heartbeat.
  virtual bool asked() = 0;
  // Delivers the snapshots to the observer, by rank; empty for a rank that did not answer.
  virtual void answer(const std::vector<std::string>& snapshots) = 0;
  // Called at every heartbeat.
  virtual void beat() {}
};

inline constexpr std::size_t kMaxTestimonyBytes = std::size_t{1} << 19;

}  // namespace weft
