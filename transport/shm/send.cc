// Send path of the shm transport: writes messages into cells and slots, reads acknowledgments.
#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/shm/order.h"
#include "transport/shm/transport.h"

namespace weft::shm {

void ShmTransport::post(std::span<const Transfer> transfers) noexcept {
  for (const Transfer& t : transfers) {
    if (member(t.peer) < 0) {
      complete(t.id, Code::kInvalidArgument);
      continue;
    }
    Peer& p = peer_of(t.peer);
    if (p.broken) {
      complete(t.id, Code::kTransport);
      continue;
    }
    if (t.kind != Transfer::Kind::kSend) {
      receive(p, t);
      continue;
    }
    if (!reached(p)) {
      complete(t.id, Code::kTransport);
      continue;
    }
    Waiting w{.transfer = t};
    if (!p.backlog.empty() || !try_send(p, w)) {
      if (p.backlog.empty()) waiting_.push_back(p.rank);
      // unstage() may be called before the message is sent.
      if ((w.held = slot_at(t.data)) >= 0) ++slot_refs_[static_cast<std::size_t>(w.held)];
      p.backlog.push_back(w);
    }
  }
  if (last_slot_ >= 0) {
    drop_slot(last_slot_);
    last_slot_ = -1;
    last_data_ = nullptr;
  }
}

Cell* ShmTransport::next_cell(Peer& p) noexcept {
  if (p.sent - p.done == kRing) {
    collect_acks(p);
    pass_over_held(p);
  }
  while (p.sent - p.done != kRing) {
    const Sent& last = p.log[p.sent % kRing];
    if (!last.passed_over || last.round != round_of(p.sent)) [[likely]]
      return &p.out[p.sent % kRing];
    pass_over(p);  // the old acknowledgment would count for a new message
  }
  return nullptr;
}

// Skips the next cell in this lap. The receiver has read its last message, and may hold it.
void ShmTransport::pass_over(Peer& p) noexcept {
  p.out[p.sent % kRing].seq.store(passed_over(p.sent), std::memory_order_release);
  ++p.sent;
  skip_finished(p);
}

void ShmTransport::skip_finished(Peer& p) noexcept {
  while (p.done != p.sent && !p.log[p.done % kRing].open) ++p.done;
}

// A receiver may hold a message until it has received later messages, which need cells. It reads
// cells in order: once it has finished a cell that was not passed over, it has read the oldest
// cell, and holds the message in it.
void ShmTransport::pass_over_held(Peer& p) noexcept {
  const auto finished = [](const Sent& s) { return !s.open && !s.passed_over; };
  while (p.sent - p.done == kRing && std::ranges::any_of(p.log, finished)) {
    Sent& held = p.log[p.done % kRing];
    if (!std::exchange(held.passed_over, true)) held.round = round_of(p.done);
    ++p.done;
    pass_over(p);
  }
}

void ShmTransport::publish(Peer& p, Cell* cell, const Transfer& t, const Sent& sent) noexcept {
  p.log[p.sent % kRing] = sent;
  cell->tag = t.tag;
  cell->sign = t.head ? t.head->sign : 0;
  // If the heads match, no other rank reads this line, so the line stays in this core's cache.
  if (t.head) p.heads_out[p.sent % kRing] = *t.head;
  cell->revoked.store(0, std::memory_order_relaxed);
  hand_on(me_, member_of_[p.rank]);
  cell->seq.store(++p.sent, std::memory_order_release);
}

// Sends the part of the message that fits; true if all of it is sent.
bool ShmTransport::try_send(Peer& p, Waiting& w) noexcept {
  const Transfer& t = w.transfer;
  Cell* cell = next_cell(p);
  if (!cell) return false;
  if (t.bytes <= kInline) {
    cell->kind = Kind::kInline;
    cell->inline_bytes = static_cast<std::uint8_t>(t.bytes);
    if (t.bytes) std::memcpy(cell->data, t.data, t.bytes);
    publish(p, cell, t, {});
    complete(t.id);
    return true;
  }
  if (const int slot = slot_at(t.data); slot >= 0) {
    ++slot_refs_[static_cast<std::size_t>(slot)];
    cell->kind = Kind::kSlot;
    cell->at.address = static_cast<std::uint64_t>(static_cast<std::byte*>(t.data) - arena_.data());
    cell->at.bytes = t.bytes;
    publish(p, cell, t, {.slot = slot});
    complete(t.id);
    return true;
  }
  const bool lend = !(t.buffered && t.bytes <= kMaxSlot);
  if (const RegionRef ref = lend ? find_region(t.data, t.bytes) : RegionRef{}; ref.serial) {
    cell->kind = Kind::kMapped;
    cell->at = {t.bytes, ref.offset, ref.serial, ref.index};
    publish(p, cell, t, {.id = t.id, .report = true});
    return true;
  }
  if (lend && cma_ && t.bytes >= cma_min_bytes_) {
    cell->kind = Kind::kCma;
    cell->at = {t.bytes, reinterpret_cast<std::uint64_t>(t.data), 0, 0};
    publish(p, cell, t, {.id = t.id, .report = true});
    return true;
  }
  if (t.bytes <= kMaxSlot) {
    const int slot = fill_slot(t.data, t.bytes);
    if (slot < 0) return false;
    cell->kind = Kind::kSlot;
    cell->at.bytes = t.bytes;
    cell->at.address = static_cast<std::uint64_t>(slot_data(slot) - arena_.data());
    publish(p, cell, t, {.slot = slot});
    complete(t.id);
    return true;
  }
  while (w.sent < t.bytes) {
    if (!(cell = next_cell(p))) return false;
    const std::size_t piece = std::min(t.bytes - w.sent, kSlots[1].bytes);
    const int slot = take_slot(piece);
    if (slot < 0) return false;
    std::memcpy(slot_data(slot), static_cast<std::byte*>(t.data) + w.sent, piece);
    cell->kind = Kind::kFragment;
    cell->at = {piece, static_cast<std::uint64_t>(slot_data(slot) - arena_.data()), t.bytes, 0};
    publish(p, cell, t, {.slot = slot});
    w.sent += piece;
  }
  complete(t.id);
  return true;
}

void ShmTransport::collect_acks(Peer& p) noexcept {
  const std::uint32_t total = p.acks_in->total.load(std::memory_order_acquire);
  if (total == p.acks_seen) return;
  take_over(member_of_[p.rank], me_);
  p.acks_seen = total;
  for (std::uint32_t c = p.done; c != p.sent; ++c) {
    Sent& s = p.log[c % kRing];
    if (!s.open) continue;
    const std::uint8_t round = s.passed_over ? s.round : round_of(c);
    if (p.acks_in->done[c % kRing].load(std::memory_order_acquire) != round) continue;
    s.open = false;
    if (s.slot >= 0) drop_slot(s.slot);
    if (s.report) complete(s.id);
  }
  skip_finished(p);
}

}  // namespace weft::shm
