// Posts messages of Rails to lanes, and keeps each until the peer acknowledges it.
#include "transport/rails/rails.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/rails/state.h"

namespace weft {
namespace {

// A rail from which no message is expected is polled once in this many polls.
constexpr std::uint64_t kSeldom = 16;

using Slot = Rails::State::Slot;
using Use = Slot::Use;

}  // namespace

Rails::State::State(std::vector<std::unique_ptr<Transport>> inner_in,
                    std::unique_ptr<DatagramChannel> paths_in, Rank me_in, int nranks,
                    const RailsOptions& options_in)
    : inner(std::move(inner_in)),
      paths(std::move(paths_in)),
      me(me_in),
      options(options_in),
      caps(inner.at(0)->caps()),
      peers(static_cast<std::size_t>(nranks)),
      faces(inner.size()),
      used(inner.size(), false),
      expected(inner.size(), 0),
      batch(inner.size()),
      sent_bytes(inner.size()) {
  for (const auto& rail : inner) caps.tag_bits = std::min(caps.tag_bits, rail->caps().tag_bits);
  caps.tag_bits -= 1;
  own_bit = std::uint64_t{1} << caps.tag_bits;
  // Rails offers no views and no staging: a view lends memory that ends with its rail, and after a
  // failure of a rail it is unknown when peers read staged memory. Once its sends are complete a
  // rank may stop polling. So only sends that complete with the receipt may change rails by a move:
  // otherwise the peer might wait on the old rail for a note that is no longer repeated.
  options.spread_bytes = std::max(options.spread_bytes, options.copied_bytes);
}

Rails::State::Peer& Rails::State::make_peer(Rank rank) {
  std::unique_ptr<Peer>& p = peers[static_cast<std::size_t>(rank)];
  p = std::make_unique<Peer>(*paths, rank, inner.size());
  known.push_back(rank);
  activate(rank, *p);
  RailRoutes::Tables tables;
  for (int home = 0; home < nrails(); ++home) tables.push_back(table_for(*p, rank, home));
  p->routes.begin(std::move(tables));
  return *p;
}

// ---- posting -------------------------------------------------------------------------------

void Rails::State::post(int home, std::span<const Transfer> transfers) noexcept {
  for (const Transfer& t : transfers) {
    if (t.peer < 0 || static_cast<std::size_t>(t.peer) >= peers.size() ||
        t.kind == Transfer::Kind::kView) {
      faces[static_cast<std::size_t>(home)].add(t.id, Code::kInvalidArgument);
      continue;
    }
    if (slots.full(options.most_messages)) {
      full = true;
      faces[static_cast<std::size_t>(home)].add(t.id, Code::kTransport);
      continue;
    }
    Peer& p = peer(t.peer);
    const bool sends = t.kind == Transfer::Kind::kSend;
    const std::uint32_t s = slots.take(sends ? Use::kSend : Use::kRecv);
    Slot& slot = slots[s];
    slot.t = t;
    slot.home = static_cast<std::uint8_t>(home);
    if (!sends) {
      place(s, in_rail(p, slot));
      continue;
    }
    if (copied(t)) {
      slot.copy.resize(t.bytes);
      if (t.bytes) std::memcpy(slot.copy.data(), t.data, t.bytes);
      slot.t.data = slot.copy.data();
      if (t.head) {
        slot.head = *t.head;
        slot.t.head = &slot.head;
      }
    }
    slots.keep_send(p.sends, s);
    place(s, out_rail(p, slot));
  }
  flush_posts();
}

// Posts a message to a lane if that is up; otherwise the message waits.
void Rails::State::place(std::uint32_t s, int rail) {
  Slot& slot = slots[s];
  const auto r = static_cast<std::size_t>(rail);
  Peer& p = peer(slot.t.peer);
  Lane& l = p.lanes[r];
  if (!l.life.up()) {
    attention = true;
    return;
  }
  if (!l.started) start(slot.t.peer, rail);
  activate(slot.t.peer, p);
  slot.rail = static_cast<std::int8_t>(rail);
  slot.busy = true;
  slot.expects = slot.use != Use::kReceiptIn;
  expected[r] += slot.expects;
  ++slot.nonce;
  const bool message = slot.use == Use::kSend || slot.use == Use::kRecv;
  if (message && !slot.reported) ++l.open;
  if (slot.use == Use::kRecv && !copied(slot.t)) l.delay.posted();
  if (slot.use == Use::kSend) sent_bytes[r].fetch_add(slot.t.bytes, std::memory_order_relaxed);
  if (slot.use == Use::kSend && large(slot.t)) {
    slot.timed = true;
    l.rate.begin([&] { return paths->now_us(); });
  }
  batch[r].push_back(slot.t);
  batch[r].back().id = slots.inner_id(s);
  used[r] = true;
}

void Rails::State::flush_posts() {
  for (std::size_t r = 0; r < batch.size(); ++r) {
    if (batch[r].empty()) continue;
    inner[r]->post(batch[r]);
    batch[r].clear();
  }
}

// Removes the message from its lane.
void Rails::State::unplace(Slot& slot) {
  if (slot.rail < 0) return;
  expect_no_more(slot);
  Lane& l = lane(slot.t.peer, slot.rail);
  const bool message = slot.use == Use::kSend || slot.use == Use::kRecv;
  if (message && !slot.reported && l.open > 0) --l.open;
  if (slot.use == Use::kRecv && !copied(slot.t)) l.delay.ended();
  if (slot.timed)
    l.rate.end(slot.acked ? slot.t.bytes : 0, options.measure_bytes,
               [&] { return paths->now_us(); });
  slot.timed = false;
  slot.busy = false;
  slot.rail = -1;
  ++slot.nonce;
}

int Rails::State::in_rail(Peer& p, Slot& slot) {
  if (slot.want < 0) slot.want = static_cast<std::int8_t>(p.routes.take_left(slot.t.tag));
  return slot.want >= 0 ? slot.want : p.routes.in(slot.home, bucket(slot.t));
}

void Rails::State::place_waiting(Rank rank) {
  Peer& p = peer(rank);
  for (std::uint32_t s = 0; s < slots.size(); ++s) {
    Slot& slot = slots[s];
    if (slot.t.peer != rank || slot.rail >= 0 || slot.hold >= 0) continue;
    if (slot.use == Use::kSend && !slot.acked) {
      slots.for_each_send(p.sends.find(slot.t.tag), [&](std::uint32_t one) {
        Slot& send = slots[one];
        if (send.rail >= 0 || send.hold >= 0 || send.acked) return;
        ++counters.replayed;
        counters.replayed_bytes += send.t.bytes;
        place(one, out_rail(p, send));
      });
    } else if (slot.use == Use::kRecv) {
      place(s, in_rail(p, slot));
    }
  }
  flush_posts();
}

// ---- progress ------------------------------------------------------------------------------

void Rails::State::handle(int rail, const Completion& c) {
  const std::uint32_t s = RailMessages::index_in(c.id);
  if (s >= slots.size()) return;
  Slot& slot = slots[s];
  if (!slot.busy || slot.rail != rail || c.id != slots.inner_id(s)) return;
  const Rank rank = slot.t.peer;
  Lane& l = lane(rank, rail);
  l.moved = true;
  slot.busy = false;
  const bool message = slot.use == Use::kSend || slot.use == Use::kRecv;
  if (slot.reported || !message) expect_no_more(slot);
  if (c.code != Code::kOk) {
    if (message && (c.code == Code::kMismatch || c.code == Code::kInvalidArgument ||
                    c.code == Code::kCorrupt)) {
      if (!slot.reported) complete(slot, c.code);
      slot.reported = true;
      if (slot.use == Use::kRecv) {
        unplace(slot);
        slots.free(s);
      } else {
        finish_send(s);
      }
      return;
    }
    failed.push_back({rank, rail, l.life.generation(),
                      inner[static_cast<std::size_t>(rail)]->cause(rank).message()});
    return;
  }
  if (slot.use == Use::kRecv || slot.use == Use::kReceiptIn) peer(rank).talk.pings().peer_polls();
  switch (slot.use) {
    case Use::kSend:
      if (slot.acked) {
        finish_send(s);
      } else if (copied(slot.t) && !slot.reported) {
        // The send does not complete earlier: until the transport has sent the message, it needs
        // this rank's polls.
        complete(slot, Code::kOk);
        report(slot);
      }
      break;
    case Use::kRecv: {
      const Receipt::Stream stream = copied(slot.t) ? Receipt::kShort : Receipt::kLong;
      ReceiptStream& receipts = l.receipts[stream];
      receipts.arrived(slot.t.tag);
      if (stream == Receipt::kLong) long_one_came(rank, rail, slot.t.bytes);
      const bool late = slot.want >= 0;  // no later message may complete its receipt: read_move()
      complete(slot, Code::kOk, c.crc);
      unplace(slot);
      slots.free(s);
      if (late || receipts.pending() >= Receipt::most(stream)) {
        send_receipt(rank, rail, stream);
        flush_posts();
      }
      break;
    }
    case Use::kReceiptOut:
      std::erase(unsent, slot.number);
      slot.rail = -1;
      slots.free(s);
      break;
    case Use::kReceiptIn:
      receipt_came(slot);
      flush_posts();
      slot.rail = -1;
      slots.free(s);
      break;
    case Use::kFree:
      break;
  }
}

void Rails::State::progress() noexcept {
  ++polls;
  bool any = false;
  const bool seldom = polls % kSeldom == 0;
  for (std::size_t r = 0; r < used.size(); ++r) {
    if (!used[r] || (expected[r] == 0 && !seldom)) continue;
    const std::size_t n = inner[r]->poll(polled);
    any = any || n != 0;
    for (std::size_t i = 0; i < n; ++i) handle(static_cast<int>(r), polled[i]);
  }
  while (!failed.empty()) take_out_failed();
  // Send them now: after its last message the caller may stop polling, but the peer's send
  // completes only with the receipt.
  if (!urgent.empty()) send_urgent_receipts(false);
  idle = any ? 0 : idle + 1;
  if (!attention && idle + 1 < options.polls_per_look && polls % 256 != 0) return;
  idle = -1;
  look();
}

void Rails::State::take_out_failed() {
  const std::vector<Failed> now = std::exchange(failed, {});
  for (const Failed& f : now)
    if (lane(f.rank, f.rail).life.generation() == f.generation) take_out(f.rank, f.rail, f.cause);
}

std::size_t Rails::State::poll(int f, std::span<Completion> out) noexcept {
  Completions& done = faces[static_cast<std::size_t>(f)];
  const bool round = f <= std::exchange(last_polled, f);
  if (done.empty() && round) progress();  // once per round over the faces
  return done.hand_out(out);
}

void Rails::State::cancel(std::uint32_t id_high) noexcept {
  for (std::uint32_t s = 0; s < slots.size(); ++s) {
    Slot& slot = slots[s];
    if ((slot.use != Use::kSend && slot.use != Use::kRecv) || slot.reported ||
        slot.t.id >> 32 != id_high)
      continue;
    if (slot.use == Use::kSend && copied(slot.t)) {  // may still be sent: it has its own copy
      report(slot);
      continue;
    }
    if (slot.busy) cancel_inner(s);
    unplace(slot);
    if (slot.use == Use::kSend) slots.forget_send(peer(slot.t.peer).sends, s);
    slots.free(s);
  }
  for (Completions& face : faces) face.forget(id_high);
}

}  // namespace weft
