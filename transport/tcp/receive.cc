// The receive path of the tcp transport: bytes of a stream are read directly into the memory of
// their receive, or buffered as an unexpected message.
#include <fmt/format.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/tcp/transport.h"

namespace weft {
namespace {

constexpr int kReads = 4;           // maximum reads per peer and turn
constexpr int kLastReads = 1 << 7;  // limit on the reads that drain the datagram socket

}  // namespace

void TcpTransport::post_receive(const Transfer& t, Peer& peer) {
  if (Unexpected* const u = peer.matching.find_unexpected(t.tag)) {
    if (u->kept.is == Early::Is::kHere) return hand_over(peer, *u, {t});
    if (u->kept.is == Early::Is::kComing) {
      u->wanted = true;
      u->receive = {t};
      return;
    }
    const bool good = alike(peer, u->bytes, u->head_or_null(), t);
    peer.matching.drop(u);
    if (!good) {
      add_frame(peer, tcp::FrameKind::kRefuse, t.tag, t.bytes, t.head);
      complete(t.id, Code::kMismatch);
      return;
    }
  }
  if (!connect(peer)) {
    complete(t.id, peer.failure.code());
    return;
  }
  peer.matching.post({t});
  if (t.bytes > tcp::kMostEager) add_frame(peer, tcp::FrameKind::kReady, t.tag, t.bytes, t.head);
}

// Checks that the message matches its receive.
bool TcpTransport::alike(Peer& peer, std::size_t bytes, const Head* head, const Transfer& receive) {
  if (agrees(receive, bytes, head)) [[likely]]
    return true;
  peer.disagree(receive, bytes, head, "device " + device_);
  return false;
}

void TcpTransport::read(Peer& peer) {
  if (peer.state == State::kGreeting) greeted(peer);
  for (int i = 0; i < kReads && peer.state == State::kUp; ++i) {
    const std::size_t direct = peer.into ? peer.left : 0;
    std::size_t room = inbox_.size();
    if (peer.matching.far_ahead(unexpected_most_)) [[unlikely]] {  // only finish the frame
      if (peer.left == 0) {
        slow(peer, true);
        break;
      }
      room = direct ? 0 : std::min(peer.left, room);
    }
    iovec io[2] = {{peer.into, direct}, {inbox_.data(), room}};
    const ssize_t n = direct ? readv(peer.fd.get(), io, 2)
                             : recv(peer.fd.get(), inbox_.data(), room, MSG_DONTWAIT);
    // Retries later also if the kernel is out of memory.
    if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ENOMEM)) return;
    if (n <= 0) {
      const int error = errno;
      for (int j = 0; j < kLastReads && hear_datagrams() != Found::kNone; ++j) {
      }  // datagrams that the peer sent before
      if (peer.state != State::kUp) return;
      fail(peer, Code::kPeerFailed,
           n == 0 ? "connection closed" : fmt::format("connection lost: {}", std::strerror(error)));
      return;
    }
    const std::size_t got = static_cast<std::size_t>(n), first = std::min(got, direct);
    moved_ += got;
    if (first) {
      peer.into += first;
      peer.left -= first;
      if (peer.left == 0) end(peer);
    }
    consume(peer, {inbox_.data(), got - first});
    if (got < direct + room) break;  // the socket has no more bytes
  }
  // Handling the received frames may have queued replies or messages: send them.
  if (peer.fd && !peer.out.empty() && !peer.full) flush(peer);
}

// Stops reading from a peer with too many unexpected messages until receives have matched some: TCP
// flow control then stops the peer, and its connection need not fail.
void TcpTransport::slow(Peer& peer, bool slowed) {
  if (peer.slowed == slowed) return;
  peer.slowed = slowed;
  slowed_ += slowed ? 1 : -1;
  watch(peer);
}

void TcpTransport::consume(Peer& peer, std::span<const std::byte> bytes) {
  while (!bytes.empty() && peer.state == State::kUp) {
    if (peer.left == 0) {
      if (!peer.front.take(bytes)) return;
      begin(peer);
      if (peer.left == 0) end(peer);
      continue;
    }
    const std::size_t n = std::min(peer.left, bytes.size());
    if (peer.into) {
      std::memcpy(peer.into, bytes.data(), n);
      peer.into += n;
    }
    peer.left -= n;
    bytes = bytes.subspan(n);
    if (peer.left == 0) end(peer);
  }
}

