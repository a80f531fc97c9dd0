// Receipts: the receiver of messages says which have come, and the sender then forgets them.
#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/rails_state.h"

namespace weft {

using Slot = Rails::State::Slot;
using Use = Slot::Use;
using Lane = Rails::State::Lane;

void Rails::State::start(Rank rank, int rail) {
  lane(rank, rail).started = true;
  for (std::uint32_t i = 0; i < kWindow; ++i) post_receipt_receive(rank, rail);
}

void Rails::State::post_receipt_receive(Rank rank, int rail) {
  Lane& l = lane(rank, rail);
  const std::uint32_t s = take(Use::kReceiptIn);
  Slot& slot = *slots[s];
  slot.number = l.posted_below++;
  slot.copy.resize(sizeof(Receipt));
  slot.t = {};
  slot.t.kind = Transfer::Kind::kRecv;
  slot.t.peer = rank;
  slot.t.tag = own_bit | slot.number;
  slot.t.data = slot.copy.data();
  slot.t.bytes = sizeof(Receipt);
  place(s, rail);
}

void Rails::State::send_receipt(Rank rank, int rail) {
  Lane& l = lane(rank, rail);
  l.urgent = false;
  if (l.is != Lane::Is::kUp) return;
  do {
    const std::uint32_t s = take(Use::kReceiptOut);
    Slot& slot = *slots[s];
    Receipt receipt;
    receipt.count = static_cast<std::uint32_t>(std::min(l.untold.size(), Receipt::kTags));
    // While a move is on its way the peer must not forget what it has received: see say_move().
    if (peer(rank).moves_out == 0) l.confirmed = l.heard_all_below;
    receipt.confirmed = l.confirmed;
    std::copy_n(l.untold.begin(), receipt.count, receipt.tags.begin());
    l.told.emplace_back(l.untold.begin(), l.untold.begin() + receipt.count);
    l.untold.erase(l.untold.begin(), l.untold.begin() + receipt.count);
    slot.copy.resize(sizeof receipt);
    std::memcpy(slot.copy.data(), &receipt, sizeof receipt);
    slot.t = {};
    slot.t.peer = rank;
    slot.t.tag = own_bit | l.told_to++;
    slot.t.data = slot.copy.data();
    slot.t.bytes = sizeof receipt;
    slot.number = counters.receipts++;
    unsent.push_back(slot.number);
    place(s, rail);
  } while (!l.untold.empty());
}

void Rails::State::send_urgent_receipts() {
  for (const auto& [rank, rail] : urgent)
    if (lane(rank, rail).urgent) send_receipt(rank, rail);
  urgent.clear();
  flush_posts();
}

void Rails::State::receipt_came(const Slot& slot) {
  Receipt receipt;
  std::memcpy(&receipt, slot.copy.data(), sizeof receipt);
  const Rank rank = slot.t.peer;
  const int rail = slot.rail;
  Lane& l = lane(rank, rail);
  l.moved = true;
  const auto ahead = static_cast<std::uint32_t>(slot.number) - l.heard_all_below;
  if (ahead < 64) l.heard |= std::uint64_t{1} << ahead;
  for (; l.heard & 1; l.heard >>= 1) ++l.heard_all_below;
  while (l.posted_below - l.heard_all_below < kWindow) post_receipt_receive(rank, rail);
  for (std::uint32_t i = 0; i < std::min<std::uint32_t>(receipt.count, Receipt::kTags); ++i)
    acknowledged(rank, receipt.tags[i]);
  while (!l.told.empty() && static_cast<std::int32_t>(receipt.confirmed - l.told_from) > 0) {
    l.told.pop_front();
    ++l.told_from;
  }
  // So that the peer may forget, too, where nothing goes the other way.
  if (l.heard_all_below - l.confirmed >= 2 * kWindow && peer(rank).moves_out == 0)
    send_receipt(rank, rail);
}

void Rails::State::acknowledged(Rank rank, std::uint64_t tag) {
  Peer& p = peer(rank);
  const std::uint32_t s = p.sends.find(tag);
  if (s == TagTable::kNone) return;  // given up
  Slot& slot = *slots[s];
  if (slot.acked) return;
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
  p.sends.erase(slot.t.tag);
  --retained;
  const bool counts = large(slot.t);
  free(s);
  if (counts && ++p.large % options.balance_every == 0) spread(rank, Why::kRates);
}

}  // namespace weft
