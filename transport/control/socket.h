// Sockets of the control plane: non-blocking, closed on exec and in forked children (a copy in a
// child would keep the connection open after its parent's death, which the other ranks then could
// not detect).
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

// Returns the number of forks between the first process that loaded the library and this process.
int fork_generation() noexcept;

// Owns a file descriptor that is closed in forked children. Movable.
class Fd {
 public:
  Fd() = default;
  // `make()` returns a descriptor or -1 with errno; no fork can occur between make() and the
  // registration of the descriptor.
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

// One address and port at which rank 0 may listen.
struct Endpoint {
  sockaddr_storage address{};
  socklen_t bytes = 0;
  std::string text;  // "10.0.0.1:4711"
};

// Resolves each of the comma-separated addresses with each of the ports. Omits an address that does
// not resolve and stores the reason in `problem`. Blocks until the resolver returns.
std::vector<Endpoint> resolve(const std::string& addresses, std::span<const std::uint16_t> ports,
                              std::string& problem);

// Listens on the first free port: on the loopback device if all addresses are loopback addresses,
// otherwise on every device. Throws Error with the ports.
Fd listen_on(const std::string& addresses, std::span<const std::uint16_t> ports);
// Listens on any port of one address, and on no other address. Throws Error with the address.
Fd listen_at(const std::string& address);
// Returns the port on which a socket listens.
std::uint16_t port_of(int fd);
// Returns the number of connections that a listener of this host queues before accept(). Further
// connection requests get no response, as from a dead host.
int listen_queue() noexcept;

// Opens a rail's socket, bound to the device and its address, on `port` if it is free, otherwise on
// any port (0: any). On failure the Fd is empty and errno contains the reason.
Fd open_socket(const std::string& device, const std::string& address, bool datagrams = false,
               std::uint16_t port = 0);

// Returns the numeric local address of a connection; empty if it has none.
std::string local_address(int fd);
// Returns false if no process listens at the endpoint. May wait up to 100 ms.
bool somebody_listens(const Endpoint& at) noexcept;

// Starts to connect; POLLOUT reports the outcome. On failure the Fd is empty, and `error` is the
// errno.
Fd start_connect(const Endpoint& to, int& error);
// Returns the errno of a finished connection attempt, 0 if it connected.
int connect_error(int fd) noexcept;

// Accepts a pending connection. On failure the Fd is empty, and `error` is the errno.
Fd accept_from(int listener, int& error);

Fd make_wake_fd();
void ring(const Fd& wake) noexcept;
void drain(const Fd& wake) noexcept;

// Raises the limit of open files by `more`, as far as permitted. Returns whether the new limit
// permits all `more` files.
bool allow_files(int more) noexcept;
// Raises the limit of open files by `more`. Throws Error with the limit if it cannot.
void need_files(int more);

// Returns the milliseconds from `now` to `when` for poll(): rounded up, and limited to 0 to 60,000.
int poll_ms(Clock::time_point when, Clock::time_point now) noexcept;

// Returns WEFT_HOST_ID, or the hostname if unset.
std::string host_label();
// "rank 3 (host b, pid 1234)"
std::string describe_rank(Rank rank, const std::string& host, std::uint64_t pid);
// "rank 3", "ranks 3, 5", and beyond 16 "... and 40 more"
std::string name_ranks(const std::vector<Rank>& ranks);

}  // namespace weft
