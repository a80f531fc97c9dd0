// Ends a connection of the verbs transport and makes a new one; and the letters for all of
// connections.cc.
//
// A connection is a peer's queue pairs. Once they are destroyed, no device reads or writes memory
// for them, and this rank's device drops the peer's packets that are still under way. The slots,
// their registration, the completion queue and the other peers' connections stay.
//
// Rails end all that is under way with a peer and pass each other the bytes themselves, beside the
// letters of connections.cc: see Recovery::disconnect(). Without rails, a rank that gives up a
// half-written message breaks the connection off. The other transfers with the peer go on over new
// queue pairs, which the ends agree on by letters:
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

constexpr std::size_t kMostText = 300;
// Letters may be lost (job/mailbox.h): one without an answer is said again after this time, and
// after twice the time each time, kMostDoublings times.
constexpr std::chrono::milliseconds kAnswerWithin{500};
constexpr int kMostDoublings = 4;
constexpr int kMostDrains = 1000;  // reads of what a queue pair has completed before it is ended

}  // namespace

std::string VerbsTransport::invitation(const Peer& peer) {
  const std::string port = device_->port().encode();
  VerbsInvitation mine;
  mine.rings = reinterpret_cast<std::uint64_t>(peer.lanes.front()->ring);
  int place = 0;
  mine.key = slots_of(peer, place).memory->rkey();
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
  for (const Window& window : peer.windows)
    if (window.used) add(VerbsOpenWindow{window.number, 0, cts_of(peer, window)});
  if (text.size() + sizeof(VerbsLetterFront) > Mailbox::kMostBytes)
    throw Error(
        "verbs: too many long messages are under way for a letter; lower "
        "WEFT_VERBS_WINDOWS");
  return text;
}

VerbsInvitation VerbsTransport::front_of(std::string_view theirs) {
  VerbsInvitation their;
  std::memcpy(&their, theirs.data(), sizeof their);
  return their;
}

bool VerbsTransport::invites(std::string_view theirs) const {
  if (theirs.size() < sizeof(VerbsInvitation)) return false;
  const VerbsInvitation their = front_of(theirs);
  const std::size_t qps = static_cast<std::size_t>(settings_.qps);
  const std::size_t whole = sizeof their + their.port_bytes + qps * sizeof(VerbsQpName);
  if (their.number == 0) return false;
  if (their.resumes == 0) return theirs.size() == whole;
  const std::size_t counts = whole + qps * sizeof(std::uint64_t);
  return theirs.size() >= counts && (theirs.size() - counts) % sizeof(VerbsOpenWindow) == 0;
}

void VerbsTransport::accept(Peer& peer, std::string_view theirs) {
  const VerbsInvitation their = front_of(theirs);
  if (their.resumes != (peer.broken ? peer.first_mine : 0))
    throw Error("verbs: its connection is another one: do all ranks run the same build of weft?");
  std::string_view rest = theirs.substr(sizeof their + their.port_bytes);
  const VerbsPath path =
      verbs_path(device_->port(), VerbsPort::decode(theirs.substr(sizeof their, their.port_bytes)),
                 device_->where());
  for (std::size_t k = 0; k < peer.lanes.size(); ++k, rest.remove_prefix(sizeof(VerbsQpName))) {
    Lane& lane = *peer.lanes[k];
    VerbsQpName name;
    std::memcpy(&name, rest.data(), sizeof name);
    lane.remote_ring = their.rings + k * static_cast<std::size_t>(settings_.slots) * slot_bytes_;
    lane.remote_key = their.key;
    lane.qp->connect(path, name);
  }
  peer.theirs = their.number;
  if (peer.broken) {
    resume(peer, rest);
  } else {
    peer.first_mine = peer.mine;
    peer.first_theirs = peer.theirs;
  }
  log().debug("verbs: rank {} on {}: {} by {}, options of ECE {:#x}", rank_, where_, peer.where,
              to_string(path), peer.lanes.front()->qp->ece_options());
}

// ---- a connection that goes on -------------------------------------------------------------

