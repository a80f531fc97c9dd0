// The shm transport's state. shm.cc sets it up; send.cc, receive.cc and progress.cc move the data;
// slots.cc manages the buffers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topo/topology.h"
#include "transport/job/bootstrap.h"
#include "transport/memory/shared_region.h"
#include "transport/messages/completions.h"
#include "transport/messages/matching.h"
#include "transport/messages/unexpected_limit.h"
#include "transport/shm/board.h"
#include "transport/shm/layout.h"
#include "transport/transport.h"

namespace weft::shm {

// While an instance exists, the user's other processes may read this process's memory, even under
// Yama's restrictions.
class Readable {
 public:
  Readable();
  ~Readable();
  Readable(const Readable&) = delete;
  Readable& operator=(const Readable&) = delete;
  // Permits only descendants of `pid` to read it, unless another instance exists.
  void only_for_children_of(int pid) noexcept;
};

// A validated copy of a cell, which its sender can overwrite at any time.
struct Message {
  Kind kind;
  std::uint64_t tag, sign;
  std::size_t bytes, whole;       // whole > bytes: a fragment
  std::uint64_t address, serial;  // see Cell; unset for kInline
  std::uint32_t index;
};

class ShmTransport final : public Transport, private Boards, private Views, private Staging {
 public:
  ShmTransport(Job& job, const Topology& topology, std::span<const Rank> members,
               std::size_t at_once);

  void post(std::span<const Transfer> transfers) noexcept override;
  std::size_t poll(std::span<Completion> out) noexcept override;
  void cancel(std::uint32_t id_high) noexcept override;
  void forget(std::uint64_t tag, std::uint64_t mask) noexcept override;
  Caps caps() const override;
  Status cause(Rank peer) const override;
  bool disputed(Rank peer, Head& theirs) const noexcept override;
  Rank unexpected(Rank peer, std::uint64_t tag, std::uint64_t mask, Head& theirs) noexcept override;
  Boards* boards() noexcept override { return this; }
  Views* views() noexcept override { return this; }
  Staging* staging() noexcept override { return this; }

 private:
  std::uint64_t offer() noexcept override { return parts_.offer(arena_.data() + layout_.boards); }
  void withdraw(std::uint64_t part) noexcept override { parts_.withdraw(part); }
  std::unique_ptr<Board> make(std::span<const Rank> members,
                              std::span<const std::uint64_t> parts) override;
  std::unique_ptr<Board> fixed(std::span<const Rank> members, std::uint32_t id) override;
  bool release(std::uint64_t token) noexcept override;
  void* stage(std::size_t bytes) noexcept override;
  void unstage(void* staged) noexcept override;
  bool mapped(const void* data, std::size_t bytes) const noexcept override;

  // A send whose cell the peer has not finished reading.
  struct Sent {
    std::uint64_t id = 0;
    bool report = false;       // true: the acknowledgment completes `id`
    bool open = true;          // not acknowledged yet
    bool passed_over = false;  // later rounds passed the cell over; `round` is the cell's round
    std::uint8_t round = 0;
    int slot = -1;
  };
  // The peer's cells that this rank holds, with their slots or mapped memory: views lent to users,
  // and unexpected messages.
  struct Kept {
    // What a cell's message holds: only the cell, a slot of class k - kSlot, or, as a view, the
    // peer's weft::alloc memory.
    enum : std::uint8_t { kNone, kCell, kMapped, kSlot };
    int all = 0;
    int of[kSlot + kSlotClasses] = {};
    std::vector<std::uint8_t> cells;  // [kRing]
  };
  // An unexpected message: its cell, or its copied bytes (spilled).
  struct Early {
    std::uint32_t cell = 0;
    std::unique_ptr<std::byte[]> spilled;
    std::size_t bytes = 0;  // spilled bytes; fewer than the message has for a fragment
    Code code = Code::kOk;
  };
  using Matched = Matching<Early>;
  using Unexpected = Matched::Unexpected;
  struct Waiting {
    Transfer transfer;
    std::size_t sent = 0;  // bytes of a fragmented message sent so far
    int held = -1;         // staged slot with the bytes, referenced until all are sent
  };
  struct Peer {
    Rank rank = kNoRank;
    int pid = 0;
    int arena_fd = -1, directory_fd = -1;  // the peer's descriptors
    std::byte* arena = nullptr;            // null until it is needed
    SharedRegion region;                   // the region with `arena`; empty for this rank itself
    std::unique_ptr<PeerRegions> memory;   // null until it is needed
    // this rank's messages to the peer
    Cell* out = nullptr;               // in the peer's arena
    Head* heads_out = nullptr;         // [kRing], in the peer's arena
    Acks* acks_in = nullptr;           // in this rank's arena
    std::uint32_t sent = 0, done = 0;  // all cells before `done` are finished or passed over
    std::uint32_t acks_seen = 0;
    std::vector<Sent> log;  // [kRing]
    std::vector<Waiting> backlog;
    // the peer's messages to this rank
    Cell* in = nullptr;  // in this rank's arena
    const Head* heads_in = nullptr;
    Acks* acks_out = nullptr;  // in the peer's arena
    std::uint32_t seen = 0, released = 0;
    Matched matching;
    Kept kept;
    std::string error;
    bool broken = false;  // the peer violated the protocol or cannot be mapped: ignored from now on
    bool transfers_failed = false;  // its transfers have been failed as well
    Head disputed;                  // the peer's head that did not match the expected one
  };

