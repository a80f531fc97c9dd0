// The datapath of the verbs transport: slots, requests and their completions. Matching is in
// verbs/matching.cc, set-up in verbs.cc.
//
// Each lane (queue pair) collects its send requests in a chain (request_chain.h). A long message
// completes with its acknowledgement; other requests are signaled only now and then.
#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "transport/verbs/device.h"
#include "transport/verbs/transport.h"

namespace weft {
namespace {

constexpr int kReapAtOnce = 32;
constexpr int kReapsPerPoll = 4;

// Codes that mean: no answer from the peer. All others are errors of a device about a request.
bool peer_is_silent(ibv_wc_status status) {
  return status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_RNR_RETRY_EXC_ERR ||
         status == IBV_WC_WR_FLUSH_ERR || status == IBV_WC_RESP_TIMEOUT_ERR;
}

}  // namespace

// All messages of one tag use the same lane, so that they stay in order.
VerbsTransport::Lane& VerbsTransport::lane_of(Peer& peer, std::uint64_t tag) noexcept {
  if (peer.lanes.empty()) make_lanes(peer);
  if (peer.lanes.size() == 1) return *peer.lanes[0];
  const std::uint64_t mixed = (tag + 1) * 0x9e3779b97f4a7c15u >> 32;
  return *peer.lanes[mixed % peer.lanes.size()];
}

void VerbsTransport::post(std::span<const Transfer> transfers) noexcept {
  for (const Transfer& t : transfers) {
    Peer* peer = peer_of(t.peer);
    if (!peer) {
      complete(t.id, Code::kInvalidArgument);
    } else if (t.kind == Transfer::Kind::kView) {
      peer->note =
          Status(Code::kInvalidArgument, "verbs: views are not supported; post a kRecv", t.peer);
      complete(t.id, Code::kInvalidArgument);
    } else if (t.kind == Transfer::Kind::kSend) {
      start_send(t, *peer);
    } else {
      start_recv(t, *peer);
    }
  }
  flush();
}

// ---- out -----------------------------------------------------------------------------------

// Copies a message into its slot if nothing is queued before it; otherwise queues it.
void VerbsTransport::push(Lane& lane, const Queued& message) {
  Peer& peer = *lane.peer;
  connections_->use(peer);
  if (peer.link == Link::kOpen && lane.queue.empty() && !lane.requests.full() && ready(lane))
    return fill(lane, message);
  lane.queue.push_back(message);
  if (peer.link == Link::kOpen)
    touch(lane);
  else
    connections_->request(peer);
}

// Whether the next slot can be filled: the last send from its staging must be complete.
bool VerbsTransport::ready(const Lane& lane) const {
  return lane.qp && lane.send_credits.available() && lane.requests.room() &&
         lane.slot_request[static_cast<std::size_t>(lane.send_credits.next())] <=
             lane.requests.done();
}

void VerbsTransport::pump(Lane& lane) {
  // Posts a full chain between two messages, because a refusal by the device clears the queues.
  const auto goes_on = [&] {
    if (lane.requests.full()) ring_doorbell(lane);
    return lane.qp != nullptr;
  };
  while (goes_on() && !lane.queue.empty() && ready(lane)) {
    const Queued message = lane.queue.front();
    lane.queue.pop_front();
    fill(lane, message);
  }
  while (goes_on() && !lane.writing.empty() && lane.requests.room()) write_on(lane);
}

void VerbsTransport::fill(Lane& lane, const Queued& message) {
  const auto slot = static_cast<std::size_t>(lane.send_credits.next());
  std::byte* const begin = lane.staging + slot * slot_bytes_;
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
  if (message.front.what == VerbsMessage::kData) complete(message.id, Code::kOk);
}

// Writes the first `bytes` of the slot's staging to the peer's slot.
void VerbsTransport::send_slot(Lane& lane, std::size_t slot, std::size_t bytes) {
  ibv_send_wr& request = chain(lane, lane.staging + slot * slot_bytes_, bytes, lane.key);
  request.wr.rdma.remote_addr = lane.remote_ring + slot * slot_bytes_;
  request.wr.rdma.rkey = lane.remote_key;
  if (bytes <= static_cast<std::size_t>(inline_bytes_)) request.send_flags |= IBV_SEND_INLINE;
  tell_arrival(lane, request, VerbsImmediate::Kind::kMessage, static_cast<std::uint32_t>(slot));
  lane.requests.carries_payload();
  lane.slot_request[slot] = lane.requests.posted();
}

// Long messages are split over several queue pairs, in parts of at least kLeastPart bytes.
int VerbsTransport::parts_of(std::size_t bytes) const {
  constexpr std::size_t kLeastPart = 64u << 10;
  const auto most = static_cast<std::size_t>(settings_.qps);
  return static_cast<int>(std::clamp<std::size_t>(bytes / kLeastPart, 1, most));
}

// Chains a zero-copy write of the next piece of a long message's part; after the last piece, an
// empty write with immediate data. Networks with adaptive routing may reorder plain writes, but not
// a write with immediate data.
void VerbsTransport::write_on(Lane& lane) {
  Writing& w = lane.writing.front();
  LongSend& send = long_sends_.at(w.number);
  const std::size_t bytes = std::min(w.end - w.at, device_->max_message());
  ibv_send_wr& request = chain(lane, send.reach.data + w.at, bytes, send.reach.memory().lkey());
  request.wr.rdma.remote_addr = w.cts.address + w.at;
  request.wr.rdma.rkey = w.cts.key;
  lane.requests.carries_payload();
  w.at += bytes;
  if (bytes > 0) return;
  tell_arrival(lane, request, VerbsImmediate::Kind::kWindow, w.cts.window);
  lane.requests.signal();
  lane.writes.emplace_back(lane.requests.posted() - 1, w.number);
  lane.writing.pop_front();
}

// Adds a write of these bytes to the lane's chain.
ibv_send_wr& VerbsTransport::chain(Lane& lane, const void* data, std::size_t bytes,
                                   std::uint32_t lkey) {
  if (lane.requests.full()) ring_doorbell(lane);
  touch(lane);
  return lane.requests.add(data, bytes, lkey);
}

void VerbsTransport::tell_arrival(Lane& lane, ibv_send_wr& request, VerbsImmediate::Kind kind,
                                  std::uint32_t index) {
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  const VerbsImmediate what{kind, index, lane.recv_credits.tell()};
  request.imm_data = htonl(what.pack());
}

// Handles the result of posting sends.
void VerbsTransport::check_posted(Lane& lane, int error) {
  if (error) [[unlikely]]
    fail(*lane.peer, Code::kTransport, fmt::format("ibv_post_send: {}", std::strerror(error)));
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

void VerbsTransport::flush() noexcept {
  for (std::size_t i = 0; i < touched_.size(); ++i) {
    Lane& lane = *touched_[i];
    if (lane.recv_credits.due(lane.receives)) give_receives_back(lane);
    if (lane.peer->link == Link::kOpen && !(lane.queue.empty() && lane.writing.empty())) pump(lane);
    if (lane.peer->link == Link::kOpen && lane.recv_credits.tells() && lane.requests.room()) {
      ibv_send_wr& request = chain(lane, nullptr, 0, 0);
      tell_arrival(lane, request, VerbsImmediate::Kind::kEmpty, 0);
    }
    if (!lane.requests.empty()) ring_doorbell(lane);
    lane.touched = false;
  }
  touched_.clear();
}

// ---- in ------------------------------------------------------------------------------------

std::size_t VerbsTransport::reap() noexcept {
  std::size_t all = 0;
  for (VerbsCq& queue : queues_)
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
  if (!touched_.empty()) flush();
  return all;
}

void VerbsTransport::on_completion(const ibv_wc& completion) {
  Lane& lane = lanes_[VerbsRequestId::pair_of(completion.wr_id)];
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
    complete(send->second.transfer.id, Code::kOk);
    long_sends_.erase(send);
  }
  if (!lane.queue.empty() || !lane.writing.empty() || lane.recv_credits.owes()) touch(lane);
}

void VerbsTransport::on_arrival(Lane& lane, std::uint32_t immediate) {
  const VerbsImmediate what = VerbsImmediate::unpack(immediate);
  Peer& peer = *lane.peer;
  ++lane.receives;
  connections_->use(peer);
  if (peer.link == Link::kConnected) connections_->open(peer);  // so both ends are connected
  touch(lane);
  const bool in_order = what.kind != VerbsImmediate::Kind::kMessage ||
                        static_cast<int>(what.index) == lane.recv_credits.next();
  if (!lane.send_credits.heard(what.taken) || !in_order) {
    refuse(peer, "slots out of order");
  } else if (what.kind == VerbsImmediate::Kind::kMessage) {
    on_message(lane, lane.ring + what.index * slot_bytes_);
    lane.recv_credits.took();
  } else if (what.kind == VerbsImmediate::Kind::kWindow) {
    on_window(peer, what.index);
  } else if (what.kind != VerbsImmediate::Kind::kEmpty) {
    refuse(peer, "immediate data of an unknown kind");
  }
}

std::size_t VerbsTransport::poll(std::span<Completion> out) noexcept {
  if (armed_) {
    armed_ = false;
    for (VerbsCq& queue : queues_) queue.disarm();
    quiet_polls_ = kQuietPolls;  // an asynchronous event may have woken the thread
  }
  connections_->poll();
  if (reap() > 0)
    quiet_polls_ = 0;
  else if (++quiet_polls_ > kQuietPolls)
    look_around();
  return done_.hand_out(out);
}

bool VerbsTransport::arm(std::vector<int>& fds) noexcept {
  if (!done_.empty() || connections_->busy()) return false;
  for (VerbsCq& queue : queues_)
    if (!queue.arm()) return false;
  armed_ = true;
  // Completions from before arming do not wake the thread.
  if (reap() > 0) return false;
  for (VerbsCq& queue : queues_) fds.push_back(queue.fd());
  fds.push_back(device_->report_fd());
  if (connections_->fd() >= 0) fds.push_back(connections_->fd());
  return true;
}

Caps VerbsTransport::caps() const {
  Caps caps;
  caps.name = "verbs";
  caps.cuda = true;
  caps.inline_bytes = static_cast<std::size_t>(
      std::max<std::ptrdiff_t>(0, inline_bytes_ - static_cast<std::ptrdiff_t>(kVerbsFrontBytes)));
  return caps;
}

}  // namespace weft