// Ends the queue pairs; what both ends have counted stays.
void VerbsTransport::break_off(Peer& peer) noexcept {
  link(peer, Link::kClosed);  // nothing is posted from here on
  peer.broken = true;
  for (Lane* lane : peer.lanes) {
    lane->chained = 0;
    lane->drained = !lane->qp;
    if (lane->qp) lane->qp->stop();
  }
  // What has come counts: the peer's device has said so already, and the peer sends it no more.
  const auto drained = [](const Lane* lane) { return lane->drained; };
  for (int i = 0; i < kMostDrains && !std::ranges::all_of(peer.lanes, drained); ++i) reap();
  for (Lane* lane : peer.lanes) end_lane(*lane);
  for (Window& window : peer.windows) window.parts = 0;
  drain_queues();
}

// Takes what the peer has taken, and its windows, from the end of its invitation.
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
    LongSend& send = one->second;
    if (send.peer != peer.rank || send.state != LongSend::State::kWriting) continue;
    if (const auto found = windows.find(one->first); found != windows.end()) {
      begin_writing(peer, one->first, send, found->second);
    } else {
      complete(send.transfer.id, Code::kOk);
      long_sends_.erase(one);
    }
  }
}

// Sends the messages that the peer has not taken, from the staging. A CTS for a receive that has
// been given up since becomes a withdrawal of no message.
void VerbsTransport::send_again(Peer& peer) {
  for (Lane* lane : peer.lanes) {
    const std::uint64_t slots = static_cast<std::uint64_t>(settings_.slots);
    for (std::uint64_t n = lane->send_credits.taken(); n < lane->send_credits.sent(); ++n) {
      std::byte* const begin = lane->staging + n % slots * slot_bytes_;
      VerbsMessageFront front;
      std::memcpy(&front, begin, sizeof front);
      if (front.what == VerbsMessage::kCts) {
        VerbsCts cts;
        std::memcpy(&cts, begin + sizeof front, sizeof cts);
        const Window& window = peer.windows[cts.window];
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

// ---- a connection that rails open anew -----------------------------------------------------

void VerbsTransport::disconnect(Rank rank) noexcept {
  Peer* peer = peer_of(rank);
  if (!peer) return;
  end_all(*peer, Code::kAborted, false);
  peer->matching.drop_if([](const Unexpected&) { return true; });
  if (peer->failure.ok())
    peer->failure = Status(Code::kPeerFailed, peer->where + ": " + where_ + ": opened anew", rank);
}

std::string VerbsTransport::reopen(Rank rank) noexcept {
  Peer* peer = peer_of(rank);
  if (!peer) return {};
  try {
    device_->refresh();
    hear_device();  // what it reported before concerns the connection that has ended
    end_all(*peer, Code::kAborted, false);  // an attempt before this one
    drain_queues();
    if (!take_place(*peer)) {
      make_room();
      return {};  // again later
    }
    if (peer->lanes.empty()) make_lanes(*peer);
    peer->mine = ++attempts_;
    for (Lane* lane : peer->lanes) begin(*lane);
    link(*peer, Link::kInvited);
    return invitation(*peer);
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
    accept(*peer, theirs);
  } catch (const std::exception& e) {
    log().debug("verbs: rank {}: {} cannot be met: {}", rank_, peer->where, e.what());
    end_all(*peer, Code::kAborted, false);
    return false;
  }
  peer->failure = {};
  peer->note = {};
  opened(*peer);
  return true;
}

// ---- letters: said, said again where no answer comes, and answered ------------------------

void VerbsTransport::say(Peer& peer, VerbsLetter what, std::uint32_t yours, std::string_view body) {
  const VerbsLetterFront front{what, peer.mine, yours};
  ++peer.unheard;
  peer.said = std::chrono::steady_clock::now();
  std::string text(reinterpret_cast<const char*>(&front), sizeof front);
  mail_->send(peer.rank, text.append(body));
}

// Tells the peer that this attempt of this rank's is over.
void VerbsTransport::abandon(Peer& peer, std::uint32_t attempt) {
  const std::uint32_t now = std::exchange(peer.mine, attempt);
  say(peer, VerbsLetter::kAbandon, 0);
  peer.mine = now;
}

void VerbsTransport::hear_letters() {
  Letter letter;
  while (mail_->receive(letter)) on_letter(letter);
}

// Sends every letter again that has no answer, since it or its answer may be lost. A peer that has
// the letter already answers once more.
void VerbsTransport::repeat_letters() {
  const auto now = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < owners_.size(); ++i) {
    Peer* const peer = owners_[i];
    if (!peer || !peer->failure.ok() || peer->link == Link::kOpen || peer->closes ||
        now - peer->said < kAnswerWithin * (1 << std::clamp(peer->unheard - 1, 0, kMostDoublings)))
      continue;
    if (peer->link == Link::kClosing)
      say_close(*peer, VerbsLetter::kMustClose);
    else
      say(*peer, VerbsLetter::kInvite, peer->link == Link::kMet ? peer->theirs : 0,
          invitation(*peer));
  }
}

void VerbsTransport::on_letter(const Letter& letter) {
  Peer* const from = peer_of(letter.from);
  VerbsLetterFront front;
  if (!from || letter.bytes.size() < sizeof front) return;
  Peer& peer = *from;
  std::memcpy(&front, letter.bytes.data(), sizeof front);
  peer.unheard = 0;
  const std::string_view body = std::string_view(letter.bytes).substr(sizeof front);
  const bool current = front.yours != 0 && front.yours == peer.mine;
  switch (front.what) {
    case VerbsLetter::kInvite:
      return on_invite(peer, front, body);
    case VerbsLetter::kReady:
      if (current && front.mine == peer.theirs && peer.link == Link::kMet) opened(peer);
      return;
    case VerbsLetter::kRefuse:
      if (current && peer.link != Link::kClosed)
        fail(peer, Code::kTransport,
             fmt::format("it refuses the connection: {}", body.substr(0, kMostText)));
      return;
    case VerbsLetter::kClose:
    case VerbsLetter::kMustClose:
      return on_close(peer, front, body);
    case VerbsLetter::kAbandon:
      return on_abandon(peer, front.mine);
    case VerbsLetter::kStay:
      if (current && peer.link == Link::kClosing && !peer.closes) opened(peer);
      return;
  }
}

void VerbsTransport::on_abandon(Peer& peer, std::uint32_t number) {
  if (!peer.invitation.empty() && front_of(peer.invitation).number == number)
    peer.invitation.clear();
  if (peer.link != Link::kMet || peer.theirs != number || peer.broken)
    return say(peer, VerbsLetter::kStay, number);  // heard
  say(peer, VerbsLetter::kAbandon, 0);  // this rank's own invitation, which the peer may have, too
  leave_link(peer);
}

void VerbsTransport::on_invite(Peer& peer, const VerbsLetterFront& front, std::string_view body) {
  if (!peer.failure.ok())
    return say(peer, VerbsLetter::kRefuse, front.mine, peer.failure.message());
  if (!invites(body) || front_of(body).number != front.mine)
    return refuse(peer, "an invitation that makes no sense");
  if (front.yours != 0 && front.yours != peer.mine) {  // the answer to one that is over
    if (front.mine != peer.theirs) abandon(peer, front.yours);
    return;
  }
  if (front.mine == peer.theirs) {  // once more: it has not heard the answer
    if (front.yours == 0 && peer.link == Link::kMet)
      say(peer, VerbsLetter::kInvite, peer.theirs, invitation(peer));
    else if (front.yours != 0 && (peer.link == Link::kMet || peer.link == Link::kOpen))
      say(peer, VerbsLetter::kReady, peer.theirs);
    if (front.yours != 0 && peer.link == Link::kMet) opened(peer);
    return;
  }
  if (static_cast<std::int32_t>(front.mine - peer.theirs) < 0) return;  // it came late
  // The peer has given up the attempt that this rank answered, and this rank has not heard so.
  if (peer.link == Link::kMet && !peer.broken && front_of(body).resumes == 0) leave_link(peer);
  const bool live = peer.link != Link::kClosed && peer.link != Link::kInvited && !peer.closes;
  if (live && front_of(body).resumes != 0) {
    break_off(peer);
    peer.invitation = body;
    return open(peer);
  }
  switch (peer.link) {
    case Link::kClosed:
      peer.invitation = body;
      // Whoever has invited this rank keeps a place for it.
      if (std::exchange(peer.asks, true)) std::erase(opening_, peer.rank);
      opening_.push_front(peer.rank);
      return;
    case Link::kInvited:
      meet_invited(peer, body);
      if (front.yours == peer.mine && peer.link == Link::kMet) opened(peer);
      return;
    case Link::kClosing:
      if (peer.closes) {  // the peer is through with closing, and this rank is not
        peer.invitation = body;
        return;
      }
      [[fallthrough]];
    default:
      fail(peer, Code::kPeerFailed, "it has ended the connection and begins another one");
      say(peer, VerbsLetter::kRefuse, front.mine, peer.failure.message());
  }
}

}  // namespace weft
