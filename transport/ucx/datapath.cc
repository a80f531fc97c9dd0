// The datapath of the ucx transport: posts and completes messages, which UCX matches by tag, and
// ends the requests of failed peers. ucx.cc contains set-up and tear-down.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "topo/base/log.h"
#include "transport/ucx/transport.h"

namespace weft {
namespace {

constexpr ucp_tag_t kWholeTag = ~ucp_tag_t{0};

// Maximum number of progress calls in one poll() while UCX makes progress without a completion:
// sufficient for one batch of TCP events and their responses.
constexpr int kProgressPerPoll = 4;

// Maximum number of progress calls after which a cancelled request, or a request on a force-closed
// connection, has completed if it completes at all. (A forced close takes a few calls on TCP, the
// flush of a queue pair on RDMA.)
constexpr int kDrainPolls = 10000;

// Number of progress calls in which a cancelled send may complete.
constexpr int kGracePolls = 64;

// Returns whether an error breaks the endpoint; other errors affect only one message.
bool breaks_connection(ucs_status_t status) {
  return UCS_IS_LINK_ERROR(status) || UCS_IS_ENDPOINT_ERROR(status) || status == UCS_ERR_CANCELED ||
         status == UCS_ERR_UNREACHABLE || status == UCS_ERR_IO_ERROR ||
         status == UCS_ERR_TIMED_OUT || status == UCS_ERR_REJECTED ||
         status == UCS_ERR_NOT_CONNECTED || status == UCS_ERR_CONNECTION_RESET;
}

}  // namespace

ucp_request_param_t UcxTransport::request_param(Request* request, const void* data) const {
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.user_data = request;
  const MemoryKind kind = kind_of(data);  // avoids the pointer lookup in UCX
  param.memory_type = kind == MemoryKind::kDevice    ? UCS_MEMORY_TYPE_CUDA
                      : kind == MemoryKind::kManaged ? UCS_MEMORY_TYPE_CUDA_MANAGED
                                                     : UCS_MEMORY_TYPE_HOST;
  return param;
}

// Returns why a transfer is invalid; empty if it is valid.
std::string UcxTransport::refusal(const Transfer& t) const {
  if (t.kind == Transfer::Kind::kView) return "ucx: views are not supported; post a kRecv";
  if (t.tag >> tag_bits_ != 0)
    return fmt::format("ucx: tag {:#x} is wider than {} bits", t.tag, tag_bits_);
  if (t.sums && of_gpu(t.data))
    return "ucx: checksums are not supported for GPU memory; copy it to the host";
  return {};
}

void UcxTransport::post(std::span<const Transfer> transfers) noexcept {
  for (const Transfer& t : transfers) {
    Peer* const known = find_peer(peers_, t.peer);
    if (!known) {
      complete(t.id, Code::kInvalidArgument);
      continue;
    }
    Peer& peer = *known;
    if (std::string why = refusal(t); !why.empty()) {
      peer.note = Status(Code::kInvalidArgument, std::move(why), t.peer);
      complete(t.id, Code::kInvalidArgument);
    } else if (!connected(peer)) {
      complete(t.id, peer.failure.code());
    } else if (t.kind == Transfer::Kind::kSend) {
      post_send(t, peer);
    } else {
      post_recv(t, peer);
    }
  }
}

void UcxTransport::post_send(const Transfer& t, Peer& peer) noexcept {
  Request* request = take_request(t, false);
  ucp_request_param_t param = request_param(request, t.data);
  param.cb.send = &UcxTransport::on_sent;
  void* handle = request->headed
                     ? send_with_head(t, peer, request, param)
                     : ucp_tag_send_nbx(peer.ep, t.data, t.bytes, ucx_tag(rank_, t.tag), &param);
  if (UCS_PTR_IS_PTR(handle)) {
    request->handle = handle;
  } else {
    finish(request, UCS_PTR_STATUS(handle), t.bytes);
  }
}

void UcxTransport::post_recv(const Transfer& t, Peer& peer) noexcept {
  if (!unexpected_.empty() && take_unexpected(t, peer)) [[unlikely]]
    return;
  Request* request = take_request(t, true);
  ucp_request_param_t param = request_param(request, t.data);
  // Requests the callback even if the message has already arrived: UCX 1.13 reports the received
  // length only in the callback.
  param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv = &UcxTransport::on_received;
  void* handle = request->headed ? recv_with_head(t, peer, request, param)
                                 : ucp_tag_recv_nbx(worker_.get(), t.data, t.bytes,
                                                    ucx_tag(peer.rank, t.tag), kWholeTag, &param);
  if (!UCS_PTR_IS_PTR(handle)) {
    finish(request, UCS_PTR_STATUS(handle), t.bytes);
  } else if (request->state == Request::State::kActive) {  // the callback has not run yet
    request->handle = handle;
  }
}

// Receives also connect: UCX reports a peer's failure only to a rank with an endpoint to it.
bool UcxTransport::connect(Peer& peer) noexcept {
  if (!peer.failure.ok()) return false;
  if (peer.ep != nullptr) return true;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(peer.address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = &UcxTransport::on_error;
  params.err_handler.arg = &peer;
  const ucs_status_t status = ucp_ep_create(worker_.get(), &params, &peer.ep);
  if (status == UCS_OK) return true;
  peer.ep = nullptr;
  fail(peer, Code::kPeerFailed, fmt::format("no connection: {}", ucs_status_string(status)));
  return false;
}

std::size_t UcxTransport::poll(std::span<Completion> out) noexcept {
  for (int i = 0; i < kProgressPerPoll && worker_; ++i) {
    if (done_.size() >= out.size()) break;
    if (ucp_worker_progress(worker_.get()) == 0 || !done_.empty()) break;
  }
  if (unswept_) sweep();
  return done_.hand_out(out);
}

bool UcxTransport::arm(std::vector<int>& fds) noexcept {
  if (!done_.empty() || unswept_) return false;
  if (!worker_) return true;                                  // no events without a worker
  if (ucp_worker_arm(worker_.get()) != UCS_OK) return false;  // UCS_ERR_BUSY: events are pending
  fds.push_back(event_fd_);
  return true;
}

Caps UcxTransport::caps() const {
  Caps caps;
  caps.name = "ucx";
  caps.tag_bits = tag_bits_;
  caps.cuda = cuda_;
  return caps;
}

void UcxTransport::cancel(std::uint32_t id_high) noexcept {
  done_.forget(id_high);
  for (const auto& s : unexpected_)
    if (s->wanted && s->transfer.id >> 32 == id_high) s->wanted = false;
  for (Request& request : requests_) {
    if (request.state != Request::State::kActive || request.id >> 32 != id_high) continue;
    request.state = Request::State::kForgotten;
    if (request.recv)
      ucp_request_cancel(worker_.get(), request.handle);  // completes immediately or never
  }
  const auto forgotten = [](const Request& request) {
    return request.state == Request::State::kForgotten;
  };
  const auto any = [&] { return std::any_of(requests_.begin(), requests_.end(), forgotten); };
  for (int i = 0; i < kGracePolls && any(); ++i) ucp_worker_progress(worker_.get());
  if (!any()) return;
  // The remaining requests are partly sent or received, and UCX cannot cancel them: even after a
  // forced close of the endpoint, a TCP connection continues to receive into `data`. Only
  // destroying the worker reliably stops it.
  // worker is certain to stop that.
  abandon("the rail was closed to cancel an unfinished operation");
}

// Ends every connection, every transfer and the worker.
void UcxTransport::abandon(const char* why) noexcept {
  for (Peer& peer : peers_) fail(peer, Code::kAborted, why);
  unswept_ = true;
  sweep();  // the worker must outlive UCX's messages in flight
  worker_.reset();
}

// Closes the endpoints of the peers that failed and ends every transfer with them.
void UcxTransport::sweep() noexcept {
  while (std::exchange(unswept_, false)) {
    for (Peer& peer : peers_) {
      if (peer.failure.ok() || peer.ep == nullptr) continue;
      ucp_request_param_t param{};
      param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      param.flags = UCP_EP_CLOSE_FLAG_FORCE;
      void* handle = ucp_ep_close_nbx(std::exchange(peer.ep, nullptr), &param);
      if (UCS_PTR_IS_PTR(handle)) ucp_request_free(handle);
    }
    const auto pending = [this](const Request& request) {
      return request.state != Request::State::kFree &&
             !peers_[static_cast<std::size_t>(request.peer)].failure.ok();
    };
    // Posted receives are not associated with an endpoint and would never complete.
    for (Request& request : requests_) {
      if (pending(request) && request.recv) ucp_request_cancel(worker_.get(), request.handle);
    }
    for (int i = 0; i < kDrainPolls && std::any_of(requests_.begin(), requests_.end(), pending);
         ++i) {
      ucp_worker_progress(worker_.get());
    }
    // UCX never completes a multi-fragment message whose sender has failed, so complete it here. No
    // further fragment can arrive, since the connection is closed.
    for (Request& request : requests_) {
      if (!pending(request)) continue;
      ucp_request_free(std::exchange(request.handle, nullptr));  // without a callback
      finish(&request, UCS_ERR_CANCELED, 0);
    }
  }
}

void UcxTransport::fail(Peer& peer, Code code, const std::string& why) {
  if (!peer.failure.ok()) return;
  peer.failure =
      Status(code, fmt::format("{}: device {}: {}", peer.where, device_, why), peer.rank);
  unswept_ = true;
  log().debug("ucx: rank {}: {}", rank_, peer.failure.to_string());
}

void UcxTransport::on_error(void* peer, ucp_ep_h, ucs_status_t status) noexcept {
  Peer& p = *static_cast<Peer*>(peer);
  p.owner->fail(p, Code::kPeerFailed,
                fmt::format("connection lost: {}", ucs_status_string(status)));
}

void UcxTransport::on_sent(void* handle, ucs_status_t status, void* request) noexcept {
  Request* s = static_cast<Request*>(request);
  s->owner->finish(s, status, s->bytes);
  ucp_request_free(handle);
}

void UcxTransport::on_received(void* handle, ucs_status_t status, const ucp_tag_recv_info_t* info,
                               void* request) noexcept {
  Request* s = static_cast<Request*>(request);
  s->owner->finish(s, status, info->length);
  ucp_request_free(handle);
}

void UcxTransport::finish(Request* request, ucs_status_t status, std::size_t length) noexcept {
  if (request->unexpected) [[unlikely]] {
    unexpected_filled(*request, status);
  } else if (request->state == Request::State::kActive) {
    const bool front = request->headed && request->recv;
    const bool fine =
        status == UCS_OK && (front ? took_with_head(*request, length) : length == request->bytes);
    Peer& peer = peers_[static_cast<std::size_t>(request->peer)];
    done_.add({.id = request->id,
               .code = fine ? Code::kOk : outcome(peer, *request, status, length),
               .crc = front ? request->bounce->head.head.crc : 0});
  }
  request->state = Request::State::kFree;
  request->next_free = std::exchange(free_requests_, request);
}

// Determines the error of a failed transfer.
Code UcxTransport::outcome(Peer& peer, Request& request, ucs_status_t status, std::size_t length) {
  if (request.headed && request.recv && status == UCS_OK)
    return outcome_with_head(peer, request, length);
  if (status == UCS_OK || status == UCS_ERR_MESSAGE_TRUNCATED) {
    if (status == UCS_OK && !of_gpu(request.data))
      head_of(request.data, std::min(length, request.bytes), peer.disputed);
    peer.note = mismatch(peer, request.bytes,
                         status == UCS_OK ? fmt::format("{} bytes", length) : "more bytes");
    return Code::kMismatch;
  }
  if (breaks_connection(status)) {
    fail(peer, Code::kPeerFailed, ucs_status_string(status));
    return peer.failure.code();
  }
  peer.note = Status(
      Code::kTransport,
      fmt::format("{}: device {}: a {} of {} bytes: {}", peer.where, device_,
                  request.recv ? "receive" : "send", request.bytes, ucs_status_string(status)),
      peer.rank);
  return Code::kTransport;
}

void UcxTransport::add_request() {
  free_requests_ = &requests_.emplace_back();
  free_requests_->owner = this;
}

UcxTransport::Request* UcxTransport::take_request(const Transfer& t, bool recv) {
  if (free_requests_ == nullptr) [[unlikely]]
    add_request();
  Request* request = std::exchange(free_requests_, free_requests_->next_free);
  request->id = t.id;
  request->bytes = t.bytes;
  request->data = t.data;
  request->headed = headed(t);
  request->unexpected = nullptr;
  if (request->headed && !request->bounce) request->bounce = std::make_unique<BounceBuffer>();
  request->peer = t.peer;
  request->recv = recv;
  request->state = Request::State::kActive;
  return request;
}

}  // namespace weft
