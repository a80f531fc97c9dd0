// Receive path of the shm transport: copies messages out of cells, or lends views of them.
#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/uio.h>

#include <algorithm>
#include <utility>

#include "transport/memory/copy.h"
#include "transport/shm/order.h"
#include "transport/shm/transport.h"

namespace weft::shm {
namespace {

// A view's token: its cell, or the bounce buffer that it was read into.
constexpr std::uint64_t kBounceToken = std::uint64_t{1} << 63;
std::uint64_t cell_token(std::size_t member, std::uint32_t cell) {
  return (static_cast<std::uint64_t>(member) << 32) | cell;
}

// Maximum number of a peer's unexpected messages that stay in their cells, and maximum number of
// these and of the peer's views together. Further messages are copied out of their cells, so that a
// sender cannot run out of cells or slots because of them.
constexpr std::size_t kUnexpectedKept = 8;
constexpr int kMostKept = kRing / 2;

// Reads a word of a cell exactly once: the sender could change the word between check and use.
template <typename T>
T once(const T& word) noexcept {
  return *const_cast<const volatile T*>(&word);
}

}  // namespace

// Whether the arrived message matches the receive.
Code ShmTransport::agree(Peer& p, const Transfer& t, std::uint64_t sign, const Head& head,
                         std::size_t bytes) noexcept {
  if (bytes == t.bytes && sign == (t.head ? t.head->sign : 0)) [[likely]]
    return Code::kOk;
  p.error = "it " + disagreement(t, bytes);
  if (sign) p.disputed = head;
  return Code::kMismatch;
}

void ShmTransport::receive(Peer& p, const Transfer& t) noexcept {
  Receive receive{t};
  while (Unexpected* const early = p.matching.find_unexpected(t.tag)) {
    bool whole;
    if (early->kept.spilled) {
      whole = take_spilled(p, receive, *early);
    } else if (Message m; look(p, early->kept.cell, m)) {
      whole = deliver(p, receive, m, early->kept.cell);
    } else {
      complete(t.id, Code::kTransport);
      whole = true;
    }
    p.matching.drop(early);
    if (whole) return;
  }
  p.matching.post(receive);
}

// Copies a message that was copied out earlier to its receive; true if the receive is complete.
bool ShmTransport::take_spilled(Peer& p, Receive& receive, Unexpected& early) noexcept {
  const Transfer& t = receive.transfer;
  Completion done{.id = t.id, .code = early.kept.code, .crc = early.head.crc};
  if (done.code == Code::kOk) done.code = agree(p, t, early.head.sign, early.head, early.bytes);
  if (done.code != Code::kOk) {
    complete(t.id, done.code);
    return true;
  }
  if (t.kind == Transfer::Kind::kView) {
    if (free_bounces_.empty()) {
      free_bounces_.push_back(static_cast<int>(bounces_.size()));
      bounces_.emplace_back();
    }
    const int index = free_bounces_.back();
    free_bounces_.pop_back();
    Bounce& bounce = bounces_[static_cast<std::size_t>(index)];
    bounce = {std::move(early.kept.spilled), early.kept.bytes};
    done.view = bounce.memory.get();
    done.token = kBounceToken | static_cast<unsigned>(index);
    done_.add(done);
    return true;
  }
  if (early.kept.bytes > early.bytes - receive.arrived) {
    breaks(p, "it sent more bytes than the message has");
    complete(t.id, Code::kTransport);
    return true;
  }
  std::memcpy(static_cast<std::byte*>(t.data) + receive.arrived, early.kept.spilled.get(),
              early.kept.bytes);
  receive.arrived += early.kept.bytes;
  if (receive.arrived < early.bytes) return false;
  done_.add(done);
  return true;
}

// Handles at most one ring of messages per call.
void ShmTransport::drain(Peer& p, bool patient) noexcept {
  for (std::uint32_t n = 0; n < kRing && !p.broken; ++n) {
    const std::uint32_t seq = p.in[p.seen % kRing].seq.load(std::memory_order_acquire);
    if (seq != p.seen + 1) {
      if (!was_passed_over(seq, p.seen)) return;
      ++p.seen;
      continue;
    }
    // Do not free cells for a peer that is too far ahead until receives are posted.
    if (p.matching.far_ahead(unexpected_most_)) [[unlikely]]
      return;
    take_over(member_of_[p.rank], me_);
    Message m;
    if (!look(p, p.seen, m) || !arrive(p, m, p.seen, patient && !done_.empty())) return;
    ++p.seen;
  }
}

bool ShmTransport::look(Peer& p, std::uint32_t cell, Message& m) noexcept {
  const Cell& c = p.in[cell % kRing];
  m.kind = once(c.kind);
  m.tag = once(c.tag);
  m.sign = once(c.sign);
  if (m.kind == Kind::kInline) {
    m.bytes = m.whole = once(c.inline_bytes);
    if (m.bytes <= kInline) [[likely]]
      return true;
    breaks(p, fmt::format("it wrote a cell of {} bytes", m.bytes));
    return false;
  }
  m.bytes = m.whole = once(c.at.bytes);
  m.address = once(c.at.address);
  m.serial = once(c.at.serial);
  m.index = once(c.at.index);
  bool good = m.kind == Kind::kMapped || m.kind == Kind::kCma;
  if (m.kind == Kind::kSlot || m.kind == Kind::kFragment)
    good = m.bytes <= kMaxSlot && m.address >= layout_.slots && m.address <= layout_.bytes &&
           m.bytes <= layout_.bytes - m.address;
  if (m.kind == Kind::kFragment) {
    m.whole = m.serial;
    good = good && m.bytes > 0 && m.bytes <= m.whole;
  }
  if (!good)
    breaks(p, fmt::format("it wrote a cell of kind {} with {} bytes at {:#x} of its memory",
                          static_cast<int>(m.kind), m.bytes, m.address));
  return good;
}

void ShmTransport::breaks(Peer& p, std::string why) noexcept {
  if (p.broken) return;
  p.error = std::move(why);
  p.broken = true;
}

// Takes the message in a cell. False if this needs a copy and the caller is `patient`: the caller
// returns completions first, and the user may then post the matching receive.
bool ShmTransport::arrive(Peer& p, const Message& m, std::uint32_t cell, bool patient) noexcept {
  if (Receive* const found = p.matching.find(m.tag)) {
    if (m.kind == Kind::kFragment && found->transfer.kind != Transfer::Kind::kView) {
      if (deliver(p, *found, m, cell)) p.matching.take(found);
    } else {
      Receive receive = p.matching.take(found);
      deliver(p, receive, m, cell);
    }
    return true;
  }
  const bool full = p.matching.unexpected() >= kUnexpectedKept;
  const bool copy = full || m.kind == Kind::kFragment || !keep(p, m, cell);
  if (copy && patient) return false;
  Unexpected& early = p.matching.keep(m.tag, m.whole, 0);
  early.kept.cell = cell;
  early.kept.spilled.reset();
  if (copy) spill(p, m, cell, early);
  return true;
}

Code ShmTransport::copy_out(Peer& p, const Message& m, std::uint32_t cell, void* to,
                            bool streaming) noexcept {
  if (m.kind == Kind::kCma) {
    if (!read_memory(p, m, to)) return Code::kPeerFailed;
  } else if (m.bytes) {
    const std::byte* const from = bytes_of(p, m, cell);
    if (!from) return Code::kPeerFailed;
    copy_bytes(to, from, m.bytes, streaming);
  }
  return revoked(p, p.in[cell % kRing]) ? Code::kAborted : Code::kOk;
}

void ShmTransport::spill(Peer& p, const Message& m, std::uint32_t cell,
                         Unexpected& early) noexcept {
  std::size_t bytes = m.bytes;
  if (!p.matching.allows(bytes, unexpected_most_)) {
    breaks(p, too_far_ahead(unexpected_most_));
    bytes = 0;
  }
  Early& kept = early.kept;
  kept.spilled = std::make_unique_for_overwrite<std::byte[]>(std::max<std::size_t>(bytes, 1));
  kept.bytes = bytes;
  p.matching.recount(early, bytes);
  early.bytes = m.whole;
  early.headed = m.sign != 0;
  early.head = head_of(p, cell);  // the cell will be reused
  early.head.sign = m.sign;       // 0: all but crc is stale
  kept.code = p.broken ? Code::kTransport : copy_out(p, m, cell, kept.spilled.get(), false);
  release_cell(p, cell);
}

const std::byte* ShmTransport::mapped_bytes(Peer& p, const Message& m) noexcept {
  try {
    if (!p.memory) p.memory = std::make_unique<PeerRegions>(p.pid, p.directory_fd);
  } catch (const Error& error) {
    p.error = error.what();
    return nullptr;
  }
  const std::byte* at =
      p.memory->resolve({m.index, m.serial, m.address}, m.bytes, p.kept.of[Kept::kMapped] > 0);
  if (!at) p.error = "its weft::alloc memory was freed, maybe while in use";
  return at;
}

const std::byte* ShmTransport::bytes_of(Peer& p, const Message& m, std::uint32_t cell) noexcept {
  switch (m.kind) {
    case Kind::kInline:
      return p.in[cell % kRing].data;
    case Kind::kSlot:
    case Kind::kFragment:
      return p.arena + m.address;
    case Kind::kMapped:
      return mapped_bytes(p, m);
    case Kind::kCma:
      return nullptr;
  }
  return nullptr;
}

bool ShmTransport::revoked(Peer& p, const Cell& c) noexcept {
  std::atomic_thread_fence(std::memory_order_acquire);
  if (!c.revoked.load(std::memory_order_relaxed)) return false;
  p.error = "it canceled the message";
  return true;
}

bool ShmTransport::read_memory(Peer& p, const Message& m, void* to) noexcept {
  std::size_t done = 0;
  while (done < m.bytes) {
    const iovec here{static_cast<std::byte*>(to) + done, m.bytes - done};
    const iovec there{reinterpret_cast<std::byte*>(m.address) + done, m.bytes - done};
    const ssize_t n = process_vm_readv(p.pid, &here, 1, &there, 1, 0);
    if (n <= 0) {
      p.error = fmt::format("process_vm_readv: {}", strerror(errno));
      return false;
    }
    done += static_cast<std::size_t>(n);
  }
  return true;
}

bool ShmTransport::deliver(Peer& p, Receive& receive, const Message& m,
                           std::uint32_t cell) noexcept {
  const Transfer& t = receive.transfer;
  if (t.kind == Transfer::Kind::kView) {
    deliver_view(p, t, m, cell);
    return true;
  }
  Code code = agree(p, t, m.sign, head_of(p, cell), m.whole);
  const std::uint32_t crc = t.head ? head_of(p, cell).crc : 0;
  if (code != Code::kOk) {
    // discard the message
  } else if (m.bytes > m.whole - receive.arrived) {
    breaks(p, "it sent more bytes than the message has");
    code = Code::kTransport;
  } else {
    code = copy_out(p, m, cell, static_cast<std::byte*>(t.data) + receive.arrived, t.streaming);
  }
  release_cell(p, cell);
  receive.arrived += m.bytes;
  if (code == Code::kOk && receive.arrived < m.whole) return false;
  done_.add({.id = t.id, .code = code, .crc = crc});
  return true;
}

void ShmTransport::deliver_view(Peer& p, const Transfer& t, const Message& m,
                                std::uint32_t cell) noexcept {
  Completion done{.id = t.id, .code = agree(p, t, m.sign, head_of(p, cell), m.bytes)};
  if (t.head) done.crc = head_of(p, cell).crc;
  if (done.code != Code::kOk) {
    release_cell(p, cell);
  } else if (m.kind == Kind::kCma || !keep(p, m, cell)) {
    int index;
    std::byte* memory = bounce(m.bytes, index);
    done.code = copy_out(p, m, cell, memory, false);
    release_cell(p, cell);
    done.view = memory;
    done.token = kBounceToken | static_cast<unsigned>(index);
  } else {
    done.view = bytes_of(p, m, cell);
    if (done.view && m.kind == Kind::kMapped) {
      --p.kept.of[std::exchange(p.kept.cells[cell % kRing], Kept::kMapped)];
      ++p.kept.of[Kept::kMapped];
    }
    done.token = cell_token(static_cast<std::size_t>(&p - peers_.data()), cell);
    done.code = !done.view                       ? Code::kPeerFailed
                : revoked(p, p.in[cell % kRing]) ? Code::kAborted
                                                 : Code::kOk;
  }
  done_.add(done);
}

bool ShmTransport::release(std::uint64_t token) noexcept {
  if (token & kBounceToken) {
    free_bounces_.push_back(static_cast<int>(token & 0x7fffffff));
    return true;
  }
  Peer& p = peers_[static_cast<std::size_t>(token >> 32)];
  const auto cell = static_cast<std::uint32_t>(token);
  const bool kept = !revoked(p, p.in[cell % kRing]);
  release_cell(p, cell);
  return kept;
}

// Receivers together never hold all slots of a class, as views or as unexpected messages, since the
// sender may need a slot for the messages that they await. Copies the bytes out at once beyond a
// receiver's share. A short message may lie in a longer slot, so the slot's own class counts.
bool ShmTransport::keep(Peer& p, const Message& m, std::uint32_t cell) noexcept {
  std::uint8_t& kept = p.kept.cells[cell % kRing];
  if (kept) return true;
  int what = Kept::kCell;
  if (m.kind == Kind::kSlot) {
    int size = 0;
    while (size + 1 < kSlotClasses && m.address >= slot_base_[size + 1]) ++size;
    // A rank that sends to itself has no share.
    const int others = &p == &peers_[static_cast<std::size_t>(me_)]
                           ? kAllSlots
                           : std::max(1, static_cast<int>(peers_.size()) - 1);
    what = Kept::kSlot + size;
    if (p.kept.of[what] >= (kSlots[size].count - 1) / others) return false;
  }
  if (p.kept.all >= kMostKept) return false;
  ++p.kept.all;
  ++p.kept.of[what];
  kept = static_cast<std::uint8_t>(what);
  return true;
}

void ShmTransport::release_cell(Peer& p, std::uint32_t cell) noexcept {
  if (std::uint8_t& kept = p.kept.cells[cell % kRing]) {
    --p.kept.all;
    --p.kept.of[std::exchange(kept, Kept::kNone)];
  }
  hand_on(me_, member_of_[p.rank]);
  p.acks_out->done[cell % kRing].store(round_of(cell), std::memory_order_release);
  p.acks_out->total.store(++p.released, std::memory_order_release);
}

}  // namespace weft::shm
