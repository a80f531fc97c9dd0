// Receipts of Rails: the receiver acknowledges messages by tag, and the sender drops them.
#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/rails/state.h"

namespace weft {

using Slot = Rails::State::Slot;
using Use = Slot::Use;
using Lane = Rails::State::Lane;

void Rails::State::start(Rank rank, int rail) {
  lane(rank, rail).started = true;
  for (const Receipt::Stream stream : {Receipt::kShort, Receipt::kLong})
    for (std::uint32_t i = 0; i < ReceiptStream::kWindow; ++i)
      post_receipt_receive(rank, rail, stream);
}

std::uint64_t Rails::State::receipt_tag(Receipt::Stream stream, std::uint32_t number) const {
  return own_bit | std::uint64_t{number} << 1 | stream;
}

void Rails::State::post_receipt_receive(Rank rank, int rail, Receipt::Stream stream) {
  ReceiptStream& receipts = lane(rank, rail).receipts[stream];
  const std::uint32_t s = slots.take(Use::kReceiptIn);
  Slot& slot = slots[s];
  slot.stream = stream;
  slot.number = receipts.post_receive();
  slot.copy.resize(Receipt::bytes(stream));
  slot.t = {};
  slot.t.kind = Transfer::Kind::kRecv;
  slot.t.standing = true;
  slot.t.peer = rank;
  slot.t.tag = receipt_tag(stream, static_cast<std::uint32_t>(slot.number));
  slot.t.data = slot.copy.data();
  slot.t.bytes = slot.copy.size();
  place(s, rail);
}

void Rails::State::send_receipt(Rank rank, int rail, Receipt::Stream stream) {
  Lane& l = lane(rank, rail);
  ReceiptStream& receipts = l.receipts[stream];
  if (stream == Receipt::kLong) l.delay.sent(receipts.pending());
  if (!l.life.up()) return;
  do {
    // During a move the peer must not forget the tags that it has received: see say_move().
    const ReceiptStream::Outgoing out =
        receipts.next(Receipt::most(stream), peer(rank).talk.notes().moves() == 0);
    const std::uint32_t s = slots.take(Use::kReceiptOut);
    Slot& slot = slots[s];
    slot.copy.resize(Receipt::bytes(stream));
    std::memcpy(slot.copy.data(), &out.receipt, slot.copy.size());
    slot.t = {};
    slot.t.peer = rank;
    slot.t.tag = receipt_tag(stream, out.number);
    slot.t.data = slot.copy.data();
    slot.t.bytes = slot.copy.size();
    slot.number = counters.receipts++;
    unsent.push_back(slot.number);
    place(s, rail);
  } while (receipts.pending() > 0);
}

void Rails::State::long_one_came(Rank rank, int rail, std::size_t bytes) {
  if (lane(rank, rail).delay.arrived(bytes, paths->now_us())) urgent.emplace_back(rank, rail);
}

void Rails::State::send_urgent_receipts(bool all) {
  std::erase_if(urgent, [&](const auto& of) {
    const auto [rank, rail] = of;
    ReceiptDelay& delay = lane(rank, rail).delay;
    if (!delay.urgent()) return true;
    const bool in_vain = delay.held() && !all;
    if (const std::int64_t left = all ? 0 : delay.hold(paths->now_us()); left > 0) {
      paths->wake_in(left);
      return false;
    }
    delay.give_up_holding(in_vain);
    send_receipt(rank, rail, Receipt::kLong);
    return true;
  });
  flush_posts();
}

void Rails::State::send_late_receipts(Rank rank, int rail, std::int64_t now) {
  for (const Receipt::Stream stream : {Receipt::kShort, Receipt::kLong}) {
    const auto waited =
        lane(rank, rail).receipts[stream].waited(peer(rank).talk.notes().moves() == 0, now);
    if (waited && *waited < options.tell_us)
      paths->wake_in(options.tell_us - *waited);
    else if (waited)
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
  ReceiptStream& receipts = l.receipts[stream];
  l.moved = true;
  receipts.came(static_cast<std::uint32_t>(slot.number));
  while (receipts.wants_receive()) post_receipt_receive(rank, rail, stream);
  const std::size_t count = std::min<std::size_t>(receipt.count, Receipt::most(stream));
  for (std::size_t i = 0; i < count; ++i) acknowledged(rank, receipt.tags[i]);
  receipts.read(receipt);
  activate(rank, peer(rank));
  if (receipts.lags() && peer(rank).talk.notes().moves() == 0) send_receipt(rank, rail, stream);
}

void Rails::State::acknowledged(Rank rank, std::uint64_t tag) {
  std::uint32_t s = peer(rank).sends.find(tag);
  while (s != RailSlot::kNone && slots[s].acked) s = slots[s].younger;
  if (s == RailSlot::kNone) return;  // canceled
  Slot& slot = slots[s];
  slot.acked = true;
  if (!slot.busy) finish_send(s);
}

// A copied send is complete for its caller; the copy is kept until its receipt.
void Rails::State::report(Slot& slot) {
  slot.reported = true;
  if (slot.rail < 0) return;
  expect_no_more(slot);
  Lane& l = lane(slot.t.peer, slot.rail);
  if (l.open > 0) --l.open;
}

void Rails::State::finish_send(std::uint32_t s) {
  Slot& slot = slots[s];
  const Rank rank = slot.t.peer;
  Peer& p = peer(rank);
  unplace(slot);
  if (!slot.reported) complete(slot, Code::kOk);
  slots.forget_send(p.sends, s);
  const bool counts = large(slot.t);
  slots.free(s);
  if (counts && ++p.large % options.balance_every == 0) spread(rank, Why::kRates);
}

}  // namespace weft
