// A raw socket that plays a peer of the tcp transport, for tests of its input.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/fakes/forged_job.h"
#include "transport/control/hmac.h"
#include "transport/tcp/keys.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/tcp.h"
#include "transport/tcp/wire.h"

namespace weft::testing {

// A contact with another datagram port.
inline std::string with_port(const std::string& contact, std::uint16_t port) {
  return contact.substr(0, contact.rfind(' ') + 1) + std::to_string(port);
}

// A whole message as sent over a connection.
inline std::string eager(std::uint64_t tag, std::string_view text) {
  const tcp::Frame f = {
      .length = static_cast<std::uint32_t>(text.size()), .tag = tag, .bytes = text.size()};
  return std::string(reinterpret_cast<const char*>(&f), sizeof f) + std::string(text);
}

// Rank 0's transport over "lo", and sockets that connect to it.
class RawPeer {
 public:
  // says: rank 1's data given rank 0's; null: the same.
  explicit RawPeer(Forge says = nullptr, int ranks = 2) {
    Nic lo;
    lo.name = lo.netdev = "lo";
    lo.address = "127.0.0.1";
    lo.up = true;
    ForgedJob job(ranks, std::move(says));
    transport = make_tcp_transport(job, separate_hosts(ranks, lo), lo);
    tcp::parse_contact(std::string_view(job.said).substr(1), contact);
  }

  // The key of one direction between rank 0 and a peer, which has the same nonce.
  tcp::Key key(tcp::Use use, Rank from, Rank to) const {
    return tcp::derive(derive_key("forged", "tcp"), use, {from, contact.nonce},
                       {to, contact.nonce});
  }
  tcp::Hello hello(Rank rank = 1) const {
    return {.rank = static_cast<std::uint32_t>(rank),
            .nonce = contact.nonce,
            .proof = key(tcp::Use::kHello, rank, 0)};
  }

  // Connects to the listener and sends nothing.
  int connect() const {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), at_once = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &at_once, sizeof at_once);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(contact.port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0 ? fd : -1;
  }
  // Connects as a rank of the job, which rank 0 accepts.
  int connect_as_peer(Rank rank = 1) const {
    const int fd = connect();
    const tcp::Hello mine = hello(rank);
    say(fd, &mine, sizeof mine);
    return fd;
  }
  // Whether rank 0 welcomes the connected rank and proves its identity.
  bool welcomes(int fd, Rank rank = 1) const {
    tcp::Answer answer;
    return ::recv(fd, &answer, sizeof answer, MSG_WAITALL) == sizeof answer &&
           answer.kind == tcp::Answer::Kind::kWelcome &&
           answer.proof == key(tcp::Use::kWelcome, 0, rank);
  }
  // A datagram of the rank with the right MAC, and the next sequence number unless it already has
  // one.
  std::string signed_datagram(tcp::Datagram d, std::string_view message, Rank rank = 1) {
    d.from = static_cast<std::uint32_t>(rank);
    if (d.sequence == 0) d.sequence = ++sequence;
    std::string all(reinterpret_cast<const char*>(&d), sizeof d);
    all += message;
    ShortMac mac;
    if (mac.compute(key(tcp::Use::kDatagrams, rank, 0), all.data() + sizeof d.mac,
                    all.size() - sizeof d.mac, d.mac))
      std::memcpy(all.data(), &d.mac, sizeof d.mac);
    return all;
  }
  void say_datagram(int fd, const std::string& all) const {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(contact.datagrams);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    (void)!sendto(fd, all.data(), all.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
  }
  static void say(int fd, const void* bytes, std::size_t n) {
    (void)!::send(fd, bytes, n, MSG_NOSIGNAL);
  }
  static void say(int fd, const std::string& bytes) { say(fd, bytes.data(), bytes.size()); }
  // Posts a receive at rank 0.
  void receive(std::uint64_t tag, void* to, std::size_t bytes, std::uint64_t id, Rank from = 1) {
    const Transfer t{.kind = Transfer::Kind::kRecv,
                     .peer = from,
                     .tag = tag,
                     .data = to,
                     .bytes = bytes,
                     .id = id};
    transport->post({&t, 1});
  }
  void poll(int times = 100) {
    for (int i = 0; i < times; ++i) {
      Completion out[8];
      const std::size_t n = transport->poll(out);
      completions.insert(completions.end(), out, out + n);
    }
  }

  std::unique_ptr<Transport> transport;
  tcp::Contact contact;        // of rank 0
  std::uint64_t sequence = 0;  // of the last signed_datagram()
  std::vector<Completion> completions;
};

}  // namespace weft::testing
