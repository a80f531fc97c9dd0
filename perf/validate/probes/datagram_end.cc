// One end of a datagram probe: the path MTU, or the port at which a packet arrives.
#include <fmt/format.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <system_error>
#include <thread>

#include "perf/validate/probes/flow_end.h"
#include "topo/base/clock.h"
#include "transport/control/address.h"
#include "transport/control/socket.h"
#include "transport/tcp/socket.h"

namespace weft::fabric {
namespace {

constexpr int kSmallest = 576;  // bytes that every IPv4 host accepts (RFC 791)
constexpr int kLargest = 65535;
constexpr double kAnswerSeconds = 0.06;
constexpr int kTries = 3;
// A receiver's timeout in seconds: a search tries at most 17 sizes, and all but the first may fail.
constexpr double kPatience = 1.1 * 17 * kTries * kAnswerSeconds;

const std::string& device_of(const Nic& rail) {
  return rail.netdev.empty() ? rail.name : rail.netdev;
}

std::string datagram_error(const char* what) {
  return fmt::format("{}: {}", what, std::generic_category().message(errno));
}

int interface_mtu(const std::string& device) {
  const Fd fd = Fd::from([] { return socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0); });
  ifreq request{};
  std::strncpy(request.ifr_name, device.c_str(), IFNAMSIZ - 1);
  return ioctl(fd.get(), SIOCGIFMTU, &request) == 0 ? request.ifr_mtu : 0;
}

bool readable(int fd, double until_s) {
  pollfd p{fd, POLLIN, 0};
  return poll(&p, 1, std::clamp(static_cast<int>((until_s - now_s()) * 1e3) + 1, 0, 100000)) > 0;
}

class DatagramEnd : public FlowEnd {
 public:
  DatagramEnd(const EndOrder& order, const std::vector<Nic>& rails)
      : order_(order), rails_(rails), rail_(rails.at(static_cast<std::size_t>(order.rail))) {
    sample_.flow = order.flow;
    sample_.sends = order.sends;
  }

 protected:
  bool failed() const { return !sample_.error.empty(); }
  void fail(std::string why) {
    if (sample_.error.empty()) sample_.error = std::move(why);
  }
  bool draw_token() {
    if (getrandom(&token_, sizeof token_, 0) == sizeof token_) return true;
    fail(datagram_error("getrandom"));
    return false;
  }
  // The receiver's "address port token".
  bool parse(const std::string& theirs) {
    std::istringstream in(theirs);
    if (in >> address_ >> port_ >> token_ && parse_address(address_, port_, there_)) return true;
    fail("the receiver could not open its socket");
    return false;
  }

  const EndOrder order_;
  const std::vector<Nic> rails_;
  const Nic rail_;
  EndSample sample_;
  std::uint64_t token_ = 0;
  std::string address_;
  std::uint16_t port_ = 0;
  Address there_;
};

// Sends datagrams that must not be fragmented. The receiver answers each with its token.
class MtuEnd final : public DatagramEnd {
 public:
  using DatagramEnd::DatagramEnd;

  std::string offer() override {
    fd_ = tcp::open_socket(device_of(rail_), rail_.address, true);
    if (!fd_) {
      fail(datagram_error("socket"));
      return "";
    }
    if (order_.sends || !draw_token()) return "";
    return fmt::format("{} {} {}", rail_.address, port_of(fd_.get()), token_);
  }

  void connect(const std::string& theirs) override {
    if (failed() || !order_.sends || !parse(theirs)) return;
    v6_ = there_.bytes.ss_family == AF_INET6;
    // PROBE: sets DF and ignores the kernel's cached path MTU.
    const int probe = v6_ ? IPV6_PMTUDISC_PROBE : IP_PMTUDISC_PROBE;
    setsockopt(fd_.get(), v6_ ? static_cast<int>(IPPROTO_IPV6) : static_cast<int>(IPPROTO_IP),
               v6_ ? IPV6_MTU_DISCOVER : IP_MTU_DISCOVER, &probe, sizeof probe);
    if (::connect(fd_.get(), reinterpret_cast<const sockaddr*>(&there_.bytes), there_.length) != 0)
      fail(datagram_error("connect"));
  }

