// FolderLock: lets one job at a time save in a folder. Each save removes older checkpoints, so two
// jobs would remove each other's checkpoints.
#pragma once

#include <string>

#include "coll/api/communicator.h"

namespace weft::train {

// Rank 0 holds the lock on FOLDER/lock until the destructor runs or the process ends.
class FolderLock {
 public:
  // Collective. Creates the folder and takes the lock. Throws UsageError on every rank, with the
  // holder's process and host, if another job holds the lock. On a file system without locks:
  // warns, and takes no lock.
  FolderLock(Communicator comm, const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace weft::train
