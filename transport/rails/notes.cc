// Notes that the two ends of a pair exchange beside the messages (peer_talk.h).
//
//     D  I have given up this lane; these tags had arrived over it    (down once both ends sent D)
//     d  more tags of the D that follows
//     O  let us open the lane again; this is my address     P  done; this is mine     R  ready
//     M  my messages go over these lanes from now on; these tags went over other lanes before
//     E  more tags of the M that follows
#include <algorithm>
#include <string>
#include <utility>

#include "topo/base/log.h"
#include "transport/offers.h"
#include "transport/rails/datagram_text.h"
#include "transport/rails/state.h"

namespace weft {
namespace {

constexpr std::size_t kMostTags = 5000;  // in one datagram
// Limits that a correct peer never exceeds: tags in its notes, and notes that wait for its
// acknowledgement.
constexpr std::size_t kMostTold = std::size_t{1} << 20, kMostOwed = 4096;

}  // namespace

using Lane = Rails::State::Lane;
using Use = Rails::State::Slot::Use;

void Rails::State::ping(Rank rank, std::int64_t now) {
  PeerTalk& talk = peer(rank).talk;
  talk.ping(now);
  const int unanswered = talk.pings().count_unanswered(now, options.ping_us);
  if (unanswered == PeerPings::kMostUnanswered && on_event)
    on_event({.kind = RailEvent::Kind::kUnheard, .peer = rank});
  if (unanswered < PeerPings::kMostUnanswered || std::exchange(warned, true)) return;
  log().warn(
      "weft: rank {}: messages of rank {} come, but no datagram is answered on any rail: with it "
      "rails do not stand in for each other, and one that fails fails the job. Let UDP pass "
      "between "
      "the addresses of the rails (firewall, routes), or switch this off: WEFT_FAILOVER=0",
      me, rank);
}

// Checks with pings, before any fault, that datagrams reach the peer.
void Rails::State::introduce(Rank rank, std::int64_t now) {
  const PeerPings& pings = peer(rank).talk.pings();
  if (!pings.reached() && now - pings.last() >= options.ping_us * pings.first_patience())
    ping(rank, now);
}

void Rails::State::on_answer(Rank rank, bool again) {
  if (again && on_event) on_event({.kind = RailEvent::Kind::kHeard, .peer = rank});
  if (std::exchange(peer(rank).asked_to_move, false)) spread(rank, Why::kAnswered);
}

// ---- notes ---------------------------------------------------------------------------------

void Rails::State::say(Rank rank, std::string body, bool move) {
  Peer& p = peer(rank);
  activate(rank, p);
  if (p.talk.say(std::move(body), move, paths->now_us())) attention = true;
}

void Rails::State::on_told(Rank rank) {
  Peer& p = peer(rank);
  if (!p.talk.notes().empty()) attention = true;
  if (p.talk.notes().moves() == 0 && std::exchange(p.spread_again, false))
    spread(rank, Why::kLanes);
}

void Rails::State::say_lane(Rank rank, char kind, int rail, std::string_view text) {
  std::string body(1, kind);
  put(body, static_cast<std::uint8_t>(rail));
  put(body, lane(rank, rail).life.generation());
  body += text;
  say(rank, std::move(body));
}

void Rails::State::say_down(Rank rank, int rail) {
  Lane& l = lane(rank, rail);
  std::string text, tags;
  l.for_each_kept([&](std::uint64_t tag) {
    put(tags, tag);
    if (tags.size() < kMostTags * sizeof tag) return;
    say_lane(rank, 'd', rail, tags);
    tags.clear();
  });
  const std::string cause = l.life.cause().substr(0, 300);
  put(text, static_cast<std::uint16_t>(cause.size()));
  text += cause;
  say_lane(rank, 'D', rail, text + tags);
}

// Sends the tags of messages under way on other lanes than the new tables name. The peer may have
// received some, with the receipt in flight; it still knows these, since it forgets tags only when
// their receipts are confirmed, and no confirmations are sent during a move.
void Rails::State::say_move(Rank rank) {
  Peer& p = peer(rank);
  std::string body(1, 'E');
  std::size_t tags = 0;
  p.sends.for_each([&](std::uint64_t tag, std::uint32_t oldest) {
    slots.for_each_send(oldest, [&](std::uint32_t s) {
      const Slot& slot = slots[s];
      if (slot.acked || slot.rail < 0 || slot.rail == out_rail(p, slot)) return;
      RailRoutes::write_left(body, tag, slot.rail);
      if (++tags % kMostTags == 0) say(rank, std::exchange(body, std::string(1, 'E')), true);
    });
  });
  std::string head(1, 'M');
  p.routes.write(head);
  say(rank, head + body.substr(1), true);
  ++counters.moves;
}

// Ignores the datagrams of a peer that violates the protocol, which protects this rank's memory.
void Rails::State::mute(Rank rank, const char* what) {
  if (!peer(rank).talk.mute()) return;
  log().error("weft: rank {}: rank {} sent more {} than a rank can have: its notes are now ignored",
              me, rank, what);
}

void Rails::State::on_note(Rank rank, std::string_view in) {
  if (in.empty()) return;
  if (peer(rank).talk.notes().size() > kMostOwed) return mute(rank, "that it wants an answer to");
  const char kind = in[0];
  in.remove_prefix(1);
  if (kind == 'M' || kind == 'E') return read_move(rank, in, kind == 'M');
  std::uint8_t rail = 0;
  std::uint32_t generation = 0;
  if (!get(in, rail) || !get(in, generation) || rail >= inner.size()) return;
  LaneLife& life = lane(rank, rail).life;
  Recovery& recovery = *inner[rail]->recovery();
  switch (kind) {
    case 'd':
      if (generation != life.generation()) return;
      if (life.theirs().size() > kMostTold) return mute(rank, "tags of messages");
      for (std::uint64_t tag; get(in, tag);) life.theirs().push_back(tag);
      return;
    case 'D': {
      std::uint16_t length = 0;
      if (generation != life.generation() || !get(in, length) || in.size() < length) return;
      const std::string cause(in.substr(0, length));
      in.remove_prefix(length);
      if (!life.peer_gives_up()) return;
      for (std::uint64_t tag; get(in, tag);) life.theirs().push_back(tag);
      if (life.over())
        settle_lane(rank, rail);
      else
        take_out(rank, rail, cause);
      return;
    }
    case 'O': {
      std::string mine;
      if (life.down()) {
        life.adopt(generation);
        mine = recovery.reopen(rank);
        if (!mine.empty() && !recovery.connect(rank, in)) mine.clear();
        if (!mine.empty()) life.ready();
      }
      return say_lane(rank, 'P', rail, mine);
    }
    case 'P':
      if (!life.asked(generation)) return;
      if (in.empty()) {
        life.refused(paths->now_us());
        recovery.disconnect(rank);
        return;
      }
      if (!recovery.connect(rank, in)) {  // the peer is connected: both start over
        life.open();
        return take_out(rank, rail, "it could not be opened again");
      }
      say_lane(rank, 'R', rail);
      return taken_back(rank, rail);
    case 'R':
      if (life.is_ready(generation)) taken_back(rank, rail);
      return;
    default:
      return;
  }
}

void Rails::State::read_move(Rank rank, std::string_view in, bool last) {
  Peer& p = peer(rank);
  if (p.routes.kept() > kMostTold) return mute(rank, "tags of messages");
  if (!last) return p.routes.read_left(in, inner.size());
  if (!p.routes.read(in, inner.size())) return;
  for (const Lane& l : p.lanes) l.for_each_kept([&](std::uint64_t tag) { p.routes.arrived(tag); });
  for (std::uint32_t s = 0; s < slots.size(); ++s) {
    Slot& slot = slots[s];
    if (slot.use != Use::kRecv || slot.t.peer != rank) continue;
    slot.want = -1;
    const int to = in_rail(p, slot);
    if (slot.rail == to) continue;
    if (slot.rail >= 0) {  // its message will not arrive there
      cancel_inner(s);
      unplace(slot);
    }
    place(s, to);
  }
  // Sends incomplete receipts: on lanes that carry no more short messages, nothing would complete
  // them. The peer would keep those messages forever, and replay them when their tags are reused.
  for (int r = 0; r < nrails(); ++r)
    if (lane(rank, r).receipts[Receipt::kShort].pending() > 0)
      send_receipt(rank, r, Receipt::kShort);
  flush_posts();
}

}  // namespace weft
