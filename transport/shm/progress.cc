// Progress of the shm transport: takes what has arrived, sends what waited for room, and cancels.
#include <algorithm>

#include "transport/shm/transport.h"

namespace weft::shm {

void ShmTransport::complete(std::uint64_t id, const void* view, std::uint64_t token,
                            Code code) noexcept {
  completions_.push_back({.id = id, .code = code, .view = view, .token = token});
}

std::size_t ShmTransport::poll(std::span<Completion> out) noexcept {
  if (next_completion_ == completions_.size()) {
    completions_.clear();
    next_completion_ = 0;
    for (Peer& p : peers_) {
      drain(p, true);
      if (p.sent != p.done) collect_acks(p);
      if (p.broken && !p.buried) [[unlikely]]
        bury(p);
    }
    for (std::size_t i = 0; i < waiting_.size();) {
      Peer& p = peer_of(waiting_[i]);
      std::size_t gone = 0;
      for (; gone < p.backlog.size() && try_send(p, p.backlog[gone]); ++gone)
        if (p.backlog[gone].held >= 0) drop_slot(p.backlog[gone].held);
      p.backlog.erase(p.backlog.begin(), p.backlog.begin() + static_cast<std::ptrdiff_t>(gone));
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
  const std::size_t n = std::min(out.size(), completions_.size() - next_completion_);
  std::copy_n(completions_.begin() + static_cast<std::ptrdiff_t>(next_completion_), n, out.begin());
  next_completion_ += n;
  return n;
}

void ShmTransport::bury(Peer& p) noexcept {
  p.buried = true;
  for (const Posted& x : p.posted) complete(x.transfer.id, nullptr, 0, Code::kTransport);
  p.posted.clear();
  for (const Waiting& x : p.backlog) {
    complete(x.transfer.id, nullptr, 0, Code::kTransport);
    if (x.held >= 0) drop_slot(x.held);
  }
  p.backlog.clear();
  std::erase(waiting_, p.rank);
  for (std::uint32_t c = p.done; c != p.sent; ++c) {
    Sent& s = p.log[c % kRing];
    if (s.open && s.report) complete(s.id, nullptr, 0, Code::kTransport);
    s.report = false;
  }
  p.unexpected.clear();
  p.unexpected_bytes = 0;
}

void ShmTransport::forget(std::uint64_t tag, std::uint64_t mask) noexcept {
  for (Peer& p : peers_) {
    drain(p);
    std::erase_if(p.unexpected, [&](const ShmUnexpected& e) {
      if ((e.tag & mask) != (tag & mask)) return false;
      p.unexpected_bytes -= e.cost();
      if (!e.spilled) release_cell(p, e.cell);
      return true;
    });
  }
}

void ShmTransport::cancel(std::uint32_t id_high) noexcept {
  const auto mine = [id_high](std::uint64_t id) { return id >> 32 == id_high; };
  for (Peer& p : peers_) {
    std::erase_if(p.posted, [&](const Posted& x) { return mine(x.transfer.id); });
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
      // A store that releases holds back what was written before it, not what the caller writes to
      // these bytes next: who reads that must see the mark.
      std::atomic_thread_fence(std::memory_order_release);
    }
    if (p.backlog.empty()) std::erase(waiting_, p.rank);
  }
  for (auto i = next_completion_; i < completions_.size();) {
    if (mine(completions_[i].id)) {
      if (completions_[i].view) (void)release(completions_[i].token);
      completions_.erase(completions_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

}  // namespace weft::shm
