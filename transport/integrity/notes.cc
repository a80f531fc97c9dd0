// Notes of the integrity layer: acknowledgments and requests to retransmit.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "topo/base/log.h"
#include "transport/integrity/checked.h"
#include "transport/integrity/transport.h"
#include "transport/memory/crc32c.h"

namespace weft {
namespace {

constexpr std::uint64_t kAgainMask = 0x7fff;      // ids of repeated messages
constexpr std::uint32_t kAgainMost = 0x3fffffff;  // number of a repetition

}  // namespace

std::uint32_t CheckedTransport::Half::sum() const { return crc32c(this, offsetof(Half, check)); }

void CheckedTransport::post_note_receive(Rank rank, std::uint32_t place) {
  Peer& p = peer(rank);
  Transfer t;
  t.kind = Transfer::Kind::kRecv;
  t.standing = true;
  t.peer = rank;
  t.tag = own_tags_ | (p.notes_posted & kNumbers);
  t.data = &p.in[place];
  t.bytes = sizeof(Note);
  t.id = static_cast<std::uint64_t>(kNoteHigh) << 32 | 1u << 31 |
         static_cast<std::uint64_t>(rank) * kWindow | place;
  ++p.notes_posted;
  inner_->post({&t, 1});
}

void CheckedTransport::start(Rank rank) {
  Peer& p = peer(rank);
  if (std::exchange(p.started, true)) return;
  for (std::uint32_t i = 0; i < kWindow; ++i) post_note_receive(rank, i);
}

void CheckedTransport::note_ended(const Completion& c) {
  const auto low = static_cast<std::uint32_t>(c.id);
  if (!(low >> 31)) {
    free_out_.push_back(low);
  } else if (c.code == Code::kOk) {
    const auto rank = static_cast<Rank>((low & 0x7fffffff) / kWindow);
    const Note note = peer(rank).in[low % kWindow];
    post_note_receive(rank, low % kWindow);  // notes may arrive out of order
    heard(rank, note, c.rail);
  }
}

void CheckedTransport::say(Rank rank, Half half) {
  std::uint32_t place = static_cast<std::uint32_t>(out_.size());
  if (free_out_.empty()) {
    out_.emplace_back();
  } else {
    place = free_out_.back();
    free_out_.pop_back();
  }
  half.check = half.sum();
  out_[place] = {{half, half}};
  Transfer t;
  t.peer = rank;
  t.tag = own_tags_ | (peer(rank).notes_sent++ & kNumbers);
  t.data = &out_[place];
  t.bytes = sizeof(Note);
  t.id = static_cast<std::uint64_t>(kNoteHigh) << 32 | place;
  inner_->post({&t, 1});
}

// ---- acknowledgments -------------------------------------------------------------------------

// Acknowledges a verified message. Messages of one poll are acknowledged together at its end, since
// the caller may not poll again soon.
void CheckedTransport::acknowledge(Rank rank, std::uint64_t tag) {
  Peer& p = peer(rank);
  if (p.to_acknowledge.empty()) owing_.push_back(rank);
  p.to_acknowledge.push_back(tag);
  if (p.to_acknowledge.size() == kTags) {
    std::erase(owing_, rank);
    send_acknowledgements(rank);
  } else if (!polling_) {
    acknowledge_all();
  }
}

void CheckedTransport::send_acknowledgements(Rank rank) {
  std::vector<std::uint64_t>& to_acknowledge = peer(rank).to_acknowledge;
  Half half;
  half.number = static_cast<std::uint32_t>(to_acknowledge.size());
  std::ranges::copy(to_acknowledge, half.tags.begin());
  to_acknowledge.clear();
  say(rank, half);
}

void CheckedTransport::acknowledge_all() {
  for (const Rank rank : owing_) send_acknowledgements(rank);
  owing_.clear();
}

std::string CheckedTransport::over(int rail) const {
  if (rail < 0) rail = rail_;
  return rail < 0 ? caps_.name : fmt::format("{}, rail {}", caps_.name, rail);
}

void CheckedTransport::heard(Rank rank, const Note& note, int rail) {
  const Half* good = nullptr;
  for (const Half& h : note.half)
    if (h.sum() == h.check && (h.what == Say::kAgain || (h.what == Say::kAck && h.number <= kTags)))
      good = &h;
  Peer& p = peer(rank);
  if (!good) {  // both halves are corrupt: recovery is impossible
    p.corrupt = fmt::format("rank {} to rank {} over {}: a note about a message arrived corrupted",
                            rank, me_, over(rail));
    for (Message& m : messages_)
      if (m.is != Message::Is::kFree && m.transfer.peer == rank && !m.lent &&
          !std::exchange(m.failed, true))
        done_.add(m.transfer.id, Code::kCorrupt);
    return;
  }
  if (good->what == Say::kAgain) return send_again(rank, good->tags[0], good->number);
  for (std::uint32_t i = 0; i < good->number; ++i) {
    const std::uint32_t place = p.sends.find(good->tags[i]);
    if (place == TagTable::kNone) continue;  // cancelled
    messages_[place].acknowledged = true;
    end_send_if_over(place);
  }
}

// ---- repeated messages -----------------------------------------------------------------------

void CheckedTransport::ask_again(std::uint32_t place, std::uint32_t found) {
  Message& m = messages_[place];
  const Transfer& t = m.transfer;
  Peer& p = peer(t.peer);
  if (m.where.view) views_->release(m.where.token);
  if (std::exchange(m.lent, false)) by_token_.erase(m.where.token);
  m.here = false;
  const std::string what = fmt::format(
      "rank {} to rank {} over {}: a message of {} bytes arrived corrupted (crc32c {:08x}, "
      "sent {:08x})",
      t.peer, me_, over(m.where.rail), t.bytes, found, m.where.crc);
  if (++m.tries == kIntegrityTries) {
    p.corrupt = fmt::format("{}, {} times", what, m.tries);
    done_.add(t.id, Code::kCorrupt);
    return end_receive(place);
  }
  log().warn("weft: {}; requesting it again", what);
  retried_();
  const std::uint32_t number = ++p.again & kAgainMost;
  post_again(place, number);
  Half half;
  half.what = Say::kAgain;
  half.number = number;
  half.tags[0] = t.tag;
  say(t.peer, half);
}

void CheckedTransport::send_again(Rank rank, std::uint64_t tag, std::uint32_t number) {
  const std::uint32_t place = peer(rank).sends.find(tag);
  if (place == TagTable::kNone) return;
  ++messages_[place].under_way;
  post_again(place, number);
}

void CheckedTransport::post_again(std::uint32_t place, std::uint32_t number) {
  const Message& m = messages_[place];
  Transfer t = m.transfer;
  if (m.by_view) {
    t.kind = Transfer::Kind::kView;
    t.data = nullptr;
  }
  t.head = &m.head;
  t.sums = true;
  t.repeat = true;
  t.tag = own_tags_ | own_bit_ / 2 | number;
  t.id = static_cast<std::uint64_t>(kAgainHigh | (next_again_id_++ & kAgainMask)) << 32;
  again_ids_[t.id] = m.transfer.id;
  inner_->post({&t, 1});
}

}  // namespace weft
