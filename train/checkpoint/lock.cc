// The lock of a folder, with flock(). Does not depend on checkpoints.
#include "train/checkpoint/lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "topo/base/log.h"
#include "train/checkpoint/files.h"
#include "transport/launch/failures.h"

namespace weft::train {

FolderLock::FolderLock(Communicator comm, const std::string& folder) {
  char holder[256] = {};  // empty: the lock is free
  if (comm.rank() == 0) {
    const std::string path = folder + "/lock";
    std::error_code ignored;  // open() below reports the error
    std::filesystem::create_directories(folder, ignored);
    fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    // Another user's lock file in a shared folder: this process can lock but not write it.
    const bool signs = fd_ >= 0 || errno != EACCES;
    if (!signs) fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ >= 0 && flock(fd_, LOCK_EX | LOCK_NB) == 0) {
      const std::string me = fmt::format("process {} on host {}", getpid(), host_name());
      if (signs && (ftruncate(fd_, 0) != 0 || pwrite(fd_, me.data(), me.size(), 0) < 0))
        log().warn("checkpoint: cannot write {}: {}", path, std::strerror(errno));
    } else if (fd_ >= 0 && errno == EWOULDBLOCK) {
      if (pread(fd_, holder, sizeof holder - 1, 0) <= 0) std::strcpy(holder, "another process");
    } else {
      log().warn("checkpoint: cannot lock {}: {}; another job that saves there is not noticed",
                 path, std::strerror(errno));
    }
  }
  comm.broadcast(holder, holder, sizeof holder, DType::kUInt8, 0).check();
  if (holder[0] == '\0') return;
  if (fd_ >= 0) close(fd_);
  throw UsageError(
      fmt::format("--save {}: another job saves there ({}), and each would remove the other's "
                  "checkpoints; wait until it has ended, or name another folder",
                  folder, holder));
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace weft::train
