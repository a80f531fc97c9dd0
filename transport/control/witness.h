// A Witness tells a rank's state while the rank's program is busy: the control plane's thread asks
// the witness when a rank or an observer outside the job wants snapshots of all ranks.
#pragma once

#include <string>
#include <vector>

namespace weft {

// Every call is quick and must not call the Job. The control plane makes one call at a time.
class Witness {
 public:
  virtual ~Witness() = default;
  // Returns a snapshot of this rank and of neighbours that do not answer themselves, at most
  // kMaxTestimonyBytes; the control plane drops a longer snapshot.
  virtual std::string snapshot() = 0;
  // Returns whether an observer outside the job asks for snapshots. Called at every heartbeat.
  virtual bool asked() = 0;
  // Gives the observer the snapshots by rank; that of a rank which did not answer is empty.
  virtual void answer(const std::vector<std::string>& snapshots) = 0;
  // Called at every heartbeat.
  virtual void beat() {}
};

inline constexpr std::size_t kMaxTestimonyBytes = std::size_t{1} << 19;

}  // namespace weft
