// The letters by which two ranks make and end a connection (messages.h): says them, says them again
// where no answer comes, and answers. What follows from them is in connections.cc.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "transport/verbs/transport.h"

namespace weft {
namespace {

constexpr std::size_t kMostText = 300;
// Letters may be lost (job/mailbox.h): one without an answer is said again after this time, and
// after twice the time each time, kMostDoublings times.
constexpr std::chrono::milliseconds kAnswerWithin{500};
constexpr int kMostDoublings = 4;

}  // namespace

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

// What a peer has not answered is said again, for the letter or its answer may be lost. Who has it
// already answers once more.
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
