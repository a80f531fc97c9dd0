// Lanes of Rails: takes them out and back, and chooses the lane of each message.
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

// us, where nothing calls for more: until lanes are looked at, and datagrams are read.
constexpr std::int64_t kLookEvery = 1000, kHearEvery = 200;

// Datagrams that one look reads: a peer's flood keeps nobody from its messages.
constexpr int kMostHeard = 256;

// Answers that come on another rail only, until this one is silent.
constexpr int kMissed = 3;

// Reads of what a lane has completed before it is given up.
constexpr int kLastReads = 64;

// What counts of a measurement when the next one has come.
constexpr double kKept = 7.0 / 8;

}  // namespace

// ---- looking -------------------------------------------------------------------------------

void Rails::State::look() {
  const std::int64_t now = paths->now_us();
  if (!std::exchange(attention, false) && now - heard < kHearEvery)
    return paths->wake_in(kHearEvery);
  heard = now;
  Datagram d;
  for (int i = 0; i < kMostHeard && paths->receive(d); ++i) hear(d);
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

// Nothing is under way with the peer that a look could find, or finish.
bool Rails::State::at_rest(const Peer& p) {
  return p.reached && p.notes.empty() && std::ranges::all_of(p.lanes, [](const Lane& l) {
           return l.is == Lane::Is::kUp && l.open == 0 &&
                  std::ranges::all_of(l.receipts,
                                      [](const auto& r) { return r.untold.empty() && !r.owes; });
         });
}

void Rails::State::watch(Rank rank, std::int64_t now) {
  Peer& p = peer(rank);
  bool suspicion = false, probing = false, waits = false;
  for (int r = 0; r < nrails(); ++r) {
    ++counters.visits;
    Lane& l = lane(rank, r);
    if (l.is != Lane::Is::kUp) {
      waits = true;
      probing = probing || (l.is == Lane::Is::kDown && me < rank);
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
  // A peer that does not answer on any path is busy with something else, as far as rails know.
  const std::int64_t patience = 1 + std::min(p.deaf / 4, 9);
  if (suspicion || probing) {
    const std::int64_t every = (suspicion ? options.ping_us : options.probe_us) * patience;
    if (now - p.pinged >= every) ping(rank, now);
  } else {
    for (Path& path : p.paths) path = {};
    p.deaf = 0;
    introduce(rank, now);
  }
  for (int r = 0; r < nrails() && suspicion; ++r) {
    const Lane& l = lane(rank, r);
    if (!l.suspect || l.is != Lane::Is::kUp) continue;
    bool link = false;
    for (int q = 0; q < nrails(); ++q) link = link || (q != r && paths->link_up(q));
    if (link && !paths->link_up(r)) {
      take_out(rank, r, "its link is down");
    } else if (silent(rank, r, now)) {
      const std::int64_t asked = p.paths[static_cast<std::size_t>(r)].asked_since;
      take_out(rank, r,
               fmt::format("no answer for {} ms while another rail answers", (now - asked) / 1000));
    }
  }
  for (int r = 0; r < nrails() && probing; ++r) try_open(rank, r, now);
  if (!p.notes.empty() && now - p.noted >= options.repeat_us) send_note(rank, now);
  if (waits || !p.notes.empty()) paths->wake_in(std::min(options.ping_us, options.repeat_us));
}

// Nothing comes over the rail, neither messages nor answers, and not because the peer is late: it
// has answered several times on another one, and long ago.
bool Rails::State::silent(Rank rank, int rail, std::int64_t now) {
  const Path& path = peer(rank).paths[static_cast<std::size_t>(rail)];
  return path.asked_since != 0 && now - path.asked_since >= options.dead_us &&
         now - lane(rank, rail).still_since >= options.dead_us && path.missed >= kMissed &&
         now - path.missed_since >= options.dead_us / 2;
}

bool Rails::State::others_up(const Peer& p, int rail) const {
  for (int r = 0; r < nrails(); ++r)
    if (r != rail && p.lanes[static_cast<std::size_t>(r)].is == Lane::Is::kUp) return true;
  return false;
}

// ---- out -----------------------------------------------------------------------------------

void Rails::State::take_out(Rank rank, int rail, const std::string& cause) {
  Lane& l = lane(rank, rail);
  if (l.is != Lane::Is::kUp && l.is != Lane::Is::kMet) return;
  flush_posts();
  Transport& t = *inner[static_cast<std::size_t>(rail)];
  // What has arrived need not come again.
  std::array<Completion, 32> last;
  for (int i = 0; i < kLastReads; ++i) {
    const std::size_t n = t.poll(last);
    for (std::size_t c = 0; c < n; ++c) handle(rail, last[c]);
    if (n == 0) break;
  }
  flush_posts();
  t.recovery()->disconnect(rank);
  l.is = Lane::Is::kSevered;
  l.down_at = paths->now_us();
  l.cause = cause;
  for (std::uint32_t s = 0; s < slots.size(); ++s) {
    Slot& slot = *slots[s];
    if (slot.use == Use::kFree || slot.t.peer != rank || slot.rail != rail) continue;
    unplace(slot);
    if (slot.use == Use::kReceiptIn || slot.use == Use::kReceiptOut) {
      if (slot.use == Use::kReceiptOut) std::erase(unsent, slot.number);
      free(s);
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
  if (l.peer_severed) settle_lane(rank, rail);
}

// Both ends have given the lane up: nothing of it can arrive any more, anywhere.
void Rails::State::settle_lane(Rank rank, int rail) {
  Lane& l = lane(rank, rail);
  for (const std::uint64_t tag : l.theirs) acknowledged(rank, tag);
  for (const auto& slot : slots)
    if (slot->use == Use::kSend && slot->t.peer == rank && slot->hold == rail) slot->hold = -1;
  const Lane old = std::exchange(l, {});
  l.is = Lane::Is::kDown;
  l.generation = old.generation;
  l.down_at = old.down_at;
  l.cause = old.cause;
  peer(rank).paths[static_cast<std::size_t>(rail)] = {};
  const RailsCounters before = counters;
  spread(rank, Why::kLanes);
  if (on_event)
    on_event({RailEvent::Kind::kReplay, rail, rank, old.cause, counters.replayed - before.replayed,
              counters.replayed_bytes - before.replayed_bytes});
}

// ---- back ----------------------------------------------------------------------------------

void Rails::State::try_open(Rank rank, int rail, std::int64_t now) {
  Lane& l = lane(rank, rail);
  const Path& path = peer(rank).paths[static_cast<std::size_t>(rail)];
  if (l.is != Lane::Is::kDown || path.streak < 2 || now - l.down_at < options.back_us ||
      !paths->link_up(rail))
    return;
  l.down_at = now;
  const std::string mine = inner[static_cast<std::size_t>(rail)]->recovery()->reopen(rank);
  if (mine.empty()) return;  // again later
  ++l.generation;
  l.is = Lane::Is::kOpening;
  say_lane(rank, 'O', rail, mine);
}

void Rails::State::taken_back(Rank rank, int rail) {
  Lane& l = lane(rank, rail);
  l.is = Lane::Is::kUp;
  l.moved = true;
  ++counters.taken_back;
  log().debug("weft: rank {}: rail {} with rank {} is back", me, rail, rank);
  if (on_event) on_event({RailEvent::Kind::kBack, rail, rank, l.cause});
  spread(rank, Why::kLanes);
}

// ---- what goes where -----------------------------------------------------------------------

std::vector<int> Rails::State::stripes(Rank rank, int home) const {
  std::vector<int> rails = options.stripes ? options.stripes(rank, home) : std::vector<int>{};
  return rails.empty() ? std::vector<int>{home} : rails;
}

// Rails take turns in proportion to their rates, so that neighbouring buckets are on different
// ones. Every rail has a bucket at least: who is not used is not measured.
Rails::State::Table Rails::State::table_for(const Peer& p, Rank rank, int home) const {
  const auto is_up = [&](int r) {
    return p.lanes[static_cast<std::size_t>(r)].is == Lane::Is::kUp;
  };
  std::vector<int> rails = stripes(rank, home);
  std::erase_if(rails, [&](int r) { return !is_up(r); });
  if (rails.empty()) {
    rails.clear();
    for (int i = 0; i < nrails(); ++i)  // its own first
      if (const int r = (home + i) % nrails(); is_up(r)) rails.push_back(r);
  }
  Table table;
  table.fill(static_cast<std::uint8_t>(rails.empty() ? home : rails[0]));  // none: wait for one
  if (rails.size() > 1) {
    std::vector<double> rate, mean, taken(rails.size(), 0.0);
    for (const int r : rails) {
      const Lane& l = p.lanes[static_cast<std::size_t>(r)];
      rate.push_back(l.rate);
      mean.push_back(l.all_us > 0 ? l.all_bytes / l.all_us : 0);
    }
    const auto [slowest, fastest] = std::ranges::minmax(mean);
    const bool known = slowest > 0 && fastest > options.alike * slowest;
    const double all = known ? std::accumulate(rate.begin(), rate.end(), 0.0) : 1.0;
    for (double& r : rate)
      r = known ? std::max(r / all, 1.0 / kBuckets) : 1.0 / static_cast<double>(rails.size());
    for (int b = 0; b < kBuckets; ++b) {
      std::size_t best = 0;
      for (std::size_t i = 1; i < rails.size(); ++i)
        if (rate[i] * (b + 1) - taken[i] > rate[best] * (b + 1) - taken[best] + 1e-9) best = i;
      taken[best] += 1;
      table[static_cast<std::size_t>(b)] = static_cast<std::uint8_t>(rails[best]);
    }
    // Short messages are in the first bucket.
    const auto own = std::ranges::find(table, static_cast<std::uint8_t>(rails[0]));
    if (own != table.end()) std::swap(*own, table[0]);
  }
  return table;
}

void Rails::State::spread(Rank rank, Why why) {
  Peer& p = peer(rank);
  const bool always = why == Why::kLanes;
  // One move at a time. Were a second one under way, a message sent by it could meet a receive that
  // the first one, heard late, then takes away half filled.
  if (p.moves_out > 0) {
    p.spread_again = p.spread_again || always;
    return;
  }
  bool changed = false;
  std::vector<Table> next = p.out;
  for (int home = 0; home < nrails(); ++home) {
    const Table table = table_for(p, rank, home);
    const Table& now = p.out[static_cast<std::size_t>(home)];
    // Rates are never twice the same: a change by one bucket is none.
    int moved = 0;
    bool other = false;
    for (int r = 0; r < nrails(); ++r) {
      const auto n = std::ranges::count(table, r), m = std::ranges::count(now, r);
      moved += static_cast<int>(std::abs(n - m));
      other = other || (n == 0) != (m == 0);
    }
    if (!always && !other && moved <= 2) continue;
    if (table == now) continue;
    changed = true;
    next[static_cast<std::size_t>(home)] = table;
  }
  // Rails do well without this move, and where no datagram passes (a firewall, the routes) the peer
  // would never hear of it and wait on the old rail for ever. A later look asks again.
  if (changed && why == Why::kRates) {
    p.asked_to_move = attention = true;
    return ping(rank, paths->now_us());
  }
  for (int home = 0; home < nrails() && changed; ++home) {
    const Table& table = next[static_cast<std::size_t>(home)];
    if (table == p.out[static_cast<std::size_t>(home)]) continue;
    if (!log().should_log(spdlog::level::debug)) break;
    std::string text;
    for (int r = 0; r < nrails(); ++r)
      text += fmt::format(" rail {}: {} ({:.1f} MB/s)", r, std::ranges::count(table, r),
                          p.lanes[static_cast<std::size_t>(r)].rate);
    log().debug("weft: rank {}: to rank {} from rail {}, of {}:{}", me, rank, home, kBuckets, text);
  }
  p.out = std::move(next);
  if (changed || always) say_move(rank);
  if (always) place_waiting(rank);
}

void Rails::State::timed(Lane& l, std::size_t bytes, bool begins) {
  if (begins) {
    if (l.open_large++ == 0) l.busy_since = paths->now_us();
    return;
  }
  l.bytes += bytes;
  if (l.open_large == 0) return;
  const bool last = --l.open_large == 0;
  if (!last && l.bytes < options.measure_bytes) return;
  const std::int64_t now = paths->now_us();
  l.busy_us += now - std::exchange(l.busy_since, now);
  if (l.bytes < options.measure_bytes || l.busy_us <= 0) return;
  const double rate = static_cast<double>(l.bytes) / static_cast<double>(l.busy_us);
  l.rate = l.rate > 0 ? (l.rate + rate) / 2 : rate;
  l.all_bytes = l.all_bytes * kKept + static_cast<double>(l.bytes);
  l.all_us = l.all_us * kKept + static_cast<double>(l.busy_us);
  l.bytes = 0;
  l.busy_us = 0;
}

}  // namespace weft
