// Sends letters, resends those without an answer, and answers letters.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "transport/verbs/connections/connections.h"

namespace weft {
namespace {

constexpr std::size_t kMostText = 300;
// Letters may be lost (job/mailbox.h): one without an answer is resent after this time, which then
// doubles up to kMostDoublings times.
constexpr std::chrono::milliseconds kAnswerWithin{500};
constexpr int kMostDoublings = 4;

}  // namespace

void VerbsConnections::send(VerbsConnection& c, VerbsLetter what, std::uint32_t yours,
                            std::string_view body) {
  const VerbsLetterFront front{what, c.mine, yours};
  ++c.unanswered;
  c.last_letter = std::chrono::steady_clock::now();
  std::string text(reinterpret_cast<const char*>(&front), sizeof front);
  mail_->send(c.rank, text.append(body));
}

// Notifies the peer that this rank's attempt is over.
void VerbsConnections::send_abandon(VerbsConnection& c, std::uint32_t attempt) {
  const std::uint32_t now = std::exchange(c.mine, attempt);
  send(c, VerbsLetter::kAbandon, 0);
  c.mine = now;
}

void VerbsConnections::send_close(VerbsConnection& c, VerbsLetter how) {
  const std::vector<std::uint64_t> sent = pairs_.sent(c);
  send(c, how, c.theirs,
       {reinterpret_cast<const char*>(sent.data()), sent.size() * sizeof sent[0]});
}

// Fails the connection after a letter that a peer of the same build never sends.
void VerbsConnections::refuse(VerbsConnection& c, const char* what) noexcept {
  pairs_.fail(c, Code::kTransport,
              fmt::format("{}: do all ranks run the same build of weft?", what));
}

void VerbsConnections::read_letters() {
  Letter letter;
  while (mail_->receive(letter)) on_letter(letter);
}

// Resends every letter without an answer, since it or its answer may be lost. A peer that has the
// letter already answers again.
void VerbsConnections::repeat_letters() {
  const auto now = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < places_.owners().size(); ++i) {
    VerbsConnection* const c = places_.owners()[i];
    if (!c || !c->failure.ok() || c->link == Link::kOpen || c->closes ||
        now - c->last_letter <
            kAnswerWithin * (1 << std::clamp(c->unanswered - 1, 0, kMostDoublings)))
      continue;
    if (c->link == Link::kClosing)
      send_close(*c, VerbsLetter::kMustClose);
    else
      send(*c, VerbsLetter::kInvite, c->link == Link::kConnected ? c->theirs : 0,
           pairs_.invitation(*c));
  }
}

void VerbsConnections::on_letter(const Letter& letter) {
  VerbsConnection* const from = pairs_.connection(letter.from);
  VerbsLetterFront front;
  if (!from || letter.bytes.size() < sizeof front) return;
  VerbsConnection& c = *from;
  std::memcpy(&front, letter.bytes.data(), sizeof front);
  c.unanswered = 0;
  const std::string_view body = std::string_view(letter.bytes).substr(sizeof front);
  const bool current = front.yours != 0 && front.yours == c.mine;
  switch (front.what) {
    case VerbsLetter::kInvite:
      return on_invite(c, front, body);
    case VerbsLetter::kReady:
      if (current && front.mine == c.theirs && c.link == Link::kConnected) open(c);
      return;
    case VerbsLetter::kRefuse:
      if (current && c.link != Link::kClosed)
        pairs_.fail(c, Code::kTransport,
                    fmt::format("it refuses the connection: {}", body.substr(0, kMostText)));
      return;
    case VerbsLetter::kClose:
    case VerbsLetter::kMustClose:
      return on_close(c, front, body);
    case VerbsLetter::kAbandon:
      return on_abandon(c, front.mine);
    case VerbsLetter::kStay:
      if (current && c.link == Link::kClosing && !c.closes) open(c);
      return;
  }
}

