// The datapath of the ucx transport: sends messages as active messages of UCX, matches those that
// come with the receives, and completes transfers. Set-up is in ucx.cc.
//
// UCX moves a short message with its front ("eager"): its bytes are copied to the receive, or kept
// until there is one. Of a long one only the front comes (a rendezvous): UCX fetches the bytes
// straight into the memory of the receive, once there is one.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "transport/gpu/device.h"
#include "transport/messages/unexpected_limit.h"
#include "transport/ucx/transport.h"

namespace weft {
namespace {

// One poll() looks again while UCX moves bytes but nothing has completed yet: as often as it takes
// to handle one batch of TCP events and the answers to it.
constexpr int kProgressPerPoll = 4;

// From this size on a message names the endpoint that it comes by, which costs 8 bytes: it may be
// long enough for a rendezvous.
constexpr std::size_t kNamesEndpoint = 4096;

// Errors after which the endpoint is of no use; the others concern one message.
bool breaks_connection(ucs_status_t status) {
  return UCS_IS_LINK_ERROR(status) || UCS_IS_ENDPOINT_ERROR(status) || status == UCS_ERR_CANCELED ||
         status == UCS_ERR_UNREACHABLE || status == UCS_ERR_IO_ERROR ||
         status == UCS_ERR_TIMED_OUT || status == UCS_ERR_REJECTED ||
         status == UCS_ERR_NOT_CONNECTED || status == UCS_ERR_CONNECTION_RESET;
}

const Head* head_of(const UcxFront& front) { return front.headed ? &front.head : nullptr; }

// What is wrong with a front of a peer; nullptr: nothing.
const char* wrong_in(const UcxFront& front, std::size_t bytes) {
  if (front.kind != UcxFront::Kind::kMessage) return "a message of no known kind";
  if (front.headed > 1) return "an impossible head";
  if (front.bytes != bytes) return "an impossible length";
  return nullptr;
}

}  // namespace

// ---- posting -------------------------------------------------------------------------------

const char* UcxTransport::refusal(const Transfer& t) const {
  if (t.kind == Transfer::Kind::kView) return "ucx: no views here; post a kRecv";
  return t.peer == rank_ ? "ucx: a rank has no messages with itself" : nullptr;
}

void UcxTransport::post(std::span<const Transfer> transfers) noexcept {
  for (const Transfer& t : transfers) {
    Peer* const peer = known(t.peer);
    if (peer == nullptr) {
      complete(t.id, Code::kInvalidArgument);
    } else if (const char* why = refusal(t)) {
      peer->note = Status(Code::kInvalidArgument, why, t.peer);
      complete(t.id, Code::kInvalidArgument);
    } else if (!connected(*peer)) {
      complete(t.id, peer->failure.code());
    } else if (t.kind == Transfer::Kind::kSend) {
      post_send(t, *peer);
    } else {
      post_recv(t, *peer);
    }
  }
}

MemoryKind UcxTransport::kind_of(const void* data) const noexcept {
  Device* const gpus = cuda_ ? device() : nullptr;
  return gpus != nullptr && data != nullptr ? gpus->residence(data).kind : MemoryKind::kHost;
}

ucp_request_param_t UcxTransport::request_param(Request* request, const void* data) const {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.user_data = request;
  const MemoryKind kind = kind_of(data);
  if (kind == MemoryKind::kDevice || kind == MemoryKind::kManaged) return param;
  param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.memory_type = UCS_MEMORY_TYPE_HOST;  // saves UCX the look-up of each pointer
  return param;
}

void UcxTransport::post_send(const Transfer& t, Peer& peer) noexcept {
  Request* const request = take_request(peer, t.id, false);
  request->front = {.source = rank_,
                    .connection = peer.theirs,
                    .headed = static_cast<std::uint16_t>(t.head ? 1 : 0),
                    .tag = t.tag,
                    .bytes = t.bytes,
                    .head = t.head ? *t.head : Head{}};
  ucp_request_param_t param = request_param(request, t.data);
  param.cb.send = &UcxTransport::on_sent;
  const bool host = (param.op_attr_mask & UCP_OP_ATTR_FIELD_MEMORY_TYPE) != 0;
  if (t.bytes >= kNamesEndpoint || !host) {
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    param.flags = UCP_AM_SEND_FLAG_REPLY;
    if (!host && t.bytes > 0) param.flags |= UCP_AM_SEND_FLAG_RNDV;
  }
  void* const handle = ucp_am_send_nbx(peer.ep, kUcxMessages, &request->front, sizeof(UcxFront),
                                       t.data, t.bytes, &param);
  if (!UCS_PTR_IS_PTR(handle)) finish(request, UCS_PTR_STATUS(handle));
}

void UcxTransport::post_recv(const Transfer& t, Peer& peer) noexcept {
  auto* const one = peer.matching.find_unexpected(t.tag);
  if (one == nullptr) return peer.matching.post({.transfer = t});
  UcxFront front;
  front.bytes = one->bytes;
  front.headed = one->headed;
  front.head = one->head;
  void* const rendezvous = std::exchange(one->kept.rendezvous, nullptr);
  if (!agrees(t, one->bytes, one->head_or_null())) {
    disagree(peer, t, one->bytes, one->head_or_null());
    if (rendezvous) ucp_am_data_release(worker_.get(), rendezvous);
  } else if (rendezvous) {
    fetch(peer, t, front, rendezvous, one->kept.from);
  } else {
    land(peer, t, front, one->kept.bytes.data());
  }
  peer.matching.drop(one);
}

// ---- messages ------------------------------------------------------------------------------

ucs_status_t UcxTransport::on_message(void* self, const void* header, std::size_t header_bytes,
                                      void* data, std::size_t bytes,
                                      const ucp_am_recv_param_t* param) noexcept {
  return static_cast<UcxTransport*>(self)->message(header, header_bytes, data, bytes, *param);
}

// Takes a message in. UCX drops what it is told nothing else about, and ends the peer's send.
ucs_status_t UcxTransport::message(const void* header, std::size_t header_bytes, void* data,
                                   std::size_t bytes, const ucp_am_recv_param_t& param) noexcept {
  UcxFront front;
  if (header_bytes < offsetof(UcxFront, kind)) return UCS_OK;
  std::memcpy(&front, header, std::min(header_bytes, sizeof front));
  Peer* const peer = known(front.source);
  // Of nobody in this job, or of a connection that has ended.
  if (front.magic != UcxFront::kMagic || peer == nullptr || peer->rank == rank_ ||
      front.connection != peer->mine || !peer->failure.ok())
    return UCS_OK;
  const char* const wrong =
      header_bytes != sizeof front ? "a front of an impossible length" : wrong_in(front, bytes);
  if (header_bytes == sizeof front && front.kind == UcxFront::Kind::kEnd) {
    fail(*peer, Code::kPeerFailed, "it has closed the connection", false);
    return UCS_OK;
  }
  if (wrong) {
    fail(*peer, Code::kTransport, fmt::format("it sends {}", wrong), true);
    return UCS_OK;
  }
  const bool rendezvous = (param.recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0 && bytes > 0;
  const bool named = (param.recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0;
  const ucp_ep_h from = named ? param.reply_ep : nullptr;
  if (Receive* const found = peer->matching.find(front.tag)) {
    const Transfer t = peer->matching.take(found).transfer;
    if (!agrees(t, bytes, head_of(front))) {
      disagree(*peer, t, bytes, head_of(front));
    } else if (rendezvous) {
      fetch(*peer, t, front, data, from);
    } else {
      land(*peer, t, front, data);
    }
    return UCS_OK;
  }
  const std::size_t memory = rendezvous ? 0 : bytes;
  if (!peer->matching.allows(memory, limit_)) {
    fail(*peer, Code::kTransport, too_far_ahead(limit_), true);
    return UCS_OK;
  }
  auto& one = peer->matching.keep(front.tag, bytes, memory);
  one.headed = front.headed != 0;
  one.head = front.head;
  one.kept.from = from;
  one.kept.rendezvous = rendezvous ? data : nullptr;
  const auto* const first = static_cast<const std::byte*>(data);
  if (rendezvous)
    one.kept.bytes = {};
  else
    one.kept.bytes.assign(first, first + bytes);
  return rendezvous ? UCS_INPROGRESS : UCS_OK;
}

// Copies the bytes of a message to its receive.
void UcxTransport::land(Peer& peer, const Transfer& t, const UcxFront& front, const void* data) {
  if (front.bytes > 0 && kind_of(t.data) != MemoryKind::kDevice) {
    std::memcpy(t.data, data, front.bytes);
  } else if (front.bytes > 0) {
    // What a GPU sends comes by rendezvous, so these are bytes of a host.
    peer.note = Status(Code::kInvalidArgument,
                       fmt::format("{}: device {}: it sends {} bytes of host memory to a receive "
                                   "in GPU memory; use the same kind at both ends",
                                   peer.where, device_, front.bytes),
                       peer.rank);
    return complete(t.id, Code::kInvalidArgument);
  }
  received(t.id, front);
}

// Lets UCX bring the bytes of a long message to its receive.
void UcxTransport::fetch(Peer& peer, const Transfer& t, const UcxFront& front, void* rendezvous,
                         ucp_ep_h from) {
  Request* const request = take_request(peer, t.id, true);
  request->front = front;
  request->from = from;
  ucp_request_param_t param = request_param(request, t.data);
  param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv_am = &UcxTransport::on_fetched;
  void* const handle = ucp_am_recv_data_nbx(worker_.get(), rendezvous, t.data, t.bytes, &param);
  if (!UCS_PTR_IS_PTR(handle)) finish(request, UCS_PTR_STATUS(handle));
}

// Every receive that got its message ends here.
void UcxTransport::received(std::uint64_t id, const UcxFront& front) {
  done_.add({.id = id, .crc = front.head.crc});
}

void UcxTransport::disagree(Peer& peer, const Transfer& t, std::size_t bytes, const Head* theirs) {
  peer.disagree(t, bytes, theirs, "device " + device_);
  complete(t.id, Code::kMismatch);
}

void UcxTransport::drop(Kept& kept) noexcept {
  if (kept.rendezvous) ucp_am_data_release(worker_.get(), std::exchange(kept.rendezvous, nullptr));
}

// ---- completing ----------------------------------------------------------------------------

void UcxTransport::on_sent(void* handle, ucs_status_t status, void* request) noexcept {
  Request* const r = static_cast<Request*>(request);
  r->owner->finish(r, status);
  ucp_request_free(handle);
}

void UcxTransport::on_fetched(void* handle, ucs_status_t status, std::size_t,
                              void* request) noexcept {
  on_sent(handle, status, request);
}

void UcxTransport::finish(Request* request, ucs_status_t status) noexcept {
  Peer& peer = *request->peer;
  if (request->state == Request::State::kActive) {
    if (status == UCS_OK && request->recv) {
      received(request->id, request->front);
    } else if (status == UCS_OK) {
      complete(request->id, Code::kOk);
    } else if (!peer.failure.ok() || breaks_connection(status)) {
      fail(peer, Code::kPeerFailed, ucs_status_string(status), true);
      complete(request->id, peer.failure.code());
    } else {
      peer.note = Status(Code::kTransport,
                         fmt::format("{}: device {}: a {} of {} bytes: {}", peer.where, device_,
                                     request->recv ? "receive" : "send", request->front.bytes,
                                     ucs_status_string(status)),
                         peer.rank);
      complete(request->id, Code::kTransport);
    }
  }
  request->state = Request::State::kFree;
  request->next_free = std::exchange(free_requests_, request);
}

UcxTransport::Request* UcxTransport::take_request(Peer& peer, std::uint64_t id, bool recv) {
  if (free_requests_ == nullptr) [[unlikely]] {
    free_requests_ = &requests_.emplace_back();
    free_requests_->owner = this;
  }
  Request* const request = std::exchange(free_requests_, free_requests_->next_free);
  request->peer = &peer;
  request->id = id;
  request->recv = recv;
  request->from = nullptr;
  request->stray = false;
  request->state = Request::State::kActive;
  return request;
}

std::size_t UcxTransport::poll(std::span<Completion> out) noexcept {
  for (int i = 0; i < kProgressPerPoll && worker_; ++i) {
    if (done_.size() >= out.size()) break;
    if (ucp_worker_progress(worker_.get()) == 0 || !done_.empty()) break;
  }
  if (unsettled_) settle();
  return done_.hand_out(out);
}

bool UcxTransport::arm(std::vector<int>& fds) noexcept {
  if (!done_.empty() || unsettled_) return false;
  if (!worker_) return true;                                  // nothing will ever come
  if (ucp_worker_arm(worker_.get()) != UCS_OK) return false;  // UCS_ERR_BUSY: events are pending
  fds.push_back(event_fd_);
  return true;
}

Caps UcxTransport::caps() const {
  Caps caps;
  caps.name = "ucx";
  caps.cuda = cuda_;
  caps.recoverable = true;
  return caps;
}

// ---- unexpected messages -------------------------------------------------------------------

void UcxTransport::forget(std::uint64_t tag, std::uint64_t mask) noexcept {
  for (Peer& peer : peers_)
    peer.matching.drop_if([&](auto& one) {
      if ((one.tag & mask) != (tag & mask)) return false;
      drop(one.kept);
      return true;
    });
}

Rank UcxTransport::unclaimed(Rank peer, std::uint64_t tag, std::uint64_t mask,
                             Head& theirs) noexcept {
  for (const Peer& p : peers_)
    if ((peer == kNoRank || p.rank == peer) && p.matching.unclaimed(tag, mask, theirs))
      return p.rank;
  return kNoRank;
}

bool UcxTransport::disputed(Rank peer, Head& theirs) const noexcept {
  if (peer < 0 || static_cast<std::size_t>(peer) >= peers_.size()) return false;
  theirs = peers_[static_cast<std::size_t>(peer)].disputed;
  return theirs.sign != 0;
}

Status UcxTransport::cause(Rank peer) const {
  if (peer < 0 || static_cast<std::size_t>(peer) >= peers_.size()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("ucx: no rank {} in a job of {}", peer, peers_.size()));
  }
  return peers_[static_cast<std::size_t>(peer)].cause();
}

}  // namespace weft
