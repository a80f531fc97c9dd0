// FolderLock: gives a folder of checkpoints to one job at a time. Each save removes older
// checkpoints, so two jobs would remove each other's. The lock does not know checkpoints.
#pragma once

#include <string>

#include "coll/api/communicator.h"

namespace weft::train {

// Rank 0 holds the lock on FOLDER/lock until the destructor runs or the process ends in any way.
class FolderLock {
 public:
  // Makes the folder and takes the lock. A collective call; throws UsageError on every rank, with
  // the holder's process and host, where another job holds the lock. A file system without locks
  // gives a warning, and no lock.
  FolderLock(Communicator comm, const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace weft::train
