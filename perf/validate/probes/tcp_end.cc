// One end of a stream or a ping-pong over TCP. What a connection counts comes from TCP_INFO of
// linux/tcp.h, whose struct is longer than that of the C library.
#include <fmt/format.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <sstream>
#include <system_error>
#include <thread>

#include "perf/validate/probes/flow_end.h"
#include "perf/validate/probes/meter.h"
#include "topo/base/clock.h"
#include "transport/control/address.h"
#include "transport/control/socket.h"
#include "transport/tcp/socket.h"

namespace weft::fabric {
namespace {

constexpr double kConnectSeconds = 2.5;  // a lost SYN is repeated after 1 s
constexpr double kAcrossSeconds = 0.4;   // to another rail: most fabrics have no way there
constexpr double kTailSeconds = 1.5;     // for what waits in a shaper when the sender stops
constexpr std::size_t kBlock = 256 << 10, kPing = 64;
constexpr double kVictimPeriod = 500e-6;  // seconds between scheduled pings

std::string errno_text(const char* what) {
  return fmt::format("{}: {}", what, std::generic_category().message(errno));
}

// Waits for an event until a moment of now_s(). False: none came.
bool wait_for(int fd, short event, double until_s) {
  pollfd p{fd, event, 0};
  const double left = until_s - now_s();
  return poll(&p, 1, static_cast<int>(std::clamp(std::ceil(left * 1e3), 0.0, 1e6))) > 0;
}

class TcpEnd final : public FlowEnd {
 public:
  TcpEnd(const EndOrder& order, const Nic& rail) : order_(order), rail_(rail) {
    sample_.flow = order.flow;
    sample_.sends = order.sends;
  }

  std::string offer() override {
    if (order_.sends) return "";
    listener_ = tcp::open_socket(device(), rail_.address);
    if (!listener_ || listen(listener_.get(), 4) != 0) {
      fail(errno_text("listen"));
      return "";
    }
    unsigned char bytes[sizeof token_];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) {
      fail(errno_text("getrandom"));
      return "";
    }
    std::memcpy(&token_, bytes, sizeof token_);
    return fmt::format("{} {} {}", rail_.address, port_of(listener_.get()), token_);
  }

  void connect(const std::string& theirs) override {
    if (failed()) return;
    if (order_.sends)
      dial(theirs);
    else
      accept_one();
  }

  EndSample run() override {
    if (!failed() && !fd_) fail("not connected");
    if (!failed()) {
      const Starvation starvation;
      if (order_.probe == Probe::kLatency || order_.victim)
        order_.sends ? ping() : echo();
      else
        order_.sends ? send_stream() : recv_stream();
      sample_.starved = starvation.share();
    }
    return sample_;
  }

 private:
  const std::string& device() const { return rail_.netdev.empty() ? rail_.name : rail_.netdev; }
  bool failed() const { return !sample_.error.empty(); }
  void fail(std::string why) {
    if (sample_.error.empty()) sample_.error = std::move(why);
  }

