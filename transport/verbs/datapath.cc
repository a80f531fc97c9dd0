// The datapath of the verbs transport: messages that fit slots, and the completions of all
// requests. Messages that wait are in waiting.cc, the requests of a queue pair in request_chain.h.
// A long message completes with its acknowledgement; other requests are signaled only now and then.
#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "transport/gpu/streams.h"
#include "transport/memory/copy.h"
#include "transport/verbs/transport.h"

namespace weft {
namespace {

constexpr int kReapAtOnce = 32;
constexpr int kReapsPerPoll = 4;
// Idle polls between two reads of the device's asynchronous events, each a system call.
constexpr int kQuietPolls = 1024;

// Codes that mean: no answer from the peer. All others are errors of a device about a request.
bool peer_is_silent(ibv_wc_status status) {
  return status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_RNR_RETRY_EXC_ERR ||
         status == IBV_WC_WR_FLUSH_ERR || status == IBV_WC_RESP_TIMEOUT_ERR;
}

}  // namespace

// ---- out: messages into the peer's slots ------------------------------------------------------

void VerbsTransport::post(std::span<const Transfer> transfers) noexcept {
  for (const Transfer& t : transfers) {
    Peer* peer = peer_of(t.peer);
    if (!peer) {
      done_.add(t.id, Code::kInvalidArgument);
    } else if (t.kind == Transfer::Kind::kView) {
      peer->note =
          Status(Code::kInvalidArgument, "verbs: views are not supported; post a kRecv", t.peer);
      done_.add(t.id, Code::kInvalidArgument);
    } else if (t.kind == Transfer::Kind::kSend) {
      start_send(t, *peer);
    } else {
      start_recv(t, *peer);
    }
  }
  flush();
}

void VerbsTransport::start_send(const Transfer& t, Peer& peer) {
  if (!peer.failure.ok()) {
    done_.add(t.id, peer.failure.code());
    return;
  }
  Lane& lane = lanes_.of(peer, t.tag);
  VerbsQueued message{.front = {.tag = t.tag, .bytes = t.bytes, .headed = t.head != nullptr},
                      .head = t.head,
                      .id = t.id};
  // GPU memory, which the CPU must not access, is not copied into a slot.
  if (t.bytes == 0 || (t.bytes <= most_in_slot_ && !VerbsMemory::on_gpu(t.data))) {
    message.data = t.data;
  } else {
    message.front.what = VerbsMessage::kRts;
    message.front.number = begin_long_send(t, peer) & 0x7fffffff;
  }
  push(lane, message);
}

// Copies a message into its slot if nothing is queued before it; otherwise queues it.
void VerbsTransport::push(Lane& lane, const VerbsQueued& message) {
  Peer& peer = *lane.peer;
  connections_->use(peer);
  if (peer.link == Link::kOpen && lane.queue.empty() && !lane.requests.full() && lane.ready())
    return fill(lane, message);
  lane.queue.push_back(message);
  if (peer.link == Link::kOpen)
    lanes_.touch(lane);
  else
    connections_->request(peer);
}

void VerbsTransport::fill(Lane& lane, const VerbsQueued& message) {
  const auto slot = static_cast<std::size_t>(lane.send_credits.next());
  std::byte* const begin = lane.staging + slot * slots_->slot_bytes();
  std::byte* at = begin;
  const auto add = [&at](const void* data, std::size_t bytes) {
    if (bytes) std::memcpy(at, data, bytes);
    at += bytes;
  };
  add(&message.front, sizeof message.front);
  if (message.head) add(message.head, sizeof *message.head);
  if (message.front.what == VerbsMessage::kData) add(message.data, message.front.bytes);
  if (message.front.what == VerbsMessage::kCts) add(&message.cts, sizeof message.cts);

  lane.send_credits.take();
  send_slot(lane, slot, static_cast<std::size_t>(at - begin));
  if (message.front.what == VerbsMessage::kData) done_.add(message.id, Code::kOk);
}

// Writes the first `bytes` of the slot's staging to the peer's slot.
void VerbsTransport::send_slot(Lane& lane, std::size_t slot, std::size_t bytes) {
  ibv_send_wr& request = chain(lane, lane.staging + slot * slots_->slot_bytes(), bytes, lane.key);
  request.wr.rdma.remote_addr = lane.remote_ring + slot * slots_->slot_bytes();
  request.wr.rdma.rkey = lane.remote_key;
  if (bytes <= static_cast<std::size_t>(inline_bytes_)) request.send_flags |= IBV_SEND_INLINE;
  lane.tell_arrival(request, VerbsImmediate::Kind::kMessage, static_cast<std::uint32_t>(slot));
  lane.requests.carries_payload();
  lane.slot_request[slot] = lane.requests.posted();
}

// Adds a write of these bytes to the lane's chain.
ibv_send_wr& VerbsTransport::chain(Lane& lane, const void* data, std::size_t bytes,
                                   std::uint32_t lkey) {
  if (lane.requests.full()) ring_doorbell(lane);
  lanes_.touch(lane);
  return lane.requests.add(data, bytes, lkey);
}

void VerbsTransport::start_recv(const Transfer& t, Peer& peer) {
  if (auto* const found = peer.matching.find_unexpected(t.tag)) {
    const Receive receive{t, 0, found->headed ? found->head.crc : 0};
    if (!alike(peer, t, found->bytes, found->head_or_null())) {
      done_.add(t.id, Code::kMismatch);
    } else if (found->kept.what == VerbsMessage::kData) {
      finish(peer, receive, found->kept.bytes.data());
    } else {
      on_rts(peer, receive, found->kept.number);
    }
    peer.matching.drop(found);
    ease(peer);
  } else if (!peer.failure.ok()) {
    done_.add(t.id, peer.failure.code());
  } else {
    peer.matching.post({t});
  }
}

void VerbsTransport::flush() noexcept {
  for (std::size_t i = 0; i < lanes_.touched.size(); ++i) {
    Lane& lane = *lanes_.touched[i];
    if (lane.recv_credits.due(lane.receives)) give_receives_back(lane);
    if (lane.peer->link == Link::kOpen && !(lane.queue.empty() && lane.writing.empty())) pump(lane);
    if (lane.peer->link == Link::kOpen && lane.recv_credits.tells() && lane.requests.room()) {
      ibv_send_wr& request = chain(lane, nullptr, 0, 0);
      lane.tell_arrival(request, VerbsImmediate::Kind::kEmpty, 0);
    }
    if (!lane.requests.empty()) ring_doorbell(lane);
    lane.touched = false;
  }
  lanes_.touched.clear();
}

void VerbsTransport::give_receives_back(Lane& lane) {
  constexpr int kAtOnce = VerbsRecvCredits::kAtOnce;
  if (!lane.peer->slowed) lane.recv_credits.reposted();
  while (lane.qp && lane.receives > 0) {
    ibv_recv_wr requests[kAtOnce] = {};
    const int n = std::min(lane.receives, kAtOnce);
    for (int i = 0; i < n; ++i) {
      requests[i].wr_id = lane.requests.receive_id();
      requests[i].next = i + 1 < n ? &requests[i + 1] : nullptr;
    }
    lane.receives -= n;
    ibv_recv_wr* bad = nullptr;
    const int error = lane.qp->post(requests, &bad);
    if (error)
      fail(*lane.peer, Code::kTransport, fmt::format("ibv_post_recv: {}", std::strerror(error)));
  }
}

void VerbsTransport::pump(Lane& lane) {
  // Posts a full chain between two messages, because a refusal by the device clears the queues.
  const auto goes_on = [&] {
    if (lane.requests.full()) ring_doorbell(lane);
    return lane.qp != nullptr;
  };
  while (goes_on() && !lane.queue.empty() && lane.ready()) {
    const VerbsQueued message = lane.queue.front();
    lane.queue.pop_front();
    fill(lane, message);
  }
  while (goes_on() && !lane.writing.empty() && lane.requests.room()) write_on(lane);
}

// Handles the result of posting sends.
void VerbsTransport::check_posted(Lane& lane, int error) {
  if (error) [[unlikely]]
    fail(*lane.peer, Code::kTransport, fmt::format("ibv_post_send: {}", std::strerror(error)));
}

// ---- in: completions, and messages out of this rank's slots -----------------------------------

std::size_t VerbsTransport::poll(std::span<Completion> out) noexcept {
  if (armed_) {
    armed_ = false;
    for (VerbsCq& queue : slots_->queues()) queue.disarm();
    quiet_polls_ = kQuietPolls;  // an asynchronous event may have woken the thread
  }
  if (connections_->has_work()) connections_->poll();
  if (reap() > 0) {
    quiet_polls_ = 0;
  } else if (++quiet_polls_ > kQuietPolls) {
    hear_device();
    for (Peer& peer : peers_) ease(peer);  // tasks may have received unexpected messages
    flush();
  }
  return done_.hand_out(out);
}

std::size_t VerbsTransport::reap() noexcept {
  std::size_t all = 0;
  for (VerbsCq& queue : slots_->queues())
    for (int i = 0; i < kReapsPerPoll; ++i) {
      ibv_wc completions[kReapAtOnce];
      const int n = queue.poll(completions);
      if (n < 0) {
        for (Peer& peer : peers_)
          if (peer.rank != rank_) fail(peer, Code::kTransport, "ibv_poll_cq failed: look at dmesg");
        return all;
      }
      for (int k = 0; k < n; ++k) on_completion(completions[k]);
      all += static_cast<std::size_t>(n);
      if (n < kReapAtOnce) break;
    }
  if (!lanes_.touched.empty()) flush();
  return all;
}

void VerbsTransport::on_completion(const ibv_wc& completion) {
  Lane& lane = lanes_.all[VerbsRequestId::pair_of(completion.wr_id)];
  if (!lane.requests.owns(completion.wr_id)) return;  // of a destroyed queue pair
  const bool sent = completion.wr_id & VerbsRequestId::kIsSend;
  if (completion.status != IBV_WC_SUCCESS) [[unlikely]] {
    if (lane.peer->link == Link::kClosed) {  // see interrupt()
      lane.drained = lane.drained || !sent;
      return;
    }
    const bool refused = completion.status == IBV_WC_WR_FLUSH_ERR && !sent;
    fail(*lane.peer, peer_is_silent(completion.status) ? Code::kPeerFailed : Code::kTransport,
         verbs_cause(completion.status, completion.vendor_err) +
             (refused ? "; a receive was first, so the device here refused what the peer sent, and "
                        "the peer's own completion says why"
                      : ""));
  } else if (sent) {
    on_sent(lane, completion.wr_id);
  } else if (!(completion.wc_flags & IBV_WC_WITH_IMM)) {
    refuse(*lane.peer, "a message without immediate data");
  } else {
    on_arrival(lane, ntohl(completion.imm_data));
  }
}

// Completes this request and all before it.
void VerbsTransport::on_sent(Lane& lane, std::uint64_t request) {
  lane.requests.complete(request);
  while (!lane.writes.empty() && lane.writes.front().first < lane.requests.done()) {
    const auto send = long_sends_.find(lane.writes.front().second);
    lane.writes.pop_front();
    if (--send->second.open > 0) continue;
    done_.add(send->second.transfer.id, Code::kOk);
    long_sends_.erase(send);
  }
  if (!lane.queue.empty() || !lane.writing.empty() || lane.recv_credits.owes()) lanes_.touch(lane);
}

void VerbsTransport::on_arrival(Lane& lane, std::uint32_t immediate) {
  const VerbsImmediate what = VerbsImmediate::unpack(immediate);
  Peer& peer = *lane.peer;
  ++lane.receives;
  connections_->use(peer);
  if (peer.link == Link::kConnected) connections_->open(peer);  // so both ends are connected
  lanes_.touch(lane);
  const bool in_order = what.kind != VerbsImmediate::Kind::kMessage ||
                        static_cast<int>(what.index) == lane.recv_credits.next();
  if (!lane.send_credits.heard(what.taken) || !in_order) {
    refuse(peer, "slots out of order");
  } else if (what.kind == VerbsImmediate::Kind::kMessage) {
    on_message(lane, lane.ring + what.index * slots_->slot_bytes());
    lane.recv_credits.took();
  } else if (what.kind == VerbsImmediate::Kind::kWindow) {
    on_window(peer, what.index);
  } else if (what.kind != VerbsImmediate::Kind::kEmpty) {
    refuse(peer, "immediate data of an unknown kind");
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
    done_.add(receive.transfer.id, Code::kMismatch);
  } else if (data) {
    finish(peer, receive, body);
  } else {
    on_rts(peer, receive, front.number);
  }
}

// Whether the message fits the receive; if not, notes the disagreement.
bool VerbsTransport::alike(Peer& peer, const Transfer& t, std::size_t bytes, const Head* head) {
  if (agrees(t, bytes, head)) [[likely]]
    return true;
  peer.disagree(t, bytes, head, where_);
  return false;
}

// Completes a receive: copies its bytes from a slot or a bounce buffer; nullptr: they are in place.
void VerbsTransport::finish(Peer& peer, const Receive& receive, const std::byte* from) {
  const Transfer& t = receive.transfer;
  Completion done{.id = t.id, .crc = receive.crc};
  if (from && t.bytes > 0 && !VerbsMemory::on_gpu(t.data)) {
    copy_bytes(t.data, from, t.bytes, t.streaming);
  } else if (from && t.bytes > 0) {
    try {
      copy_now(t.data, from, t.bytes);
    } catch (const Error& error) {
      peer.note = {Code::kTransport, fmt::format("{}: {}", peer.where, error.what()), peer.rank};
      done.code = Code::kTransport;
    }
  }
  done_.add(done);
}

bool VerbsTransport::arm(std::vector<int>& fds) noexcept {
  if (!done_.empty() || connections_->busy()) return false;
  for (VerbsCq& queue : slots_->queues())
    if (!queue.arm()) return false;
  armed_ = true;
  // Completions from before arming do not wake the thread.
  if (reap() > 0) return false;
  for (VerbsCq& queue : slots_->queues()) fds.push_back(queue.fd());
  fds.push_back(device_->report_fd());
  if (connections_->fd() >= 0) fds.push_back(connections_->fd());
  return true;
}

}  // namespace weft
