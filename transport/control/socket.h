// Sockets of the control plane: owned, non-blocking, closed on exec and in forked children (a
// child that kept a copy would hide its parent's death from the other ranks).
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "topo/base/status.h"

namespace weft {

using Clock = std::chrono::steady_clock;

// Counts the forks between the first process of this library and this one.
int fork_generation() noexcept;

// A file descriptor that a forked child does not keep. Movable.
class Fd {
 public:
  Fd() = default;
  // `make()` returns a descriptor or -1 with errno; no fork can come between it and the ownership.
  template <typename Make>
  static Fd from(Make&& make) {
    const Lock lock;
    Fd fd;
    fd.adopt(make());
    return fd;
  }
  Fd(Fd&& other) noexcept;
  Fd& operator=(Fd&& other) noexcept;
  ~Fd() { reset(); }
  void reset() noexcept;
  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  struct Lock {
    Lock();
    ~Lock();
  };
  void adopt(int fd);

  int fd_ = -1;
  int generation_ = 0;
};

// One place where rank 0 may be reached.
struct Endpoint {
  sockaddr_storage address{};
  socklen_t bytes = 0;
  std::string text;  // "10.0.0.1:4711"
};

// Looks up each of the comma-separated addresses with each of the ports. Leaves out what cannot be
// looked up, and says why in `problem`. May block as long as the resolver does.
std::vector<Endpoint> resolve(const std::string& addresses, std::span<const std::uint16_t> ports,
                              std::string& problem);

// Listens on the first port that is free: on the loopback device when all addresses are its own,
// on every device otherwise. Throws Error naming the ports.
Fd listen_on(const std::string& addresses, std::span<const std::uint16_t> ports);
std::uint16_t port_of(int fd);
// How many connections that nobody has accepted yet a listener keeps on this host. Who comes then
// hears nothing, as from a host that is gone.
int listen_queue() noexcept;

// The numeric address of this end of a connection; empty when there is none.
std::string local_address(int fd);
// False when nobody listens there: a connection is refused at once. May wait a moment.
bool somebody_listens(const Endpoint& at) noexcept;

// Starts a connection; POLLOUT tells of its end. Without a descriptor, `error` says why not.
Fd start_connect(const Endpoint& to, int& error);
// The error of a connection attempt that has ended, 0 when it is connected.
int connect_error(int fd) noexcept;

// A connection waiting at `listener`; none with errno in `error`.
Fd accept_from(int listener, int& error);

Fd make_wake_fd();
void ring(const Fd& wake) noexcept;
void drain(const Fd& wake) noexcept;

// Lets this process open `more` further files, as far as it may. True: all of them.
bool allow_files(int more) noexcept;
// Makes sure that it may. Throws Error with the limit.
void need_files(int more);

// Milliseconds until `when` for poll(): rounded up, 0 when it has passed, at most one minute.
int poll_ms(Clock::time_point when, Clock::time_point now) noexcept;

// WEFT_HOST_ID, or the host's name.
std::string host_label();
// "rank 3 (host b, pid 1234)"
std::string describe_rank(Rank rank, const std::string& host, std::uint64_t pid);
// "rank 3", "ranks 3, 5", and beyond 16 "... and 40 more"
std::string name_ranks(const std::vector<Rank>& ranks);

}  // namespace weft
