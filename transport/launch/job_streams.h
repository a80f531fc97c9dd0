// The pipes of a local job's processes, and the copying of the ranks' output line by line.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace weft {

// Owns a file descriptor. Unlike Fd (transport/control/socket.h), it stays open in a forked child.
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

// Makes a pipe whose ends close on exec. Throws Error.
Pipe make_pipe();

// A rank's stdout or stderr, split into lines.
struct Stream {
  File from;
  int to = -1;
  std::string tag, line;  // the prefix of each line; the incomplete line
  int error = 0;          // errno of a failed write, which lost lines
};

// Copies the lines that have arrived; returns false at the end of the stream.
bool pass_lines(Stream& stream);

// Writes all of `text`; returns 0 or errno.
int write_all(int fd, std::string_view text);

// Throws Error with the text of errno and the limit to raise.
[[noreturn]] void fail_by_errno(const char* what);

}  // namespace weft
