// Messages of the verbs transport that wait: unexpected ones for their receive, and long ones for
// the exchange of RTS and CTS, before they are written from buffer to buffer.
//
//   sender                                receiver
//   send of a long message        RTS ->  keeps the RTS until the receive is posted
//                              <- CTS     address, key, window
//   write, write, empty with immediate -> the window is full: the receive is over
//   acknowledged: the send is over
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/messages/unexpected_limit.h"
#include "transport/verbs/transport.h"

namespace weft {
namespace {

constexpr std::size_t kLineMask = 63;  // parts of a long message begin at a cache line

}  // namespace

// Keeps an unexpected message or RTS.
void VerbsTransport::keep(Peer& peer, const VerbsMessageFront& front, const Head& head,
                          const std::byte* body) {
  const bool data = front.what == VerbsMessage::kData;
  const std::size_t bytes = data ? front.bytes : 0;
  if (!peer.matching.allows(bytes, settings_.unexpected_bytes)) {
    fail(peer, Code::kTransport, too_far_ahead(settings_.unexpected_bytes));
    return;
  }
  auto& one = peer.matching.keep(front.tag, front.bytes, bytes);
  one.headed = front.headed;
  one.head = head;
  one.kept.what = front.what;
  one.kept.number = front.number;
  one.kept.bytes.assign(body, body + bytes);
  peer.slowed = peer.matching.far_ahead(settings_.unexpected_bytes);
}

// Returns credits to a slowed peer again, once its unexpected messages take less memory.
void VerbsTransport::ease(Peer& peer) {
  if (!peer.slowed || peer.matching.far_ahead(settings_.unexpected_bytes)) return;
  peer.slowed = false;
  for (Lane* lane : peer.lanes) lanes_.touch(*lane);
}

void VerbsTransport::forget(std::uint64_t tag, std::uint64_t mask) noexcept {
  for (Peer& peer : peers_) {
    peer.matching.drop_if([&](const auto& one) { return (one.tag & mask) == (tag & mask); });
    ease(peer);
  }
  flush();
}

// ---- long messages ----------------------------------------------------------------------------

// Returns the number of a new long message, which waits for its CTS.
std::uint32_t VerbsTransport::begin_long_send(const Transfer& t, Peer& peer) {
  do next_number_ = (next_number_ + 1) & 0x7fffffff;
  while (next_number_ == 0 || long_sends_.contains(next_number_));
  VerbsLongSend& send = long_sends_[next_number_];
  send.transfer = t;
  send.peer = peer.rank;
  return next_number_;
}

// Called when both the receive is posted and the RTS of its message has arrived.
void VerbsTransport::on_rts(Peer& peer, const Receive& receive, std::uint32_t number) {
  if (!peer.failure.ok()) {
    done_.add(receive.transfer.id, peer.failure.code());
  } else if (peer.windows_used < settings_.windows) {
    send_cts(peer, receive, number);
  } else {
    peer.waiting.push_back({receive, number});
  }
}

void VerbsTransport::send_cts(Peer& peer, const Receive& receive, std::uint32_t number) {
  const Transfer& t = receive.transfer;
  VerbsBuffers::Reach memory = reach(peer, t, VerbsBuffers::Use::kWrite);
  if (!memory) {
    done_.add(t.id, Code::kTransport);
    return;
  }
  // The message may arrive over any queue pair, and consumes a receive there.
  Lane& way = lanes_.of(peer, t.tag);
  for (Lane* lane : peer.lanes) give_receives_back(*lane);
  if (!peer.failure.ok()) {
    done_.add(t.id, peer.failure.code());
    return;
  }
  const auto free = std::find_if(peer.windows.begin(), peer.windows.end(),
                                 [](const VerbsWindow& window) { return !window.used; });
  *free = {true, receive, number, std::move(memory), 0};
  ++peer.windows_used;
  push(way, {.front = {.tag = t.tag,
                       .bytes = t.bytes,
                       .what = VerbsMessage::kCts,
                       .number = number & 0x7fffffff},
             .cts = peer.cts_of(*free)});
}

// Returns registered memory for this transfer; none, with the reason in peer.note, if the kernel
// refuses.
VerbsBuffers::Reach VerbsTransport::reach(Peer& peer, const Transfer& t, VerbsBuffers::Use use) {
  try {
    return buffers_->reach(t, use);
  } catch (const Error& error) {
    peer.note = {Code::kTransport, fmt::format("{}: {}", peer.where, error.what()), peer.rank};
    return {};
  }
}

void VerbsTransport::on_cts(Peer& peer, const VerbsMessageFront& front, const VerbsCts& cts) {
  const auto found = long_sends_.find(front.number);
  if (found == long_sends_.end()) return;  // withdrawn meanwhile; the kWithdraw is on its way
  VerbsLongSend& send = found->second;
  if (send.peer != peer.rank || send.state != VerbsLongSend::State::kRtsSent ||
      cts.window >= static_cast<std::uint32_t>(settings_.windows)) {
    refuse(peer, "it granted what was not announced to it");
    return;
  }
  send.reach = reach(peer, send.transfer, VerbsBuffers::Use::kRead);
  if (!send.reach) {
    done_.add(send.transfer.id, Code::kTransport);
    withdraw(peer, found->first, send.transfer.tag);
    long_sends_.erase(found);
    return;
  }
  begin_writing(peer, found->first, send, cts);
}

void VerbsTransport::begin_writing(Peer& peer, std::uint32_t number, VerbsLongSend& send,
                                   const VerbsCts& cts) {
  send.state = VerbsLongSend::State::kWriting;
  send.parts = send.open = peer.parts_of(send.transfer.bytes);
  const std::size_t part = send.transfer.bytes / static_cast<std::size_t>(send.parts) & ~kLineMask;
  for (int i = 0; i < send.parts; ++i) {
    Lane& lane = *peer.lanes[peer.next_lane++ % peer.lanes.size()];
    const std::size_t begin = static_cast<std::size_t>(i) * part;
    const std::size_t end = i + 1 < send.parts ? begin + part : send.transfer.bytes;
    lane.writing.push_back({number, cts, begin, begin, end});
    lanes_.touch(lane);
  }
}

// Chains a zero-copy write of the next piece of a long message's part; after the last piece, an
// empty write with immediate data. Networks with adaptive routing may reorder plain writes, but not
// a write with immediate data.
void VerbsTransport::write_on(Lane& lane) {
  VerbsWriting& w = lane.writing.front();
  VerbsLongSend& send = long_sends_.at(w.number);
  const std::size_t bytes = std::min(w.end - w.at, device_->max_message());
  ibv_send_wr& request = chain(lane, send.reach.data + w.at, bytes, send.reach.memory().lkey());
  request.wr.rdma.remote_addr = w.cts.address + w.at;
  request.wr.rdma.rkey = w.cts.key;
  lane.requests.carries_payload();
  w.at += bytes;
  if (bytes > 0) return;
  lane.tell_arrival(request, VerbsImmediate::Kind::kWindow, w.cts.window);
  lane.requests.signal();
  lane.writes.emplace_back(lane.requests.posted() - 1, w.number);
  lane.writing.pop_front();
}

void VerbsTransport::on_window(Peer& peer, std::uint32_t index) {
  if (index >= peer.windows.size() || !peer.windows[index].used) {
    refuse(peer, "it filled a window that was not granted");
    return;
  }
  VerbsWindow& window = peer.windows[index];
  if (++window.parts < peer.parts_of(window.receive.transfer.bytes)) return;
  finish(peer, window.receive, window.reach.stage.get());
  free_window(peer, window);
}

void VerbsTransport::free_window(Peer& peer, VerbsWindow& window) {
  window.used = false;
  window.reach = {};
  --peer.windows_used;
  while (!peer.waiting.empty() && peer.windows_used < settings_.windows) {
    const VerbsWaiting next = peer.waiting.front();
    peer.waiting.pop_front();
    send_cts(peer, next.receive, next.number);
  }
}

void VerbsTransport::withdraw(Peer& peer, std::uint32_t number, std::uint64_t tag) {
  push(lanes_.of(peer, tag),
       {.front = {.tag = tag, .what = VerbsMessage::kWithdraw, .number = number & 0x7fffffff}});
}

// The peer withdrew a long message after its RTS; a matched receive is posted again.
void VerbsTransport::on_withdrawn(Peer& peer, const VerbsMessageFront& front) {
  for (VerbsWindow& window : peer.windows) {
    if (!window.used || window.number != front.number) continue;
    peer.matching.post(window.receive);
    free_window(peer, window);
    return;
  }
  for (auto it = peer.waiting.begin(); it != peer.waiting.end(); ++it) {
    if (it->number != front.number) continue;
    peer.matching.post(it->receive);
    peer.waiting.erase(it);
    return;
  }
  peer.matching.drop_if([&](const auto& one) {
    return one.kept.what == VerbsMessage::kRts && one.kept.number == front.number;
  });
}

}  // namespace weft
