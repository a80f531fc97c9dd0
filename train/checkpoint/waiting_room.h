// WaitingRoom: files in FOLDER/waiting by which processes that want to join a job, and the job's
// rank 0, find each other. The room knows no replicas.
//
//   NAME          a process waits, and holds a lock on it
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
  // Takes the folder of --save.
  explicit WaitingRoom(const std::string& folder) : save_(folder), folder_(folder + "/waiting") {}

  // Rank 0 calls these: at the begin of a job it empties the room, at the end it sends all home.
  void open() const;
  void close() const;
  // Returns the names of the processes that wait, in their order.
  std::vector<std::string> waiting() const;
  void invite(const std::string& name, Rank rank, int size, const std::string& id) const;

  // Waits for an invitation; nothing where the job has ended. Throws Error where the process that
  // holds the lock of the checkpoints is gone for longer than `timeout`.
  std::optional<Invitation> wait(std::chrono::milliseconds timeout) const;

 private:
  bool job_lives() const;

  const std::string save_, folder_;
};

}  // namespace weft::train
