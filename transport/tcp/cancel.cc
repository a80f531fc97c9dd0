// Cancels transfers and drops messages of the tcp transport. Connections remain usable: the rest of
// a partly sent piece is sent from a private copy, and bytes that still arrive are discarded.
#include <algorithm>

#include "transport/tcp/transport.h"

namespace weft {

void TcpTransport::cancel(std::uint32_t id_high) noexcept {
  done_.forget(id_high);
  const auto given_up = [id_high](const Transfer& t) { return t.id >> 32 == id_high; };
  for (Peer& peer : peers_) {
    for (const Transfer& send : peer.sends)
      if (given_up(send)) add_frame(peer, tcp::FrameKind::kWithdraw, send.tag, 0, nullptr);
    std::erase_if(peer.sends, given_up);
    for (const Receive& r : peer.matching.receives())
      if (given_up(r.transfer) && r.transfer.bytes > tcp::kMostEager && r.arrived == 0)
        add_frame(peer, tcp::FrameKind::kUnready, r.transfer.tag, 0, nullptr);
    peer.matching.cancel(given_up);
    if (peer.to_receive && !peer.matching.find(peer.receiving)) {
      peer.to_receive = false;
      peer.into = nullptr;
    }
    for (std::size_t i = peer.out.size(); i-- > 0;)
      if (peer.out[i].tell && peer.out[i].id >> 32 == id_high) withdraw(peer, i);
    if (!peer.out.empty() && !peer.full) flush(peer);
  }
}

// Cancels a queued send; the caller's memory is not accessed afterwards.
void TcpTransport::withdraw(Peer& peer, std::size_t i) {
  Out& o = peer.out[i];
  const bool pieces = o.bytes > 0;  // pieces: the peer has posted the receive
  const std::uint64_t tag = o.tag;
  const bool unfinished = o.next < o.bytes || o.sent == 0;
  if (o.sent == 0) {
    peer.out.erase(i);
  } else {
    o.tell = false;
    o.next = o.bytes = 0;
    const std::size_t gone = o.sent > o.front_bytes ? o.sent - o.front_bytes : 0;
    o.own.assign(o.piece + gone, o.piece + o.piece_bytes);
    o.piece = o.own.data();
    o.piece_bytes = o.own.size();
    o.sent -= gone;
  }
  if (pieces && unfinished) add_frame(peer, tcp::FrameKind::kWithdraw, tag, 0, nullptr);
}

void TcpTransport::forget(std::uint64_t tag, std::uint64_t mask) noexcept {
  const auto meant = [=](std::uint64_t t) { return (t & mask) == (tag & mask); };
  for (Peer& peer : peers_) {
    if (peer.to_unexpected && !peer.to_unexpected->wanted && meant(peer.to_unexpected->tag)) {
      peer.to_unexpected = nullptr;
      peer.into = nullptr;
    }
    peer.matching.drop_if([&](const Unexpected& u) { return !u.wanted && meant(u.tag); });
    std::erase_if(peer.ready, [&](const Ready& r) { return meant(r.tag); });
  }
}

}  // namespace weft
