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
    if (it->spilled) {
      whole = take_spilled(p, posted, *it);
    } else {
      whole = deliver(p, posted, it->cell);
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
  std::memcpy(static_cast<std::byte*>(t.data) + posted.received, unexpected.spilled.get(),
              unexpected.bytes);
  posted.received += unexpected.bytes;
  if (posted.received < unexpected.whole) return false;
  complete(t.id);
  return true;
}

void ShmTransport::drain(Peer& p, bool patient) noexcept {
  while (p.in[p.seen % kRing].seq.load(std::memory_order_acquire) == p.seen + 1) {
    take_over(member_of_[p.rank], me_);
    if (!arrive(p, p.seen, patient && !completions_.empty())) return;
    ++p.seen;
    if (p.seen % kRoomEvery == 0 && !p.unexpected.empty()) [[unlikely]]
      make_room(p);
  }
}

// A message that waits for its receive must not keep its cell until the ring has come round to it:
// its sender would wait for the cell with all that it has to send.
void ShmTransport::make_room(Peer& p) noexcept {
  for (ShmUnexpected& e : p.unexpected)
    if (!e.spilled && p.seen - e.cell > kRoomEvery) e = spilled(p, e.cell);
}

// Takes the message in a cell. False: the message would have to be copied out, but the caller is
// `patient`: it hands out completions first, and its user may post the receive of this one next.
bool ShmTransport::arrive(Peer& p, std::uint32_t cell, bool patient) noexcept {
  const std::uint64_t tag = p.in[cell % kRing].tag;
  for (auto it = p.posted.begin(); it != p.posted.end(); ++it) {
    if (it->tag != tag) continue;
    if (it->transfer.kind == Transfer::Kind::kView || p.in[cell % kRing].kind != Kind::kFragment) {
      const Posted taken = *it;  // deliver() may look at p.posted
      p.posted.erase(it);
      Posted copy = taken;
      deliver(p, copy, cell);
    } else if (deliver(p, *it, cell)) {
      p.posted.erase(it);
    }
    return true;
  }
  if (p.unexpected.size() >= kUnexpectedKept || p.in[cell % kRing].kind == Kind::kFragment ||
      !keep(p, cell)) {
    if (patient) return false;
    p.unexpected.push_back(spilled(p, cell));
  } else {
    p.unexpected.push_back({.tag = tag, .cell = cell, .spilled = nullptr, .bytes = 0, .whole = 0});
  }
  return true;
}

ShmTransport::ShmUnexpected ShmTransport::spilled(Peer& p, std::uint32_t cell) noexcept {
  const Cell& c = p.in[cell % kRing];
  const std::size_t bytes = c.kind == Kind::kInline ? c.inline_bytes : c.at.bytes;
  ShmUnexpected unexpected{
      .tag = c.tag,
      .cell = cell,
      .spilled = std::make_unique_for_overwrite<std::byte[]>(std::max<std::size_t>(bytes, 1)),
      .bytes = bytes,
      .whole = c.kind == Kind::kFragment ? c.at.serial : bytes,
      .head = c.sign ? head_of(p, cell) : Head{}};
  if (c.kind == Kind::kCma) {
    if (!read_memory(p, c, unexpected.spilled.get())) unexpected.code = Code::kPeerFailed;
  } else if (bytes) {
    const std::byte* from = bytes_of(p, c);
    from ? void(std::memcpy(unexpected.spilled.get(), from, bytes))
         : void(unexpected.code = Code::kPeerFailed);
  }
  if (unexpected.code == Code::kOk && revoked(p, c)) unexpected.code = Code::kAborted;
  release_cell(p, cell);
  return unexpected;
}

