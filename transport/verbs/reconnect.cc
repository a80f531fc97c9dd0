// Makes, connects, interrupts and ends the queue pairs of connections (VerbsQueuePairs), and
// replaces them for rails (Recovery).
//
// A connection is a peer's queue pairs. Once they are destroyed, no device reads or writes memory
// for them, and this rank's device drops the peer's packets that are still in flight. The slots,
// their registration, the completion queue and the other peers' connections stay.
//
// Rails end all transfers with a peer and exchange the invitations themselves, without the letters
// of connections/: see Recovery::disconnect(). Without rails, a rank that cancels a half-written
// message interrupts the connection. Other transfers with the peer continue over new queue pairs,
// which the ends set up by letters:
//
//   A gives up a message:  A ends its queue pairs     invite(A's, what A has taken) ->
//                                                     B ends its own, makes new ones
//                     A connects its new ones      <- invite(B's, what B has taken)
//   both send again what the other has not taken: it is still in their staging, since a slot is
//   filled anew only when the peer has taken it. Long messages that are half written are written
//   anew as a whole; those for which the peer no longer has a window have arrived.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "topo/base/log.h"
#include "transport/verbs/transport.h"

namespace weft {
namespace {

constexpr int kMostDrains = 1000;  // reads of completions before a queue pair is ended

// The connections of this rank are its peers.
VerbsPeer& peer_in(VerbsConnection& c) { return static_cast<VerbsPeer&>(c); }
const VerbsPeer& peer_in(const VerbsConnection& c) { return static_cast<const VerbsPeer&>(c); }

}  // namespace

// Makes queue pairs, ready to be connected, with empty rings at the place of the connection.
void VerbsTransport::make(VerbsConnection& c) {
  Peer& peer = peer_in(c);
  lanes_.make(peer);
  VerbsQpOptions options;
  options.send_depth = settings_.send_depth;
  options.recv_depth = VerbsRecvCredits::recv_depth(settings_.slots, settings_.windows);
  options.inline_bytes = settings_.inline_bytes;
  for (int k = 0; k < settings_.qps; ++k) {
    Lane& lane = *peer.lanes[static_cast<std::size_t>(k)];
    if (settings_.qps > 1) options.flow_label = flow_label(rank_, peer.rank, k);
    const VerbsSlots::Part slots = slots_->of(peer.place, k);
    lane.qp = std::make_unique<VerbsQp>(*device_, slots.queue, slots.queue, options);
    lane.requests.begin(lane.qp->poster());
    inline_bytes_ = std::min(inline_bytes_, lane.qp->inline_bytes());
    lane.key = slots.lkey;
    lane.staging = slots.staging;
    lane.ring = slots.ring;
    if (!peer.broken) {
      lane.send_credits = VerbsSendCredits(settings_.slots);
      lane.recv_credits = VerbsRecvCredits(settings_.slots);
    }
    lane.slot_request.assign(static_cast<std::size_t>(settings_.slots), 0);
    lane.receives = options.recv_depth;
    give_receives_back(lane);
  }
}

void VerbsTransport::end(VerbsConnection& c) noexcept {
  for (Lane* lane : peer_in(c).lanes) lane->end();
}

void VerbsTransport::opened(VerbsConnection& c, bool resumed) {
  Peer& peer = peer_in(c);
  if (resumed) send_again(peer);
  for (Lane* lane : peer.lanes) lanes_.touch(*lane);
}

bool VerbsTransport::has_messages(const VerbsConnection& c) const {
  const Peer& peer = peer_in(c);
  return std::ranges::any_of(peer.lanes, [](const Lane* lane) { return !lane->queue.empty(); });
}

bool VerbsTransport::idle(const VerbsConnection& c) const {
  const Peer& peer = peer_in(c);
  return peer.link == Link::kOpen && peer.windows_used == 0 && peer.waiting.empty() &&
         std::ranges::all_of(peer.lanes, [](const Lane* lane) {
           return lane->queue.empty() && lane->writing.empty() && lane->writes.empty() &&
                  lane->requests.empty();
         });
}

bool VerbsTransport::quiesce(VerbsConnection& c) {
  Peer& peer = peer_in(c);
  if (!idle(peer)) return false;
  for (Lane* lane : peer.lanes) check_posted(*lane, lane->requests.mark(lane->requests.posted()));
  return idle(peer) && std::ranges::all_of(peer.lanes, [](const Lane* lane) {
           return lane->requests.done() == lane->requests.posted();
         });
}

bool VerbsTransport::awaits(const VerbsConnection& c) const {
  const Peer& peer = peer_in(c);
  return peer.matching.any_receive([](const Transfer& t) {
    return !t.standing;
  }) || std::ranges::any_of(long_sends_, [&](const auto& s) { return s.second.peer == peer.rank; });
}

std::vector<std::uint64_t> VerbsTransport::sent(const VerbsConnection& c) const {
  std::vector<std::uint64_t> all;
  for (const Lane* lane : peer_in(c).lanes) all.push_back(lane->send_credits.sent());
  return all;
}

std::vector<std::uint64_t> VerbsTransport::taken(const VerbsConnection& c) const {
  std::vector<std::uint64_t> all;
  for (const Lane* lane : peer_in(c).lanes) all.push_back(lane->recv_credits.taken());
  return all;
}

std::string VerbsTransport::invitation(const VerbsConnection& c) {
  const Peer& peer = peer_in(c);
  const std::string port = device_->port().encode();
  VerbsInvitation mine;
  mine.rings = reinterpret_cast<std::uint64_t>(peer.lanes.front()->ring);
  mine.key = slots_->of(peer.place, 0).rkey;
  mine.port_bytes = static_cast<std::uint32_t>(port.size());
  mine.number = peer.mine;
  mine.resumes = peer.broken ? peer.first_theirs : 0;
  std::string text;
  const auto add = [&text](const auto& one) {
    text.append(reinterpret_cast<const char*>(&one), sizeof one);
  };
  add(mine);
  text += port;
  for (const Lane* lane : peer.lanes) add(lane->qp->name());
  if (!peer.broken) return text;
  for (const Lane* lane : peer.lanes) add(lane->recv_credits.taken());
  for (const VerbsWindow& window : peer.windows)
    if (window.used) add(VerbsOpenWindow{window.number, 0, peer.cts_of(window)});
  if (text.size() + sizeof(VerbsLetterFront) > Mailbox::kMostBytes)
    throw Error(
        "verbs: too many long messages are under way for a letter; lower "
        "WEFT_VERBS_WINDOWS");
  return text;
}

bool VerbsTransport::invites(std::string_view theirs) const {
  if (theirs.size() < sizeof(VerbsInvitation)) return false;
  const VerbsInvitation their = VerbsInvitation::front_of(theirs);
  const std::size_t qps = static_cast<std::size_t>(settings_.qps);
  const std::size_t whole = sizeof their + their.port_bytes + qps * sizeof(VerbsQpName);
  if (their.number == 0) return false;
  if (their.resumes == 0) return theirs.size() == whole;
  const std::size_t counts = whole + qps * sizeof(std::uint64_t);
  return theirs.size() >= counts && (theirs.size() - counts) % sizeof(VerbsOpenWindow) == 0;
}

void VerbsTransport::join(VerbsConnection& c, std::string_view theirs) {
  Peer& peer = peer_in(c);
  const VerbsInvitation their = VerbsInvitation::front_of(theirs);
  std::string_view rest = theirs.substr(sizeof their + their.port_bytes);
  const VerbsPath path =
      verbs_path(device_->port(), VerbsPort::decode(theirs.substr(sizeof their, their.port_bytes)),
                 device_->where());
  for (std::size_t k = 0; k < peer.lanes.size(); ++k, rest.remove_prefix(sizeof(VerbsQpName))) {
    Lane& lane = *peer.lanes[k];
    VerbsQpName name;
    std::memcpy(&name, rest.data(), sizeof name);
    lane.remote_ring =
        their.rings + k * static_cast<std::size_t>(settings_.slots) * slots_->slot_bytes();
    lane.remote_key = their.key;
    lane.qp->connect(path, name);
  }
  if (peer.broken) resume(peer, rest);
  log().debug("verbs: rank {} on {}: {} by {}, options of ECE {:#x}", rank_, where_, peer.where,
              to_string(path), peer.lanes.front()->qp->ece_options());
}

// ---- resumed connections -------------------------------------------------------------------

void VerbsTransport::interrupt(VerbsConnection& c) noexcept {
  Peer& peer = peer_in(c);
  for (Lane* lane : peer.lanes) {
    lane->requests.drop();
    lane->drained = !lane->qp;
    if (lane->qp) lane->qp->stop();
  }
  // Arrived messages count: the peer's device has reported them as sent, and the peer does not
  // resend them.
  const auto drained = [](const Lane* lane) { return lane->drained; };
  for (int i = 0; i < kMostDrains && !std::ranges::all_of(peer.lanes, drained); ++i) reap();
  for (Lane* lane : peer.lanes) lane->end();
  for (VerbsWindow& window : peer.windows) window.parts = 0;
}

// Applies the peer's counts of messages taken, and its windows, from the end of its invitation.
void VerbsTransport::resume(Peer& peer, std::string_view counts) {
  const auto next = [&counts](auto& one) {
    std::memcpy(&one, counts.data(), sizeof one);
    counts.remove_prefix(sizeof one);
  };
  for (Lane* lane : peer.lanes) {
    std::uint64_t taken = 0;
    next(taken);
    if (!lane->send_credits.resume(taken))
      throw Error(
          "verbs: it has taken what was not sent: do all ranks run the same build of weft?");
  }
  std::map<std::uint32_t, VerbsCts> windows;
  while (!counts.empty()) {
    VerbsOpenWindow window;
    next(window);
    if (window.cts.window >= static_cast<std::uint32_t>(settings_.windows))
      throw Error("verbs: a window that it cannot have: do all ranks run the same build of weft?");
    windows[window.number] = window.cts;
  }
  for (auto at = long_sends_.begin(); at != long_sends_.end();) {
    const auto one = at++;
    VerbsLongSend& send = one->second;
    if (send.peer != peer.rank || send.state != VerbsLongSend::State::kWriting) continue;
    if (const auto found = windows.find(one->first); found != windows.end()) {
      begin_writing(peer, one->first, send, found->second);
    } else {
      done_.add(send.transfer.id, Code::kOk);
      long_sends_.erase(one);
    }
  }
}

// Resends the messages that the peer has not taken, from the staging. A CTS for a receive that was
// canceled since is replaced by a kWithdraw without effect.
void VerbsTransport::send_again(Peer& peer) {
  for (Lane* lane : peer.lanes) {
    const std::uint64_t slots = static_cast<std::uint64_t>(settings_.slots);
    for (std::uint64_t n = lane->send_credits.taken(); n < lane->send_credits.sent(); ++n) {
      std::byte* const begin = lane->staging + n % slots * slots_->slot_bytes();
      VerbsMessageFront front;
      std::memcpy(&front, begin, sizeof front);
      if (front.what == VerbsMessage::kCts) {
        VerbsCts cts;
        std::memcpy(&cts, begin + sizeof front, sizeof cts);
        const VerbsWindow& window = peer.windows[cts.window];
        if (!window.used || window.number != front.number) {
          front = {.tag = front.tag, .what = VerbsMessage::kWithdraw};
          std::memcpy(begin, &front, sizeof front);
        }
      }
      std::size_t bytes = sizeof front + (front.headed ? sizeof(Head) : 0);
      if (front.what == VerbsMessage::kData) bytes += front.bytes;
      if (front.what == VerbsMessage::kCts) bytes += sizeof(VerbsCts);
      send_slot(*lane, n % slots, bytes);
    }
  }
}

// ---- connections reopened by rails ---------------------------------------------------------

void VerbsTransport::disconnect(Rank rank) noexcept {
  Peer* peer = peer_of(rank);
  if (!peer) return;
  end_all(*peer, Code::kAborted, false);
  peer->matching.drop_if([](const auto&) { return true; });
  if (peer->failure.ok())
    peer->failure = Status(Code::kPeerFailed, peer->where + ": " + where_ + ": opened anew", rank);
}

std::string VerbsTransport::reopen(Rank rank) noexcept {
  Peer* peer = peer_of(rank);
  if (!peer) return {};
  try {
    device_->refresh();
    hear_device();                          // earlier events concern the connection that has ended
    end_all(*peer, Code::kAborted, false);  // ends an earlier attempt
    return connections_->invite_by_rails(*peer);
  } catch (const std::exception& e) {
    log().debug("verbs: rank {}: {} cannot be opened yet: {}", rank_, peer->where, e.what());
    end_all(*peer, Code::kAborted, false);
    return {};
  }
}

bool VerbsTransport::connect(Rank rank, std::string_view theirs) noexcept {
  Peer* peer = peer_of(rank);
  if (!peer || peer->link != Link::kInvited || !invites(theirs)) return false;
  try {
    connections_->accept(*peer, theirs);
  } catch (const std::exception& e) {
    log().debug("verbs: rank {}: {} cannot be connected: {}", rank_, peer->where, e.what());
    end_all(*peer, Code::kAborted, false);
    return false;
  }
  peer->failure = {};
  peer->note = {};
  connections_->open(*peer);
  return true;
}

}  // namespace weft
