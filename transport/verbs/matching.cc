// Matches messages with receives in the verbs transport, and runs RTS and CTS of long messages.
// Slots and work requests are in verbs/datapath.cc.
//
//   sender                                receiver
//   send of a long message        RTS ->  keeps the RTS until the receive is posted
//                              <- CTS     address, key, window
//   write, write, empty with immediate -> the window is full: the receive is over
//   acknowledged: the send is over
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "topo/base/log.h"
#include "transport/memory/copy.h"
#include "transport/messages/unexpected_limit.h"
#include "transport/verbs/transport.h"

namespace weft {
namespace {

constexpr std::size_t kLineMask = 63;  // parts of a long message begin at a cache line

}  // namespace

void VerbsTransport::start_send(const Transfer& t, Peer& peer) {
  if (!peer.failure.ok()) {
    complete(t.id, peer.failure.code());
    return;
  }
  Lane& lane = lane_of(peer, t.tag);
  Queued message;
  message.front.tag = t.tag;
  message.front.bytes = t.bytes;
  message.front.headed = t.head != nullptr;
  message.head = t.head;
  message.id = t.id;
  // GPU memory, which the CPU must not access, is not copied into a slot.
  if (t.bytes == 0 || (t.bytes <= most_in_slot_ && !VerbsGpu::owns(t.data))) {
    message.data = t.data;
  } else {
    while (next_number_ == 0 || long_sends_.contains(next_number_))
      next_number_ = (next_number_ + 1) & 0x7fffffff;
    message.front.what = VerbsMessage::kRts;
    message.front.number = next_number_ & 0x7fffffff;
    LongSend& send = long_sends_[next_number_];
    send.transfer = t;
    send.peer = peer.rank;
    next_number_ = (next_number_ + 1) & 0x7fffffff;
  }
  push(lane, message);
}

void VerbsTransport::start_recv(const Transfer& t, Peer& peer) {
  if (Unexpected* const found = peer.matching.find_unexpected(t.tag)) {
    const Receive receive{t, 0, found->headed ? found->head.crc : 0};
    if (!alike(peer, t, found->bytes, found->head_or_null())) {
      complete(t.id, Code::kMismatch);
    } else if (found->kept.what == VerbsMessage::kData) {
      finish(peer, receive, found->kept.bytes.data());
    } else {
      on_rts(peer, receive, found->kept.number);
    }
    peer.matching.drop(found);
    ease(peer);
  } else if (!peer.failure.ok()) {
    complete(t.id, peer.failure.code());
  } else {
    peer.matching.post({t});
  }
}

void VerbsTransport::on_message(Lane& lane, const std::byte* slot) {
  Peer& peer = *lane.peer;
  VerbsMessageFront front;
  std::memcpy(&front, slot, sizeof front);
  const std::byte* body = slot + sizeof front;
  Head head;
  if (front.headed) {
    std::memcpy(&head, body, sizeof head);
    body += sizeof head;
  }
  if (front.what == VerbsMessage::kCts) {
    VerbsCts cts;
    std::memcpy(&cts, body, sizeof cts);
    on_cts(peer, front, cts);
    return;
  }
  if (front.what == VerbsMessage::kWithdraw) {
    on_withdrawn(peer, front);
    return;
  }
  const bool data = front.what == VerbsMessage::kData;
  if (data ? front.bytes > most_in_slot_ : front.what != VerbsMessage::kRts) {
    refuse(peer, "a slot's content makes no sense");
    return;
  }
  Receive* const found = peer.matching.find(front.tag);
  if (!found) {
    keep(peer, front, head, body);
    return;
  }
  Receive receive = peer.matching.take(found);
  receive.crc = head.crc;
  if (!alike(peer, receive.transfer, front.bytes, front.headed ? &head : nullptr)) {
    complete(receive.transfer.id, Code::kMismatch);
  } else if (data) {
    finish(peer, receive, body);
  } else {
    on_rts(peer, receive, front.number);
  }
}

// Keeps an unexpected message or RTS.
void VerbsTransport::keep(Peer& peer, const VerbsMessageFront& front, const Head& head,
                          const std::byte* body) {
  const bool data = front.what == VerbsMessage::kData;
  const std::size_t bytes = data ? front.bytes : 0;
  if (!peer.matching.allows(bytes, settings_.unexpected_bytes)) {
    fail(peer, Code::kTransport, too_far_ahead(settings_.unexpected_bytes));
    return;
  }
  Unexpected& one = peer.matching.keep(front.tag, front.bytes, bytes);
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
  for (Lane* lane : peer.lanes) touch(*lane);
}

// Whether the message fits the receive; if not, notes the disagreement.
bool VerbsTransport::alike(Peer& peer, const Transfer& t, std::size_t bytes, const Head* head) {
  if (agrees(t, bytes, head)) [[likely]]
    return true;
  peer.disagree(t, bytes, head, where_);
  return false;
}

// Called when both the receive is posted and the RTS of its message has arrived.
void VerbsTransport::on_rts(Peer& peer, const Receive& receive, std::uint32_t number) {
  if (!peer.failure.ok()) {
    complete(receive.transfer.id, peer.failure.code());
  } else if (peer.windows_used < settings_.windows) {
    send_cts(peer, receive, number);
  } else {
    peer.waiting.push_back({receive, number});
  }
}

void VerbsTransport::send_cts(Peer& peer, const Receive& receive, std::uint32_t number) {
  const Transfer& t = receive.transfer;
  Reach memory = reach(peer, t, Cache::Use::kWrite);
  if (!memory) {
    complete(t.id, Code::kTransport);
    return;
  }
  // The message may arrive over any queue pair, and consumes a receive there.
  Lane& way = lane_of(peer, t.tag);
  for (Lane* lane : peer.lanes) give_receives_back(*lane);
  if (!peer.failure.ok()) {
    complete(t.id, peer.failure.code());
    return;
  }
  const auto free = std::find_if(peer.windows.begin(), peer.windows.end(),
                                 [](const Window& window) { return !window.used; });
  Queued message;
  message.front.tag = t.tag;
  message.front.bytes = t.bytes;
  message.front.what = VerbsMessage::kCts;
  message.front.number = number & 0x7fffffff;
  *free = {true, receive, number, std::move(memory), 0};
  message.cts = cts_of(peer, *free);
  ++peer.windows_used;
  push(way, message);
}

VerbsCts VerbsTransport::cts_of(const Peer& peer, const Window& window) const {
  return {.address = reinterpret_cast<std::uint64_t>(window.reach.data),
          .key = window.reach.memory().rkey(),
          .window = static_cast<std::uint32_t>(&window - peer.windows.data())};
}

// Completes a receive: copies its bytes from a slot or a bounce buffer; nullptr: they are in place.
void VerbsTransport::finish(Peer& peer, const Receive& receive, const std::byte* from) {
  const Transfer& t = receive.transfer;
  Completion done{.id = t.id, .crc = receive.crc};
  if (from && t.bytes > 0 && !VerbsGpu::owns(t.data)) {
    copy_bytes(t.data, from, t.bytes, t.streaming);
  } else if (from && t.bytes > 0) {
    try {
      gpu_.copy(t.data, from, t.bytes);
    } catch (const Error& error) {
      peer.note = {Code::kTransport, fmt::format("{}: {}", peer.where, error.what()), peer.rank};
      done.code = Code::kTransport;
    }
  }
  done_.add(done);
}

// Returns registered memory for this transfer; none, with the reason in peer.note, if the kernel
// refuses.
VerbsTransport::Reach VerbsTransport::reach(Peer& peer, const Transfer& t, Cache::Use use) {
  Reach reach;
  try {
    const bool gpu = VerbsGpu::owns(t.data);
    if (!gpu || gpu_.asks()) {
      try {
        reach.lease = cache_->acquire(t.data, t.bytes, use, t.buffer);
        reach.data = static_cast<std::byte*>(t.data);
        if (gpu) gpu_.registered();
        return reach;
      } catch (const Error& error) {
        if (!gpu) throw;
        if (gpu_.refused() == 1)
          log().info("{}; GPU memory goes by way of host memory", error.what());
      }
    }
    reach.stage = gpu_.stage(t.bytes);
    if (use == Cache::Use::kRead) gpu_.copy(reach.stage.get(), t.data, t.bytes);
    reach.lease = cache_->acquire(reach.stage.get(), t.bytes, use);
    reach.data = reach.stage.get();
    return reach;
  } catch (const Error& error) {
    peer.note = {Code::kTransport, fmt::format("{}: {}", peer.where, error.what()), peer.rank};
    return {};
  }
}

// Registers the memory, if it is in a DeviceRegion for later transfers, too.
bool VerbsTransport::reaches_gpu(void* data, std::size_t bytes) noexcept {
  if (!VerbsGpu::owns(data) || !gpu_.asks()) return false;
  try {
    return static_cast<bool>(cache_->acquire(data, bytes, Cache::Use::kWrite));
  } catch (const std::exception& error) {
    log().info("{}", error.what());
    return false;
  }
}

void VerbsTransport::on_cts(Peer& peer, const VerbsMessageFront& front, const VerbsCts& cts) {
  const auto found = long_sends_.find(front.number);
  if (found == long_sends_.end()) return;  // withdrawn meanwhile; the kWithdraw is on its way
  LongSend& send = found->second;
  if (send.peer != peer.rank || send.state != LongSend::State::kRtsSent ||
      cts.window >= static_cast<std::uint32_t>(settings_.windows)) {
    refuse(peer, "it granted what was not announced to it");
    return;
  }
  send.reach = reach(peer, send.transfer, Cache::Use::kRead);
  if (!send.reach) {
    complete(send.transfer.id, Code::kTransport);
    withdraw(peer, found->first, send.transfer.tag);
    long_sends_.erase(found);
    return;
  }
  begin_writing(peer, found->first, send, cts);
}

void VerbsTransport::begin_writing(Peer& peer, std::uint32_t number, LongSend& send,
                                   const VerbsCts& cts) {
  send.state = LongSend::State::kWriting;
  send.parts = send.open = parts_of(send.transfer.bytes);
  const std::size_t part = send.transfer.bytes / static_cast<std::size_t>(send.parts) & ~kLineMask;
  for (int i = 0; i < send.parts; ++i) {
    Lane& lane = *peer.lanes[peer.next_lane++ % peer.lanes.size()];
    const std::size_t begin = static_cast<std::size_t>(i) * part;
    const std::size_t end = i + 1 < send.parts ? begin + part : send.transfer.bytes;
    lane.writing.push_back({number, cts, begin, begin, end});
    touch(lane);
  }
}

void VerbsTransport::withdraw(Peer& peer, std::uint32_t number, std::uint64_t tag) {
  Queued message;
  message.front.tag = tag;
  message.front.what = VerbsMessage::kWithdraw;
  message.front.number = number & 0x7fffffff;
  push(lane_of(peer, tag), message);
}

// The peer withdrew a long message after its RTS; a matched receive is posted again.
void VerbsTransport::on_withdrawn(Peer& peer, const VerbsMessageFront& front) {
  for (Window& window : peer.windows) {
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
  peer.matching.drop_if([&](const Unexpected& one) {
    return one.kept.what == VerbsMessage::kRts && one.kept.number == front.number;
  });
}

void VerbsTransport::on_window(Peer& peer, std::uint32_t index) {
  if (index >= peer.windows.size() || !peer.windows[index].used) {
    refuse(peer, "it filled a window that was not granted");
    return;
  }
  Window& window = peer.windows[index];
  if (++window.parts < parts_of(window.receive.transfer.bytes)) return;
  finish(peer, window.receive, window.reach.stage.get());
  free_window(peer, window);
}

void VerbsTransport::free_window(Peer& peer, Window& window) {
  window.used = false;
  window.reach = {};
  --peer.windows_used;
  while (!peer.waiting.empty() && peer.windows_used < settings_.windows) {
    const Waiting next = peer.waiting.front();
    peer.waiting.pop_front();
    send_cts(peer, next.receive, next.number);
  }
}

void VerbsTransport::forget(std::uint64_t tag, std::uint64_t mask) noexcept {
  for (Peer& peer : peers_) {
    peer.matching.drop_if([&](const Unexpected& one) { return (one.tag & mask) == (tag & mask); });
    ease(peer);
  }
  flush();
}

}  // namespace weft
