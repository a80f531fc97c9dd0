// Makes a connection when the first message to a peer asks for it, and ends the one used longest
// ago where all places are taken. The ends talk by letters (messages.h); no call waits for one.
//
// A place is the slots of one connection. A connection to which a receive is posted at one end is
// not closed for a while: all messages of an all_to_all go over one connection that way, though a
// rank has fewer places than peers. After that only bytes in flight keep a connection open: a
// posted receive does not, nor a long message that waits for its CTS, which may come over a later
// connection. So every connection can be closed sooner or later, and nobody waits for a place for
// ever: an invitation holds a place, too, until it is answered or abandoned.
#include <algorithm>
#include <chrono>
#include <cstring>

#include "topo/base/log.h"
#include "transport/verbs/transport.h"

namespace weft {
namespace {

// Letters to a peer that says nothing, until no further invitation is sent: one that is busy for
// long must not be written to again and again.
constexpr int kMostUnheard = 16;
constexpr int kPollsPerLook = 1024;

}  // namespace

void VerbsTransport::make_lanes(Peer& peer) {
  for (int k = 0; k < settings_.qps; ++k) {
    Lane& lane = lanes_.emplace_back(settings_.slots);
    lane.peer = &peer;
    lane.index = static_cast<std::uint32_t>(lanes_.size() - 1);
    peer.lanes.push_back(&lane);
  }
  peer.windows.resize(static_cast<std::size_t>(settings_.windows));
}

void VerbsTransport::link(Peer& peer, Link is) {
  const auto unsettled = [](Link l) { return l != Link::kClosed && l != Link::kOpen; };
  closing_ += (is == Link::kClosing) - (peer.link == Link::kClosing);
  unsettled_ += unsettled(is) - unsettled(peer.link);
  peer.link = is;
}

bool VerbsTransport::has_queue(const Peer& peer) const {
  return std::ranges::any_of(peer.lanes, [](const Lane* lane) { return !lane->queue.empty(); });
}

// True when this rank has nothing in flight that it knows of, but for acknowledgements.
bool VerbsTransport::idle(const Peer& peer) const {
  return peer.link == Link::kOpen && peer.windows_used == 0 && peer.waiting.empty() &&
         std::ranges::all_of(peer.lanes, [](const Lane* lane) {
           return lane->queue.empty() && lane->writing.empty() && lane->writes.empty() &&
                  lane->chained == 0;
         });
}

// True when the peer is idle() and its device has acknowledged everything. Asks for an
// acknowledgement that is missing.
bool VerbsTransport::quiesce(Peer& peer) {
  if (!idle(peer)) return false;
  for (Lane* lane : peer.lanes)
    if (lane->done < lane->posted) mark(*lane, lane->posted);
  return idle(peer) && std::ranges::all_of(
                           peer.lanes, [](const Lane* lane) { return lane->done == lane->posted; });
}

// True when all messages have come that the peer has told of in its kClose.
bool VerbsTransport::all_taken(const Peer& peer) const {
  for (std::size_t k = 0; k < peer.lanes.size(); ++k)
    if (peer.lanes[k]->recv_credits.taken() != peer.told[k]) return false;
  return true;
}

void VerbsTransport::want(Peer& peer) {
  if (peer.asks || peer.link != Link::kClosed || !peer.failure.ok()) return;
  peer.asks = true;
  opening_.push_back(peer.rank);
}

void VerbsTransport::connect_peers() {
  hear_letters();
  if (unsettled_ > 0) {
    if (++unsettled_polls_ % kPollsPerLook == 0) repeat_letters();
    if (closing_ > 0)
      for (Peer* peer : owners_)
        if (peer) finish_closing(*peer);
  }
  if (!opening_.empty()) open_wanted();
}

void VerbsTransport::open_wanted() {
  drain_queues();
  for (std::size_t n = opening_.size(); n > 0 && !opening_.empty(); --n) {
    Peer& peer = peers_[static_cast<std::size_t>(opening_.front())];
    const bool needed = peer.failure.ok() && peer.link == Link::kClosed &&
                        (has_queue(peer) || !peer.invitation.empty());
    const bool deaf = peer.invitation.empty() && peer.unheard >= kMostUnheard;
    if (needed && !deaf && !take_place(peer)) return make_room();
    opening_.pop_front();
    if (needed && deaf) {
      opening_.push_back(peer.rank);
      continue;
    }
    peer.asks = false;
    if (needed) open(peer);
  }
}

// Makes room in the completion queues for new queue pairs: what earlier ones left is dropped.
void VerbsTransport::drain_queues() {
  int most = 0;
  for (const VerbsCq& queue : queues_) most += queue.depth();
  for (int i = 0; i < most && reap() > 0; ++i) {
  }
}

// Asks the peer whose connection was used longest ago, of those with nothing in flight, to close.
void VerbsTransport::make_room() {
  if (closing_ == 0 && abandon_one()) return;
  const auto waiting = std::max<std::size_t>(1, opening_.size());  // none of them: rails ask
  const auto now = std::chrono::steady_clock::now();  // nothing moves: this costs nobody anything
  const bool long_enough = for_place_.over(now), for_one = for_answer_.over(now);
  if (closing_ > 0 && long_enough) return grow();
  if (closing_ >= static_cast<int>(waiting) && !for_one) return;
  for_answer_.begin();
  Peer* oldest = nullptr;
  for (std::size_t i = 0; i < owners_.size(); ++i)  // one that fails loses its place
    if (Peer* peer = owners_[i]; peer && (!oldest || peer->used < oldest->used) &&
                                 (long_enough || !awaits(*peer)) && quiesce(*peer))
      oldest = peer;
  if (!oldest) return;
  if (long_enough) for_place_.begin();
  ask_to_close(*oldest, long_enough ? VerbsLetter::kMustClose : VerbsLetter::kClose);
}

// Peers that do not poll, for their program does something else, answer nobody: rather than wait
// for them, this rank registers slots for more places than it was to have.
void VerbsTransport::grow() {
  for_place_.begin();
  try {
    const int places = std::min(shape_.places, kPlacesAtOnce);
    add_slots(places, add_queue(places));
    log().info("verbs: rank {}: {}: {} places for connections: peers that hold some do not answer",
               rank_, where_, owners_.size());
  } catch (const Error& error) {
    log().debug("verbs: rank {}: no more places: {}", rank_, error.what());
  }
}

// Gives up an invitation of this rank's where a lower rank, which this one has no place for, has
// sent one: of ranks that wait in a circle, the highest does so.
bool VerbsTransport::abandon_one() {
  if (opening_.empty()) return false;
  Peer& first = peers_[static_cast<std::size_t>(opening_.front())];
  if (first.invitation.empty() || first.rank > rank_) return false;
  for (Peer* peer : owners_)
    if (peer && idle(*peer)) return false;
  for (Peer* peer : owners_) {
    // An invitation that rails carry (failure is set) is theirs to give up.
    if (!peer || peer->link != Link::kInvited || !peer->failure.ok() || peer->broken) continue;
    abandon(*peer, peer->mine);
    leave_link(*peer);
    return true;
  }
  return false;
}

// Ends an attempt to connect over which nothing has been sent.
void VerbsTransport::leave_link(Peer& peer) {
  for (Lane* lane : peer.lanes) end_lane(*lane);
  free_place(peer);
  link(peer, Link::kClosed);
  peer.mine = 0;  // an answer to it is none
  if (has_queue(peer)) want(peer);
}

bool VerbsTransport::take_place(Peer& peer) {
  auto free = std::ranges::find(owners_, nullptr);
  if (free == owners_.end()) {
    const int more = std::min(shape_.places - static_cast<int>(owners_.size()), kPlacesAtOnce);
    if (more <= 0) return false;
    try {
      add_slots(more, queues_.front());
    } catch (const Error& error) {
      log().info("verbs: rank {}: {} places for connections, and no more: {}", rank_,
                 owners_.size(), error.what());
      shape_.places = static_cast<int>(owners_.size());
      return false;
    }
    free = std::ranges::find(owners_, nullptr);
  }
  for_place_.begin();
  for_answer_.begin();
  *free = &peer;
  peer.place = static_cast<int>(free - owners_.begin());
  return true;
}

void VerbsTransport::free_place(Peer& peer) noexcept {
  if (peer.place >= 0) owners_[static_cast<std::size_t>(peer.place)] = nullptr;
  peer.place = -1;
}

// Makes the queue pairs of a peer that has a place, and tells the peer.
void VerbsTransport::open(Peer& peer) {
  std::uint32_t number = 0;
  try {
    if (peer.lanes.empty()) make_lanes(peer);
    peer.mine = ++attempts_;
    for (Lane* lane : peer.lanes) begin(*lane);
    link(peer, Link::kInvited);
    if (!peer.invitation.empty()) {
      const std::string theirs = std::exchange(peer.invitation, {});
      number = front_of(theirs).number;
      accept(peer, theirs);
      link(peer, Link::kMet);
    }
    say(peer, VerbsLetter::kInvite, number, invitation(peer));
  } catch (const std::exception& error) {
    give_up(peer, error, number);
  }
}

// Both ends have invited each other: each connects its queue pairs to the other's.
void VerbsTransport::meet_invited(Peer& peer, std::string_view theirs) {
  try {
    accept(peer, theirs);
    link(peer, Link::kMet);
    say(peer, VerbsLetter::kReady, peer.theirs);
  } catch (const std::exception& error) {
    give_up(peer, error, front_of(theirs).number);
  }
}

void VerbsTransport::opened(Peer& peer) {
  link(peer, Link::kOpen);
  peer.used = ++uses_;
  if (std::exchange(peer.broken, false)) send_again(peer);
  for (Lane* lane : peer.lanes) touch(*lane);
}

void VerbsTransport::give_up(Peer& peer, const std::exception& error, std::uint32_t their_number) {
  const auto* status = dynamic_cast<const StatusError*>(&error);
  fail(peer, status ? status->status().code() : Code::kTransport, error.what());
  say(peer, VerbsLetter::kRefuse, their_number, peer.failure.message());
}

// ---- the end of a connection that nobody uses ---------------------------------------------

// Messages of the peer, or its CTS, are waited for.
bool VerbsTransport::awaits(const Peer& peer) const {
  return peer.matching.any_receive([](const Transfer& t) {
    return !t.standing;
  }) || std::ranges::any_of(long_sends_, [&](const auto& s) { return s.second.peer == peer.rank; });
}

void VerbsTransport::ask_to_close(Peer& peer, VerbsLetter how) {
  link(peer, Link::kClosing);
  say_close(peer, how);
}

void VerbsTransport::say_close(Peer& peer, VerbsLetter how) {
  std::string counts;
  for (const Lane* lane : peer.lanes) {
    const std::uint64_t sent = lane->send_credits.sent();
    counts.append(reinterpret_cast<const char*>(&sent), sizeof sent);
  }
  say(peer, how, peer.theirs, counts);
}

// Ends the queue pairs once both ends have agreed and all has come that was sent here. What was
// sent from here has come there: the peer has looked before it agreed, or looks now.
void VerbsTransport::finish_closing(Peer& peer) {
  if (peer.link != Link::kClosing || !peer.closes || !all_taken(peer)) return;
  for (Lane* lane : peer.lanes) end_lane(*lane);
  free_place(peer);
  peer.closes = false;
  link(peer, Link::kClosed);
  log().debug("verbs: rank {}: {}: {}: closed, others need its place", rank_, where_, peer.where);
  if (has_queue(peer) || !peer.invitation.empty()) want(peer);
}

void VerbsTransport::on_close(Peer& peer, const VerbsLetterFront& front, std::string_view body) {
  // The peer may be connected before this rank is, where rails open the connection anew.
  if (front.mine != peer.theirs || front.yours != peer.mine)
    return say(peer, VerbsLetter::kStay, front.mine);
  if (peer.link == Link::kMet) opened(peer);  // the peer knows that both ends are connected
  if (peer.link == Link::kClosed && front.what == VerbsLetter::kMustClose && peer.failure.ok())
    return say_close(peer, VerbsLetter::kClose);  // it is: the peer has not heard so
  if (peer.link != Link::kOpen && peer.link != Link::kClosing) return;
  if (body.size() != peer.lanes.size() * sizeof(std::uint64_t))
    return refuse(peer, "it names other queue pairs");
  reap();  // a message may have come before the letter
  peer.told.resize(peer.lanes.size());
  std::memcpy(peer.told.data(), body.data(), body.size());
  if (peer.link == Link::kOpen) {
    if (!quiesce(peer) || !all_taken(peer) || (front.what == VerbsLetter::kClose && awaits(peer)))
      return say(peer, VerbsLetter::kStay, peer.theirs);
    ask_to_close(peer, VerbsLetter::kClose);
  }
  if (peer.link != Link::kClosing) return;  // what was reaped ended the connection
  peer.closes = true;
  finish_closing(peer);
}

}  // namespace weft
