// Socket system calls, and closing of sockets in forked children. This file is independent of
// frames.
#include "transport/control/socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "topo/base/mutex.h"
#include "transport/control/address.h"

namespace weft {
namespace {

// Never destroyed: a fork may happen during the destruction of static objects.
struct ForkGuard {
  Mutex mutex;
  std::vector<bool> ours WEFT_GUARDED_BY(mutex);  // true for descriptors owned by an Fd
  std::atomic<int> generation{0};

  ForkGuard() { pthread_atfork(before, in_parent, in_child); }
  static ForkGuard& get() {
    static ForkGuard* const guard = new ForkGuard;
    return *guard;
  }
  // The lock is taken before the fork and released after it, in different functions.
  static void before() WEFT_NO_THREAD_SAFETY_ANALYSIS { get().mutex.lock(); }
  static void in_parent() WEFT_NO_THREAD_SAFETY_ANALYSIS { get().mutex.unlock(); }
  static void in_child() WEFT_NO_THREAD_SAFETY_ANALYSIS {
    ForkGuard& guard = get();
    for (std::size_t fd = 0; fd < guard.ours.size(); ++fd) {
      if (guard.ours[fd]) ::close(static_cast<int>(fd));
      guard.ours[fd] = false;
    }
    guard.generation.fetch_add(1, std::memory_order_relaxed);
    guard.mutex.unlock();
  }
};

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (std::size_t from = 0; from <= list.size();) {
    const std::size_t comma = std::min(list.find(',', from), list.size());
    if (comma > from) parts.push_back(list.substr(from, comma - from));
    from = comma + 1;
  }
  return parts;
}

// Loopback addresses that a listener on 127.0.0.1 or ::1 covers. Excludes the rest of 127/8, since
// a host's own name may resolve to 127.0.1.1.
bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address == "127.0.0.1";
}

constexpr int kListenQueue = 4096;

void set_option(int fd, int level, int name, int value) noexcept {
  (void)setsockopt(fd, level, name, &value, sizeof value);
}

// Creates a TCP socket whose segments fit the MTU of every network, so that the control plane can
// report a port or switch that drops packets of the declared MTU. RFC 8200: the minimum MTU is
// 1,280 bytes.
Fd make_socket(int family) {
  constexpr int kSegment = 1200;  // 1,280 bytes less the IPv6 header and TCP with options
  Fd fd = Fd::from([&] { return ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
  if (fd) set_option(fd.get(), IPPROTO_TCP, TCP_MAXSEG, kSegment);
  return fd;
}

// Listens on one port. On failure the Fd is empty and `error` has errno.
Fd try_listen(bool loopback, bool six, std::uint16_t port, int& error) {
  Fd fd = make_socket(six ? AF_INET6 : AF_INET);
  if (!fd) {
    error = errno;
    return fd;
  }
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  if (six) {
    set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, loopback ? 1 : 0);
    auto& address = reinterpret_cast<sockaddr_in6&>(storage);
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    address.sin6_addr = loopback ? in6addr_loopback : in6addr_any;
    bytes = sizeof address;
  } else {
    auto& address = reinterpret_cast<sockaddr_in&>(storage);
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY);
    bytes = sizeof address;
  }
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&storage), bytes) != 0 ||
      ::listen(fd.get(), kListenQueue) != 0) {
    error = errno;
    fd.reset();
  }
  return fd;
}

}  // namespace

int fork_generation() noexcept {
  return ForkGuard::get().generation.load(std::memory_order_relaxed);
}

Fd::Lock::Lock() { ForkGuard::get().mutex.lock(); }
Fd::Lock::~Lock() { ForkGuard::get().mutex.unlock(); }

// The caller holds a Lock. The header cannot annotate this, since it does not declare the mutex.
void Fd::adopt(int fd) WEFT_NO_THREAD_SAFETY_ANALYSIS {
  fd_ = fd;
  if (fd < 0) return;
  ForkGuard& guard = ForkGuard::get();
  generation_ = guard.generation.load(std::memory_order_relaxed);
  const auto index = static_cast<std::size_t>(fd);
  if (guard.ours.size() <= index) guard.ours.resize(index + 1);
  guard.ours[index] = true;
}

Fd::Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)), generation_(other.generation_) {}

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
    generation_ = other.generation_;
  }
  return *this;
}

