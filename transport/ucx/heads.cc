// Sends and receives heads in the ucx transport: a head precedes the data in the same message.
//
// Head and data of a short message are copied into one buffer; longer messages are sent and
// received as two pieces. Messages above kMostWithHead have no head, since UCX's rendezvous of
// several pieces is slow.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "transport/ucx/transport.h"

namespace weft {
namespace {

constexpr std::uint64_t kMagic = 0x7765'6674'4865'6164;
constexpr std::size_t kSink = std::size_t{1} << 20;
constexpr int kUnexpectedAtOnce = 8;
constexpr std::size_t kMostUnexpected = 256;

}  // namespace

void* UcxTransport::send_with_head(const Transfer& t, Peer& peer, Request* request,
                                   ucp_request_param_t& param) noexcept {
  BounceBuffer& bounce = *request->bounce;
  bounce.head = {kMagic, *t.head};
  const ucp_tag_t tag = ucx_tag(rank_, t.tag);
  if (t.bytes <= BounceBuffer::kShort) {
    static_assert(offsetof(BounceBuffer, data) == sizeof(WireHead));
    if (t.bytes) std::memcpy(bounce.data, t.data, t.bytes);
    return ucp_tag_send_nbx(peer.ep, &bounce, sizeof(WireHead) + t.bytes, tag, &param);
  }
  bounce.pieces[0] = {&bounce.head, sizeof bounce.head};
  bounce.pieces[1] = {t.data, t.bytes};
  param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
  param.datatype = ucp_dt_make_iov();
  return ucp_tag_send_nbx(peer.ep, bounce.pieces, 2, tag, &param);
}

void* UcxTransport::recv_with_head(const Transfer& t, Peer& peer, Request* request,
                                   ucp_request_param_t& param) noexcept {
  BounceBuffer& bounce = *request->bounce;
  request->expected = t.head->sign;
  const ucp_tag_t tag = ucx_tag(peer.rank, t.tag);
  if (!sink_) sink_ = std::make_unique_for_overwrite<std::byte[]>(kSink);
  std::size_t n = 0;
  if (t.bytes <= BounceBuffer::kShort) {
    bounce.pieces[n++] = {&bounce, sizeof(WireHead) + sizeof bounce.data};
  } else {
    bounce.pieces[n++] = {&bounce.head, sizeof bounce.head};
    bounce.pieces[n++] = {t.data, t.bytes};
  }
  // With this piece the head is received even if the message is longer than expected.
  bounce.pieces[n++] = {sink_.get(), kSink};
  param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
  param.datatype = ucp_dt_make_iov();
  return ucp_tag_recv_nbx(worker_.get(), bounce.pieces, n, tag, ~ucp_tag_t{0}, &param);
}

// Returns whether a receive that completed without a UCX error contains the expected message; if
// so, the data are in the receive's buffer.
bool UcxTransport::took_with_head(const Request& request, std::size_t length) noexcept {
  const BounceBuffer& bounce = *request.bounce;
  if (length != sizeof(WireHead) + request.bytes || bounce.head.magic != kMagic ||
      bounce.head.head.sign != request.expected)
    return false;
  if (request.bytes && request.bytes <= BounceBuffer::kShort)
    std::memcpy(request.data, bounce.data, request.bytes);
  return true;
}

Code UcxTransport::outcome_with_head(Peer& peer, const Request& request, std::size_t length) {
  const BounceBuffer& bounce = *request.bounce;
  const bool known = head_of(&bounce.head, std::min(length, sizeof bounce.head), peer.disputed);
  peer.note = mismatch(peer, request.bytes,
                       fmt::format("{} bytes", length - (known ? sizeof bounce.head : 0)));
  return Code::kMismatch;
}

// Reads the head at the start of these bytes, if they contain one.
bool UcxTransport::head_of(const void* data, std::size_t bytes, Head& head) noexcept {
  WireHead wire;
  if (bytes < sizeof wire) return false;
  std::memcpy(&wire, data, sizeof wire);
  if (wire.magic != kMagic) return false;
  head = wire.head;
  return true;
}

Status UcxTransport::mismatch(const Peer& peer, std::size_t expected,
                              const std::string& sent) const {
  return {Code::kMismatch,
          fmt::format("{}: device {}: sent {} where {} were expected", peer.where, device_, sent,
                      expected),
          peer.rank};
}

// ---- unexpected messages -------------------------------------------------------------------

// UCX reports the tag and the length of an unexpected message, but its bytes only to a receive.
// Therefore the message is received, and stored until its receive is posted.
Rank UcxTransport::unexpected(Rank peer, std::uint64_t tag, std::uint64_t mask,
                              Head& theirs) noexcept {
  if (!worker_ || peer >= static_cast<Rank>(peers_.size())) return kNoRank;
  const ucp_tag_t wire = ucx_tag(std::max(peer, 0), tag & tag_mask());
  const ucp_tag_t wire_mask = (peer < 0 ? 0 : ~tag_mask()) | (mask & tag_mask());
  for (int i = 0; i < kUnexpectedAtOnce && unexpected_.size() < kMostUnexpected; ++i) {
    ucp_tag_recv_info_t info;
    if (!ucp_tag_probe_nb(worker_.get(), wire, wire_mask, 0, &info)) break;
    const auto source = static_cast<std::size_t>(info.sender_tag >> tag_bits_);
    if (source >= peers_.size()) break;  // not a rank of this job
    Peer& from = peers_[source];
    if (info.length > kMostWithHead + sizeof(WireHead) || !from.failure.ok()) break;
    keep_unexpected(from, info.sender_tag & tag_mask(), info.length);
  }
  for (const auto& s : unexpected_) {
    if ((peer >= 0 && s->peer != peer) || !s->here || (s->tag & mask) != (tag & mask)) continue;
    if (head_of(s->bytes.data(), s->length, theirs)) return s->peer;
  }
  return kNoRank;
}

void UcxTransport::keep_unexpected(Peer& peer, std::uint64_t tag, std::size_t bytes) noexcept {
  ucp_tag_recv_info_t info;
  ucp_tag_message_h message =
      ucp_tag_probe_nb(worker_.get(), ucx_tag(peer.rank, tag), ~ucp_tag_t{0}, 1, &info);
  if (!message) return;
  unexpected_.push_back(std::make_unique<Unexpected>());
  Unexpected& s = *unexpected_.back();
  s.peer = peer.rank;
  s.tag = tag;
  s.length = bytes;
  s.bytes.resize(bytes);
  Transfer t;
  t.peer = peer.rank;
  t.data = s.bytes.data();
  t.bytes = bytes;
  Request* request = take_request(t, true);
  request->unexpected = &s;
  ucp_request_param_t param = request_param(request, nullptr);
  param.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  param.cb.recv = &UcxTransport::on_received;
  void* handle = ucp_tag_msg_recv_nbx(worker_.get(), t.data, bytes, message, &param);
  if (!UCS_PTR_IS_PTR(handle)) {
    finish(request, UCS_PTR_STATUS(handle), bytes);
  } else if (request->state == Request::State::kActive) {  // as in post_recv()
    request->handle = handle;
  }
}

void UcxTransport::unexpected_filled(Request& request, ucs_status_t status) {
  Unexpected& s = *request.unexpected;
  s.here = true;
  if (status == UCS_OK) {
    if (s.wanted) hand_over(s, Code::kOk);
    return;
  }
  Request none;
  none.recv = true;
  none.bytes = s.length;
  hand_over(s, outcome(peers_[static_cast<std::size_t>(s.peer)], none, status, 0));
}

// Copies the data of an unexpected message to the buffer of its receive, which may be GPU memory.
bool UcxTransport::put(Peer& peer, void* to, const void* from, std::size_t bytes) {
  if (!of_gpu(to)) {
    std::memcpy(to, from, bytes);
    return true;
  }
  try {
    copy_now(to, from, bytes);
  } catch (const Error& error) {
    peer.note = Status(Code::kTransport, fmt::format("ucx: {}", error.what()), peer.rank);
    return false;
  }
  return true;
}

// Returns whether an unexpected message matches this receive.
bool UcxTransport::take_unexpected(const Transfer& t, Peer& peer) noexcept {
  for (const auto& s : unexpected_) {
    if (s->peer != peer.rank || s->tag != t.tag || s->wanted) continue;
    s->wanted = true;
    s->transfer = t;
    if (s->here) hand_over(*s, Code::kOk);
    return true;
  }
  return false;
}

// Completes the receive that matches the message, if any, and drops the message.
void UcxTransport::hand_over(Unexpected& s, Code code) {
  Peer& peer = peers_[static_cast<std::size_t>(s.peer)];
  const Transfer& t = s.transfer;
  if (s.wanted) {
    const std::size_t front = headed(t) ? sizeof(WireHead) : 0;
    Head head;
    const bool known = head_of(s.bytes.data(), s.length, head);
    if (code == Code::kOk &&
        (s.length != front + t.bytes || (front && (!known || head.sign != t.head->sign)))) {
      if (known) peer.disputed = head;
      code = Code::kMismatch;
      peer.note = mismatch(peer, t.bytes, fmt::format("{} bytes", s.length));
    }
    if (code == Code::kOk && t.bytes && !put(peer, t.data, s.bytes.data() + front, t.bytes))
      code = Code::kTransport;
    done_.add({.id = t.id, .code = code, .crc = known ? head.crc : 0});
  }
  std::erase_if(unexpected_, [&](const auto& other) { return other.get() == &s; });
}

}  // namespace weft
