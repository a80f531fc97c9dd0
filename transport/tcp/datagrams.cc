// Sends the shortest messages of the tcp transport as datagrams, which avoids TCP's work per
// packet: a fifth of the time of 8 bytes between two hosts. Ranks first probe whether datagrams
// arrive. The sender stores each datagram until the peer acknowledges it, and retransmits it over
// the connection after a timeout, or before the caller may stop polling; the receiver drops
// duplicates. Thus a lost datagram only delays its message. docs/decisions/0027
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/tcp/socket.h"
#include "transport/tcp/transport.h"

namespace weft {
namespace {

constexpr int kReadsOfDatagrams = 32;  // per turn
// Maximum number of datagrams of a peer without an acknowledgment.
constexpr int kTellAt = 4;
constexpr unsigned kPatience = 32;  // checks until an unacknowledged datagram is retransmitted
// Number of short messages until a peer is probed again, after an unanswered probe and after a
// loss. Doubled each time.
constexpr std::uint32_t kAskAgain = 32, kQuiet = 1024;
constexpr int kMostDoublings = 12;

}  // namespace

void TcpTransport::fill(tcp::Datagram& header, Peer& peer, std::uint32_t number) const {
  ShortOnes& s = peer.short_ones;
  header.sequence = ++s.sequence;
  header.from = static_cast<std::uint32_t>(rank_);
  header.number = number;
  header.all = s.heard.all();
  header.more = s.heard.more();
  s.unacknowledged = 0;
  s.told = true;
}

// Adds the MAC and sends. If the network or a socket is full, the datagram is treated as lost.
bool TcpTransport::send_datagram(Peer& peer, std::byte* data, std::size_t bytes) {
  ShortOnes& s = peer.short_ones;
  if (!s.out) {
    s.out = tcp::open_socket(device_, address_, true);
    const auto* to = reinterpret_cast<const sockaddr*>(&s.to.bytes);
    if (!s.out || ::connect(s.out.get(), to, s.to.length) != 0) return s.out.reset(), false;
  }
  std::uint64_t mac = 0;
  if (!mac_->compute(s.key_out, data + sizeof mac, bytes - sizeof mac, mac)) return false;
  std::memcpy(data, &mac, sizeof mac);
  const ssize_t sent = send(s.out.get(), data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
  moved_ += sent > 0 ? static_cast<std::size_t>(sent) : 0;
  return sent == static_cast<ssize_t>(bytes);
}

void TcpTransport::tell(Peer& peer, tcp::Datagram::Asks asks) {
  tcp::Datagram header;
  fill(header, peer, 0);
  header.asks = asks;
  send_datagram(peer, reinterpret_cast<std::byte*>(&header), sizeof header);
}

// Returns false if the message must use the connection.
bool TcpTransport::send_short(const Transfer& t, Peer& peer) {
  ShortOnes& s = peer.short_ones;
  if (s.to.length == 0 || peer.state != State::kUp) return false;
  if (!s.pass) {
    if (s.quiet > 0) {
      --s.quiet;
    } else {
      tell(peer, tcp::Datagram::Asks::kWhetherHeard);
      s.asked = true;
      s.quiet = kAskAgain << std::min(2 * s.asks++, kMostDoublings);
    }
    return false;
  }
  Kept& k = s.kept[(s.sent + 1) % s.kept.size()];
  if (k.bytes > 0) return false;  // the peer does not acknowledge
  tcp::Datagram header;
  fill(header, peer, s.sent + 1);
  std::byte* const message = k.data + sizeof header;
  std::memcpy(k.data, &header, sizeof header);
  std::size_t bytes = tcp::write_front(message, tcp::eager_frame(t), t.head);
  if (t.bytes) std::memcpy(message + bytes, t.data, t.bytes);
  bytes += t.bytes;
  if (!send_datagram(peer, k.data, sizeof header + bytes)) return false;
  k.bytes = bytes;
  k.number = ++s.sent;
  k.old = false;
  ++s.open;
  complete(t.id, Code::kOk);
  return true;
}

// A flood of datagrams costs at most kReadsOfDatagrams reads per turn, so it cannot starve the
// connections.
TcpTransport::Found TcpTransport::hear_datagrams() {
  if (!datagrams_) return Found::kNone;
  const std::size_t before = done_.size();
  std::byte room[sizeof(tcp::Datagram) + tcp::kMostCopy + 1];
  for (int i = 0; i < kReadsOfDatagrams; ++i) {
    heard_from_.length = sizeof heard_from_.bytes;
    const ssize_t n =
        recvfrom(datagrams_.get(), room, sizeof room, MSG_DONTWAIT,
                 reinterpret_cast<sockaddr*>(&heard_from_.bytes), &heard_from_.length);
    if (n < 0) return Found::kNone;
    hear_datagram({room, static_cast<std::size_t>(n)});
    if (done_.size() > before) return Found::kMessage;
  }
  return Found::kSome;
}

// Any process may have sent the datagram: drops it silently if it has another source address or a
// wrong MAC, or was received before.
void TcpTransport::hear_datagram(std::span<const std::byte> bytes) {
  tcp::Datagram header;
  if (bytes.size() < sizeof header) return;
  std::memcpy(&header, bytes.data(), sizeof header);
  Peer* const peer = header.from < peers_.size() ? &peers_[header.from] : nullptr;
  if (!peer || peer->state != State::kUp || !same_host(heard_from_, peer->short_ones.to)) return;
  ShortOnes& s = peer->short_ones;
  std::uint64_t mac = 0;
  if (!mac_->compute(s.key_in, bytes.data() + sizeof mac, bytes.size() - sizeof mac, mac) ||
      mac != header.mac || !s.came.first(header.sequence))
    return;
  moved_ += bytes.size();
  for (std::size_t i = 0; s.open > 0 && i < s.kept.size(); ++i)
    if (Kept& k = s.kept[i]; k.bytes > 0 && tcp::Heard::has(header.all, header.more, k.number))
      drop_kept(s, k);
  if (header.asks == tcp::Datagram::Asks::kWhetherHeard) {
    hears_ = true;
    tell(*peer, tcp::Datagram::Asks::kAnswers);
  } else if (header.asks == tcp::Datagram::Asks::kAnswers && s.asked) {
    s.asked = false;
    s.pass = true;
    s.kept.resize(ShortOnes::kMostKept);
  }
  if (header.number == 0) return;
  ++s.unacknowledged;  // duplicates too: the peer may have missed the acknowledgment
  if (s.heard.first(header.number)) arrived(*peer, bytes.subspan(sizeof header));
  if (s.unacknowledged >= kTellAt && peer->state == State::kUp)
    tell(*peer, tcp::Datagram::Asks::kNothing);
}

// Handles a message that arrived in a datagram, or in the copy of a datagram.
void TcpTransport::arrived(Peer& peer, std::span<const std::byte> bytes) {
  tcp::Front front;
  if (!front.take(bytes) || tcp::malformed(front.frame()) ||
      front.frame().kind != tcp::FrameKind::kEager || front.frame().length != bytes.size()) {
    fail(peer, Code::kTransport,
         "the peer sent an invalid datagram; does it run the same version of weft?");
    return;
  }
  const tcp::Frame f = front.frame();
  Head room;
  const Head* const head = front.head(room);
  Receive* const r = peer.matching.find(f.tag);
  if (r && r->arrived > 0) {  // the connection may still write its memory
    fail(peer, Code::kTransport,
         fmt::format("the peer sent two messages of tag {:#x} at once", f.tag));
    return;
  }
  if (!r) {
    if (Unexpected* u = keep(peer, f, head)) {
      std::copy(bytes.begin(), bytes.end(), u->kept.data.begin());
      u->kept.is = Early::Is::kHere;
    }
    return;
  }
  Receive receive = peer.matching.take(r);
  if (!alike(peer, f.bytes, head, receive.transfer)) {
    complete(receive.transfer.id, Code::kMismatch);
    return;
  }
  if (f.bytes) std::memcpy(receive.transfer.data, bytes.data(), bytes.size());
  if (head) receive.crc = head->crc;
  finish(receive);
}

// Handles the copy of a datagram, received into `peer.copy`.
void TcpTransport::copied(Peer& peer) {
  if (!peer.short_ones.heard.first(peer.copy_number)) return;
  add_frame(peer, tcp::FrameKind::kLostOne, 0, 0, nullptr);
  arrived(peer, peer.copy);
}

void TcpTransport::lost_one(Peer& peer) {
  ShortOnes& s = peer.short_ones;
  s.pass = s.asked = false;
  s.asks = 0;
  s.quiet = kQuiet << std::min(s.losses++, kMostDoublings);
  repeat(peer, true);
}

void TcpTransport::drop_kept(ShortOnes& s, Kept& k) {
  k.bytes = 0;
  --s.open;
}

// Retransmits each unacknowledged datagram over the connection; without `all`, only datagrams that
// were already unacknowledged at the previous check.
void TcpTransport::repeat(Peer& peer, bool all) {
  ShortOnes& s = peer.short_ones;
  for (std::uint32_t number = s.sent - static_cast<std::uint32_t>(s.kept.size()) + 1;
       s.open > 0 && number != s.sent + 1; ++number) {
    Kept& k = s.kept[number % s.kept.size()];
    if (k.bytes == 0 || (!std::exchange(k.old, true) && !all)) continue;
    const std::byte* const message = k.data + sizeof(tcp::Datagram);
    Out& o = peer.out.add();
    o.front_bytes = tcp::write_front(o.front,
                                     {.kind = tcp::FrameKind::kCopy,
                                      .length = static_cast<std::uint32_t>(k.bytes),
                                      .tag = number,
                                      .bytes = k.bytes},
                                     nullptr);
    o.own.assign(message, message + k.bytes);
    o.piece = o.own.data();
    o.piece_bytes = k.bytes;
    drop_kept(s, k);
  }
}

// Sends pending acknowledgments, and retransmits datagrams that peers have not acknowledged.
void TcpTransport::tend_short_ones(Before what) {
  const bool turns = what == Before::kTurns;
  const bool look = !turns || ++looks_ % kPatience == 0;
  for (std::size_t i = live_.size(); i-- > 0;) {
    if (i >= live_.size()) continue;  // more than one was removed
    Peer& peer = *live_[i];
    ShortOnes& s = peer.short_ones;
    const bool told = std::exchange(s.told, false);
    if (s.unacknowledged > 0 && !(turns && told)) tell(peer, tcp::Datagram::Asks::kNothing);
    if (!look || s.open == 0) continue;
    repeat(peer, what == Before::kLeave);
    if (!peer.out.empty() && !peer.full) flush(peer);
  }
}

void TcpTransport::before_pause() noexcept { tend_short_ones(Before::kLeave); }

}  // namespace weft
