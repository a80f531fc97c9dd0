// Optional parts of a transport (transport.h): boards, views and staging of shared memory, new
// connections, device memory. Transport::boards() etc. return them; the object belongs to the
// transport, lives as long, and is used by the same thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "transport/transport.h"

namespace weft {

// Shared memory for small messages among ranks of a machine: each member publishes one message per
// round, data and flag in one cache line, and reads the other members' messages in place.
class Board {
 public:
  virtual ~Board() = default;
  virtual std::size_t capacity() const noexcept = 0;  // bytes of one message
  // Publishes this member's message and its head. Rounds count from 1. The board keeps two rounds:
  // the caller must have read every member's message of round r - 1 before it publishes r + 1.
  virtual void publish(std::uint32_t round, const void* data, std::size_t bytes,
                       const Head& head) noexcept = 0;
  // Returns the member's message of the round; nullptr if it is not published yet.
  virtual const void* read(int member, std::uint32_t round) const noexcept = 0;
  // Stores the address of every member's message in `from`; all must be published. Returns the
  // first member whose head has a sign other than `sign`; -1 if there is none. Skips this rank's
  // own message, whose cache line may have moved to other members' caches.
  virtual int collect(std::uint32_t round, std::uint64_t sign,
                      const void** from) const noexcept = 0;
  // Returns the head of a published message.
  virtual Head head(int member, std::uint32_t round) const noexcept = 0;
};

// Makes boards. A board takes one part of every member's memory.
class Boards {
 public:
  // Reserves and clears a part of this rank's memory for a new board; 0: no part is left. The
  // caller passes the part to make() or withdraw().
  virtual std::uint64_t offer() noexcept = 0;
  // Takes back a part that no board uses.
  virtual void withdraw(std::uint64_t part) noexcept = 0;
  // Makes a board of `members` (world ranks, this one included) over the part that each member
  // offered; nullptr if a member offered none. After every member has destroyed its board object
  // this rank's part is free again. The board must be destroyed before the transport.
  virtual std::unique_ptr<Board> make(std::span<const Rank> members,
                                      std::span<const std::uint64_t> parts) = 0;
  // Makes a board over preallocated parts, without an offer; `id` is 0 to 2.
  static constexpr std::uint32_t kFixed = 3;
  virtual std::unique_ptr<Board> fixed(std::span<const Rank> members, std::uint32_t id) = 0;

 protected:
  ~Boards() = default;
};

// Lends received messages in place (Transfer::Kind::kView).
class Views {
 public:
  // Releases a view; the peer may write to the memory from then on. Returns false if the peer
  // canceled the task and reclaimed the memory before: the bytes that the caller read are
  // undefined.
  virtual bool release(std::uint64_t token) noexcept = 0;
  // Compares the caller's crc32c of a view `by_reader` with the sender's. Returns false if they
  // differ: the transport takes the view back, and the transfer completes again. A caller that
  // combines several views releases none of them before verify() accepts all.
  virtual bool verify(std::uint64_t token, std::uint32_t crc) noexcept {
    (void)token, (void)crc;
    return true;
  }

 protected:
  ~Views() = default;
};

// Lends memory of the transport. The caller writes a result to it and posts it as the `data` of one
// or more kSend, and peers read it in place.
class Staging {
 public:
  // Returns nullptr if the transport has no such memory now.
  virtual void* stage(std::size_t bytes) noexcept = 0;
  // Ends the loan of stage(); posted sends of the memory stay valid.
  virtual void unstage(void* staged) noexcept = 0;
  // True if peers read these bytes without a copy by this rank, so that staging is unnecessary.
  virtual bool mapped(const void* data, std::size_t bytes) const noexcept = 0;

 protected:
  ~Staging() = default;
};

// Replaces the connection with one peer (rails/rails.h).
class Recovery {
 public:
  // Ends the connection. After the call returns the transport reports no completion for transfers
  // with the peer and does not touch their `data`; it drops the peer's unexpected messages. The
  // call may end connections with other peers, too: their transfers then complete with an error.
  virtual void disconnect(Rank peer) noexcept = 0;
  // Prepares a new connection after disconnect() on both sides. Returns the argument of the peer's
  // connect(); empty if a new connection is not possible now.
  virtual std::string reopen(Rank peer) noexcept = 0;
  // Connects with the result of the peer's reopen(); false: failed, no messages can be sent.
  virtual bool connect(Rank peer, std::string_view theirs) noexcept = 0;

 protected:
  ~Recovery() = default;
};

// Memory that the rail's device itself reads and writes.
class DeviceMemory {
 public:
  // True if the NIC accesses this GPU memory directly (GPUDirect) and no software accesses the
  // bytes. May register the memory, for repeated use.
  virtual bool reaches_gpu(void* data, std::size_t bytes) noexcept = 0;
  // Announces that no further transfer uses the buffer with this serial number (UserBuffer), so its
  // registration may end.
  virtual void end_buffer(std::uint64_t serial) noexcept = 0;

 protected:
  ~DeviceMemory() = default;
};

}  // namespace weft