  EndSample run() override {
    if (failed()) return sample_;
    const double start = now_s();
    if (order_.sends) {
      search();
      end_answers();
    } else {
      answer();
    }
    sample_.seconds = now_s() - start;
    return sample_;
  }

 private:
  int headers() const { return v6_ ? 48 : 28; }

  // Returns whether a packet of `bytes`, headers included, is answered.
  bool passes(int bytes) {
    std::vector<char> packet(static_cast<std::size_t>(bytes - headers()));
    std::memcpy(packet.data(), &token_, sizeof token_);
    for (int i = 0; i < kTries; ++i) {
      if (send(fd_.get(), packet.data(), packet.size(), MSG_NOSIGNAL) < 0) {
        if (errno == EMSGSIZE) return false;
        continue;
      }
      std::array<std::uint64_t, 2> answer{};
      const double until = now_s() + kAnswerSeconds;
      while (now_s() < until && readable(fd_.get(), until))
        if (recv(fd_.get(), answer.data(), sizeof answer, 0) == sizeof answer &&
            answer[0] == token_ && answer[1] == packet.size())
          return true;
    }
    return false;
  }

  void search() {
    if (!passes(kSmallest)) return fail("no answer to a packet of 576 bytes");
    const int mtu = std::clamp(interface_mtu(device_of(rail_)), kSmallest, kLargest);
    int good = kSmallest, bad = mtu + 1;
    if (passes(mtu)) {
      good = mtu;
    } else {
      bad = mtu;
      while (bad - good > 1) {
        const int middle = (good + bad) / 2;
        (passes(middle) ? good : bad) = middle;
      }
    }
    sample_.passed_mtu = good;
    sample_.failed_mtu = bad;
  }

  // A packet with only the token ends the search; other packets are longer. If all are lost, the
  // receiver times out.
  void end_answers() {
    for (int i = 0; i < kTries; ++i) (void)!send(fd_.get(), &token_, sizeof token_, MSG_NOSIGNAL);
  }

  // Answers until the sender ends the search, or no packet arrives for kPatience: several sizes in
  // a row may fail, each after kTries tries.
  void answer() {
    std::vector<char> packet(kLargest);
    const double until = now_s() + std::max(order_.seconds, 2 * kPatience);
    double idle_until = now_s() + 1.0;
    while (now_s() < until && now_s() < idle_until) {
      if (!readable(fd_.get(), std::min(until, idle_until))) continue;
      sockaddr_storage from{};
      socklen_t length = sizeof from;
      const ssize_t n = recvfrom(fd_.get(), packet.data(), packet.size(), 0,
                                 reinterpret_cast<sockaddr*>(&from), &length);
      std::array<std::uint64_t, 2> answer{0, n > 0 ? static_cast<std::uint64_t>(n) : 0};
      if (n >= static_cast<ssize_t>(sizeof token_)) std::memcpy(answer.data(), packet.data(), 8);
      if (answer[0] != token_) continue;
      if (n == sizeof token_) return;
      sample_.bytes += static_cast<std::uint64_t>(n);
      idle_until = now_s() + kPatience;
      (void)!sendto(fd_.get(), answer.data(), sizeof answer, MSG_NOSIGNAL,
                    reinterpret_cast<const sockaddr*>(&from), length);
    }
  }

  Fd fd_;
  bool v6_ = false;
};

// Sends a datagram to the address of the peer's port, and a broadcast to the same switch: if two
// cables are swapped, the datagram is lost and the broadcast arrives at another rail. The receiver
// has a socket on each of its rails.
class ReachEnd final : public DatagramEnd {
 public:
  using DatagramEnd::DatagramEnd;

