// Progress of the shm transport: receives arrived messages, sends the backlog, and cancels.
#include <algorithm>

#include "transport/shm/transport.h"

namespace weft::shm {

std::size_t ShmTransport::poll(std::span<Completion> out) noexcept {
  if (done_.empty()) {
    meet_callers();
    for (Peer* const one : near_) {
      Peer& p = *one;
      drain(p, true);
      if (p.sent != p.done) collect_acks(p);
      if (p.broken && !p.transfers_failed) [[unlikely]]
        fail_transfers(p);
    }
    for (std::size_t i = 0; i < waiting_.size();) {
      Peer& p = peer_of(waiting_[i]);
      send_backlog(p);
      if (p.backlog.empty())
        waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
      else
        ++i;
    }
    if (last_slot_ >= 0) {
      drop_slot(last_slot_);
      last_slot_ = -1;
      last_data_ = nullptr;
    }
  }
  return done_.hand_out(out);
}

// A message that waits for a slot delays the messages behind it, except staged messages: they have
// slots already, and the first message may wait for one of these slots.
void ShmTransport::send_backlog(Peer& p) noexcept {
  std::size_t left = 0;
  for (std::size_t i = 0; i < p.backlog.size(); ++i) {
    Waiting& w = p.backlog[i];
    if ((left == 0 || w.held >= 0) && try_send(p, w)) {
      if (w.held >= 0) drop_slot(w.held);
    } else {
      if (left != i) p.backlog[left] = w;
      ++left;
    }
  }
  p.backlog.resize(left);
}

void ShmTransport::fail_transfers(Peer& p) noexcept {
  p.transfers_failed = true;
  p.matching.end_receives([&](std::uint64_t id) { complete(id, Code::kTransport); });
  p.matching.drop_if([](const Unexpected&) { return true; });
  for (const Waiting& x : p.backlog) {
    complete(x.transfer.id, Code::kTransport);
    if (x.held >= 0) drop_slot(x.held);
  }
  p.backlog.clear();
  std::erase(waiting_, p.rank);
  for (std::uint32_t c = p.done; c != p.sent; ++c) {
    Sent& s = p.log[c % kRing];
    if (s.open && s.report) complete(s.id, Code::kTransport);
    s.report = false;
  }
}

void ShmTransport::forget(std::uint64_t tag, std::uint64_t mask) noexcept {
  meet_callers();
  for (Peer* const one : near_) {
    Peer& p = *one;
    drain(p);
    p.matching.drop_if([&](const Unexpected& early) {
      if ((early.tag & mask) != (tag & mask)) return false;
      if (!early.kept.spilled) release_cell(p, early.kept.cell);
      return true;
    });
  }
}

void ShmTransport::cancel(std::uint32_t id_high) noexcept {
  const auto mine = [id_high](std::uint64_t id) { return id >> 32 == id_high; };
  for (Peer& p : peers_) {
    p.matching.cancel([&](const Transfer& t) { return mine(t.id); });
    std::erase_if(p.backlog, [&](const Waiting& x) {
      if (!mine(x.transfer.id)) return false;
      if (x.held >= 0) drop_slot(x.held);
      return true;
    });
    for (std::uint32_t c = p.done; c != p.sent; ++c) {
      Sent& s = p.log[c % kRing];
      if (!s.open || !s.report || !mine(s.id)) continue;
      s.report = false;  // the bytes are the caller's again: the peer must not take them as sent
      p.out[c % kRing].revoked.store(1, std::memory_order_relaxed);
      // A release store orders only earlier writes, not the caller's later writes to these bytes: a
      // receiver that reads such a later write must see the mark.
      std::atomic_thread_fence(std::memory_order_release);
    }
    if (p.backlog.empty()) std::erase(waiting_, p.rank);
  }
  done_.forget_if([&](const Completion& c) {
    if (mine(c.id) && c.view) (void)release(c.token);
    return mine(c.id);
  });
}

}  // namespace weft::shm
