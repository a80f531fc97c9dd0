// Makes connections, and ends idle ones if others need their places.
#include "transport/verbs/connections/connections.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "topo/base/log.h"

namespace weft {
namespace {

// After this many unanswered letters to a peer no further invitation is sent: a peer that is busy
// for long must not be flooded.
constexpr int kMostUnanswered = 16;
constexpr int kPollsPerLook = 1024;

}  // namespace

VerbsConnections::VerbsConnections(VerbsQueuePairs& pairs, std::unique_ptr<Mailbox> mail, Rank me,
                                   std::string where, int most_places)
    : pairs_(pairs),
      mail_(std::move(mail)),
      me_(me),
      where_(std::move(where)),
      most_places_(most_places) {}

void VerbsConnections::begin() {
  const int places = std::min(most_places_, kPlacesAtOnce);
  pairs_.add_places(places, true);
  places_.add(places);
}

void VerbsConnections::set(VerbsConnection& c, Link link) {
  const auto unsettled = [](Link l) { return l != Link::kClosed && l != Link::kOpen; };
  closing_ += (link == Link::kClosing) - (c.link == Link::kClosing);
  unsettled_ += unsettled(link) - unsettled(c.link);
  c.link = link;
}

void VerbsConnections::request(VerbsConnection& c) {
  if (c.requested || c.link != Link::kClosed || !c.failure.ok()) return;
  c.requested = true;
  requests_.push_back(&c);
}

void VerbsConnections::poll() {
  read_letters();
  if (unsettled_ > 0) {
    if (++unsettled_polls_ % kPollsPerLook == 0) repeat_letters();
    if (closing_ > 0)
      for (VerbsConnection* c : places_.owners())
        if (c) finish_closing(*c);
  }
  if (!requests_.empty()) open_requested();
}

void VerbsConnections::open_requested() {
  pairs_.drain();
  for (std::size_t n = requests_.size(); n > 0 && !requests_.empty(); --n) {
    VerbsConnection& c = *requests_.front();
    const bool needed = c.failure.ok() && c.link == Link::kClosed &&
                        (pairs_.has_messages(c) || !c.invitation.empty());
    const bool silent = c.invitation.empty() && c.unanswered >= kMostUnanswered;
    if (needed && !silent && !take_place(c)) return make_room();
    requests_.pop_front();
    if (needed && silent) {
      requests_.push_back(&c);
      continue;
    }
    c.requested = false;
    if (needed) reconnect(c);
  }
}

// Asks the peer of the least recently used connection with nothing in flight to close it.
void VerbsConnections::make_room() {
  if (closing_ == 0 && abandon_one()) return;
  const auto waiting = std::max<std::size_t>(1, requests_.size());  // 0 requests: called by rails
  // There is no free place: the cost of reading the clock does not matter.
  const auto [long_enough, answered] = places_.look(std::chrono::steady_clock::now());
  if (closing_ > 0 && long_enough) return grow();
  if (closing_ >= static_cast<int>(waiting) && !answered) return;
  places_.begin_for_answer();
  VerbsConnection* oldest = nullptr;
  for (std::size_t i = 0; i < places_.owners().size(); ++i)  // a failing connection frees its place
    if (VerbsConnection* c = places_.owners()[i]; c && (!oldest || c->used < oldest->used) &&
                                                  (long_enough || !pairs_.awaits(*c)) &&
                                                  pairs_.quiesce(*c))
      oldest = c;
  if (!oldest) return;
  if (long_enough) places_.begin_for_place();
  ask_to_close(*oldest, long_enough ? VerbsLetter::kMustClose : VerbsLetter::kClose);
}

// Peers whose program does not call weft do not poll and do not answer: rather than wait for them,
// this rank registers slots for more places than planned.
void VerbsConnections::grow() {
  places_.begin_for_place();
  try {
    const int places = std::min(most_places_, kPlacesAtOnce);
    pairs_.add_places(places, true);
    places_.add(places);
    log().info("verbs: rank {}: {}: {} places for connections: peers that hold some do not answer",
               me_, where_, places_.size());
  } catch (const Error& error) {
    log().debug("verbs: rank {}: no more places: {}", me_, error.what());
  }
}

// Breaks a circular wait: abandons an invitation of this rank if a lower rank has invited it and
// there is no place for that. In a circle of waiting ranks, the highest one does so.
bool VerbsConnections::abandon_one() {
  if (requests_.empty()) return false;
  const VerbsConnection& first = *requests_.front();
  if (first.invitation.empty() || first.rank > me_) return false;
  for (const VerbsConnection* c : places_.owners())
    if (c && pairs_.idle(*c)) return false;
  for (VerbsConnection* c : places_.owners()) {
    // An invitation sent by rails (failure is set) is abandoned by rails only.
    if (!c || c->link != Link::kInvited || !c->failure.ok() || c->broken) continue;
    send_abandon(*c, c->mine);
    leave(*c);
    return true;
  }
  return false;
}

// Ends an attempt to connect that has carried no messages.
void VerbsConnections::leave(VerbsConnection& c) {
  pairs_.end(c);
  places_.free(c);
  set(c, Link::kClosed);
  c.mine = 0;  // ignores later answers to it
  if (pairs_.has_messages(c)) request(c);
}

bool VerbsConnections::take_place(VerbsConnection& c) {
  if (places_.take(c)) return true;
  const int more = std::min(most_places_ - places_.size(), kPlacesAtOnce);
  if (more <= 0) return false;
  try {
    pairs_.add_places(more, false);
  } catch (const Error& error) {
    log().info("verbs: rank {}: {} places for connections, and no more: {}", me_, places_.size(),
               error.what());
    most_places_ = places_.size();
    return false;
  }
  places_.add(more);
  return places_.take(c);
}

// Makes the queue pairs of a connection with a place, and invites the peer.
void VerbsConnections::reconnect(VerbsConnection& c) {
  std::uint32_t number = 0;
  try {
    c.mine = ++attempts_;
    pairs_.make(c);
    set(c, Link::kInvited);
    if (!c.invitation.empty()) {
      const std::string theirs = std::exchange(c.invitation, {});
      number = VerbsInvitation::front_of(theirs).number;
      accept(c, theirs);
      set(c, Link::kConnected);
    }
    send(c, VerbsLetter::kInvite, number, pairs_.invitation(c));
  } catch (const std::exception& error) {
    give_up(c, error, number);
  }
}

// After invitations from both ends: each connects its queue pairs to the other's.
void VerbsConnections::connect_to_invited(VerbsConnection& c, std::string_view theirs) {
  try {
    accept(c, theirs);
    set(c, Link::kConnected);
    send(c, VerbsLetter::kReady, c.theirs);
  } catch (const std::exception& error) {
    give_up(c, error, VerbsInvitation::front_of(theirs).number);
  }
}

void VerbsConnections::accept(VerbsConnection& c, std::string_view theirs) {
  const VerbsInvitation their = VerbsInvitation::front_of(theirs);
  if (their.resumes != (c.broken ? c.first_mine : 0))
    throw Error("verbs: its connection is another one: do all ranks run the same build of weft?");
  pairs_.join(c, theirs);
  c.theirs = their.number;
  if (c.broken) return;
  c.first_mine = c.mine;
  c.first_theirs = c.theirs;
}

void VerbsConnections::open(VerbsConnection& c) {
  set(c, Link::kOpen);
  use(c);
  pairs_.opened(c, std::exchange(c.broken, false));
}

void VerbsConnections::give_up(VerbsConnection& c, const std::exception& error,
                               std::uint32_t their_number) {
  const auto* status = dynamic_cast<const StatusError*>(&error);
  pairs_.fail(c, status ? status->status().code() : Code::kTransport, error.what());
  send(c, VerbsLetter::kRefuse, their_number, c.failure.message());
}

std::string VerbsConnections::invite_by_rails(VerbsConnection& c) {
  pairs_.drain();
  if (!take_place(c)) {
    make_room();
    return {};  // retried later
  }
  c.mine = ++attempts_;
  pairs_.make(c);
  set(c, Link::kInvited);
  return pairs_.invitation(c);
}

void VerbsConnections::closed(VerbsConnection& c) noexcept {
  places_.free(c);
  set(c, Link::kClosed);
  c.closes = c.broken = false;
  c.invitation.clear();
}

void VerbsConnections::break_off(VerbsConnection& c) noexcept {
  set(c, Link::kClosed);  // nothing is posted from now on
  c.broken = true;
  pairs_.interrupt(c);
  pairs_.drain();
}

// ---- closing idle connections -------------------------------------------------------------

void VerbsConnections::ask_to_close(VerbsConnection& c, VerbsLetter how) {
  set(c, Link::kClosing);
  send_close(c, how);
}

// Ends the queue pairs once both ends have agreed and this rank has all messages of the peer. The
// peer has all messages of this rank: it read its completions before it agreed, or reads them now.
void VerbsConnections::finish_closing(VerbsConnection& c) {
  if (c.link != Link::kClosing || !c.closes || pairs_.taken(c) != c.its_sent) return;
  pairs_.end(c);
  places_.free(c);
  c.closes = false;
  set(c, Link::kClosed);
  log().debug("verbs: rank {}: {}: {}: closed, others need its place", me_, where_, c.where);
  if (pairs_.has_messages(c) || !c.invitation.empty()) request(c);
}

}  // namespace weft
