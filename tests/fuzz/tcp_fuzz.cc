// A peer of the tcp transport sends any bytes, in pieces of any size, between this rank's own posts
// and cancels. No write outside of posted memory, and nothing completes twice.
#include <cstdlib>
#include <cstring>
#include <map>

#include "transport/offers.h"
#include "transport/tcp_raw.h"

namespace {

void require(bool truth) {
  if (!truth) std::abort();
}

// The rank's datagram socket.
int datagram_socket() {
  static const weft::Fd fd = weft::tcp::open_socket("lo", "127.0.0.1", true);
  require(static_cast<bool>(fd));
  return fd.get();
}

// Returns the contact with the port of that socket.
std::string of_peer(const std::string& contact) {
  return weft::testing::with_port(contact, weft::port_of(datagram_socket()));
}

// The first bytes select the header of the message and whether the MAC is right.
void say_datagram(weft::testing::RawPeer& raw, const std::uint8_t* data, std::size_t n) {
  const auto at = [&](std::size_t i) { return i < n ? data[i] : std::uint8_t{0}; };
  const std::size_t front = std::min<std::size_t>(n, 4);
  std::string all =
      raw.signed_datagram({.number = at(0),
                           .all = at(1),
                           .more = at(2),
                           .asks = static_cast<weft::tcp::Datagram::Asks>(at(3) & 127)},
                          {reinterpret_cast<const char*>(data) + front, n - front});
  if (at(3) & 128) all.resize(at(0) % (all.size() + 1));
  raw.say_datagram(datagram_socket(), all);
}

}  // namespace

// The input is a sequence of steps: one byte selects the step and the number of following bytes
// that belong to it.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using weft::Transfer;
  static const int datagrams = setenv("WEFT_TCP_DATAGRAMS", "1", 1);
  require(datagrams == 0);
  static weft::testing::RawPeer raw(
      [](weft::Rank, const std::string& right) { return of_peer(right); });
  static std::uint32_t round = 0;
  // The connection of the previous input has ended; a new one replaces it.
  raw.transport->recovery()->disconnect(1);
  const std::string contact = raw.transport->recovery()->reopen(1);
  require(weft::tcp::parse_contact(contact, raw.contact));
  raw.sequence = 0;
  require(raw.transport->recovery()->connect(1, of_peer(contact)));
  // Some inputs let a stranger connect before the peer.
  if (size > 0 && data[0] >> 5 == 6) {
    const weft::Fd stranger = weft::Fd::from([] { return raw.connect(); });
    weft::testing::RawPeer::say(stranger.get(), data, size);
    raw.poll(64);
  }
  const int fd = raw.connect_as_peer();
  require(fd >= 0);
  raw.poll(64);
  raw.completions.clear();

  constexpr std::size_t kLong = weft::tcp::kMostEager + 100;
  constexpr std::size_t kGuard = 64;
  static std::vector<std::uint8_t> memory(kLong + kGuard);
  std::fill(memory.begin(), memory.end(), 0x5c);
  static const std::vector<std::uint8_t> source(kLong, 1);
  std::map<std::uint64_t, int> ended;
  std::uint64_t next = std::uint64_t{++round} << 32;
  while (size > 0) {
    const std::uint8_t what = *data++;
    --size;
    const std::size_t n = std::min<std::size_t>(what & 31, size);
    Transfer t{.peer = 1, .tag = what & 3u, .id = next};
    t.bytes = what & 4 ? kLong : what & 7u;
    if (what >> 5 == 4) {  // a datagram of the peer, or of a stranger with its key
      say_datagram(raw, data, n);
      data += n;
      size -= n;
    } else if (what >> 5 < 5) {  // bytes of the peer, most of the time
      weft::testing::RawPeer::say(fd, data, n);
      data += n;
      size -= n;
    } else if (what >> 5 == 5) {
      t.kind = Transfer::Kind::kRecv;
      t.data = memory.data();
      raw.transport->post({&t, 1});
      ended[next++] = 0;
    } else if (what >> 5 == 6) {
      t.data = const_cast<std::uint8_t*>(source.data());
      raw.transport->post({&t, 1});
      ended[next++] = 0;
    } else {
      raw.poll(1);
    }
  }
  raw.poll(3);
  for (const weft::Completion& c : raw.completions) {
    require(ended.contains(c.id) && ++ended[c.id] == 1);
    require(c.code == weft::Code::kOk || raw.transport->cause(1).rank() == 1);
  }
  raw.transport->cancel(round);
  for (std::size_t i = kLong; i < memory.size(); ++i) require(memory[i] == 0x5c);
  close(fd);
  return 0;
}