void Fd::reset() noexcept {
  if (fd_ < 0) return;
  ForkGuard& guard = ForkGuard::get();
  const MutexLock lock(guard.mutex);
  // In a forked child the descriptor is already closed and its number may be reused.
  if (generation_ == guard.generation.load(std::memory_order_relaxed)) {
    guard.ours[static_cast<std::size_t>(fd_)] = false;
    ::close(fd_);
  }
  fd_ = -1;
}

std::vector<Endpoint> resolve(const std::string& addresses, std::span<const std::uint16_t> ports,
                              std::string& problem) {
  std::vector<Endpoint> endpoints;
  for (const std::string& address : split(addresses)) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int rc = getaddrinfo(address.c_str(), nullptr, &hints, &found); rc != 0) {
      problem = fmt::format("cannot look up \"{}\": {}", address, gai_strerror(rc));
      continue;
    }
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
    for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
      for (const std::uint16_t port : ports) {
        Endpoint e;
        std::memcpy(&e.address, a->ai_addr, a->ai_addrlen);
        e.bytes = a->ai_addrlen;
        char host[NI_MAXHOST] = "?";
        (void)getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
        if (a->ai_family == AF_INET6) {
          reinterpret_cast<sockaddr_in6&>(e.address).sin6_port = htons(port);
          e.text = fmt::format("[{}]:{}", host, port);
        } else if (a->ai_family == AF_INET) {
          reinterpret_cast<sockaddr_in&>(e.address).sin_port = htons(port);
          e.text = fmt::format("{}:{}", host, port);
        } else {
          continue;
        }
        endpoints.push_back(std::move(e));
      }
    }
  }
  return endpoints;
}

Fd listen_on(const std::string& addresses, std::span<const std::uint16_t> ports) {
  const std::vector<std::string> list = split(addresses);
  const bool loopback = !list.empty() && std::all_of(list.begin(), list.end(), is_loopback);
  const bool six = !loopback || (list.size() == 1 && list[0] == "::1");
  int error = EINVAL;
  for (const std::uint16_t port : ports) {
    if (Fd fd = try_listen(loopback, six, port, error)) return fd;
    // The host has no IPv6.
    if (six && !loopback && error != EADDRINUSE) {
      if (Fd fd = try_listen(loopback, false, port, error)) return fd;
    }
  }
  throw Error(fmt::format(
      "rank 0 cannot listen on port{} {} of \"{}\": {}; end the program that uses it, or choose "
      "another port (WEFT_ROOT or MASTER_PORT)",
      ports.size() == 1 ? "" : "s", fmt::join(ports, ", "), addresses, std::strerror(error)));
}

Fd listen_at(const std::string& address) {
  std::string problem;
  const std::vector<std::uint16_t> any{0};
  const std::vector<Endpoint> at = resolve(address, any, problem);
  Fd fd = at.empty() ? Fd() : make_socket(at[0].address.ss_family);
  const auto* to = at.empty() ? nullptr : reinterpret_cast<const sockaddr*>(&at[0].address);
  if (!fd || ::bind(fd.get(), to, at[0].bytes) != 0 || ::listen(fd.get(), kListenQueue) != 0)
    throw Error(fmt::format("cannot listen on {}: {}", address,
                            at.empty() ? problem : std::strerror(errno)));
  return fd;
}

int listen_queue() noexcept {
  int most = 128;  // fallback: the kernel's default before 5.4
  if (std::FILE* file = std::fopen("/proc/sys/net/core/somaxconn", "re")) {
    if (std::fscanf(file, "%d", &most) != 1) most = 128;
    std::fclose(file);
  }
  return std::min(most, kListenQueue);
}

