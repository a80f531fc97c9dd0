// Computes checksums of sent messages, verifies received messages, and requests retransmission of
// corrupt ones. integrity/notes.cc handles the control messages.
#include "transport/integrity/checked.h"

#include <algorithm>
#include <utility>

#include "transport/integrity/transport.h"
#include "transport/memory/crc32c.h"

namespace weft {
namespace {

constexpr std::size_t kWorthStaging = 1024;  // below this, two passes have no measurable cost

}  // namespace

// Returns the checksum of a message to send. If the inner transport would copy the message, this
// function copies it in the same pass.
std::uint32_t CheckedTransport::sum_of(Transfer& t) {
  if (t.summed) return t.crc;
  const bool same = t.data == last_.data && t.bytes == last_.bytes;
  const bool copied =
      (t.buffered || !staging_ || !staging_->mapped(t.data, t.bytes)) && !staged_.contains(t.data);
  if (!same) {
    unstage_copy();
    last_ = t;
    if (copied && staging_ && t.bytes >= kWorthStaging && t.bytes <= caps_.max_view)
      copy_ = staging_->stage(t.bytes);
    last_.crc = copy_ ? copy_crc32c(copy_, t.data, t.bytes, false) : crc32c(t.data, t.bytes);
  }
  if (copied && copy_) t.data = copy_;
  return last_.crc;
}

void CheckedTransport::unstage_copy() {
  last_ = {};
  if (!copy_) return;
  inner_->post(batch_);  // post the sends of the staged copy first
  batch_.clear();
  staging_->unstage(std::exchange(copy_, nullptr));
}

std::uint32_t CheckedTransport::take_place(Message::Is is, const Transfer& t) {
  if (free_places_.empty()) {
    free_places_.push_back(static_cast<std::uint32_t>(messages_.size()));
    messages_.emplace_back();
  }
  const std::uint32_t place = free_places_.back();
  free_places_.pop_back();
  Message& m = messages_[place];
  m = {};
  m.is = is;
  m.transfer = t;
  m.head = t.head ? *t.head : Head{};
  by_id_.set(t.id, place);
  return place;
}

void CheckedTransport::drop_place(std::uint32_t place) {
  by_id_.erase(messages_[place].transfer.id);
  messages_[place].is = Message::Is::kFree;
  free_places_.push_back(place);
}

void CheckedTransport::end_send(std::uint32_t place) {
  const Transfer t = messages_[place].transfer;
  if (const auto s = staged_.find(t.data); s != staged_.end()) {
    --s->second.sends;
    drop_staged(t.data, s->second);
  }
  if (peer(t.peer).sends.find(t.tag) == place) peer(t.peer).sends.erase(t.tag);
  drop_place(place);
}

void CheckedTransport::end_receive(std::uint32_t place) {
  if (messages_[place].lent) by_token_.erase(messages_[place].where.token);
  drop_place(place);
}

void CheckedTransport::start_send(Transfer& t) {
  const std::uint32_t place = take_place(Message::Is::kSend, t);
  peer(t.peer).sends.set(t.tag, place);
  if (const auto s = staged_.find(t.data); s != staged_.end()) ++s->second.sends;
  Message& m = messages_[place];
  m.head.crc = sum_of(t);
  t.head = &m.head;
  t.sums = true;
}

void CheckedTransport::start_receive(Transfer& t) {
  Message& m = messages_[take_place(Message::Is::kRecv, t)];
  t.head = &m.head;
  t.sums = true;
  // If the inner transport supports views, the bytes are verified in the view and copied while they
  // are in cache.
  if (t.kind == Transfer::Kind::kRecv && views_ && t.bytes <= caps_.max_view) {
    m.by_view = true;
    t.kind = Transfer::Kind::kView;
    t.data = nullptr;
  }
}

void CheckedTransport::post(std::span<const Transfer> transfers) noexcept {
  batch_.clear();
  for (Transfer t : transfers) {
    if (checks(t)) {
      start(t.peer);
      t.kind == Transfer::Kind::kSend ? start_send(t) : start_receive(t);
    }
    batch_.push_back(t);
  }
  acknowledge_all();
  inner_->post(batch_);
  batch_.clear();
  unstage_copy();
}

// Handles the data of a receive, first or repeated.
void CheckedTransport::landed(std::uint32_t place, const Completion& c) {
  Message& m = messages_[place];
  const Transfer& t = m.transfer;
  if (c.code != Code::kOk || m.failed) {
    if (!m.failed) done_.add(t.id, c.code);
    if (c.view) views_->release(c.token);
    return end_receive(place);
  }
  m.where = c;
  m.here = true;
  Completion done{.id = t.id, .rail = c.rail, .view = c.view, .token = c.token};
  if (t.by_reader) {  // the reader calls verify()
    m.lent = true;
    by_token_.set(c.token, place);
    return done_.add(done);
  }
  const std::uint32_t found = m.by_view ? copy_crc32c(t.data, c.view, t.bytes, t.streaming)
                                        : crc32c(c.view ? c.view : t.data, t.bytes);
  if (found != c.crc) [[unlikely]]
    return ask_again(place, found);
  if (m.by_view) {
    views_->release(c.token);
    done.view = nullptr;
    done.token = 0;
  }
  done_.add(done);
  const Rank from = t.peer;
  const std::uint64_t tag = t.tag;
  end_receive(place);
  acknowledge(from, tag);
}

bool CheckedTransport::verify(std::uint64_t token, std::uint32_t crc) noexcept {
  const std::uint32_t place = by_token_.find(token);
  if (place == TagTable::kNone) return true;
  Message& m = messages_[place];
  m.right = crc == m.where.crc;
  if (!m.right) ask_again(place, crc);
  return m.right;
}

bool CheckedTransport::release(std::uint64_t token) noexcept {
  const std::uint32_t place = by_token_.find(token);
  const bool kept = views_->release(token);
  if (place == TagTable::kNone) return kept;
  const Message& m = messages_[place];
  const Transfer t = m.transfer;
  const bool right = m.right;
  end_receive(place);
  if (right) acknowledge(t.peer, t.tag);
  return kept;
}

void CheckedTransport::sent(std::uint32_t place, Code code) {
  Message& m = messages_[place];
  --m.under_way;
  if (code != Code::kOk && !std::exchange(m.failed, true)) done_.add(m.transfer.id, code);
  end_send_if_over(place);
}

void CheckedTransport::end_send_if_over(std::uint32_t place) {
  const Message& m = messages_[place];
  if (m.under_way > 0 || !(m.acknowledged || m.failed)) return;
  if (!m.failed) done_.add(m.transfer.id, Code::kOk);
  end_send(place);
}

// ---- progress ------------------------------------------------------------------------------

std::size_t CheckedTransport::poll(std::span<Completion> out) noexcept {
  if (done_.empty()) {
    const std::size_t n = inner_->poll(arrived_);
    polling_ = true;
    for (std::size_t i = 0; i < n; ++i) {
      const Completion c = arrived_[i];
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
      const std::uint32_t place = by_id_.find(id);
      if (place == TagTable::kNone)
        high >= kAgainHigh ? void() : done_.add(c);  // a message of 0 bytes, unchecked
      else if (messages_[place].is == Message::Is::kRecv)
        landed(place, c);
      else
        sent(place, c.code);
    }
    polling_ = false;
    acknowledge_all();
  }
  return done_.hand_out(out);
}

void CheckedTransport::cancel(std::uint32_t id_high) noexcept {
  const auto mine = [id_high](std::uint64_t id) { return id >> 32 == id_high; };
  std::erase_if(again_ids_, [&](const auto& again) {
    if (mine(again.second)) inner_->cancel(static_cast<std::uint32_t>(again.first >> 32));
    return mine(again.second);
  });
  inner_->cancel(id_high);
  done_.forget_if([&](const Completion& c) {
    if (mine(c.id) && c.view) (void)release(c.token);
    return mine(c.id);
  });
  for (std::uint32_t place = 0; place < messages_.size(); ++place) {
    Message& m = messages_[place];
    if (m.is == Message::Is::kFree || !mine(m.transfer.id)) continue;
    if (m.is == Message::Is::kSend) {
      end_send(place);
    } else {
      if (m.here && m.where.view) views_->release(m.where.token);
      end_receive(place);
    }
  }
}

std::unique_ptr<Transport> make_checked_transport(std::unique_ptr<Transport> inner, Rank me,
                                                  int nranks, std::function<void()> retried,
                                                  int rail) {
  return std::make_unique<CheckedTransport>(std::move(inner), me, nranks, std::move(retried), rail);
}

}  // namespace weft
