// Receiving of the shm transport: copies messages out of cells, or lends views of them.
#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/uio.h>

#include <algorithm>

#include "transport/memory/copy.h"
#include "transport/shm/order.h"
#include "transport/shm/transport.h"

namespace weft::shm {
namespace {

// A view's token: the cell it came in, or the bounce buffer it was read to.
constexpr std::uint64_t kBounceToken = std::uint64_t{1} << 63;
std::uint64_t cell_token(std::size_t member, std::uint32_t cell) {
  return (static_cast<std::uint64_t>(member) << 32) | cell;
}

// So many unexpected messages of a peer stay in their cells; more are copied out, so that a sender
// never starves for cells or slots because of messages that nobody has asked for yet.
constexpr std::size_t kUnexpectedKept = 8;

// After each so many messages of a peer, unexpected messages that are at least as old give up their
// cells.
constexpr std::uint32_t kRoomEvery = kRing / 4;

// Reads a word of a cell once, so that what is checked is what is used.
template <typename T>
T once(const T& word) noexcept {
  return *const_cast<const volatile T*>(&word);
}

}  // namespace

// Whether the message that came is the one that the receive expects.
Code ShmTransport::agree(Peer& p, const Transfer& t, std::uint64_t sign, const Head& head,
                         std::size_t bytes) noexcept {
  if (bytes == t.bytes && sign == (t.head ? t.head->sign : 0)) [[likely]]
    return Code::kOk;
  p.error = bytes != t.bytes
                ? fmt::format("it sent {} bytes where {} were expected", bytes, t.bytes)
                : "it sent another message than was expected";
  if (sign) p.disputed = head;
  return Code::kMismatch;
}

void ShmTransport::receive(Peer& p, const Transfer& t) noexcept {
  Posted posted{t.tag, t, 0};
  for (auto it = p.unexpected.begin(); it != p.unexpected.end();) {
    if (it->tag != t.tag) {
      ++it;
      continue;
    }
    bool whole;
    p.unexpected_bytes -= it->cost();
    if (it->spilled) {
      whole = take_spilled(p, posted, *it);
    } else if (Message m; look(p, it->cell, m)) {
      whole = deliver(p, posted, m, it->cell);
    } else {
      complete(t.id, nullptr, 0, Code::kTransport);
      whole = true;
    }
    it = p.unexpected.erase(it);
    if (whole) return;
  }
  p.posted.push_back(posted);
}

// Of a message that was copied out before anybody wanted it; true when all of it is here.
bool ShmTransport::take_spilled(Peer& p, Posted& posted, ShmUnexpected& unexpected) noexcept {
  const Transfer& t = posted.transfer;
  if (unexpected.code == Code::kOk)
    unexpected.code = agree(p, t, unexpected.head.sign, unexpected.head, unexpected.whole);
  if (unexpected.code != Code::kOk) {
    complete(t.id, nullptr, 0, unexpected.code);
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
    bounce = {std::move(unexpected.spilled), unexpected.bytes};
    complete(t.id, bounce.memory.get(), kBounceToken | static_cast<unsigned>(index));
    return true;
  }
  if (unexpected.bytes > unexpected.whole - posted.received) {
    breaks(p, "it sent more of a message than there is");
    complete(t.id, nullptr, 0, Code::kTransport);
    return true;
  }
  std::memcpy(static_cast<std::byte*>(t.data) + posted.received, unexpected.spilled.get(),
              unexpected.bytes);
  posted.received += unexpected.bytes;
  if (posted.received < unexpected.whole) return false;
  complete(t.id);
  return true;
}

// Not more than a ring of messages at a time, however fast they come.
void ShmTransport::drain(Peer& p, bool patient) noexcept {
  for (std::uint32_t n = 0; n < kRing && !p.broken; ++n) {
    if (p.in[p.seen % kRing].seq.load(std::memory_order_acquire) != p.seen + 1) return;
    take_over(member_of_[p.rank], me_);
    Message m;
    if (!look(p, p.seen, m) || !arrive(p, m, p.seen, patient && !completions_.empty())) return;
    ++p.seen;
    if (p.seen % kRoomEvery == 0 && !p.unexpected.empty()) [[unlikely]]
      make_room(p);
  }
}

// A message that waits for its receive must not keep its cell until the ring has come round to it:
// its sender would wait for the cell with all that it has to send.
void ShmTransport::make_room(Peer& p) noexcept {
  for (ShmUnexpected& e : p.unexpected) {
    if (e.spilled || p.seen - e.cell <= kRoomEvery) continue;
    Message m;
    if (!look(p, e.cell, m)) return;
    p.unexpected_bytes -= e.cost();
    e = spilled(p, m, e.cell);
    p.unexpected_bytes += e.cost();
  }
}

bool ShmTransport::look(Peer& p, std::uint32_t cell, Message& m) noexcept {
  const Cell& c = p.in[cell % kRing];
  m = {.kind = once(c.kind), .tag = once(c.tag), .sign = once(c.sign)};
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

// Takes the message in a cell. False: the message would have to be copied out, but the caller is
// `patient`: it hands out completions first, and its user may post the receive of this one next.
bool ShmTransport::arrive(Peer& p, const Message& m, std::uint32_t cell, bool patient) noexcept {
  for (auto it = p.posted.begin(); it != p.posted.end(); ++it) {
    if (it->tag != m.tag) continue;
    if (it->transfer.kind == Transfer::Kind::kView || m.kind != Kind::kFragment) {
      const Posted taken = *it;  // deliver() may look at p.posted
      p.posted.erase(it);
      Posted copy = taken;
      deliver(p, copy, m, cell);
    } else if (deliver(p, *it, m, cell)) {
      p.posted.erase(it);
    }
    return true;
  }
  if (p.unexpected.size() >= kUnexpectedKept || m.kind == Kind::kFragment || !keep(p, m, cell)) {
    if (patient) return false;
    p.unexpected.push_back(spilled(p, m, cell));
  } else {
    p.unexpected.push_back(
        {.tag = m.tag, .cell = cell, .spilled = nullptr, .bytes = 0, .whole = 0});
  }
  p.unexpected_bytes += p.unexpected.back().cost();
  return true;
}

ShmTransport::ShmUnexpected ShmTransport::spilled(Peer& p, const Message& m,
                                                  std::uint32_t cell) noexcept {
  std::size_t bytes = m.bytes;
  if (p.unexpected_bytes + sizeof(ShmUnexpected) > unexpected_most_ ||
      bytes > unexpected_most_ - p.unexpected_bytes - sizeof(ShmUnexpected)) {
    breaks(p, too_far_ahead(unexpected_most_));
    bytes = 0;
  }
  ShmUnexpected unexpected{
      .tag = m.tag,
      .cell = cell,
      .spilled = std::make_unique_for_overwrite<std::byte[]>(std::max<std::size_t>(bytes, 1)),
      .bytes = bytes,
      .whole = m.whole,
      .head = m.sign ? head_of(p, cell) : Head{}};
  if (p.broken) {
    unexpected.code = Code::kTransport;
  } else if (m.kind == Kind::kCma) {
    if (!read_memory(p, m, unexpected.spilled.get())) unexpected.code = Code::kPeerFailed;
  } else if (bytes) {
    const std::byte* from = bytes_of(p, m, cell);
    from ? void(std::memcpy(unexpected.spilled.get(), from, bytes))
         : void(unexpected.code = Code::kPeerFailed);
  }
  if (unexpected.code == Code::kOk && revoked(p, p.in[cell % kRing]))
    unexpected.code = Code::kAborted;
  release_cell(p, cell);
  return unexpected;
}

const std::byte* ShmTransport::bytes_of(Peer& p, const Message& m, std::uint32_t cell) noexcept {
  switch (m.kind) {
    case Kind::kInline:
      return p.in[cell % kRing].data;
    case Kind::kSlot:
    case Kind::kFragment:
      return p.arena + m.address;
    case Kind::kMapped: {
      const std::byte* at =
          p.memory->resolve({m.index, m.serial, m.address}, m.bytes, p.kept.mapped > 0);
      if (!at) p.error = "its weft::alloc memory is gone: freed while in use?";
      return at;
    }
    case Kind::kCma:
      return nullptr;
  }
  return nullptr;
}

bool ShmTransport::revoked(Peer& p, const Cell& c) noexcept {
  std::atomic_thread_fence(std::memory_order_acquire);
  if (!c.revoked.load(std::memory_order_relaxed)) return false;
  p.error = "it gave the task up";
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

bool ShmTransport::deliver(Peer& p, Posted& posted, const Message& m, std::uint32_t cell) noexcept {
  const Transfer& t = posted.transfer;
  if (t.kind == Transfer::Kind::kView) {
    deliver_view(p, t, m, cell);
    return true;
  }
  Code code = agree(p, t, m.sign, head_of(p, cell), m.whole);
  if (code != Code::kOk) {
    // nothing of it is taken
  } else if (m.bytes > m.whole - posted.received) {
    breaks(p, "it sent more of a message than there is");
    code = Code::kTransport;
  } else if (m.kind == Kind::kCma) {
    if (!read_memory(p, m, t.data)) code = Code::kPeerFailed;
  } else if (m.bytes) {
    const std::byte* from = bytes_of(p, m, cell);
    if (from)
      copy_bytes(static_cast<std::byte*>(t.data) + posted.received, from, m.bytes, t.streaming);
    else
      code = Code::kPeerFailed;
  }
  if (code == Code::kOk && revoked(p, p.in[cell % kRing])) code = Code::kAborted;
  release_cell(p, cell);
  posted.received += m.bytes;
  if (code == Code::kOk && posted.received < m.whole) return false;
  complete(t.id, nullptr, 0, code);
  return true;
}

void ShmTransport::deliver_view(Peer& p, const Transfer& t, const Message& m,
                                std::uint32_t cell) noexcept {
  const Cell& c = p.in[cell % kRing];
  if (const Code code = agree(p, t, m.sign, head_of(p, cell), m.bytes); code != Code::kOk) {
    release_cell(p, cell);
    complete(t.id, nullptr, 0, code);
  } else if (const bool read = m.kind == Kind::kCma; read || !keep(p, m, cell)) {
    int index;
    std::byte* memory = bounce(m.bytes, index);
    if (!read) std::memcpy(memory, bytes_of(p, m, cell), m.bytes);
    Code code = !read || read_memory(p, m, memory) ? Code::kOk : Code::kPeerFailed;
    if (code == Code::kOk && revoked(p, c)) code = Code::kAborted;
    release_cell(p, cell);
    complete(t.id, memory, kBounceToken | static_cast<unsigned>(index), code);
  } else {
    const std::byte* at = bytes_of(p, m, cell);
    if (at && m.kind == Kind::kMapped) {
      ++p.kept.mapped;
      p.kept.cells[cell % kRing] = Kept::kMapped;
    }
    const auto member = static_cast<std::size_t>(&p - peers_.data());
    const Code code = !at ? Code::kPeerFailed : revoked(p, c) ? Code::kAborted : Code::kOk;
    complete(t.id, at, cell_token(member, cell), code);
  }
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

// Receivers together never keep all slots of a class: what a view waits for (the same part from
// other ranks) may need one. Where a share is used up the bytes are copied out at once.
bool ShmTransport::keep(Peer& p, const Message& m, std::uint32_t cell) noexcept {
  std::int8_t& kept = p.kept.cells[cell % kRing];
  if (m.kind != Kind::kSlot || kept) return true;
  int size = 0;
  while (size + 1 < kSlotClasses && m.bytes > kSlots[size].bytes) ++size;
  const int others = std::max(1, static_cast<int>(peers_.size()) - 1);
  if (p.kept.slots[size] >= kSlots[size].count / others) return false;
  ++p.kept.slots[size];
  kept = static_cast<std::int8_t>(size + 1);
  return true;
}

void ShmTransport::release_cell(Peer& p, std::uint32_t cell) noexcept {
  if (std::int8_t& kept = p.kept.cells[cell % kRing]) {
    --(kept == Kept::kMapped ? p.kept.mapped : p.kept.slots[kept - 1]);
    kept = 0;
  }
  hand_on(me_, member_of_[p.rank]);
  p.acks_out->done[cell % kRing].store(round_of(cell), std::memory_order_release);
  p.acks_out->total.store(++p.released, std::memory_order_release);
}

}  // namespace weft::shm