  // Binds to a port that the label chooses, so that a hash over the ports takes another path.
  void bind_label() {
    if (order_.label <= 0) return;
    Address here;
    if (!parse_address(rail_.address, static_cast<std::uint16_t>(20000 + order_.label % 12000),
                       here))
      return;
    const int on = 1;
    setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    Fd other = Fd::from([&] {
      return socket(here.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    });
    setsockopt(other.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(other.get(), SOL_SOCKET, SO_BINDTODEVICE, device().c_str(),
               static_cast<socklen_t>(device() == "lo" ? 0 : device().size()));
    if (bind(other.get(), reinterpret_cast<const sockaddr*>(&here.bytes), here.length) == 0)
      fd_ = std::move(other);
  }

  double patience_s() const {
    return order_.probe == Probe::kCrossRail ? kAcrossSeconds : kConnectSeconds;
  }

  void dial(const std::string& theirs) {
    std::istringstream in(theirs);
    std::string address;
    std::uint16_t port = 0;
    if (!(in >> address >> port >> token_)) return fail("the receiver could not listen");
    fd_ = tcp::open_socket(device(), rail_.address);
    if (!fd_) return fail(errno_text("socket"));
    bind_label();
    if (const int error = tcp::start(fd_, address, port)) {
      errno = error;
      return fail(errno_text("connect"));
    }
    const double until = now_s() + patience_s();
    if (!wait_for(fd_.get(), POLLOUT, until)) {
      errno = ETIMEDOUT;
      return fail(errno_text("connect"));
    }
    int error = 0;
    socklen_t bytes = sizeof error;
    getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    if (error != 0) {
      errno = error;
      return fail(errno_text("connect"));
    }
    tcp::tune(fd_);
    if (send(fd_.get(), &token_, sizeof token_, MSG_NOSIGNAL) != sizeof token_)
      fail(errno_text("send"));
  }

  // Takes the connection whose first bytes are the token; strangers are turned away.
  void accept_one() {
    const double until = now_s() + patience_s() + 0.2;
    while (wait_for(listener_.get(), POLLIN, until)) {
      Fd caller = Fd::from(
          [&] { return accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
      std::uint64_t token = 0;
      if (!caller || !wait_for(caller.get(), POLLIN, until)) continue;
      if (recv(caller.get(), &token, sizeof token, MSG_WAITALL) != sizeof token || token != token_)
        continue;
      tcp::tune(caller);
      fd_ = std::move(caller);
      listener_.reset();
      return;
    }
    errno = ETIMEDOUT;
    fail(errno_text("accept"));
  }

  void send_stream() {
    if (order_.pace_gbps > 0) {
      const auto rate = static_cast<std::uint64_t>(order_.pace_gbps * 1e9 / 8);
      setsockopt(fd_.get(), SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
    }
    const std::vector<char> block(kBlock, 'w');
    const double start = now_s(), until = start + order_.seconds;
    while (now_s() < until) {
      const ssize_t n = send(fd_.get(), block.data(), block.size(), MSG_NOSIGNAL);
      if (n > 0) {
        sample_.bytes += static_cast<std::uint64_t>(n);
      } else if (errno == EAGAIN) {
        wait_for(fd_.get(), POLLOUT, until);
      } else {
        fail(errno_text("send"));
        break;
      }
    }
    sample_.seconds = now_s() - start;
    read_idle();
    shutdown(fd_.get(), SHUT_WR);
    // The tail counts too: a packet that is lost there is repeated after the sender has stopped.
    char end;
    if (!failed() && wait_for(fd_.get(), POLLIN, now_s() + kTailSeconds) &&
        recv(fd_.get(), &end, 1, 0) < 0)
      fail(errno_text("recv"));
    read_tcp_info();
  }

  // The share of the time so far in which the socket had nothing to send: what the sender's waits
  // for a core cost the stream. The kernel counts in its ticks.
  void read_idle() {
    tcp_info info{};
    socklen_t bytes = sizeof info;
    if (getsockopt(fd_.get(), IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return;
    if (bytes <= offsetof(tcp_info, tcpi_busy_time) || sample_.seconds <= 0) return;
    const double busy_s = 1e-6 * static_cast<double>(info.tcpi_busy_time);
    sample_.sender_idle = std::clamp(1 - busy_s / sample_.seconds, 0.0, 1.0);
  }

  void read_tcp_info() {
    tcp_info info{};
    socklen_t bytes = sizeof info;
    if (getsockopt(fd_.get(), IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return;
    const auto has = [&](std::size_t offset) { return bytes > offset; };
    if (has(offsetof(tcp_info, tcpi_data_segs_out))) {
      sample_.packets = info.tcpi_data_segs_out;
      std::uint32_t needless = 0;  // the receiver had the packet already, and says so (DSACK)
      if (has(offsetof(tcp_info, tcpi_dsack_dups))) needless = info.tcpi_dsack_dups;
      sample_.retransmits = info.tcpi_total_retrans - std::min(needless, info.tcpi_total_retrans);
      sample_.min_rtt_us = info.tcpi_min_rtt;
    }
    if (has(offsetof(tcp_info, tcpi_sndbuf_limited)) && info.tcpi_busy_time > 0) {
      const auto busy = static_cast<double>(info.tcpi_busy_time);
      sample_.receiver_limited = static_cast<double>(info.tcpi_rwnd_limited) / busy;
      sample_.sender_limited = static_cast<double>(info.tcpi_sndbuf_limited) / busy;
    }
  }

  void recv_stream() {
    WindowMeter meter(order_.seconds);
    std::vector<char> block(kBlock);
    const double until = now_s() + order_.seconds + kTailSeconds;
    while (true) {
      const ssize_t n = recv(fd_.get(), block.data(), block.size(), 0);
      if (n > 0) {
        meter.add(now_s(), static_cast<std::uint64_t>(n));
      } else if (n == 0) {
        break;
      } else if (errno != EAGAIN) {
        fail(errno_text("recv"));
        break;
      } else if (!wait_for(fd_.get(), POLLIN, until)) {
        break;
      }
      if (now_s() > until) break;
    }
    sample_.bytes = meter.bytes();
    sample_.seconds = meter.seconds();
    sample_.window_gbps = meter.windows();
    sample_.window_s = meter.window_s();
    if (sample_.bytes == 0) fail("connected, and no byte arrived");
    shutdown(fd_.get(), SHUT_WR);
  }

  bool move_ping(bool out, char* data, double until) {
    std::size_t done = 0;
    while (done < kPing) {
      const ssize_t n = out ? send(fd_.get(), data + done, kPing - done, MSG_NOSIGNAL)
                            : recv(fd_.get(), data + done, kPing - done, 0);
      if (n > 0)
        done += static_cast<std::size_t>(n);
      else if (n == 0 || errno != EAGAIN || !wait_for(fd_.get(), out ? POLLOUT : POLLIN, until))
        return false;
    }
    return true;
  }

  // Round trips one after the other; under load at fixed times, so that a late answer does not hide
  // the ones that would have been late behind it (coordinated omission).
  void ping() {
    char data[kPing] = {};
    PingTimes times(order_.seconds, !order_.victim);
    const double start = now_s();
    for (int i = 0; times.more(); ++i) {
      double began = now_s();
      if (order_.victim) {
        const double due = start + i * kVictimPeriod;
        if (due > began) std::this_thread::sleep_for(std::chrono::duration<double>(due - began));
        began = std::max(due, start);
      }
      const double until = times.latest() + kTailSeconds;
      if (!move_ping(true, data, until) || !move_ping(false, data, until)) {
        errno = ETIMEDOUT;
        fail(errno_text("ping"));
        break;
      }
      times.add(now_s() - began);
    }
    sample_.seconds = times.seconds();
    sample_.latency = times.summary();
    shutdown(fd_.get(), SHUT_WR);
    read_tcp_info();
  }

  void echo() {
    char data[kPing];
    const double until = now_s() + order_.seconds + kTailSeconds;
    while (move_ping(false, data, until) && move_ping(true, data, until)) sample_.bytes += kPing;
  }

  const EndOrder order_;
  const Nic rail_;
  EndSample sample_;
  std::uint64_t token_ = 0;
  Fd listener_, fd_;
};

}  // namespace

std::unique_ptr<FlowEnd> make_tcp_end(const EndOrder& order, const Nic& rail) {
  return std::make_unique<TcpEnd>(order, rail);
}

}  // namespace weft::fabric
