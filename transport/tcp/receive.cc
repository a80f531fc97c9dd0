// The receiving half of the tcp transport: the bytes of a stream go straight to the memory of their
// receive, or are kept as an unexpected message.
#include <fmt/format.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/tcp/transport.h"

namespace weft {
namespace {

constexpr int kReads = 4;           // of one peer at a turn
constexpr int kLastReads = 1 << 7;  // reads of datagrams that empty a socket, though more may come

}  // namespace

void TcpTransport::post_receive(const Transfer& t, Peer& peer) {
  const Waiting w{t.tag, t.id, static_cast<std::byte*>(t.data), t.bytes, t.head};
  for (Unexpected& u : peer.unexpected) {
    if (u.tag != t.tag || u.wanted) continue;
    if (u.here) {
      hand_over(peer, u, w);
      return;
    }
    if (!u.announced) {  // it is just coming
      u.wanted = true;
      u.want = w;
      return;
    }
    const bool good = alike(peer, u.bytes, u.headed ? &u.head : nullptr, w);
    erase(peer, &u);
    if (good) break;
    add_frame(peer, tcp::FrameKind::kRefuse, t.tag, t.bytes, t.head);
    complete(t.id, Code::kMismatch);
    return;
  }
  if (!connect(peer)) {
    complete(t.id, peer.failure.code());
    return;
  }
  peer.receives.push_back(w);
  if (t.bytes > tcp::kMostEager) add_frame(peer, tcp::FrameKind::kReady, t.tag, t.bytes, t.head);
}

// Whether the message is the one that the receive means.
bool TcpTransport::alike(Peer& peer, std::size_t bytes, const Head* head, const Waiting& receive) {
  if (bytes == receive.bytes && (!receive.head || (head && head->sign == receive.head->sign)))
      [[likely]]
    return true;
  if (head) peer.disputed = *head;
  peer.note = Status(Code::kMismatch,
                     fmt::format("{}: device {}: sent {} bytes where {} were expected", peer.where,
                                 device_, bytes, receive.bytes),
                     peer.rank);
  return false;
}

TcpTransport::Waiting* TcpTransport::find(std::vector<Waiting>& all, std::uint64_t tag) {
  const auto at =
      std::find_if(all.begin(), all.end(), [tag](const Waiting& w) { return w.tag == tag; });
  return at == all.end() ? nullptr : &*at;
}

void TcpTransport::read(Peer& peer) {
  if (peer.state == State::kGreeting) greeted(peer);
  for (int i = 0; i < kReads && peer.state == State::kUp; ++i) {
    const std::size_t direct = peer.into ? peer.left : 0;
    iovec io[2] = {{peer.into, direct}, {inbox_.data(), inbox_.size()}};
    const ssize_t n = direct ? readv(peer.fd.get(), io, 2)
                             : recv(peer.fd.get(), inbox_.data(), inbox_.size(), MSG_DONTWAIT);
    // Without memory in the kernel: later, too.
    if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ENOMEM)) return;
    if (n <= 0) {
      const int error = errno;
      for (int j = 0; j < kLastReads && hear_datagrams() != Found::kNone; ++j) {
      }  // what it said before
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
    if (got < direct + inbox_.size()) break;  // that was all
  }
  if (peer.fd && !peer.out.empty() && !peer.full) flush(peer);  // what it was waiting for
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

// A frame's front is here.
void TcpTransport::begin(Peer& peer) {
  const tcp::Frame f = peer.front.frame();
  Head room;
  const Head* head = peer.front.head(room);
  peer.front.clear();
  if (const char* wrong = tcp::malformed(f)) {
    fail(peer, Code::kTransport,
         fmt::format("the peer sent {}; is it weft of this version?", wrong));
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
  if (Waiting* w = find(peer.receives, f.tag)) {
    if (w->here > 0 && (f.bytes != w->bytes || f.length > w->bytes - w->here)) {
      fail(peer, Code::kTransport, "the peer sent a piece that is not of its message");
    } else if (w->here > 0 || alike(peer, f.bytes, head, *w)) {
      peer.into = w->data + w->here;
      w->here += f.length;
      peer.receiving = f.tag;
      peer.to_receive = true;
    } else {
      complete(w->id, Code::kMismatch);
      erase(peer.receives, w);
    }
  } else if (f.kind == Kind::kEager) {
    if (Unexpected* u = keep(peer, f, head)) {
      peer.into = u->data.data();
      peer.to_unexpected = u;
    }
  }  // else the rest of a message whose receive was given up
}

// A message, or the announcement of one, that nobody has asked for. Null: it is one too many.
TcpTransport::Unexpected* TcpTransport::keep(Peer& peer, const tcp::Frame& f, const Head* head) {
  Unexpected u;
  u.tag = f.tag;
  u.bytes = f.bytes;
  u.announced = f.kind == tcp::FrameKind::kAnnounce;
  u.headed = head != nullptr;
  if (head) u.head = *head;
  if (!u.announced) u.data.resize(f.bytes);
  if (peer.unexpected_bytes + u.cost() > unexpected_most_) {
    fail(peer, Code::kTransport, too_far_ahead(unexpected_most_));
    return nullptr;
  }
  ++unexpected_;
  peer.unexpected_bytes += u.cost();
  return &peer.unexpected.emplace_back(std::move(u));
}

// The bytes of a frame are here.
void TcpTransport::end(Peer& peer) {
  peer.into = nullptr;
  if (std::exchange(peer.to_receive, false)) {
    Waiting* w = find(peer.receives, peer.receiving);
    if (w->here < w->bytes) return;
    complete(w->id, Code::kOk);
    erase(peer.receives, w);
  } else if (Unexpected* u = std::exchange(peer.to_unexpected, nullptr)) {
    u->here = true;
    if (u->wanted) hand_over(peer, *u, u->want);
  } else if (std::exchange(peer.to_copy, false)) {
    copied(peer);
  }
}

void TcpTransport::announced(Peer& peer, const tcp::Frame& f, const Head* head) {
  if (Waiting* w = find(peer.receives, f.tag)) {  // a kReady is on its way
    if (alike(peer, f.bytes, head, *w)) return;
    add_frame(peer, tcp::FrameKind::kRefuse, f.tag, w->bytes, w->head);
    complete(w->id, Code::kMismatch);
    erase(peer.receives, w);
    return;
  }
  keep(peer, f, head);
}

void TcpTransport::withdrawn(Peer& peer, std::uint64_t tag) {
  erase_unexpected(peer, [tag](const Unexpected& u) { return u.announced && u.tag == tag; });
  if (Waiting* w = find(peer.receives, tag)) w->here = 0;
}

// Gives a message that has come before its receive to it.
void TcpTransport::hand_over(Peer& peer, Unexpected& u, const Waiting& w) {
  const bool good = alike(peer, u.bytes, u.headed ? &u.head : nullptr, w);
  if (good && u.bytes) std::memcpy(w.data, u.data.data(), u.bytes);
  complete(w.id, good ? Code::kOk : Code::kMismatch);
  erase(peer, &u);
}

}  // namespace weft
