// A folder of checkpoints belongs to one job at a time: each save removes what is older than its
// own, so two jobs would remove each other's. Knows nothing of what is in it.
#pragma once

#include <string>

#include "coll/api/communicator.h"

namespace weft::train {

// Held by rank 0 in FOLDER/lock, until it is destroyed or the process ends, however it ends.
class FolderLock {
 public:
  // Makes the folder. A collective call; throws UsageError on every rank where another job holds
  // it, with its process and host. A file system without locks is used without one, with a warning.
  FolderLock(Communicator comm, const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace weft::train