  // Reads the members' hellos, and checks whether this rank can attach to all of them.
  void reach(Rank me, std::span<const Rank> members, std::span<const std::string> hellos);
  // Maps the peer's arena; from then on the peer polls for this rank's messages. If the mapping
  // fails, marks the peer broken and throws Error.
  void map(Peer& p);
  // Maps the arena if it is not mapped yet. False if the peer is broken.
  bool reached(Peer& p) noexcept;
  // Maps the arenas of the members that have mapped this rank's arena.
  void meet_callers() noexcept;
  void choose_copies(std::string_view mode);
  void make_slots();
  // Returns the index of the rank among the members; -1 if the rank is not on this machine.
  int member(Rank rank) const noexcept {
    const auto r = static_cast<std::size_t>(rank);
    return rank < 0 || r >= member_of_.size() ? -1 : member_of_[r];
  }
  Peer& peer_of(Rank rank) { return peers_[static_cast<std::size_t>(member_of_[rank])]; }
  // Marks the peer broken; the next poll() fails its transfers through fail_transfers().
  void breaks(Peer& p, std::string why) noexcept;
  void fail_transfers(Peer& p) noexcept;
  bool try_send(Peer& p, Waiting& w) noexcept;
  void send_backlog(Peer& p) noexcept;
  Cell* next_cell(Peer& p) noexcept;
  void pass_over_held(Peer& p) noexcept;
  void pass_over(Peer& p) noexcept;
  void skip_finished(Peer& p) noexcept;
  void publish(Peer& p, Cell* cell, const Transfer& t, const Sent& sent) noexcept;
  Code agree(Peer& p, const Transfer& t, std::uint64_t sign, const Head& head,
             std::size_t bytes) noexcept;
  const Head& head_of(const Peer& p, std::uint32_t cell) const noexcept {
    return p.heads_in[cell % kRing];
  }
  int fill_slot(const void* data, std::size_t bytes) noexcept;
  void collect_acks(Peer& p) noexcept;
  void drain(Peer& p, bool patient = false) noexcept;
  // Reads and validates a cell. If the cell is invalid, marks the peer broken and returns false.
  bool look(Peer& p, std::uint32_t cell, Message& m) noexcept;
  bool arrive(Peer& p, const Message& m, std::uint32_t cell, bool patient) noexcept;
  // Copies the message of `cell` to `unexpected`, which is already counted, and frees the cell.
  void spill(Peer& p, const Message& m, std::uint32_t cell, Unexpected& unexpected) noexcept;
  bool take_spilled(Peer& p, Receive& receive, Unexpected& unexpected) noexcept;
  // Returns true when the message is complete.
  bool deliver(Peer& p, Receive& receive, const Message& m, std::uint32_t cell) noexcept;
  void deliver_view(Peer& p, const Transfer& t, const Message& m, std::uint32_t cell) noexcept;
  void receive(Peer& p, const Transfer& t) noexcept;
  const std::byte* mapped_bytes(Peer& p, const Message& m) noexcept;
  const std::byte* bytes_of(Peer& p, const Message& m, std::uint32_t cell) noexcept;
  // Returns whether the sender cancelled the message. Check after reading the sender's own memory;
  // discard the bytes if true.
  bool revoked(Peer& p, const Cell& cell) noexcept;
  bool read_memory(Peer& p, const Message& m, void* to) noexcept;
  // Copies the message's bytes; fails if the sender cancelled it.
  inline Code copy_out(Peer& p, const Message& m, std::uint32_t cell, void* to,
                       bool streaming) noexcept;
  std::byte* bounce(std::size_t bytes, int& index) noexcept;
  void release_cell(Peer& p, std::uint32_t cell) noexcept;
  // Keeps this cell and, if the message has one, its slot. False if too many cells or slots are
  // kept already.
  bool keep(Peer& p, const Message& m, std::uint32_t cell) noexcept;
  void complete(std::uint64_t id, Code code = Code::kOk) noexcept { done_.add(id, code); }
  // Takes a slot of the smallest class that fits `bytes` and has more than `left` free; -1 if none.
  int take_slot(std::size_t bytes, std::size_t left = 0) noexcept;
  void drop_slot(int slot) noexcept;
  std::byte* slot_data(int slot) const noexcept;
  int slot_at(const void* data) const noexcept;  // -1: `data` is not in the pool

  Layout layout_;
  SharedRegion arena_;
  std::optional<Readable> readable_;                        // while peers read this rank's memory
  const std::size_t unexpected_most_ = unexpected_limit();  // limit in bytes per peer
  int me_ = 0;                                              // index of this rank among the members
  std::vector<int> member_of_;  // by world rank, -1: not on this machine
  std::size_t unexpected_ = 0;  // number of unexpected messages of all peers
  std::vector<Peer> peers_;
  std::vector<Peer*> near_;  // peers whose arenas are mapped or failed to map
  std::uint32_t callers_ = 0;
  std::vector<int> slot_refs_;
  std::vector<int> free_slots_[kSlotClasses];
  std::size_t slot_base_[kSlotClasses] = {};
  struct Bounce {
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes = 0;
  };
  std::vector<Bounce> bounces_;
  std::vector<int> free_bounces_;
  Completions done_;
  bool cma_ = false;
  std::size_t cma_min_bytes_ = 0;
  std::vector<Rank> waiting_;  // peers with a backlog
  BoardParts parts_;
  // The bytes last copied in this batch and their slot: sends of the same bytes to other peers
  // share the slot.
  const void* last_data_ = nullptr;
  std::size_t last_bytes_ = 0;
  int last_slot_ = -1;
};

}  // namespace weft::shm
