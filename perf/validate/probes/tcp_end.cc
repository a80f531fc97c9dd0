// One end of a stream or ping-pong over TCP. Counters come from TCP_INFO of linux/tcp.h, whose
// struct is longer than the C library's.
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
#include "topo/base/thread.h"
#include "topo/sysfs.h"
#include "transport/control/address.h"
#include "transport/control/socket.h"
#include "transport/tcp/socket.h"

namespace weft::fabric {
namespace {

constexpr double kConnectSeconds = 2.5;  // a lost SYN is resent after 1 s
// Time to connect to another rail: most fabrics have no route.
constexpr double kAcrossSeconds = 0.4;
// Time for data still queued in a shaper when the sender stops.
constexpr double kTailSeconds = 1.5;
constexpr std::size_t kBlock = 256 << 10, kPing = 64;
// Source ports of labels: a label's own port, or one a multiple of kPortStep after it. The receiver
// of a labeled flow listens on the first free port of a small range, so that a repeat of the flow
// has the same 5-tuple, and thus the same hash.
constexpr int kFirstPort = 20000, kPorts = 12000, kPortStep = kPorts / 8;
constexpr int kFirstListened = 19900, kListened = 64;
constexpr char kEnd = 'e';  // the last byte of a stream

std::string errno_text(const char* what) {
  return fmt::format("{}: {}", what, std::generic_category().message(errno));
}

// Waits for an event until `until_s` of now_s(). Returns false on timeout.
bool wait_for(int fd, short event, double until_s) {
  pollfd p{fd, event, 0};
  const double left = until_s - now_s();
  return poll(&p, 1, static_cast<int>(std::clamp(std::ceil(left * 1e3), 0.0, 1e6))) > 0;
}

class TcpEnd final : public FlowEnd {
 public:
  TcpEnd(const EndOrder& order, const Nic& rail)
      : order_(order), rail_(rail), streams_(static_cast<std::size_t>(order.streams)) {
    sample_.flow = order.flow;
    sample_.sends = order.sends;
  }

  std::string offer() override {
    if (order_.sends) return "";
    if (!open_listener()) {
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
      accept_all();
  }

  EndSample run() override {
    for (const Stream& stream : streams_)
      if (!failed() && !stream.fd) fail("not connected");
    if (failed()) return sample_;
    const RunsOn beside(sysfs::cpus_beside("/sys", rail_.pci));
    if (order_.probe == Probe::kLatency || order_.victim) {
      const Starvation starvation;
      order_.sends ? ping(streams_[0]) : echo(streams_[0].fd);
      sample_.starved = starvation.share();
    } else {
      order_.sends ? send_all() : receive_all();
    }
    return sample_;
  }

 private:
  struct Stream {
    Fd fd;
    EndSample seen;
  };
  const std::string& device() const { return rail_.netdev.empty() ? rail_.name : rail_.netdev; }
  bool failed() const { return !sample_.error.empty(); }
  void fail(std::string why) {
    if (sample_.error.empty()) sample_.error = std::move(why);
  }

  // Returns a socket bound to this port on the rail; empty if the port is in use.
  Fd bound_to(int port) const {
    Address here;
    if (!parse_address(rail_.address, static_cast<std::uint16_t>(port), here)) return {};
    Fd fd = Fd::from([&] {
      return socket(here.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    });
    const int on = 1;  // closed connections may still hold the port
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd.get(), SOL_SOCKET, SO_BINDTODEVICE, device().c_str(),
               static_cast<socklen_t>(device() == "lo" ? 0 : device().size()));
    if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&here.bytes), here.length) != 0) return {};
    return fd;
  }

  bool open_listener() {
    const auto listens = [&] {
      return listener_ && listen(listener_.get(), 4 + order_.streams) == 0;
    };
    for (int i = 0; order_.label > 0 && i < kListened; ++i) {
      listener_ = bound_to(kFirstListened + i);
      if (listens()) return true;
    }
    listener_ = tcp::open_socket(device(), rail_.address);
    return listens();
  }

  // Starts to connect from a source port that label and stream select, so that hashes choose
  // another path; if the port is in use, from the label's next port. Returns an errno.
  int start_stream(Fd& fd, int stream, const std::string& address, std::uint16_t port) {
    for (int step = 0; order_.label > 0 && step < kPorts; step += kPortStep) {
      fd = bound_to(kFirstPort + (way_of(order_.label, stream) + step) % kPorts);
      const int error = fd ? tcp::start(fd, address, port) : EADDRINUSE;
      if (error != EADDRINUSE && error != EADDRNOTAVAIL) return error;
    }
    fd = tcp::open_socket(device(), rail_.address);
    return fd ? tcp::start(fd, address, port) : errno;
  }

  double patience_s() const {
    return order_.probe == Probe::kCrossRail ? kAcrossSeconds : kConnectSeconds;
  }

