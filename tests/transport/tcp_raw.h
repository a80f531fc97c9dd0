// A raw socket in the place of a peer of the tcp transport, for tests of what may come from one.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/fakes/forged_job.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/tcp.h"
#include "transport/tcp/wire.h"

namespace weft::testing {

// Rank 0's transport over "lo", and sockets that connect to it.
class RawPeer {
 public:
  // says: what rank 1 says for what rank 0 does; the same where there is none.
  explicit RawPeer(Forge says = nullptr) {
    Nic lo;
    lo.name = lo.netdev = "lo";
    lo.address = "127.0.0.1";
    lo.up = true;
    ForgedJob job(2, std::move(says));
    transport = make_tcp_transport(job, separate_hosts(2, lo), lo);
    tcp::parse_contact(std::string_view(job.said).substr(1), contact);
    key = contact.key;
  }

  // Connected to the listener, with nothing said so far.
  int connect() const {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), at_once = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(contact.port);
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
  tcp::Contact contact;  // of rank 0
  tcp::Key key{};
  std::vector<Completion> completions;
};

}  // namespace weft::testing
