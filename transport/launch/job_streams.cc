// Pipes, and copying of whole lines. Depends on ranks only for the prefix of a line.
#include "transport/launch/job_streams.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "topo/base/status.h"

namespace weft {

void fail_by_errno(const char* what) {
  const int error = errno;
  throw Error(fmt::format(
      "{} failed: {}{}", what, std::strerror(error),
      error == EMFILE   ? "; raise the limit with `ulimit -n` or LimitNOFILE="
      : error == EAGAIN ? "; raise the limit of processes (`ulimit -u`, TasksMax=, pids.max of the "
                          "control group)"
                        : ""));
}

void File::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Pipe make_pipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) fail_by_errno("pipe");
  return {File(fds[0]), File(fds[1])};
}

int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {  // another process made it non-blocking
      pollfd room{fd, POLLOUT, 0};
      (void)poll(&room, 1, -1);
      continue;
    }
    if (n < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return 0;
}

bool pass_lines(Stream& s) {
  char bytes[16384];
  const ssize_t got = ::read(s.from.get(), bytes, sizeof bytes);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  std::size_t looked = s.line.size();  // no newline before this position
  if (got > 0) s.line.append(bytes, static_cast<std::size_t>(got));
  std::string out;
  std::size_t from = 0;
  for (std::size_t end; (end = s.line.find('\n', looked)) != std::string::npos;) {
    out.append(s.tag).append(s.line, from, end + 1 - from);
    from = looked = end + 1;
  }
  s.line.erase(0, from);
  if (got <= 0 && !s.line.empty()) out.append(s.tag).append(std::exchange(s.line, {})).append("\n");
  if (const int error = write_all(s.to, out)) s.error = error;
  return got > 0;
}

}  // namespace weft
