// Receipts of Rails: the receiver says which messages have come, and the sender forgets these.
#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/rails/state.h"

namespace weft {

using Slot = Rails::State::Slot;
using Use = Slot::Use;
using Lane = Rails::State::Lane;

namespace {

// Of receipts that are held for the next one to go with them.
constexpr std::int64_t kMostGap = 2000;    // us
constexpr int kGaps = 8;                   // of the last gaps, about, their mean is made
constexpr int kGapsHeld = 3;               // for so many of them one is held
constexpr int kPatience = 8, kInVain = 4;  // in vain one time in five is still worth it
constexpr int kImpatience = 64;
constexpr std::size_t kMostHeld = 32 << 10;  // of a longer message its receipt is below .3 %

}  // namespace

void Rails::State::start(Rank rank, int rail) {
  lane(rank, rail).started = true;
  for (const Receipt::Stream stream : {Receipt::kShort, Receipt::kLong})
    for (std::uint32_t i = 0; i < kWindow; ++i) post_receipt_receive(rank, rail, stream);
}

std::uint64_t Rails::State::receipt_tag(Receipt::Stream stream, std::uint32_t number) const {
  return own_bit | std::uint64_t{number} << 1 | stream;
}

void Rails::State::post_receipt_receive(Rank rank, int rail, Receipt::Stream stream) {
  Lane::Receipts& r = lane(rank, rail).receipts[stream];
  const std::uint32_t s = take(Use::kReceiptIn);
  Slot& slot = *slots[s];
  slot.stream = stream;
  slot.number = r.posted_below;
  slot.copy.resize(Receipt::bytes(stream));
  slot.t = {};
  slot.t.kind = Transfer::Kind::kRecv;
  slot.t.standing = true;
  slot.t.peer = rank;
  slot.t.tag = receipt_tag(stream, r.posted_below++);
  slot.t.data = slot.copy.data();
  slot.t.bytes = slot.copy.size();
  place(s, rail);
}

void Rails::State::send_receipt(Rank rank, int rail, Receipt::Stream stream) {
  Lane& l = lane(rank, rail);
  if (stream == Receipt::kLong) {
    if (l.held && l.receipts[stream].untold.size() > 1)
      l.patience = std::min(l.patience + 1, kPatience);
    l.urgent = l.held = false;
  }
  if (l.is != Lane::Is::kUp) return;
  Lane::Receipts& r = l.receipts[stream];
  r.waits_since = 0;
  do {
    const std::uint32_t s = take(Use::kReceiptOut);
    Slot& slot = *slots[s];
    Receipt receipt;
    receipt.count = static_cast<std::uint32_t>(std::min(r.untold.size(), Receipt::most(stream)));
    // While a move is on its way the peer must not forget what it has received: see say_move().
    if (peer(rank).moves_out == 0) {
      r.confirmed = r.heard_all_below;
      r.owes = false;
    }
    receipt.confirmed = r.confirmed;
    std::copy_n(r.untold.begin(), receipt.count, receipt.tags.begin());
    r.told.emplace_back(r.untold.begin(), r.untold.begin() + receipt.count);
    r.untold.erase(r.untold.begin(), r.untold.begin() + receipt.count);
    slot.copy.resize(Receipt::bytes(stream));
    std::memcpy(slot.copy.data(), &receipt, slot.copy.size());
    slot.t = {};
    slot.t.peer = rank;
    slot.t.tag = receipt_tag(stream, r.told_to++);
    slot.t.data = slot.copy.data();
    slot.t.bytes = slot.copy.size();
    slot.number = counters.receipts++;
    unsent.push_back(slot.number);
    place(s, rail);
  } while (!r.untold.empty());
}

void Rails::State::long_one_came(Rank rank, int rail, std::size_t bytes) {
  Lane& l = lane(rank, rail);
  const bool last = l.coming == 1 || bytes > kMostHeld;
  const std::int64_t now = paths->now_us(), before = std::exchange(l.came, last ? 0 : now);
  if (before != 0) {
    const std::int64_t gap = std::min(now - before, kMostGap);
    l.gap = l.gap == 0 ? gap : l.gap + (gap - l.gap) / kGaps;
  }
  if (!std::exchange(l.urgent, true)) urgent.emplace_back(rank, rail);
}

// Whether the receipt of a long message waits for the next one, which would go with it. On the wire
// it would save a packet for each two slices. Its sender may wait for it, and so send nothing more:
// hence not for longer than the next one is likely to take, and where it did not come, not again
// for a while.
bool Rails::State::hold_receipt(Rank rank, int rail) {
  Lane& l = lane(rank, rail);
  if (l.came == 0 || l.patience < 0) return false;
  const std::int64_t left = l.came + kGapsHeld * l.gap - paths->now_us();
  l.held = left > 0;
  if (left > 0) paths->wake_in(left);
  return left > 0;
}

void Rails::State::send_urgent_receipts(bool all) {
  std::erase_if(urgent, [&](const auto& of) {
    const auto [rank, rail] = of;
    Lane& l = lane(rank, rail);
    if (!l.urgent) return true;
    const bool held = l.held;
    if (!all && hold_receipt(rank, rail)) return false;
    if (l.patience < 0)
      ++l.patience;
    else if (held && !all && (l.patience -= kInVain) < 0)
      l.patience = -kImpatience;
    send_receipt(rank, rail, Receipt::kLong);
    return true;
  });
  flush_posts();
}

void Rails::State::send_late_receipts(Rank rank, int rail, std::int64_t now) {
  for (const Receipt::Stream stream : {Receipt::kShort, Receipt::kLong}) {
    Lane::Receipts& r = lane(rank, rail).receipts[stream];
    const bool confirms = r.owes && peer(rank).moves_out == 0;
    if (r.untold.empty() && !confirms) {
      r.waits_since = 0;
      continue;
    }
    if (r.waits_since == 0) r.waits_since = now;
    if (const std::int64_t waited = now - r.waits_since; waited < options.tell_us)
      paths->wake_in(options.tell_us - waited);
    else
      send_receipt(rank, rail, stream);
  }
}

void Rails::State::receipt_came(const Slot& slot) {
  Receipt receipt;
  const Receipt::Stream stream = slot.stream;
  std::memcpy(&receipt, slot.copy.data(), Receipt::bytes(stream));
  const Rank rank = slot.t.peer;
  const int rail = slot.rail;
  Lane& l = lane(rank, rail);
  Lane::Receipts& r = l.receipts[stream];
  l.moved = true;
  const auto ahead = static_cast<std::uint32_t>(slot.number) - r.heard_all_below;
  if (ahead < 64) r.heard |= std::uint64_t{1} << ahead;
  for (; r.heard & 1; r.heard >>= 1) ++r.heard_all_below;
  while (r.posted_below - r.heard_all_below < kWindow) post_receipt_receive(rank, rail, stream);
  const std::size_t count = std::min<std::size_t>(receipt.count, Receipt::most(stream));
  for (std::size_t i = 0; i < count; ++i) acknowledged(rank, receipt.tags[i]);
  r.owes = r.owes || count > 0;
  stir(rank, peer(rank));
  while (!r.told.empty() && static_cast<std::int32_t>(receipt.confirmed - r.told_from) > 0) {
    r.told.pop_front();
    ++r.told_from;
  }
  // So that the peer may forget, too, where nothing goes the other way.
  if (r.heard_all_below - r.confirmed >= 2 * kWindow && peer(rank).moves_out == 0)
    send_receipt(rank, rail, stream);
}

void Rails::State::acknowledged(Rank rank, std::uint64_t tag) {
  std::uint32_t s = peer(rank).sends.find(tag);
  while (s != kNone && slots[s]->acked) s = slots[s]->younger;
  if (s == kNone) return;  // given up
  Slot& slot = *slots[s];
  slot.acked = true;
  if (!slot.busy) finish_send(s);
}

// The caller of a copied send is done with it; the copy is kept until its receipt.
void Rails::State::report(Slot& slot) {
  slot.reported = true;
  if (slot.rail < 0) return;
  expect_no_more(slot);
  Lane& l = lane(slot.t.peer, slot.rail);
  if (l.open > 0) --l.open;
}

void Rails::State::finish_send(std::uint32_t s) {
  Slot& slot = *slots[s];
  const Rank rank = slot.t.peer;
  Peer& p = peer(rank);
  unplace(slot);
  if (!slot.reported) complete(slot, Code::kOk);
  forget_send(s);
  const bool counts = large(slot.t);
  free(s);
  if (counts && ++p.large % options.balance_every == 0) spread(rank, Why::kRates);
}

}  // namespace weft
