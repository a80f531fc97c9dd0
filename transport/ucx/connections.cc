// The connections of the ucx transport: opens them when first needed, ends them, makes new ones
// (see Transport::sever()), and cancels transfers, which may cost one.
//
// UCX takes back no message that is half sent or half received. Closing the endpoint by force makes
// it let go of the memory, within few calls of ucp_worker_progress(): what of the message still
// comes finds no request, or a queue pair in the error state. It does not keep away whole messages
// that the peer has sent before: they carry the number of the ended connection, and are dropped.
#include <fmt/format.h>

#include <algorithm>

#include "topo/base/log.h"
#include "transport/ucx/config.h"
#include "transport/ucx/transport.h"

namespace weft {
namespace {

// Calls of progress that let a cancelled transfer end by itself where it is nearly through, and
// that UCX takes for closing by force. None of them waits.
constexpr int kLetGoPolls = 64;

// Calls of progress that the end of a worker is worth, before it goes with requests in it.
constexpr int kDrainPolls = 10000;

}  // namespace

template <class Which>
bool UcxTransport::any(Which which) const {
  return std::any_of(requests_.begin(), requests_.end(), which);
}

// Receives connect too: UCX reports a peer's end only to a rank with an endpoint to the peer.
bool UcxTransport::connect(Peer& peer) noexcept {
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
  fail(peer, Code::kPeerFailed, fmt::format("no connection: {}", ucs_status_string(status)), false);
  return false;
}

// Ends all transfers with the peer; those that UCX has under way end when it has let go of them.
// May be called by UCX: settle() does the rest.
void UcxTransport::fail(Peer& peer, Code code, const std::string& why, bool tell) {
  if (!peer.failure.ok()) return;
  peer.failure =
      Status(code, fmt::format("{}: device {}: {}", peer.where, device_, why), peer.rank);
  peer.matching.end_receives([&](std::uint64_t id) { complete(id, code); });
  peer.ending = unsettled_ = ended_ = true;
  peer.tell = tell;
  log().debug("ucx: rank {}: {}", rank_, peer.failure.to_string());
}

void UcxTransport::on_error(void* peer, ucp_ep_h ep, ucs_status_t status) noexcept {
  Peer& p = *static_cast<Peer*>(peer);
  if (ep != p.ep) return;
  // The peer, where it lives, may not have seen it: it is told once.
  p.owner->fail(p, Code::kPeerFailed, fmt::format("connection lost: {}", ucs_status_string(status)),
                true);
  p.ending = p.owner->unsettled_ = true;
}

// Closes the connections that have ended.
void UcxTransport::settle() noexcept {
  unsettled_ = false;
  for (Peer& peer : peers_) {
    if (!peer.ending) continue;
    peer.ending = false;
    peer.matching.drop_if([&](auto& one) { return drop(one.kept), true; });
    close(peer);
    if (peer.tell) say_end(peer);
  }
}

void UcxTransport::close(Peer& peer) noexcept {
  if (peer.ep == nullptr) return;
  for (Request& request : requests_)
    if (request.state != Request::State::kFree && request.peer == &peer && request.recv)
      request.stray = request.from != peer.ep;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* const handle = ucp_ep_close_nbx(std::exchange(peer.ep, nullptr), &param);
  if (UCS_PTR_IS_PTR(handle)) ucp_request_free(handle);
}

// Tells the peer that its connection has ended here: an endpoint that is closed by force says
// nothing. Takes a new endpoint, which a later connection uses.
void UcxTransport::say_end(Peer& peer) noexcept {
  peer.tell = false;
  if (!connect(peer)) return;
  Request* const request = take_request(peer, 0, false);
  request->state = Request::State::kEnd;
  request->front = {
      .source = rank_, .connection = peer.theirs, .kind = UcxFront::Kind::kEnd, .head = {}};
  ucp_request_param_t param = request_param(request, nullptr);
  param.cb.send = &UcxTransport::on_sent;
  void* const handle =
      ucp_am_send_nbx(peer.ep, kUcxMessages, &request->front, sizeof(UcxFront), nullptr, 0, &param);
  if (!UCS_PTR_IS_PTR(handle)) finish(request, UCS_PTR_STATUS(handle));
}

// ---- giving up -----------------------------------------------------------------------------

void UcxTransport::cancel(std::uint32_t id_high) noexcept {
  done_.forget(id_high);
  for (Peer& peer : peers_)
    peer.matching.cancel([=](const Transfer& t) { return t.id >> 32 == id_high; });
  bool some = false;
  for (Request& request : requests_) {
    if (request.state != Request::State::kActive || request.id >> 32 != id_high) continue;
    request.state = Request::State::kForgotten;
    some = true;
  }
  if (some) let_go();
}

// Makes UCX let go of the memory of transfers that were given up.
void UcxTransport::let_go() noexcept {
  const auto held = [](const Request& r) {
    return r.state == Request::State::kForgotten && r.peer->failure.ok();
  };
  for (int i = 0; i < kLetGoPolls && any(held); ++i) ucp_worker_progress(worker_.get());
  for (Request& request : requests_)
    if (held(request))
      fail(*request.peer, Code::kAborted,
           "the connection was closed to give up a message half done", true);
  if (unsettled_) settle();
  const auto forgotten = [](const Request& r) { return r.state == Request::State::kForgotten; };
  for (int i = 0; i < kLetGoPolls && any(forgotten); ++i) ucp_worker_progress(worker_.get());
  // Ranks that met again while one of them had never sent may have an endpoint for each direction,
  // of which this rank can close its own. Only the end of the worker ends the other one.
  if (any([&](const Request& r) { return forgotten(r) && r.stray; }))
    abandon("the rail was closed to give up a message half done");
}

// Ends every connection, every transfer and the worker.
void UcxTransport::abandon(const char* why) noexcept {
  for (Peer& peer : peers_) {
    fail(peer, Code::kAborted, why, false);
    peer.ending = true;
    peer.tell = false;
  }
  settle();
  const auto open = [](const Request& r) { return r.state != Request::State::kFree; };
  for (int i = 0; i < kDrainPolls && any(open); ++i) ucp_worker_progress(worker_.get());
  worker_.reset();
  for (Request& request : requests_)
    if (open(request)) finish(&request, UCS_ERR_CANCELED);
  for (Peer& peer : peers_) peer.ep = nullptr;
}

// ---- anew ----------------------------------------------------------------------------------

void UcxTransport::sever(Rank rank) noexcept {
  Peer* const peer = known(rank);
  if (peer == nullptr) return;
  ++peer->mine;
  if (!worker_) return;
  peer->matching.cancel([](const Transfer&) { return true; });
  for (Request& request : requests_)
    if (request.state == Request::State::kActive && request.peer == peer)
      request.state = Request::State::kForgotten;
  fail(*peer, Code::kAborted, "the rail is opened anew", false);
  let_go();
}

std::string UcxTransport::reopen(Rank rank) noexcept {
  Peer* const peer = known(rank);
  if (peer == nullptr) return {};
  try {
    if (!worker_) {
      context_.reset();
      set_up(rail_, static_cast<int>(peers_.size()));
      // The peers were told of the end; each comes back by itself.
    }
    return contact(peer->mine);
  } catch (const std::exception& e) {
    log().debug("ucx: rank {}: rail {} cannot be opened yet: {}", rank_, device_, e.what());
    worker_.reset();
    return {};
  }
}

bool UcxTransport::meet(Rank rank, std::string_view theirs) noexcept {
  Peer* const peer = known(rank);
  if (peer == nullptr || !worker_) return false;
  if (unsettled_) settle();
  const std::string before = peer->address;
  if (!take_contact(*peer, theirs)) return false;
  if (peer->address != before) close(*peer);  // its worker is another one
  peer->failure = {};
  peer->note = {};
  return true;
}

}  // namespace weft
