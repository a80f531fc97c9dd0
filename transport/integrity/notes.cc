// Notes of integrity: sums, acknowledgements, requests to send again. Knows no transport by name.
#include <fmt/format.h>

#include <cstddef>
#include <utility>

#include "topo/base/log.h"
#include "transport/integrity/checked.h"
#include "transport/integrity/transport.h"
#include "transport/memory/crc32c.h"

namespace weft {
namespace {

constexpr std::uint64_t kAgainMask = 0x7fff;  // of the ids of messages sent again

}  // namespace

std::uint32_t CheckedTransport::Half::sum() const { return crc32c(this, offsetof(Half, check)); }

// Tags of our own: the highest bit; the next one tells repeated messages from notes.
void CheckedTransport::post_note_receive(Rank rank, std::uint32_t place) {
  Peer& p = peer(rank);
  Transfer t;
  t.kind = Transfer::Kind::kRecv;
  t.peer = rank;
  t.tag = own_bit_ | (p.notes_posted & (own_bit_ / 2 - 1));
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
    post_note_receive(rank, low % kWindow);  // notes may overtake each other
    heard(rank, note, c.rail);
  }
}

void CheckedTransport::say(Rank rank, Say what, std::uint64_t tag, std::uint32_t crc,
                           std::uint32_t number) {
  std::uint32_t place = static_cast<std::uint32_t>(out_.size());
  if (free_out_.empty()) {
    out_.emplace_back();
  } else {
    place = free_out_.back();
    free_out_.pop_back();
  }
  Half h{static_cast<std::uint32_t>(tag), static_cast<std::uint32_t>(tag >> 32),
         static_cast<std::uint32_t>(what) | number << 2, crc, 0};
  h.check = h.sum();
  out_[place] = {{h, h}};
  Transfer t;
  t.peer = rank;
  t.tag = own_bit_ | (peer(rank).notes_sent++ & (own_bit_ / 2 - 1));
  t.data = &out_[place];
  t.bytes = sizeof(Note);
  t.id = static_cast<std::uint64_t>(kNoteHigh) << 32 | place;
  inner_->post({&t, 1});
}

std::string CheckedTransport::over(int rail) const {
  if (rail < 0) rail = rail_;
  return rail < 0 ? caps_.name : fmt::format("{}, rail {}", caps_.name, rail);
}

void CheckedTransport::heard(Rank rank, const Note& note, int rail) {
  const Half* good = nullptr;
  for (const Half& h : note.half)
    if (h.sum() == h.check) good = &h;
  Peer& p = peer(rank);
  if (!good) {  // both halves: whatever it was about cannot be repaired
    p.corrupt = fmt::format("rank {} to rank {} over {}: a note about a message arrived changed",
                            rank, me_, over(rail));
    for (const auto& [tag, id] : p.recvs)
      if (!recvs_[id].lent) complete({.id = id, .code = Code::kCorrupt});
    for (const auto& [tag, id] : p.sends) complete({.id = id, .code = Code::kCorrupt});
    return;
  }
  const std::uint64_t tag = static_cast<std::uint64_t>(good->tag_high) << 32 | good->tag_low;
  switch (static_cast<Say>(good->what & 3)) {
    case Say::kCrc: {
      const auto it = p.recvs.find(tag);
      if (it != p.recvs.end() && recvs_[it->second].landed) return check(it->second, good->crc);
      p.crcs[tag] = good->crc;
      return;
    }
    case Say::kAck: {
      const auto it = p.sends.find(tag);
      if (it == p.sends.end()) return;  // given up
      const std::uint64_t id = it->second;
      sends_[id].acknowledged = true;
      return end_send_if_over(id);
    }
    case Say::kAgain:
      return send_again(rank, tag, good->what >> 2);
  }
}

// ---- messages that are sent again ------------------------------------------------------------

void CheckedTransport::ask_again(std::uint64_t id, std::uint32_t crc, std::uint32_t found) {
  Recv& r = recvs_[id];
  const Transfer& t = r.transfer;
  Peer& p = peer(t.peer);
  if (r.by_view || t.kind == Transfer::Kind::kView) inner_->release(r.where.token);
  r.landed = r.lent = false;
  const std::string what = fmt::format(
      "rank {} to rank {} over {}: a message of {} bytes arrived changed (crc32c {:08x}, "
      "sent {:08x})",
      t.peer, me_, over(r.where.rail), t.bytes, found, crc);
  if (++r.tries == kIntegrityTries) {
    p.corrupt = fmt::format("{}, {} times", what, r.tries);
    complete({.id = id, .code = Code::kCorrupt});
    return forget_recv(id);
  }
  log().warn("weft: {}; asking for it again", what);
  retried_();
  p.crcs[t.tag] = crc;
  const std::uint32_t number = ++p.again & 0x3fffffff;
  Transfer again = t;
  if (r.by_view) {
    again.kind = Transfer::Kind::kView;
    again.data = nullptr;
  }
  post_again(again, id, number);
  say(t.peer, Say::kAgain, t.tag, 0, number);
}

void CheckedTransport::send_again(Rank rank, std::uint64_t tag, std::uint32_t number) {
  const auto it = peer(rank).sends.find(tag);
  if (it == peer(rank).sends.end()) return;
  Send& s = sends_[it->second];
  ++s.under_way;
  post_again(s.transfer, it->second, number);
}

void CheckedTransport::post_again(Transfer t, std::uint64_t id, std::uint32_t number) {
  t.head = nullptr;
  t.repeat = true;
  t.tag = own_bit_ | own_bit_ / 2 | number;
  t.id = static_cast<std::uint64_t>(kAgainHigh | (next_again_id_++ & kAgainMask)) << 32;
  again_ids_[t.id] = id;
  inner_->post({&t, 1});
}

}  // namespace weft
