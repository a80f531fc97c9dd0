// Sends and receives signed datagrams, with their rail and rank, over UDP sockets. This file does
// not depend on their contents.
#include "transport/rails/datagram_channel_udp.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "topo/base/log.h"
#include "transport/control/address.h"
#include "transport/control/hmac.h"
#include "transport/control/socket.h"

namespace weft {
namespace {

constexpr std::size_t kSignature = 16;  // bytes of the HMAC: enough against guessing
constexpr std::size_t kNonce = 8;       // bytes; all ranks get every rank's nonce
constexpr int kReads = 64;              // of a rail's socket in one call of receive()

// Precedes a datagram's bytes; the HMAC of header and bytes follows them.
struct Header {
  std::uint32_t from, to, rail;
  std::uint32_t zero = 0;
  std::uint64_t number;  // of the sender's datagrams to this rank on this rail; only ever grows
};
static_assert(sizeof(Header) == 24);

class UdpPaths final : public DatagramChannel {
 public:
  UdpPaths(Rank me, int nranks, int nrails, std::string key)
      : me_(me),
        nrails_(nrails),
        peers_(static_cast<std::size_t>(nranks * nrails)),
        nonces_(static_cast<std::size_t>(nranks)),
        ways_(static_cast<std::size_t>(nranks)),
        key_(std::move(key)) {}

  // Opens the sockets and returns a nonce and their ports, or the error after '!'.
  std::string open(const Place& place) {
    std::string ports = hex(random_bytes(kNonce)) + " ";
    std::uint16_t port = 0;  // one for all rails if it is free: equal numbers compress
    for (int r = 0; r < nrails_; ++r) {
      const Nic& nic = place.rails[static_cast<std::size_t>(r)];
      if (Address here; !parse_address(nic.address, 0, here))
        return fmt::format("!rail {} ({}) has no IP address", r, nic.name);
      Fd fd = open_socket(nic.netdev, nic.address, true, port);
      if (!fd)
        return fmt::format("!rail {} ({}): no socket on {}: {}", r, nic.name, nic.address,
                           std::strerror(errno));
      port = port_of(fd.get());
      ports += fmt::format("{} ", port);
      fds_.push_back(std::move(fd));
      devices_.push_back(nic.netdev);
    }
    return ports;
  }

  bool meet(Rank rank, const Place& place, const std::string& ports) {
    if (ports.size() < 2 * kNonce) return false;
    nonces_[static_cast<std::size_t>(rank)] = ports.substr(0, 2 * kNonce);
    const char* at = ports.c_str() + 2 * kNonce;
    for (int r = 0; r < nrails_; ++r) {
      char* end = nullptr;
      const auto port = static_cast<std::uint16_t>(std::strtoul(at, &end, 10));
      at = end;
      if (!parse_address(place.rails[static_cast<std::size_t>(r)].address, port, address(rank, r)))
        return false;
    }
    return true;
  }

  void send(Rank to, int rail, std::string_view bytes) noexcept override {
    try {
      Way& way = way_of(to);
      const Header h{.from = static_cast<std::uint32_t>(me_),
                     .to = static_cast<std::uint32_t>(to),
                     .rail = static_cast<std::uint32_t>(rail),
                     .number = ++way.sent[static_cast<std::size_t>(rail)]};
      std::string out(reinterpret_cast<const char*>(&h), sizeof h);
      out += bytes;
      out += hmac_sha256(way.key_out, out).substr(0, kSignature);
      const Address& a = address(to, rail);
      // The contract allows loss: if the link is down or the socket buffer is full.
      (void)!sendto(fds_[static_cast<std::size_t>(rail)].get(), out.data(), out.size(),
                    MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&a.bytes), a.length);
    } catch (const std::exception& e) {
      log().debug("weft: rail {}: a datagram could not be made: {}", rail, e.what());
    }
  }

  bool receive(Datagram& datagram) noexcept override {
    for (std::size_t i = 0; i < fds_.size(); ++i) {
      const std::size_t r = (next_ + i) % fds_.size();
      Address from;
      for (int reads = 0; reads < kReads; ++reads) {
        from.length = sizeof from.bytes;
        const ssize_t n = recvfrom(fds_[r].get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT,
                                   reinterpret_cast<sockaddr*>(&from.bytes), &from.length);
        // ECONNREFUSED reports an ICMP error of an earlier send: go on.
        if (n < 0 && errno != ECONNREFUSED) break;
        if (n >= 0 && accept({buffer_.data(), static_cast<std::size_t>(n)}, r, from, datagram)) {
          next_ = r + 1;
          return true;
        }
      }
    }
    return false;
  }

