// Writes whole files by write, sync and rename. Does not depend on checkpoints.
#include "train/checkpoint/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace weft::train {
namespace {

class File {
 public:
  File(const std::string& path, int flags)
      : path_(path),
        reads_((flags & (O_WRONLY | O_DIRECTORY)) == 0),
        fd_(open(path.c_str(), flags, 0644)) {
    if (fd_ < 0) fail("open", "does the folder exist, and may this user use it?");
  }
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }
  void sync() {
    if (fsync(fd_) != 0) fail("sync", "is the disk full or failing?");
  }
  [[noreturn]] void fail(const char* what, const char* hint) const {
    const int error = errno;
    const std::string text =
        fmt::format("checkpoint: cannot {} {}: {}; {}", what, path_, std::strerror(error), hint);
    // ENOTDIR: a path component is a file, so the checkpoint does not exist, either.
    if (reads_ && (error == ENOENT || error == ENOTDIR)) throw Damaged(text);
    if (reads_) throw Unreadable(text);
    throw Error(text);
  }

 private:
  std::string path_;
  bool reads_;
  int fd_;
};

}  // namespace

void write_whole(const std::string& path, std::span<const std::span<const std::byte>> parts) {
  const std::string beside = path + ".tmp";
  {
    File file(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC);
    for (std::span<const std::byte> part : parts)
      while (!part.empty()) {
        const ssize_t n = write(file.fd(), part.data(), part.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) file.fail("write", "is the disk full?");
        part = part.subspan(static_cast<std::size_t>(n));
      }
    file.sync();
  }
  if (std::rename(beside.c_str(), path.c_str()) != 0)
    throw Error(
        fmt::format("checkpoint: cannot rename {} to {}: {}", beside, path, std::strerror(errno)));
  sync_folder(std::filesystem::path(path).parent_path());
}

void sync_folder(const std::string& path) { File(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC).sync(); }

void write_whole(const std::string& path, const std::string& text) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(text));
  write_whole(path, std::span(&bytes, 1));
}

std::string read_whole(const std::string& path) {
  File file(path, O_RDONLY | O_CLOEXEC);
  std::string text;
  char buffer[65536];
  for (;;) {
    const ssize_t n = read(file.fd(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) file.fail("read", "is the disk failing?");
    if (n == 0) return text;
    text.append(buffer, static_cast<std::size_t>(n));
  }
}

std::vector<std::byte> read_part(const std::string& path, std::uint64_t offset, std::size_t bytes) {
  File file(path, O_RDONLY | O_CLOEXEC);
  std::vector<std::byte> data(bytes);
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t n =
        pread(file.fd(), data.data() + done, bytes - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) file.fail("read", "is the disk failing?");
    if (n == 0)
      throw Damaged(
          fmt::format("checkpoint: {} is cut off: {} bytes at {} are wanted, {} are there", path,
                      bytes, offset, done));
    done += static_cast<std::size_t>(n);
  }
  return data;
}

std::string host_name() {
  char host[HOST_NAME_MAX + 1] = {};
  gethostname(host, sizeof host - 1);
  return host;
}

std::string hex(std::uint32_t value) { return fmt::format("{:08x}", value); }

}  // namespace weft::train
