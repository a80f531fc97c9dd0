// The send path of the tcp transport: a queue per peer, written until the socket is full. Copies
// only the shortest messages.
#include <fmt/format.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/tcp/transport.h"

namespace weft {
namespace {

constexpr int kFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
constexpr int kMostVectors = 16;
constexpr int kReadsAtTheEnd = 10000;
constexpr std::size_t kMostAtOnce = std::size_t{4} << 20;  // bytes per flush, to keep calls short

bool same_sign(const Head* a, const Head* b) { return !a || !b || a->sign == b->sign; }

}  // namespace

void TcpTransport::post(std::span<const Transfer> transfers) noexcept {
  for (const Transfer& t : transfers) {
    Peer* peer = find(t.peer);
    if (!peer) {
      complete(t.id, Code::kInvalidArgument);
    } else if (t.kind == Transfer::Kind::kView || t.peer == rank_) {
      peer->note = Status(Code::kInvalidArgument,
                          t.peer == rank_ ? "tcp: a rank cannot send to itself"
                                          : "tcp: views are not supported; post a kRecv",
                          t.peer);
      complete(t.id, Code::kInvalidArgument);
    } else if (t.kind == Transfer::Kind::kSend) {
      post_send(t, *peer);
    } else {
      post_receive(t, *peer);
    }
  }
  for (const Transfer& t : transfers)  // after all posts, to batch a peer's messages
    if (Peer* peer = find(t.peer); peer && !peer->out.empty() && !peer->full) flush(*peer);
}

void TcpTransport::post_send(const Transfer& t, Peer& peer) {
  if (!connect(peer)) {
    complete(t.id, peer.failure.code());
    return;
  }
  if (t.bytes > tcp::kMostEager) {
    add_long(peer, t);
    return;
  }
  if (t.bytes <= tcp::kMostShort && send_short(t, peer)) return;
  Out& o = peer.out.add();
  o.tell = true;
  o.id = t.id;
  o.front_bytes = tcp::write_front(o.front, tcp::eager_frame(t), t.head);
  if (t.bytes > Out::kCopied) {
    o.piece = static_cast<const std::byte*>(t.data);
    o.piece_bytes = t.bytes;
  } else if (t.bytes) {
    std::memcpy(o.front + o.front_bytes, t.data, t.bytes);
    o.front_bytes += t.bytes;
  }
}

Transfer* TcpTransport::find_send(Peer& peer, std::uint64_t tag) {
  const auto at = std::ranges::find(peer.sends, tag, &Transfer::tag);
  return at == peer.sends.end() ? nullptr : &*at;
}

Transfer TcpTransport::take_send(Peer& peer, Transfer* send) {
  const Transfer taken = *send;
  peer.sends.erase(peer.sends.begin() + (send - peer.sends.data()));
  return taken;
}

// Sends immediately if the peer's kReady has arrived; otherwise announces the message.
void TcpTransport::add_long(Peer& peer, const Transfer& send) {
  const auto r = std::ranges::find(peer.ready, send.tag, &Ready::tag);
  if (r == peer.ready.end()) {
    peer.sends.push_back(send);
    add_frame(peer, tcp::FrameKind::kAnnounce, send.tag, send.bytes, send.head);
    return;
  }
  const Ready ready = *r;
  peer.ready.erase(r);
  if (fits(peer, ready.bytes, ready.headed ? &ready.head : nullptr, send)) {
    add_pieces(peer, send);
  } else {  // the receiver needs the announcement for its error message
    add_frame(peer, tcp::FrameKind::kAnnounce, send.tag, send.bytes, send.head);
    complete(send.id, Code::kMismatch);
  }
}

// Returns whether the peer's posted receive matches this message.
bool TcpTransport::fits(Peer& peer, std::size_t bytes, const Head* head, const Transfer& send) {
  if (bytes == send.bytes && same_sign(head, send.head)) return true;
  if (head) peer.disputed = *head;
  peer.note = Status(Code::kMismatch,
                     fmt::format("{}: device {}: expects {} bytes where {} are sent", peer.where,
                                 device_, bytes, send.bytes),
                     peer.rank);
  return false;
}

void TcpTransport::ready(Peer& peer, const tcp::Frame& f, const Head* head) {
  Transfer* const waiting = find_send(peer, f.tag);
  if (!waiting) {
    if ((peer.ready.size() + 1) * sizeof(Ready) > unexpected_most_)
      return fail(peer, Code::kTransport, too_far_ahead(unexpected_most_));
    peer.ready.push_back({f.tag, f.bytes, head != nullptr, head ? *head : Head{}});
    return;
  }
  const Transfer send = take_send(peer, waiting);
  if (fits(peer, f.bytes, head, send))
    add_pieces(peer, send);
  else
    complete(send.id, Code::kMismatch);  // the peer has the announcement
}

// If this rank has begun to send the message, the peer discards its bytes.
void TcpTransport::unready(Peer& peer, std::uint64_t tag) {
  std::erase_if(peer.ready, [tag](const Ready& ready) { return ready.tag == tag; });
}

void TcpTransport::refused(Peer& peer, const tcp::Frame& f, const Head* head) {
  Transfer* const waiting = find_send(peer, f.tag);
  if (!waiting) return;
  const Transfer send = take_send(peer, waiting);
  if (fits(peer, f.bytes, head, send))  // the frame does not show the mismatch
    peer.note = Status(Code::kMismatch,
                       fmt::format("{}: device {}: refuses a message of {} bytes", peer.where,
                                   device_, send.bytes),
                       peer.rank);
  complete(send.id, Code::kMismatch);
}

void TcpTransport::add_frame(Peer& peer, tcp::FrameKind kind, std::uint64_t tag, std::size_t bytes,
                             const Head* head) {
  Out& o = peer.out.add();
  o.front_bytes = tcp::write_front(
      o.front, {.kind = kind, .headed = head != nullptr, .length = 0, .tag = tag, .bytes = bytes},
      head);
}

void TcpTransport::add_pieces(Peer& peer, const Transfer& send) {
  Out& o = peer.out.add();
  o.tell = true;
  o.id = send.id;
  o.tag = send.tag;
  o.bytes = send.bytes;
  o.data = static_cast<const std::byte*>(send.data);
  cut_piece(o, send.head);
}

void TcpTransport::cut_piece(Out& o, const Head* head) {
  const std::size_t length = std::min(tcp::kMostPiece, o.bytes - o.next);
  o.front_bytes = tcp::write_front(o.front,
                                   {.kind = tcp::FrameKind::kPiece,
                                    .headed = head != nullptr,
                                    .length = static_cast<std::uint32_t>(length),
                                    .tag = o.tag,
                                    .bytes = o.bytes},
                                   head);
  o.piece = o.data + o.next;
  o.piece_bytes = length;
  o.next += length;
  o.sent = 0;
}

// Writes the part of the queue that the socket accepts.
void TcpTransport::flush(Peer& peer) {
  std::size_t total = 0;
  while (live(peer) && !peer.out.empty()) {
    iovec io[kMostVectors];
    int n = 0;
    std::size_t want = 0;
    for (std::size_t i = 0; i < peer.out.size() && n + 2 <= kMostVectors; ++i) {
      Out& o = peer.out[i];
      const std::size_t front = std::min(o.sent, o.front_bytes), piece = o.sent - front;
      if (front < o.front_bytes) io[n++] = {o.front + front, o.front_bytes - front};
      if (piece < o.piece_bytes)
        io[n++] = {const_cast<std::byte*>(o.piece) + piece, o.piece_bytes - piece};
      want += o.front_bytes + o.piece_bytes - o.sent;
      if (o.next < o.bytes) break;  // its next piece must be sent first
    }
    msghdr message{};
    message.msg_iov = io;
    message.msg_iovlen = static_cast<std::size_t>(n);
    const ssize_t sent = n == 1 ? send(peer.fd.get(), io[0].iov_base, io[0].iov_len, kFlags)
                                : sendmsg(peer.fd.get(), &message, kFlags);
    if (sent < 0 && errno == EINTR) continue;
    // Retries later also if the kernel is out of memory.
    if (sent < 0 && errno != EAGAIN && errno != ENOBUFS && errno != ENOMEM)
      return lost(peer, errno);
    if (sent > 0) advance(peer, static_cast<std::size_t>(sent));
    total += sent > 0 ? static_cast<std::size_t>(sent) : 0;
    moved_ += sent > 0 ? static_cast<std::size_t>(sent) : 0;
    if (sent < static_cast<ssize_t>(want) || total > kMostAtOnce) break;
  }
  if (!live(peer) || peer.full != peer.out.empty()) return;
  peer.full = !peer.out.empty();
  watch(peer);
}

// The peer has closed the connection: reads the bytes that it sent before, until a read returns the
// error.
void TcpTransport::lost(Peer& peer, int error) {
  peer.full = true;
  for (int i = 0; i < kReadsAtTheEnd && live(peer); ++i) read(peer);
  if (peer.fd)
    fail(peer, Code::kPeerFailed, fmt::format("connection lost: {}", std::strerror(error)));
}

void TcpTransport::advance(Peer& peer, std::size_t n) {
  while (n > 0) {
    Out& o = peer.out[0];
    const std::size_t step = std::min(n, o.front_bytes + o.piece_bytes - o.sent);
    o.sent += step;
    n -= step;
    if (o.sent < o.front_bytes + o.piece_bytes) return;
    if (o.next < o.bytes) {
      cut_piece(o, nullptr);
      continue;
    }
    if (o.tell) complete(o.id, Code::kOk);
    peer.out.pop();
  }
}

}  // namespace weft
