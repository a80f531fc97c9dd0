// Sums sent messages, compares received ones, and repairs. integrity/notes.cc has the notes between
// both ends. Knows no transport by name.
#include "transport/integrity/checked.h"

#include <algorithm>
#include <array>
#include <utility>

#include "transport/integrity/transport.h"
#include "transport/memory/crc32c.h"

namespace weft {
namespace {

constexpr std::size_t kWorthStaging = 1024;  // of shorter ones two passes cost nothing

}  // namespace

// The sum of a message to send. Where the transport below would copy it, that is done here, in the
// same pass.
std::uint32_t CheckedTransport::sum_of(Transfer& t) {
  if (t.summed) return t.crc;
  const bool same = t.data == last_.data && t.bytes == last_.bytes;
  const bool copied = (t.buffered || !inner_->mapped(t.data, t.bytes)) && !staged_.contains(t.data);
  if (!same) {
    unstage_copy();
    last_ = t;
    if (copied && t.bytes >= kWorthStaging && t.bytes <= caps_.max_view)
      copy_ = inner_->stage(t.bytes);
    last_.crc = copy_ ? copy_crc32c(copy_, t.data, t.bytes, false) : crc32c(t.data, t.bytes);
  }
  if (copied && copy_) t.data = copy_;
  return last_.crc;
}

void CheckedTransport::unstage_copy() {
  last_ = {};
  if (!copy_) return;
  inner_->post(batch_);  // what was staged is sent first
  batch_.clear();
  inner_->unstage(std::exchange(copy_, nullptr));
}

void CheckedTransport::post(std::span<const Transfer> transfers) noexcept {
  batch_.clear();
  for (Transfer t : transfers) {
    if (checks(t)) {
      start(t.peer);
      Peer& p = peer(t.peer);
      if (t.kind == Transfer::Kind::kSend) {
        sends_[t.id] = {.transfer = t};
        p.sends[t.tag] = t.id;
        if (const auto s = staged_.find(t.data); s != staged_.end()) ++s->second.sends;
        const std::uint32_t crc = sum_of(t);
        say(t.peer, Say::kCrc, t.tag, crc);
      } else {
        Recv& r = recvs_[t.id];
        r = Recv{};
        r.transfer = t;
        p.recvs[t.tag] = t.id;
        // Where the transport lends bytes, they are checked there, and copied while they are in
        // cache.
        if (t.kind == Transfer::Kind::kRecv && caps_.views && t.bytes <= caps_.max_view) {
          r.by_view = true;
          t.kind = Transfer::Kind::kView;
          t.data = nullptr;
        }
      }
    }
    batch_.push_back(t);
  }
  inner_->post(batch_);
  batch_.clear();
  unstage_copy();
}

void CheckedTransport::landed(std::uint64_t id, const Completion& c) {
  Recv& r = recvs_[id];
  if (c.code != Code::kOk) {
    complete({.id = id, .code = c.code});
    return forget_recv(id);
  }
  r.landed = true;
  r.where = c;
  Peer& p = peer(r.transfer.peer);
  const auto it = p.crcs.find(r.transfer.tag);
  if (it == p.crcs.end()) return;
  const std::uint32_t crc = it->second;
  p.crcs.erase(it);
  check(id, crc);
}

void CheckedTransport::check(std::uint64_t id, std::uint32_t crc) {
  Recv& r = recvs_[id];
  const Transfer& t = r.transfer;
  Completion c{.id = id, .code = Code::kOk, .view = r.where.view, .token = r.where.token};
  if (t.by_reader) {  // who says in verify() whether it is right
    if (std::exchange(r.lent, true)) return;
    r.told = crc;
    read_[c.token] = id;
    return complete(c);
  }
  const std::uint32_t found = r.by_view ? copy_crc32c(t.data, r.where.view, t.bytes, t.streaming)
                                        : crc32c(c.view ? c.view : t.data, t.bytes);
  if (found != crc) [[unlikely]]
    return ask_again(id, crc, found);
  if (r.by_view) {
    inner_->release(c.token);
    c.view = nullptr;
    c.token = 0;
  }
  say(t.peer, Say::kAck, t.tag, 0);
  complete(c);
  forget_recv(id);
}

bool CheckedTransport::verify(std::uint64_t token, std::uint32_t crc) noexcept {
  const auto it = read_.find(token);
  if (it == read_.end()) return true;
  Recv& r = recvs_[it->second];
  if (crc == r.told) [[likely]] {
    r.right = true;
    return true;
  }
  const std::uint64_t id = it->second;
  read_.erase(it);
  ask_again(id, r.told, crc);
  return false;
}

bool CheckedTransport::release(std::uint64_t token) noexcept {
  if (const auto it = read_.find(token); it != read_.end()) {
    const Recv& r = recvs_[it->second];
    if (r.right) say(r.transfer.peer, Say::kAck, r.transfer.tag, 0);
    forget_recv(it->second);
  }
  return inner_->release(token);
}

void CheckedTransport::sent(std::uint64_t id, Code code) {
  if (code != Code::kOk) {
    complete({.id = id, .code = code});
    return forget_send(id);
  }
  --sends_[id].under_way;
  end_send_if_over(id);
}

void CheckedTransport::end_send_if_over(std::uint64_t id) {
  const Send& s = sends_[id];
  if (!s.acknowledged || s.under_way > 0) return;
  complete({.id = id});
  forget_send(id);
}

// ---- progress ------------------------------------------------------------------------------

std::size_t CheckedTransport::poll(std::span<Completion> out) noexcept {
  if (handed_ == done_.size()) {
    done_.clear();
    handed_ = 0;
    std::array<Completion, 32> batch;
    const std::size_t n = inner_->poll(batch);
    for (std::size_t i = 0; i < n; ++i) {
      const Completion& c = batch[i];
      const auto high = static_cast<std::uint32_t>(c.id >> 32);
      if (high == kNoteHigh) {
        note_ended(c);
        continue;
      }
      std::uint64_t id = c.id;
      if (high >= kAgainHigh) {
        const auto it = again_ids_.find(id);
        if (it == again_ids_.end()) continue;
        id = it->second;
        again_ids_.erase(it);
      }
      if (recvs_.contains(id)) {
        landed(id, c);
      } else if (sends_.contains(id)) {
        sent(id, c.code);
      } else {
        complete(c);  // of no bytes
      }
    }
  }
  const std::size_t n = std::min(out.size(), done_.size() - handed_);
  std::copy_n(done_.begin() + static_cast<std::ptrdiff_t>(handed_), n, out.begin());
  handed_ += n;
  return n;
}

void CheckedTransport::cancel(std::uint32_t id_high) noexcept {
  const auto mine = [id_high](std::uint64_t id) { return id >> 32 == id_high; };
  for (auto it = again_ids_.begin(); it != again_ids_.end();) {
    if (mine(it->second)) {
      inner_->cancel(static_cast<std::uint32_t>(it->first >> 32));
      it = again_ids_.erase(it);
    } else {
      ++it;
    }
  }
  inner_->cancel(id_high);
  for (std::size_t i = handed_; i < done_.size();) {
    if (mine(done_[i].id)) {
      if (done_[i].view) release(done_[i].token);
      done_.erase(done_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
  std::vector<std::uint64_t> ids;
  for (const auto& [id, s] : sends_)
    if (mine(id)) ids.push_back(id);
  for (const std::uint64_t id : ids) forget_send(id);
  ids.clear();
  for (const auto& [id, r] : recvs_) {
    if (!mine(id)) continue;
    if (r.landed && r.where.view) inner_->release(r.where.token);
    ids.push_back(id);
  }
  for (const std::uint64_t id : ids) forget_recv(id);
}

std::unique_ptr<Transport> make_checked_transport(std::unique_ptr<Transport> inner, Rank me,
                                                  int nranks, std::function<void()> retried,
                                                  int rail) {
  return std::make_unique<CheckedTransport>(std::move(inner), me, nranks, std::move(retried), rail);
}

}  // namespace weft
