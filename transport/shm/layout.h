// The layout of a rank's arena: its memory shared with the other ranks of the machine.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/transport.h"

namespace weft::shm {

// Set-up message of a rank to the other ranks of its machine.
struct Hello {
  std::int32_t pid, parent;
  std::int32_t arena_fd, directory_fd;
  std::uint64_t arena_bytes;
  std::uint64_t probe;  // address of a word that holds kProbe
  std::uint64_t lends;  // 0: peers need not read this rank's memory
};
inline constexpr std::uint64_t kProbe = 0x77656674'70726f62;

inline constexpr std::size_t kLine = 64;
inline constexpr std::uint32_t kRing = 256;  // cells per ordered pair of ranks
inline constexpr std::size_t kInline = 40;   // most bytes of a message inside a cell
// Number of boards of each size, one per communicator.
inline constexpr int kFixedBoards = 3, kBoards = 256;
inline constexpr std::size_t kBoardBytes = 32u << 10;       // longest message on a fixed board
inline constexpr std::size_t kSmallBoardBytes = 24u << 10;  // longest message on any other board

// The slots of one size. The extra line spreads the starts of slots over the cache sets.
struct SlotClass {
  std::size_t bytes;
  int count;
  std::size_t stride() const { return bytes + kLine; }
};
inline constexpr SlotClass kSlots[] = {
    {4u << 10, 256}, {64u << 10, 48}, {128u << 10, 40}, {256u << 10, 8}};
inline constexpr int kSlotClasses = 4;
inline constexpr int kAllSlots = 256 + 48 + 40 + 8;
inline constexpr std::size_t kMaxSlot = 256u << 10;

enum class Kind : std::uint8_t { kInline, kSlot, kMapped, kCma, kFragment };

// One message in a ring. The sender publishes cell number c by writing `seq` = c + 1 last. If the
// receiver still holds the cell's message of the lap before, as a view or unexpected, the sender
// passes the cell over: it writes only `seq` = passed_over(c), and the message stays as it is.
// After the receiver has released that message, the sender may write the cell's next lap even if
// the receiver has not read passed_over(c): see was_passed_over().
struct alignas(kLine) Cell {
  std::atomic<std::uint32_t> seq;
  Kind kind;
  std::uint8_t inline_bytes;
  std::atomic<std::uint8_t> revoked;  // the sender cancelled the message: see revoked()
  std::uint8_t reserved;
  std::uint64_t tag;
  // Sign of the head beside the ring, which is read only on a mismatch; 0: no head.
  std::uint64_t sign;
  union {
    std::byte data[kInline];
    struct {
      std::uint64_t bytes;    // size of the message; kFragment: size of this piece
      std::uint64_t address;  // kSlot, kFragment: offset in the sender's arena; kMapped: offset in
                              // the region; kCma: the sender's address
      // kMapped: serial number of the region; kFragment: bytes of the whole message
      std::uint64_t serial;
      std::uint32_t index;  // kMapped: index of the region
    } at;
  };
};
static_assert(sizeof(Cell) == kLine);
inline std::uint32_t passed_over(std::uint32_t cell) { return (cell + 1) ^ (1u << 31); }
// Returns whether the sender passed cell number `cell` over, given the cell's `seq`:
// passed_over(cell), or the value of any later lap, since the sender does not overwrite a message
// that was not read.
inline bool was_passed_over(std::uint32_t seq, std::uint32_t cell) {
  const std::uint32_t laps_ahead = (seq - (cell + 1)) << 1;  // without the bit of passed_over()
  return laps_ahead == 0 ? seq != cell + 1 : laps_ahead < 1u << 31;
}

// The acknowledgments of one receiver, in the sender's arena. The receiver finishes cells in any
// order: it sets done[c % kRing] to round_of(c) and increments `total`, which the sender polls.
struct alignas(kLine) Acks {
  std::atomic<std::uint32_t> total;
  alignas(kLine) std::atomic<std::uint8_t> done[kRing];
};
inline std::uint8_t round_of(std::uint32_t cell) {
  return static_cast<std::uint8_t>(cell / kRing + 1);
}

// The header of a part; two halves follow. `use` is 2 * epoch while the board of that epoch uses
// the part, and 2 * epoch + 1 once the part's owner has left it. The next use has another epoch.
struct alignas(kLine) BoardPart {
  std::atomic<std::uint64_t> use;
};
struct alignas(kLine) BoardHalf {
  std::atomic<std::uint32_t> round;
  std::uint32_t reserved;
  std::uint64_t sign;  // sign of the head behind the data, which is read only on a mismatch
  std::byte* data() { return reinterpret_cast<std::byte*>(this) + 16; }
};
static_assert(16 + sizeof(Head) <= kLine);
inline constexpr std::size_t kHalf = kLine + kBoardBytes, kSmallHalf = kLine + kSmallBoardBytes;
inline constexpr std::size_t kPart = sizeof(BoardPart) + 2 * kHalf,
                             kSmallPart = sizeof(BoardPart) + 2 * kSmallHalf;

// The members that have mapped this arena and so may write to its rings; the owner polls only those
// rings. A member sets its flag, and then increments `count`.
struct alignas(kLine) Callers {
  std::atomic<std::uint32_t> count;
  std::atomic<std::uint8_t>& called(std::size_t member) {
    return reinterpret_cast<std::atomic<std::uint8_t>*>(this + 1)[member];
  }
  static std::size_t bytes(int n) {
    return sizeof(Callers) + (static_cast<std::size_t>(n) + kLine - 1) / kLine * kLine;
  }
};

// Offsets in the arena of one rank, for a machine with n members.
struct Layout {
  explicit Layout(int n)
      : callers(0),
        acks(Callers::bytes(n)),
        rings(acks + static_cast<std::size_t>(n) * sizeof(Acks)),
        heads(rings + static_cast<std::size_t>(n) * kRing * sizeof(Cell)),
        boards(heads + static_cast<std::size_t>(n) * kRing * sizeof(Head)),
        slots(boards + kFixedBoards * kPart + kBoards * kSmallPart),
        bytes(slots) {
    for (const SlotClass& c : kSlots) bytes += c.stride() * static_cast<std::size_t>(c.count);
  }
  std::size_t callers;  // Callers
  std::size_t acks;     // Acks[n]: by member i, for messages from this rank
  std::size_t rings;    // Cell[n][kRing]: from member i
  std::size_t heads;    // Head[n][kRing]: of the messages in those cells
  std::size_t boards;   // kFixedBoards large parts, then kBoards small parts
  std::size_t slots;
  std::size_t bytes;
};

}  // namespace weft::shm