// Called when a frame's front is complete.
void TcpTransport::begin(Peer& peer) {
  const tcp::Frame f = peer.front.frame();
  Head room;
  const Head* head = peer.front.head(room);
  peer.front.clear();
  if (const char* wrong = tcp::malformed(f)) {
    fail(peer, Code::kTransport,
         fmt::format("the peer sent {}; does it run the same version of weft?", wrong));
    return;
  }
  using Kind = tcp::FrameKind;
  if (f.kind == Kind::kReady) return ready(peer, f, head);
  if (f.kind == Kind::kRefuse) return refused(peer, f, head);
  if (f.kind == Kind::kAnnounce) return announced(peer, f, head);
  if (f.kind == Kind::kWithdraw) return withdrawn(peer, f.tag);
  if (f.kind == Kind::kUnready) return unready(peer, f.tag);
  if (f.kind == Kind::kLostOne) return lost_one(peer);

  peer.left = f.length;
  peer.into = nullptr;
  if (f.kind == Kind::kCopy) {
    peer.to_copy = true;
    peer.copy_number = static_cast<std::uint32_t>(f.tag);
    peer.copy.resize(f.length);
    peer.into = peer.copy.data();
    return;
  }
  if (Receive* const r = peer.matching.find(f.tag)) {
    const Transfer& t = r->transfer;
    if (r->arrived > 0 && (f.bytes != t.bytes || f.length > t.bytes - r->arrived)) {
      fail(peer, Code::kTransport, "the peer sent a piece that does not belong to its message");
    } else if (r->arrived > 0 || alike(peer, f.bytes, head, t)) {
      if (head) r->crc = head->crc;
      peer.into = static_cast<std::byte*>(t.data) + r->arrived;
      r->arrived += f.length;
      peer.receiving = f.tag;
      peer.to_receive = true;
    } else {
      complete(peer.matching.take(r).transfer.id, Code::kMismatch);
    }
  } else if (f.kind == Kind::kEager) {
    if (Unexpected* u = keep(peer, f, head)) {
      u->kept.is = Early::Is::kComing;
      peer.into = u->kept.data.data();
      peer.to_unexpected = u;
    }
  }  // otherwise the rest of a message with a cancelled receive
}

// Buffers an unexpected message or announcement. Returns nullptr if the limit is exceeded.
TcpTransport::Unexpected* TcpTransport::keep(Peer& peer, const tcp::Frame& f, const Head* head) {
  const std::size_t bytes = f.kind == tcp::FrameKind::kAnnounce ? 0 : f.bytes;
  if (!peer.matching.allows(bytes, unexpected_most_)) {
    fail(peer, Code::kTransport, too_far_ahead(unexpected_most_));
    return nullptr;
  }
  Unexpected& u = peer.matching.keep(f.tag, f.bytes, bytes);
  u.headed = head != nullptr;
  if (head) u.head = *head;
  u.kept.is = Early::Is::kAnnounced;
  u.kept.data.resize(bytes);
  return &u;
}

// Called when a frame's bytes are complete.
void TcpTransport::end(Peer& peer) {
  peer.into = nullptr;
  if (std::exchange(peer.to_receive, false)) {
    Receive* const r = peer.matching.find(peer.receiving);
    if (r->arrived < r->transfer.bytes) return;
    finish(peer.matching.take(r));
  } else if (Unexpected* u = std::exchange(peer.to_unexpected, nullptr)) {
    u->kept.is = Early::Is::kHere;
    if (u->wanted) hand_over(peer, *u, u->receive);
  } else if (std::exchange(peer.to_copy, false)) {
    copied(peer);
  }
}

void TcpTransport::announced(Peer& peer, const tcp::Frame& f, const Head* head) {
  Receive* const r = peer.matching.find(f.tag);
  if (!r) {
    keep(peer, f, head);
  } else if (!alike(peer, f.bytes, head, r->transfer)) {  // else a kReady was sent
    const Transfer t = peer.matching.take(r).transfer;
    add_frame(peer, tcp::FrameKind::kRefuse, f.tag, t.bytes, t.head);
    complete(t.id, Code::kMismatch);
  }
}

void TcpTransport::withdrawn(Peer& peer, std::uint64_t tag) {
  peer.matching.drop_if(
      [tag](const Unexpected& u) { return u.kept.is == Early::Is::kAnnounced && u.tag == tag; });
  if (Receive* const r = peer.matching.find(tag)) r->arrived = 0;
}

// Completes the receive of a message that arrived before the receive was posted.
void TcpTransport::hand_over(Peer& peer, Unexpected& u, const Receive& receive) {
  const Transfer t = receive.transfer;
  if (alike(peer, u.bytes, u.head_or_null(), t)) {
    if (u.bytes) std::memcpy(t.data, u.kept.data.data(), u.bytes);
    finish({t, u.bytes, u.headed ? u.head.crc : 0});
  } else {
    complete(t.id, Code::kMismatch);
  }
  peer.matching.drop(&u);
}

}  // namespace weft
