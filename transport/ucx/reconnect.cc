// Closes a connection of the ucx transport and creates a new one: see Recovery::disconnect().
#include "topo/base/log.h"
#include "transport/ucx/config.h"
#include "transport/ucx/transport.h"

namespace weft {

// A connection that UCX has reported as lost delivers no more messages. A live connection stops for
// certain only when the worker is destroyed: messages that the peer has sent arrive even after a
// forced close of the endpoint. Therefore the whole rail ends, and the other peers see a lost
// connection.
void UcxTransport::disconnect(Rank rank) noexcept {
  if (rank < 0 || static_cast<std::size_t>(rank) >= peers_.size() || !worker_) return;
  for (Request& request : requests_)
    if (request.state == Request::State::kActive && request.peer == rank)
      request.state = Request::State::kForgotten;
  for (const auto& s : unexpected_)
    if (s->peer == rank) s->wanted = false;
  if (unswept_) sweep();
  if (peers_[static_cast<std::size_t>(rank)].failure.ok()) abandon("the rail is being reconnected");
}

std::string UcxTransport::reopen(Rank peer) noexcept {
  if (peer < 0 || static_cast<std::size_t>(peer) >= peers_.size()) return {};
  try {
    if (!worker_) {
      context_.reset();
      set_up(rail_, static_cast<int>(peers_.size()));
      // The peers detected the end of the connections; each of them reconnects by itself.
    }
    return worker_address();
  } catch (const std::exception& e) {
    log().debug("ucx: rank {}: rail {} cannot be opened yet: {}", rank_, device_, e.what());
    worker_.reset();
    return {};
  }
}

bool UcxTransport::connect(Rank rank, std::string_view theirs) noexcept {
  if (rank < 0 || static_cast<std::size_t>(rank) >= peers_.size() || !worker_) return false;
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (!peer.failure.ok() && !drop_unexpected(rank)) return false;
  if (!take_address(peer, theirs)) return false;
  peer.failure = {};
  peer.note = {};
  peer.ep = nullptr;
  return true;
}

// Drops unexpected messages of the old connection, which must not match a later receive. Returns
// false if UCX holds an incomplete message, in which case the worker must be destroyed.
bool UcxTransport::drop_unexpected(Rank rank) noexcept {
  constexpr int kPolls = 10000;
  for (int quiet = 0, i = 0; quiet < 8 && i < kPolls; ++i)
    quiet = ucp_worker_progress(worker_.get()) == 0 ? quiet + 1 : 0;
  std::erase_if(unexpected_, [rank](const auto& s) { return s->peer == rank && s->here; });
  std::vector<std::byte> sink;
  const ucp_tag_t from = ucx_tag(rank, 0);
  int most = kPolls;  // limit for a peer that continues to send
  for (ucp_tag_recv_info_t info; ucp_tag_probe_nb(worker_.get(), from, ~tag_mask(), 0, &info);) {
    ucp_tag_message_h message = most-- > 0 && info.length <= kMostWithHead + sizeof(WireHead)
                                    ? ucp_tag_probe_nb(worker_.get(), from, ~tag_mask(), 1, &info)
                                    : nullptr;
    bool whole = message != nullptr;
    if (whole) {
      sink.resize(info.length);
      const ucp_request_param_t param{};
      void* handle = ucp_tag_msg_recv_nbx(worker_.get(), sink.data(), sink.size(), message, &param);
      for (int i = 0; i < kPolls && UCS_PTR_IS_PTR(handle) &&
                      ucp_request_check_status(handle) == UCS_INPROGRESS;
           ++i)
        ucp_worker_progress(worker_.get());
      if (UCS_PTR_IS_PTR(handle)) {
        whole = ucp_request_check_status(handle) != UCS_INPROGRESS;
        ucp_request_free(handle);
      }
    }
    if (!whole) {
      abandon("the rail is being reconnected");
      return false;
    }
  }
  return true;
}

}  // namespace weft