void VerbsConnections::on_abandon(VerbsConnection& c, std::uint32_t number) {
  if (!c.invitation.empty() && VerbsInvitation::front_of(c.invitation).number == number)
    c.invitation.clear();
  if (c.link != Link::kConnected || c.theirs != number || c.broken)
    return send(c, VerbsLetter::kStay, number);  // acknowledges the letter
  // Abandons this rank's own invitation, which the peer may have received.
  send(c, VerbsLetter::kAbandon, 0);
  leave(c);
}

void VerbsConnections::on_invite(VerbsConnection& c, const VerbsLetterFront& front,
                                 std::string_view body) {
  if (!c.failure.ok()) return send(c, VerbsLetter::kRefuse, front.mine, c.failure.message());
  if (!pairs_.invites(body) || VerbsInvitation::front_of(body).number != front.mine)
    return refuse(c, "an invitation that makes no sense");
  const bool resumes = VerbsInvitation::front_of(body).resumes != 0;
  if (front.yours != 0 && front.yours != c.mine) {  // answers an attempt that is over
    if (front.mine != c.theirs) send_abandon(c, front.yours);
    return;
  }
  if (front.mine == c.theirs) {  // a repeated letter: the answer was lost
    if (front.yours == 0 && c.link == Link::kConnected)
      send(c, VerbsLetter::kInvite, c.theirs, pairs_.invitation(c));
    else if (front.yours != 0 && (c.link == Link::kConnected || c.link == Link::kOpen))
      send(c, VerbsLetter::kReady, c.theirs);
    if (front.yours != 0 && c.link == Link::kConnected) open(c);
    return;
  }
  if (static_cast<std::int32_t>(front.mine - c.theirs) < 0) return;  // a late letter
  // The peer has abandoned the attempt that this rank answered, and its letter was lost.
  if (c.link == Link::kConnected && !c.broken && !resumes) leave(c);
  const bool live = c.link != Link::kClosed && c.link != Link::kInvited && !c.closes;
  if (live && resumes) {
    break_off(c);
    c.invitation = body;
    return reconnect(c);
  }
  switch (c.link) {
    case Link::kClosed:
      c.invitation = body;
      // First in the queue: the peer holds a place for this rank until the answer.
      if (std::exchange(c.requested, true)) std::erase(requests_, &c);
      requests_.push_front(&c);
      return;
    case Link::kInvited:
      connect_to_invited(c, body);
      if (front.yours == c.mine && c.link == Link::kConnected) open(c);
      return;
    case Link::kClosing:
      if (c.closes) {  // the peer has closed already; this rank not yet
        c.invitation = body;
        return;
      }
      [[fallthrough]];
    default:
      pairs_.fail(c, Code::kPeerFailed, "it has ended the connection and begins another one");
      send(c, VerbsLetter::kRefuse, front.mine, c.failure.message());
  }
}

void VerbsConnections::on_close(VerbsConnection& c, const VerbsLetterFront& front,
                                std::string_view body) {
  // If rails reopen the connection, the peer may be connected before this rank.
  if (front.mine != c.theirs || front.yours != c.mine)
    return send(c, VerbsLetter::kStay, front.mine);
  if (c.link == Link::kConnected) open(c);  // so both ends are connected
  if (c.link == Link::kClosed && front.what == VerbsLetter::kMustClose && c.failure.ok())
    return send_close(c, VerbsLetter::kClose);  // closed already: the answer was lost
  if (c.link != Link::kOpen && c.link != Link::kClosing) return;
  std::vector<std::uint64_t> its_sent(pairs_.taken(c).size());
  if (body.size() != its_sent.size() * sizeof its_sent[0])
    return refuse(c, "it counts the messages of other queue pairs");
  pairs_.reap();  // messages may have arrived before the letter
  std::memcpy(its_sent.data(), body.data(), body.size());
  c.its_sent = std::move(its_sent);
  if (c.link == Link::kOpen) {
    if (!pairs_.quiesce(c) || pairs_.taken(c) != c.its_sent ||
        (front.what == VerbsLetter::kClose && pairs_.awaits(c)))
      return send(c, VerbsLetter::kStay, c.theirs);
    ask_to_close(c, VerbsLetter::kClose);
  }
  if (c.link != Link::kClosing) return;  // a reaped completion ended the connection
  c.closes = true;
  finish_closing(c);
}

}  // namespace weft
