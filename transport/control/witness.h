// Who speaks for a rank while its program does something else: the control plane asks it, on its
// own thread, whenever a rank of the job, or somebody outside, wants to know what all ranks do.
#pragma once

#include <string>
#include <vector>

namespace weft {

// Calls are quick, come one at a time, and do not call the Job back.
class Witness {
 public:
  virtual ~Witness() = default;
  // What is known here, of this rank and of neighbours that cannot speak for themselves. At most
  // kMaxTestimonyBytes; longer ones are not passed on.
  virtual std::string snapshot() = 0;
  // Whether somebody outside the job wants to know. Asked with every heartbeat.
  virtual bool asked() = 0;
  // To them: snapshots by rank, empty where a rank did not answer.
  virtual void answer(const std::vector<std::string>& snapshots) = 0;
  // With every heartbeat.
  virtual void beat() {}
};

inline constexpr std::size_t kMaxTestimonyBytes = std::size_t{1} << 19;

}  // namespace weft
