// Takes lanes of Rails out of use and back into use, and chooses the lane of each message.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <string>

#include "topo/base/log.h"
#include "transport/offers.h"
#include "transport/rails/state.h"

namespace weft {

using Lane = Rails::State::Lane;
using Use = Rails::State::Slot::Use;

namespace {

// Intervals in us between two checks of the lanes, and between two reads of datagrams.
constexpr std::int64_t kLookEvery = 1000, kReadEvery = 200;

// Datagrams read by one look(), so that a peer's flood does not delay messages.
constexpr int kMostRead = 256;

// Polls of a lane before it is given up, for completions that have arrived.
constexpr int kLastReads = 64;

}  // namespace

// ---- checks --------------------------------------------------------------------------------

void Rails::State::look() {
  const std::int64_t now = paths->now_us();
  if (!std::exchange(attention, false) && now - read_at < kReadEvery)
    return paths->wake_in(kReadEvery);
  read_at = now;
  Datagram d;
  for (int i = 0; i < kMostRead && paths->receive(d); ++i)
    if (d.from != me) peer(d.from).talk.read(d, paths->now_us(), *this);
  if (now - looked < kLookEvery) return paths->wake_in(kLookEvery);
  looked = now;
  for (std::size_t i = 0; i < active.size();) {
    const Rank rank = active[i];
    watch(rank, now);  // may add peers to `active`
    if (!at_rest(peer(rank))) {
      ++i;
      continue;
    }
    peer(rank).active = false;
    active[i] = active.back();
    active.pop_back();
  }
}

// Whether look() has nothing to do for the peer.
bool Rails::State::at_rest(const Peer& p) {
  return p.talk.pings().reached() && p.talk.notes().empty() &&
         std::ranges::all_of(p.lanes, [](const Lane& l) {
           return l.life.up() && l.open == 0 &&
                  std::ranges::all_of(l.receipts, [](const ReceiptStream& r) {
                    return r.pending() == 0 && !r.owes();
                  });
         });
}

void Rails::State::watch(Rank rank, std::int64_t now) {
  Peer& p = peer(rank);
  bool suspicion = false, probing = false, waits = false;
  for (int r = 0; r < nrails(); ++r) {
    ++counters.visits;
    Lane& l = lane(rank, r);
    if (!l.life.up()) {
      waits = true;
      probing = probing || (l.life.down() && me < rank);
      continue;
    }
    send_late_receipts(rank, r, now);
    if (l.open == 0) {
      l.still_since = 0;
      l.suspect = false;
      continue;
    }
    waits = true;
    if (std::exchange(l.moved, false) || l.still_since == 0) {
      l.still_since = now;
      l.suspect = false;
    } else {
      l.suspect = now - l.still_since >= options.suspect_us;
    }
    suspicion = suspicion || l.suspect;
  }
  flush_posts();
  // A peer that does not answer on any path is assumed to be busy.
  if (suspicion || probing) {
    const std::int64_t every =
        (suspicion ? options.ping_us : options.probe_us) * p.talk.pings().patience();
    if (now - p.talk.pings().last() >= every) ping(rank, now);
  } else {
    p.talk.pings().forget();
    introduce(rank, now);
  }
  for (int r = 0; r < nrails() && suspicion; ++r) {
    const Lane& l = lane(rank, r);
    if (!l.suspect || !l.life.up()) continue;
    bool link = false;
    for (int q = 0; q < nrails(); ++q) link = link || (q != r && paths->link_up(q));
    if (link && !paths->link_up(r)) {
      take_out(rank, r, "its link is down");
    } else if (silent(rank, r, now)) {
      const std::int64_t asked = p.talk.pings().asked_since(static_cast<std::size_t>(r));
      take_out(rank, r,
               fmt::format("no answer for {} ms while another rail answers", (now - asked) / 1000));
    }
  }
  for (int r = 0; r < nrails() && probing; ++r) try_open(rank, r, now);
  if (!p.talk.notes().empty() && now - p.talk.notes().sent_at() >= options.repeat_us) {
    p.talk.send_note(now);
    attention = true;
  }
  if (waits || !p.talk.notes().empty())
    paths->wake_in(std::min(options.ping_us, options.repeat_us));
}

// Whether neither messages nor answers arrive over the rail.
bool Rails::State::silent(Rank rank, int rail, std::int64_t now) {
  return now - lane(rank, rail).still_since >= options.dead_us &&
         peer(rank).talk.pings().silent(static_cast<std::size_t>(rail), now, options.dead_us);
}

// ---- out -----------------------------------------------------------------------------------

void Rails::State::take_out(Rank rank, int rail, const std::string& cause) {
  Lane& l = lane(rank, rail);
  if (!l.life.in_use()) return;
  flush_posts();
  Transport& t = *inner[static_cast<std::size_t>(rail)];
  // Messages that have arrived need no replay.
  std::array<Completion, 32> last;
  for (int i = 0; i < kLastReads; ++i) {
    const std::size_t n = t.poll(last);
    for (std::size_t c = 0; c < n; ++c) handle(rail, last[c]);
    if (n == 0) break;
  }
  flush_posts();
  t.recovery()->disconnect(rank);
  l.life.give_up(paths->now_us(), cause);
  for (std::uint32_t s = 0; s < slots.size(); ++s) {
    Slot& slot = slots[s];
    if (slot.use == Use::kFree || slot.t.peer != rank || slot.rail != rail) continue;
    unplace(slot);
    if (slot.use == Use::kReceiptIn || slot.use == Use::kReceiptOut) {
      if (slot.use == Use::kReceiptOut) std::erase(unsent, slot.number);
      slots.free(s);
    } else if (slot.use == Use::kSend) {
      if (slot.acked)
        finish_send(s);
      else
        slot.hold = static_cast<std::int8_t>(rail);
    }
  }
  l.open = 0;
  say_down(rank, rail);
  ++counters.taken_out;
  log().debug("weft: rank {}: rail {} with rank {} taken out: {}", me, rail, rank, cause);
  if (on_event) on_event({RailEvent::Kind::kOut, rail, rank, cause});
  if (l.life.over()) settle_lane(rank, rail);
}

// Called when both ends have given the lane up: none of its messages can arrive any more.
void Rails::State::settle_lane(Rank rank, int rail) {
  Lane& l = lane(rank, rail);
  for (const std::uint64_t tag : l.life.theirs()) acknowledged(rank, tag);
  for (const auto& slot : slots.all())
    if (slot->use == Use::kSend && slot->t.peer == rank && slot->hold == rail) slot->hold = -1;
  l.life.settle();
  Lane anew;
  anew.life = std::move(l.life);
  l = std::move(anew);
  peer(rank).talk.pings().forget(static_cast<std::size_t>(rail));
  const RailsCounters before = counters;
  spread(rank, Why::kLanes);
  if (on_event)
    on_event({RailEvent::Kind::kReplay, rail, rank, l.life.cause(),
              counters.replayed - before.replayed,
              counters.replayed_bytes - before.replayed_bytes});
}

// ---- back ----------------------------------------------------------------------------------

void Rails::State::try_open(Rank rank, int rail, std::int64_t now) {
  Lane& l = lane(rank, rail);
  const int streak = peer(rank).talk.pings().streak(static_cast<std::size_t>(rail));
  if (!l.life.down() || streak < 2 || !l.life.rested(now, options.back_us) || !paths->link_up(rail))
    return;
  l.life.tried(now);
  const std::string mine = inner[static_cast<std::size_t>(rail)]->recovery()->reopen(rank);
  if (mine.empty()) return;  // retried later
  l.life.ask();
  say_lane(rank, 'O', rail, mine);
}

void Rails::State::taken_back(Rank rank, int rail) {
  Lane& l = lane(rank, rail);
  l.life.open();
  l.moved = true;
  ++counters.taken_back;
  log().debug("weft: rank {}: rail {} with rank {} is back", me, rail, rank);
  if (on_event) on_event({RailEvent::Kind::kBack, rail, rank, l.life.cause()});
  spread(rank, Why::kLanes);
}

// ---- the choice of lanes -------------------------------------------------------------------

std::vector<int> Rails::State::stripes(Rank rank, int home) const {
  std::vector<int> rails = options.stripes ? options.stripes(rank, home) : std::vector<int>{};
  return rails.empty() ? std::vector<int>{home} : rails;
}

RailTable Rails::State::table_for(const Peer& p, Rank rank, int home) const {
  const auto is_up = [&](int r) { return p.lanes[static_cast<std::size_t>(r)].life.up(); };
  std::vector<int> rails = stripes(rank, home);
  std::erase_if(rails, [&](int r) { return !is_up(r); });
  if (rails.empty()) {
    for (int i = 0; i < nrails(); ++i)  // home first
      if (const int r = (home + i) % nrails(); is_up(r)) rails.push_back(r);
  }
  if (rails.empty()) rails.push_back(home);  // wait for it
  std::vector<RailSpeed> speeds;
  for (const int r : rails) {
    const LaneRate& rate = p.lanes[static_cast<std::size_t>(r)].rate;
    speeds.push_back({r, rate.rate(), rate.mean()});
  }
  return rail_table(speeds, options.alike);
}

void Rails::State::spread(Rank rank, Why why) {
  Peer& p = peer(rank);
  const bool always = why == Why::kLanes;
  // One move at a time. With two, a message sent after the second could match a receive that the
  // first one, if read late, cancels half filled.
  if (p.talk.notes().moves() > 0) {
    p.spread_again = p.spread_again || always;
    return;
  }
  bool changed = false;
  RailRoutes::Tables next = p.routes.out();
  for (int home = 0; home < nrails(); ++home) {
    const RailTable table = table_for(p, rank, home);
    const RailTable& now = p.routes.out()[static_cast<std::size_t>(home)];
    if (!always && nearly_alike(table, now, nrails())) continue;
    if (table == now) continue;
    changed = true;
    next[static_cast<std::size_t>(home)] = table;
  }
  // This move is optional, and if datagrams do not pass (a firewall, the routes), the peer would
  // never learn of it and wait on the old rail forever. So ping first; a later check retries.
  if (changed && why == Why::kRates) {
    p.asked_to_move = attention = true;
    return ping(rank, paths->now_us());
  }
  for (int home = 0; home < nrails() && changed; ++home) {
    const RailTable& table = next[static_cast<std::size_t>(home)];
    if (table == p.routes.out()[static_cast<std::size_t>(home)]) continue;
    if (!log().should_log(spdlog::level::debug)) break;
    std::string text;
    for (int r = 0; r < nrails(); ++r)
      text += fmt::format(" rail {}: {} ({:.1f} MB/s)", r, std::ranges::count(table, r),
                          p.lanes[static_cast<std::size_t>(r)].rate.rate());
    log().debug("weft: rank {}: to rank {} from rail {}, of {}:{}", me, rank, home, kRailBuckets,
                text);
  }
  p.routes.choose(std::move(next));
  if (changed || always) say_move(rank);
  if (always) place_waiting(rank);
}

}  // namespace weft