  void dial(const std::string& theirs) {
    std::istringstream in(theirs);
    std::string address;
    std::uint16_t port = 0;
    if (!(in >> address >> port >> token_)) return fail("the receiver could not listen");
    for (std::size_t i = 0; i < streams_.size(); ++i) {
      errno = start_stream(streams_[i].fd, static_cast<int>(i), address, port);
      if (errno != 0) return fail(errno_text("connect"));
    }
    const double until = now_s() + patience_s();
    for (std::size_t i = 0; i < streams_.size(); ++i)
      finish_dial(streams_[i].fd, token_ + i, until);
  }

  void finish_dial(const Fd& fd, std::uint64_t token, double until) {
    int error = wait_for(fd.get(), POLLOUT, until) ? 0 : ETIMEDOUT;
    socklen_t bytes = sizeof error;
    if (error == 0) getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    errno = error;
    if (error != 0) return fail(errno_text("connect"));
    tcp::tune(fd);
    if (send(fd.get(), &token, sizeof token, MSG_NOSIGNAL) != sizeof token)
      fail(errno_text("send"));
  }

  // Accepts connections whose first bytes are a stream's token and rejects all others.
  void accept_all() {
    const double until = now_s() + patience_s() + 0.2;
    std::size_t missing = streams_.size();
    while (missing > 0 && wait_for(listener_.get(), POLLIN, until)) {
      Fd caller = Fd::from(
          [&] { return accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
      std::uint64_t token = 0;
      if (!caller || !wait_for(caller.get(), POLLIN, until)) continue;
      if (recv(caller.get(), &token, sizeof token, MSG_WAITALL) != sizeof token ||
          token - token_ >= streams_.size() || streams_[token - token_].fd)
        continue;
      tcp::tune(caller);
      streams_[token - token_].fd = std::move(caller);
      --missing;
    }
    listener_.reset();
    if (missing == 0) return;
    errno = ETIMEDOUT;
    fail(errno_text("accept"));
  }

  // Runs body(i) for all streams concurrently, each in its own thread, and adds up their results.
  template <typename Body>
  void each_stream(const Body& body) {
    const auto watched = [&](std::size_t i) {
      const Starvation starvation;
      body(i);
      streams_[i].seen.starved = starvation.share();
    };
    std::vector<std::thread> threads;
    try {
      for (std::size_t i = 1; i < streams_.size(); ++i)
        threads.push_back(start_thread("the thread of a stream", [&watched, i] { watched(i); }));
    } catch (const std::exception& e) {
      fail(e.what());
    }
    watched(0);
    for (std::thread& thread : threads) thread.join();
    std::vector<EndSample> seen;
    for (Stream& stream : streams_) {
      EndSample& one = seen.emplace_back(stream.seen);
      if (streams_.size() > 1 || order_.label > 0)
        one.streams = {
            {order_.sends ? port_of(stream.fd.get()) : 0, one.bytes, one.packets, one.retransmits}};
    }
    add_streams(sample_, seen);
  }

  void send_all() {
    const double start = now_s();
    each_stream([&](std::size_t i) { send_stream(streams_[i].fd, start, streams_[i].seen); });
  }

  void send_stream(const Fd& fd, double start, EndSample& seen) {
    if (order_.pace_gbps > 0) {
      const auto rate = static_cast<std::uint64_t>(order_.pace_gbps * 1e9 / 8 / order_.streams);
      setsockopt(fd.get(), SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate);
    }
    const std::vector<char> block(kBlock, 'w');
    const double until = start + order_.seconds;
    while (now_s() < until) {
      const ssize_t n = send(fd.get(), block.data(), block.size(), MSG_NOSIGNAL);
      if (n > 0) {
        seen.bytes += static_cast<std::uint64_t>(n);
      } else if (errno == EAGAIN) {
        wait_for(fd.get(), POLLOUT, until);
      } else {
        seen.error = errno_text("send");
        break;
      }
    }
    seen.seconds = now_s() - start;
    read_idle(fd, seen);
    // Wait for the tail: a packet lost there is retransmitted after the sender has stopped. The
    // receiver closes first, so that TIME_WAIT does not block the sender's port for a repeat.
    const double tail = now_s() + kTailSeconds;
    char end = kEnd;
    while (send(fd.get(), &end, 1, MSG_NOSIGNAL) < 0 && errno == EAGAIN &&
           wait_for(fd.get(), POLLOUT, tail)) {
    }
    if (seen.error.empty() && wait_for(fd.get(), POLLIN, tail) && recv(fd.get(), &end, 1, 0) < 0)
      seen.error = errno_text("recv");
    shutdown(fd.get(), SHUT_WR);
    read_tcp_info(fd, seen);
  }

  // Reads the fraction of time in which the socket had no data to send, due to the sender's waits
  // for a core. The kernel counts in jiffies.
  void read_idle(const Fd& fd, EndSample& seen) const {
    tcp_info info{};
    socklen_t bytes = sizeof info;
    if (getsockopt(fd.get(), IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return;
    if (bytes <= offsetof(tcp_info, tcpi_busy_time) || seen.seconds <= 0) return;
    const double busy_s = 1e-6 * static_cast<double>(info.tcpi_busy_time);
    seen.sender_idle = std::clamp(1 - busy_s / seen.seconds, 0.0, 1.0);
  }

  void read_tcp_info(const Fd& fd, EndSample& seen) const {
    tcp_info info{};
    socklen_t bytes = sizeof info;
    if (getsockopt(fd.get(), IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return;
    const auto has = [&](std::size_t offset) { return bytes > offset; };
    if (has(offsetof(tcp_info, tcpi_data_segs_out))) {
      seen.packets = info.tcpi_data_segs_out;
      std::uint32_t needless = 0;  // duplicates that the receiver reported (DSACK)
      if (has(offsetof(tcp_info, tcpi_dsack_dups))) needless = info.tcpi_dsack_dups;
      seen.retransmits = info.tcpi_total_retrans - std::min(needless, info.tcpi_total_retrans);
      seen.min_rtt_us = info.tcpi_min_rtt;
    }
    if (has(offsetof(tcp_info, tcpi_sndbuf_limited)) && info.tcpi_busy_time > 0) {
      const auto busy = static_cast<double>(info.tcpi_busy_time);
      seen.receiver_limited = static_cast<double>(info.tcpi_rwnd_limited) / busy;
      seen.sender_limited = static_cast<double>(info.tcpi_sndbuf_limited) / busy;
    }
  }

  // All windows start at the first byte of any stream, so that they can be added.
  void receive_all() {
    const double until = now_s() + order_.seconds + kTailSeconds;
    std::vector<pollfd> fds;
    for (const Stream& stream : streams_) fds.push_back({stream.fd.get(), POLLIN, 0});
    poll(fds.data(), fds.size(), static_cast<int>((until - now_s()) * 1e3));
    const WindowMeter fresh(order_.seconds, now_s());
    std::vector<WindowMeter> meters(streams_.size(), fresh);
    each_stream(
        [&](std::size_t i) { recv_stream(streams_[i].fd, until, meters[i], streams_[i].seen); });
    WindowMeter all = fresh;
    for (const WindowMeter& meter : meters) all.add(meter);
    sample_.seconds = all.seconds();
    sample_.window_gbps = all.windows();
    sample_.window_s = all.window_s();
    if (sample_.bytes == 0) fail("connected, and no byte arrived");
  }

  void recv_stream(const Fd& fd, double until, WindowMeter& meter, EndSample& seen) const {
    std::vector<char> block(kBlock);
    while (true) {
      const ssize_t n = recv(fd.get(), block.data(), block.size(), 0);
      if (n > 0) {
        const bool ends = block[static_cast<std::size_t>(n) - 1] == kEnd;
        meter.add(now_s(), static_cast<std::uint64_t>(n) - ends);
        if (ends) break;
      } else if (n == 0) {
        break;
      } else if (errno != EAGAIN) {
        seen.error = errno_text("recv");
        break;
      } else if (!wait_for(fd.get(), POLLIN, until)) {
        break;
      }
      if (now_s() > until) break;
    }
    seen.bytes = meter.bytes();
    shutdown(fd.get(), SHUT_WR);
  }

  static bool move_ping(const Fd& fd, bool out, char* data, double until) {
    std::size_t done = 0;
    while (done < kPing) {
      const ssize_t n = out ? send(fd.get(), data + done, kPing - done, MSG_NOSIGNAL)
                            : recv(fd.get(), data + done, kPing - done, 0);
      if (n > 0)
        done += static_cast<std::size_t>(n);
      else if (n == 0 || errno != EAGAIN || !wait_for(fd.get(), out ? POLLOUT : POLLIN, until))
        return false;
    }
    return true;
  }

  // Consecutive round trips; under load, at scheduled times.
  void ping(const Stream& stream) {
    char data[kPing] = {};
    PingTimes times(order_.seconds, !order_.victim);
    while (times.more()) {
      const double began = order_.victim ? times.next() : now_s();
      const double until = times.latest() + kTailSeconds;
      if (!move_ping(stream.fd, true, data, until) || !move_ping(stream.fd, false, data, until)) {
        errno = ETIMEDOUT;
        fail(errno_text("ping"));
        break;
      }
      times.add(now_s() - began);
    }
    sample_.seconds = times.seconds();
    sample_.latency = times.summary();
    shutdown(stream.fd.get(), SHUT_WR);
    read_tcp_info(stream.fd, sample_);
  }

  void echo(const Fd& fd) {
    char data[kPing];
    const double until = now_s() + order_.seconds + kTailSeconds;
    while (move_ping(fd, false, data, until) && move_ping(fd, true, data, until))
      sample_.bytes += kPing;
  }

  const EndOrder order_;
  const Nic rail_;
  EndSample sample_;
  std::uint64_t token_ = 0;
  Fd listener_;
  std::vector<Stream> streams_;
};

}  // namespace

std::unique_ptr<FlowEnd> make_tcp_end(const EndOrder& order, const Nic& rail) {
  return std::make_unique<TcpEnd>(order, rail);
}

}  // namespace weft::fabric