  bool link_up(int rail) noexcept override {
    const std::string& device = devices_[static_cast<std::size_t>(rail)];
    ifreq request{};
    if (device.empty() || device.size() >= IFNAMSIZ) return true;
    std::memcpy(request.ifr_name, device.c_str(), device.size());
    if (ioctl(fds_[static_cast<std::size_t>(rail)].get(), SIOCGIFFLAGS, &request) != 0) return true;
    return (request.ifr_flags & IFF_UP) != 0 && (request.ifr_flags & IFF_RUNNING) != 0;
  }

  void arm(std::vector<int>& fds) noexcept override {
    for (const Fd& fd : fds_) fds.push_back(fd.get());
  }

 private:
  Address& address(Rank rank, int rail) {
    return peers_[static_cast<std::size_t>(rank * nrails_ + rail)];
  }

  // The keys and counters of datagrams with one peer.
  struct Way {
    std::string key_out, key_in;
    std::vector<std::uint64_t> sent, heard;  // numbers of the last ones, by rail
  };

  // A key is valid for one direction of one pair in one channel, because of the ranks' nonces.
  std::string key_for(Rank from, Rank to) const {
    return derive_key(
        key_, fmt::format("{} {} to {} {}", from, nonces_[static_cast<std::size_t>(from)], to,
                          nonces_[static_cast<std::size_t>(to)]));
  }

  Way& way_of(Rank rank) {
    std::unique_ptr<Way>& way = ways_[static_cast<std::size_t>(rank)];
    if (!way) {
      const std::vector<std::uint64_t> none(static_cast<std::size_t>(nrails_));
      way = std::make_unique<Way>(Way{key_for(me_, rank), key_for(rank, me_), none, none});
    }
    return *way;
  }

  // Accepts a datagram once, and only from the peer's own socket to this rank on this rail.
  bool accept(std::string_view text, std::size_t rail, const Address& at, Datagram& out) noexcept {
    Header h;
    if (text.size() < sizeof h + kSignature) return false;
    try {
      std::memcpy(&h, text.data(), sizeof h);
      if (h.rail != rail || h.from >= ways_.size() || h.to != static_cast<std::uint32_t>(me_) ||
          !same_address(at, address(static_cast<Rank>(h.from), static_cast<int>(rail))))
        return false;
      Way& way = way_of(static_cast<Rank>(h.from));
      const std::string_view body = text.substr(0, text.size() - kSignature);
      if (h.number <= way.heard[rail] ||
          !equal_in_constant_time(
              text.substr(body.size()),
              std::string_view(hmac_sha256(way.key_in, body)).substr(0, kSignature)))
        return false;
      way.heard[rail] = h.number;
      out.from = static_cast<Rank>(h.from);
      out.rail = static_cast<int>(rail);
      out.bytes.assign(body.substr(sizeof h));
      return true;
    } catch (const std::exception& e) {
      log().debug("weft: rail {}: a datagram could not be read: {}", rail, e.what());
      return false;
    }
  }

  Rank me_;
  int nrails_;
  std::vector<Address> peers_;              // by rank and rail
  std::vector<std::string> nonces_;         // by rank
  std::vector<std::unique_ptr<Way>> ways_;  // by rank; null: no datagrams so far
  std::vector<Fd> fds_;                     // by rail
  std::vector<std::string> devices_;
  std::string key_;
  std::size_t next_ = 0;
  std::array<char, 1 << 16> buffer_;
};

}  // namespace

std::unique_ptr<DatagramChannel> make_udp_paths(Job& job, const Topology& topology,
                                                std::string& why) {
  auto paths = std::make_unique<UdpPaths>(job.rank(), job.size(), topology.nrails(),
                                          job.key("datagrams of rails"));
  std::vector<std::string> ports =
      job.all_gather(paths->open(topology.place(static_cast<Rank>(job.rank()))));
  for (Rank r = 0; r < job.size(); ++r) {
    const std::string& text = ports[static_cast<std::size_t>(r)];
    if (text.starts_with('!'))
      why = fmt::format("rank {}: {}", r, text.substr(1));
    else if (!paths->meet(r, topology.place(r), text))
      why = fmt::format("rank {}: bad address", r);
    if (!why.empty()) return nullptr;
  }
  return paths;
}

}  // namespace weft