  std::string offer() override {
    if (order_.sends) {
      sockets_.push_back(tcp::open_socket(device_of(rail_), rail_.address, true));
      if (!sockets_[0]) fail(datagram_error("socket"));
      return "";
    }
    if (!draw_token()) return "";
    std::uint16_t port = 0;
    // Bind on the ordered rail first: its kernel-chosen port is then used on the other rails.
    std::vector<std::size_t> order{static_cast<std::size_t>(order_.rail)};
    for (std::size_t r = 0; r < rails_.size(); ++r)
      if (r != order[0]) order.push_back(r);
    for (const std::size_t r : order) {
      Fd fd = listen_at(device_of(rails_[r]), port);
      if (!fd) {
        if (r == order[0]) fail(datagram_error("bind"));
        continue;
      }
      port = port_of(fd.get());
      sockets_.push_back(std::move(fd));
      rail_of_.push_back(static_cast<int>(r));
    }
    return fmt::format("{} {} {}", rail_.address, port, token_);
  }

  void connect(const std::string& theirs) override {
    if (failed() || !order_.sends) return;
    parse(theirs);
  }

  EndSample run() override {
    if (failed()) return sample_;
    const double start = now_s();
    order_.sends ? call() : hear();
    sample_.seconds = now_s() - start;
    return sample_;
  }

 private:
  static constexpr double kPause = 0.03, kSeconds = 0.25;
  struct Note {
    std::uint64_t token, everyone;
  };

  // Binds to every address of a device, in the rail's address family.
  Fd listen_at(const std::string& device, std::uint16_t port) const {
    const int family = rail_.address.find(':') == std::string::npos ? AF_INET : AF_INET6;
    Fd fd = Fd::from([&] { return socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
    setsockopt(fd.get(), SOL_SOCKET, SO_BINDTODEVICE, device.c_str(),
               static_cast<socklen_t>(device.size()));
    Address any;
    if (!parse_address(family == AF_INET ? "0.0.0.0" : "::", port, any) ||
        bind(fd.get(), reinterpret_cast<const sockaddr*>(&any.bytes), any.length) != 0)
      return {};
    return fd;
  }

  void call() {
    sockaddr_in all{};
    all.sin_family = AF_INET;
    all.sin_port = htons(port_);
    all.sin_addr.s_addr = INADDR_BROADCAST;
    const int on = 1;
    setsockopt(sockets_[0].get(), SOL_SOCKET, SO_BROADCAST, &on, sizeof on);
    for (int i = 0; i < kTries; ++i) {
      const Note direct{token_, 0}, everyone{token_, 1};
      (void)!sendto(sockets_[0].get(), &direct, sizeof direct, MSG_NOSIGNAL,
                    reinterpret_cast<const sockaddr*>(&there_.bytes), there_.length);
      if (there_.bytes.ss_family == AF_INET)
        (void)!sendto(sockets_[0].get(), &everyone, sizeof everyone, MSG_NOSIGNAL,
                      reinterpret_cast<const sockaddr*>(&all), sizeof all);
      std::this_thread::sleep_for(std::chrono::duration<double>(kPause));
    }
  }

  void hear() {
    std::vector<pollfd> polls;
    for (const Fd& fd : sockets_) polls.push_back({fd.get(), POLLIN, 0});
    bool direct = false;
    std::optional<int> everyone;
    const double until = now_s() + kSeconds;
    while (now_s() < until && !(direct && everyone)) {
      const int left = static_cast<int>((until - now_s()) * 1e3) + 1;
      if (poll(polls.data(), polls.size(), left) <= 0) continue;
      for (std::size_t i = 0; i < polls.size(); ++i) {
        Note note{};
        if (!(polls[i].revents & POLLIN) ||
            recv(polls[i].fd, &note, sizeof note, 0) != sizeof note || note.token != token_)
          continue;
        if (note.everyone)
          everyone = rail_of_[i];
        else
          direct = true;
        sample_.bytes += sizeof note;
      }
    }
    if (everyone) sample_.arrived_rail = everyone;
    if (direct && !everyone) sample_.arrived_rail = order_.rail;
    if (!direct) fail("no datagram arrived");
  }

  std::vector<Fd> sockets_;
  std::vector<int> rail_of_;  // by index in a receiver's sockets_
};

}  // namespace

std::unique_ptr<FlowEnd> make_datagram_end(const EndOrder& order, const std::vector<Nic>& rails) {
  if (order.probe == Probe::kPathMtu) return std::make_unique<MtuEnd>(order, rails);
  return std::make_unique<ReachEnd>(order, rails);
}

}  // namespace weft::fabric
