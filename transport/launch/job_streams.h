// The pipes of a local job's processes, and what the ranks write, passed on line by line.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace weft {

// A file descriptor. Unlike Fd (transport/control/socket.h), a forked child keeps it.
class File {
 public:
  explicit File(int fd = -1) : fd_(fd) {}
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~File() { close(); }
  void close();
  int get() const { return fd_; }

 private:
  int fd_;
};

struct Pipe {
  File read, write;
};

// Closed on exec. Throws Error.
Pipe make_pipe();

// One of a rank's two streams, cut into lines.
struct Stream {
  File from;
  int to = -1;
  std::string tag, line;  // put before each line; one that has not ended yet
  int error = 0;          // of a write: lines were lost
};

// Passes on what has arrived; false at the end of the stream.
bool pass_lines(Stream& stream);

// 0, or what errno says where it cannot be written.
int write_all(int fd, std::string_view text);

// Throws Error with what errno says, and the limit to raise.
[[noreturn]] void fail_by_errno(const char* what);

}  // namespace weft
