// A raw socket in the place of a peer of the tcp transport, for tests of what may come from one.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <vector>

#include "topo/topology.h"
#include "transport/rendezvous.h"
#include "transport/tcp.h"
#include "transport/tcp_socket.h"
#include "transport/tcp_wire.h"

namespace weft::testing {

// A job of two in which rank 1 is made up: it says at every exchange what rank 0 does.
class HalfJob final : public Job {
 public:
  Rank rank() const override { return 0; }
  int size() const override { return 2; }
  std::vector<std::string> all_gather(std::string_view mine) override {
    return {std::string(mine), last = std::string(mine)};
  }
  bool failed() const noexcept override { return false; }
  Status failure() const override { return {}; }
  void report(const Status&) noexcept override {}
  std::vector<Rank> silent(std::chrono::milliseconds) const override { return {}; }
  void leave() noexcept override {}
  void abort(const char*) noexcept override {}
  std::unique_ptr<Job> shrink() override { throw Error("HalfJob: shrink"); }

  std::string last;
};

// Rank 0's transport over "lo", and sockets that connect to it.
class RawPeer {
 public:
  RawPeer() {
    Place place;
    place.host = place.machine = "h0";
    Nic lo;
    lo.name = lo.netdev = "lo";
    lo.address = "127.0.0.1";
    lo.up = true;
    place.rails = {lo};
    HalfJob job;
    transport = make_tcp_transport(job, Topology({place, place}), lo);
    std::string address;
    tcp::parse_contact(std::string_view(job.last).substr(1), address, port_, key);
  }

  // Connected to the listener, with nothing said so far.
  int connect() const {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port_);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0 ? fd : -1;
  }
  // As rank 1 of the job: rank 0 takes it for that.
  int connect_as_peer() const {
    const int fd = connect();
    const tcp::Hello hello{.rank = 1, .key = key};
    say(fd, &hello, sizeof hello);
    return fd;
  }
  static void say(int fd, const void* bytes, std::size_t n) {
    (void)!::send(fd, bytes, n, MSG_NOSIGNAL);
  }
  void poll(int times = 100) {
    for (int i = 0; i < times; ++i) {
      Completion out[8];
      const std::size_t n = transport->poll(out);
      completions.insert(completions.end(), out, out + n);
    }
  }

  std::unique_ptr<Transport> transport;
  tcp::Key key{};
  std::vector<Completion> completions;

 private:
  std::uint16_t port_ = 0;
};

}  // namespace weft::testing