std::uint16_t port_of(int fd) {
  sockaddr_storage storage{};
  socklen_t bytes = sizeof storage;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &bytes) != 0) return 0;
  if (storage.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

Fd open_socket(const std::string& device, const std::string& address, bool datagrams,
               std::uint16_t port) {
  Address here;
  if (!parse_address(address, port, here)) {
    errno = EADDRNOTAVAIL;
    return {};
  }
  const int type = datagrams ? SOCK_DGRAM : SOCK_STREAM;
  Fd fd = Fd::from(
      [&] { return socket(here.bytes.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  if (!fd) return {};
  // Binds to the device so that a rail never uses another one. Old kernels require a privilege for
  // this; without it the address and the routes select the device.
  if (device != "lo")
    setsockopt(fd.get(), SOL_SOCKET, SO_BINDTODEVICE, device.c_str(),
               static_cast<socklen_t>(device.size()));
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&here.bytes), here.length) == 0) return fd;
  return port != 0 ? open_socket(device, address, datagrams) : Fd();
}

std::string local_address(int fd) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  char text[NI_MAXHOST];
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &bytes) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&address), bytes, text, sizeof text, nullptr, 0,
                  NI_NUMERICHOST) != 0)
    return {};
  const std::string_view mapped = "::ffff:";  // an IPv4 address on a dual-stack socket
  return std::string_view(text).starts_with(mapped) ? text + mapped.size() : text;
}

bool somebody_listens(const Endpoint& at) noexcept {
  int error = 0;
  const Fd fd = start_connect(at, error);
  if (!fd) return error != ECONNREFUSED;
  pollfd polled{fd.get(), POLLOUT, 0};
  if (::poll(&polled, 1, 100) <= 0) return true;  // unknown: assume yes
  return connect_error(fd.get()) != ECONNREFUSED;
}

Fd start_connect(const Endpoint& to, int& error) {
  Fd fd = make_socket(to.address.ss_family);
  error = fd ? 0 : errno;
  if (!fd) return fd;
  set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  const auto* address = reinterpret_cast<const sockaddr*>(&to.address);
  if (::connect(fd.get(), address, to.bytes) != 0 && errno != EINPROGRESS && errno != EINTR) {
    error = errno;
    fd.reset();
  }
  return fd;
}

int connect_error(int fd) noexcept {
  int error = 0;
  socklen_t bytes = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) return errno;
  return error;
}

Fd accept_from(int listener, int& error) {
  Fd fd = Fd::from([&] {
    const int accepted = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    error = accepted < 0 ? errno : 0;
    return accepted;
  });
  if (fd) set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  return fd;
}

Fd make_wake_fd() {
  Fd fd = Fd::from([] { return ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC); });
  if (!fd) throw Error(fmt::format("cannot make an eventfd: {}", std::strerror(errno)));
  return fd;
}

void ring(const Fd& wake) noexcept {
  const std::uint64_t one = 1;
  // Fails only if the counter is at its maximum, and then the reader wakes up anyway.
  [[maybe_unused]] const ssize_t written = ::write(wake.get(), &one, sizeof one);
}

void drain(const Fd& wake) noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = ::read(wake.get(), &count, sizeof count);
}

namespace {

rlim_t files_with(int more) { return static_cast<rlim_t>(more) + 256; }  // for other open files

}  // namespace

bool allow_files(int more) noexcept {
  rlimit limit{};
  const rlim_t need = files_with(more);
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= need) return true;
  limit.rlim_cur = std::min(need, limit.rlim_max);
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= need;
}

void need_files(int more) {
  if (allow_files(more)) return;
  rlimit limit{};
  (void)getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t need = files_with(more);
  throw Error(
      fmt::format("rank 0 needs {} open files and may have {}: raise it with `ulimit -n "
                  "{}` or LimitNOFILE=",
                  need, limit.rlim_max, need));
}

int poll_ms(Clock::time_point when, Clock::time_point now) noexcept {
  if (when <= now) return 0;
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(when - now);
  return static_cast<int>(std::min<std::int64_t>(wait.count(), 60000));
}

std::string host_label() {
  if (const char* id = std::getenv("WEFT_HOST_ID"); id != nullptr && *id != '\0') return id;
  char host[256] = "?";
  (void)gethostname(host, sizeof host - 1);
  return host;
}

std::string describe_rank(Rank rank, const std::string& host, std::uint64_t pid) {
  return fmt::format("rank {} (host {}, pid {})", rank, host, pid);
}

std::string name_ranks(const std::vector<Rank>& ranks) {
  constexpr std::size_t kNamed = 16;
  const std::span<const Rank> named(ranks.data(), std::min(ranks.size(), kNamed));
  std::string text = fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(named, ", "));
  if (ranks.size() > kNamed) text += fmt::format(" and {} more", ranks.size() - kNamed);
  return text;
}

}  // namespace weft