const std::byte* ShmTransport::bytes_of(Peer& p, const Cell& c) noexcept {
  switch (c.kind) {
    case Kind::kInline:
      return c.data;
    case Kind::kSlot:
    case Kind::kFragment:
      return p.arena + c.at.address;
    case Kind::kMapped: {
      const std::byte* at = p.memory->resolve({c.at.index, c.at.serial, c.at.address});
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

bool ShmTransport::read_memory(Peer& p, const Cell& c, void* to) noexcept {
  std::size_t done = 0;
  while (done < c.at.bytes) {
    const iovec here{static_cast<std::byte*>(to) + done, c.at.bytes - done};
    const iovec there{reinterpret_cast<std::byte*>(c.at.address) + done, c.at.bytes - done};
    const ssize_t n = process_vm_readv(p.pid, &here, 1, &there, 1, 0);
    if (n <= 0) {
      p.error = fmt::format("process_vm_readv: {}", strerror(errno));
      return false;
    }
    done += static_cast<std::size_t>(n);
  }
  return true;
}

bool ShmTransport::deliver(Peer& p, Posted& posted, std::uint32_t cell) noexcept {
  const Transfer& t = posted.transfer;
  if (t.kind == Transfer::Kind::kView) {
    deliver_view(p, t, cell);
    return true;
  }
  const Cell& c = p.in[cell % kRing];
  const std::size_t bytes = c.kind == Kind::kInline ? c.inline_bytes : c.at.bytes;
  const std::size_t whole = c.kind == Kind::kFragment ? c.at.serial : bytes;
  Code code = agree(p, t, c.sign, head_of(p, cell), whole);
  if (code != Code::kOk) {
    // nothing of it is taken
  } else if (c.kind == Kind::kCma) {
    if (!read_memory(p, c, t.data)) code = Code::kPeerFailed;
  } else if (bytes) {
    const std::byte* from = bytes_of(p, c);
    if (from)
      copy_bytes(static_cast<std::byte*>(t.data) + posted.received, from, bytes, t.streaming);
    else
      code = Code::kPeerFailed;
  }
  if (code == Code::kOk && revoked(p, c)) code = Code::kAborted;
  release_cell(p, cell);
  posted.received += bytes;
  if (code == Code::kOk && posted.received < whole) return false;
  complete(t.id, nullptr, 0, code);
  return true;
}

void ShmTransport::deliver_view(Peer& p, const Transfer& t, std::uint32_t cell) noexcept {
  const Cell& c = p.in[cell % kRing];
  const std::size_t bytes = c.kind == Kind::kInline ? c.inline_bytes : c.at.bytes;
  if (const Code code = agree(p, t, c.sign, head_of(p, cell), bytes); code != Code::kOk) {
    release_cell(p, cell);
    complete(t.id, nullptr, 0, code);
  } else if (const bool read = c.kind == Kind::kCma; read || !keep(p, cell)) {
    int index;
    std::byte* memory = bounce(bytes, index);
    if (!read) std::memcpy(memory, bytes_of(p, c), bytes);
    Code code = !read || read_memory(p, c, memory) ? Code::kOk : Code::kPeerFailed;
    if (code == Code::kOk && revoked(p, c)) code = Code::kAborted;
    release_cell(p, cell);
    complete(t.id, memory, kBounceToken | static_cast<unsigned>(index), code);
  } else {
    const std::byte* at = bytes_of(p, c);
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
bool ShmTransport::keep(Peer& p, std::uint32_t cell) noexcept {
  const Cell& c = p.in[cell % kRing];
  std::int8_t& kept = p.kept.cells[cell % kRing];
  if (c.kind != Kind::kSlot || kept) return true;
  int size = 0;
  while (size + 1 < kSlotClasses && c.at.bytes > kSlots[size].bytes) ++size;
  const int others = std::max(1, static_cast<int>(peers_.size()) - 1);
  if (p.kept.slots[size] >= kSlots[size].count / others) return false;
  ++p.kept.slots[size];
  kept = static_cast<std::int8_t>(size + 1);
  return true;
}

void ShmTransport::release_cell(Peer& p, std::uint32_t cell) noexcept {
  if (std::int8_t& kept = p.kept.cells[cell % kRing]) {
    --p.kept.slots[kept - 1];
    kept = 0;
  }
  hand_on(me_, member_of_[p.rank]);
  p.acks_out->done[cell % kRing].store(round_of(cell), std::memory_order_release);
  p.acks_out->total.store(++p.released, std::memory_order_release);
}

}  // namespace weft::shm
