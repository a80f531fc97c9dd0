// WaitingRoom: files in FOLDER/waiting connect processes that wait to join a job with the job's
// rank 0. Does not depend on replicas.
//
//   NAME          a process waits, and holds the lock of this file
//   NAME.invited  "rank size id": the World that it joins
//   over          the job has ended
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "topo/base/status.h"

namespace weft::train {

struct Invitation {
  Rank rank = 0;
  int size = 0;
  std::string id;  // World::from_id()
};

class WaitingRoom {
 public:
  // `folder`: the folder of --save.
  explicit WaitingRoom(const std::string& folder) : save_(folder), folder_(folder + "/waiting") {}

  // For rank 0: open() clears the folder at the start of a job, close() ends all waits.
  void open() const;
  void close() const;
  // Returns the names of the waiting processes, sorted.
  std::vector<std::string> waiting() const;
  void invite(const std::string& name, Rank rank, int size, const std::string& id) const;

  // Waits for an invitation; nullopt if the job has ended. Throws Error if the process that holds
  // the checkpoint lock is dead for longer than `timeout`.
  std::optional<Invitation> wait(std::chrono::milliseconds timeout) const;

 private:
  bool job_lives() const;

  const std::string save_, folder_;
};

}  // namespace weft::train
