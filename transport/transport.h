// The transport interface: moves bytes between two ranks on one rail, or inside a host.
//
// A Transport is independent of collectives. Calls are non-blocking and batched, and no call waits,
// sleeps or reads a clock, so that a simulated fabric can implement the same interface in virtual
// time. A Transport is used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "topo/base/status.h"

namespace weft {

// A description sent with a message, to check that both ends refer to the same message
// (Transfer::head). Transports compare `sign` and do not interpret the rest.
struct Head {
  // Equal at both ends of a matching message; 0: the head has only `crc`.
  std::uint64_t sign = 0;
  std::uint64_t about[4] = {};  // detail for the error text when two signs differ
  std::uint32_t crc = 0;        // crc32c of the bytes, if the sender computed it
  std::uint32_t zero = 0;
};

// A buffer of the caller that contains the `data` of several transfers: a device may register it
// once, until DeviceMemory::end_buffer(). `serial` is unique in the process, and never reused.
struct UserBuffer {
  void* data = nullptr;
  std::size_t bytes = 0;
  std::uint64_t serial = 0;
  bool written = false;  // some of the transfers are receives
};

// A send to a peer or a receive from it. Messages match by (source, destination, tag). A pair of
// ranks uses a tag for one message at a time, and the receiver knows the exact size beforehand.
struct Transfer {
  enum class Kind : std::uint8_t {
    kSend,  // completes when `data` may be written again
    kRecv,  // completes when the bytes are at `data`
    kView,  // a receive that lends the caller the bytes in place, read-only, until
            // Views::release(); only where views() is not null
  };
  Kind kind = Kind::kSend;
  bool buffered = false;   // kSend: the send completes even if the peer never releases its view;
                           // the transport copies `data` instead of lending it
  bool streaming = false;  // the destination is not read soon: non-temporal stores may be faster
  // If caps().checks. summed, kSend: `crc` already is the crc32c of the bytes. by_reader, kView:
  // the caller computes the crc32c of the bytes it reads and calls Views::verify().
  bool summed = false, by_reader = false;
  // At both ends `data` is GPU memory for which DeviceMemory::reaches_gpu() is true: no CPU may
  // access it.
  bool on_device = false;
  bool repeat : 1 = false;    // the message was sent before and arrived changed
                              // (integrity/checked.h)
  bool standing : 1 = false;  // kRecv: posted by a layer in advance; no task waits for it
  // At both ends: the caller has divided its bytes between rails, so the message uses its own rail
  // while that rail works (rails/rails.h).
  bool own_rail : 1 = false;
  bool sums = false;  // at both ends: the head has the crc32c of the bytes, and must be sent
  std::uint32_t crc = 0;
  Rank peer = kNoRank;  // world rank
  std::uint64_t tag = 0;
  void* data = nullptr;   // null for kView, and always null if caps().phantom
  std::size_t bytes = 0;  // 0 is a message like any other
  std::uint64_t id = 0;   // returned in the Completion; unique among unfinished transfers
  // The head that the sender sends and the receiver expects; null at both ends or at none. It must
  // not change until the transfer is over. If the signs differ the receive ends with kMismatch,
  // regardless of the sizes; disputed() returns the sender's head. ucx sends long messages without
  // a head, unless `sums`.
  const Head* head = nullptr;
  // Null, or the buffer that contains `data`; a decorator that copies `data` may pass on data
  // outside of the buffer. It must not change until the transfer is over.
  const UserBuffer* buffer = nullptr;
};

struct Completion {
  std::uint64_t id = 0;
  Code code = Code::kOk;       // not kOk: the transfer failed, and cause(peer) returns the reason
  std::int8_t rail = -1;       // the rail that carried the message, if there are several
  std::uint32_t crc = 0;       // receive: Head::crc of the message; 0: it has no head
  const void* view = nullptr;  // kView: the bytes
  std::uint64_t token = 0;     // kView: the argument of Views::release()
};

struct Caps {
  std::string name;                 // "shm", "tcp", "ucx", "verbs", "sim"
  bool phantom = false;             // simulated, carries no bytes: data and views are null
  std::size_t inline_bytes = 0;     // messages up to this size are sent in their descriptor
  std::size_t max_view = SIZE_MAX;  // largest message that a kView can receive
  int tag_bits = 64;                // usable bits of Transfer::tag
  bool cuda = false;                // accepts device pointers
  bool checks = false;              // checks messages end to end: see integrity/checked.h
};

// Optional parts of a transport, in transport/offers.h.
class Boards;
class Views;
class Staging;
class Recovery;
class DeviceMemory;

class Transport {
 public:
  virtual ~Transport() = default;

  // Starts every transfer. The call itself never fails: an invalid transfer completes with an error
  // code. Matching does not depend on the order of posting.
  virtual void post(std::span<const Transfer> transfers) noexcept = 0;

  // Makes progress, writes up to out.size() completions and returns their number.
  virtual std::size_t poll(std::span<Completion> out) noexcept = 0;

  // Cancels every transfer whose id has these upper 32 bits (an aborted task). After the call
  // returns the transport reports no completion for them and does not touch their `data`.
  virtual void cancel(std::uint32_t id_high) noexcept = 0;

  // Drops the unexpected messages of all peers whose tag equals `tag` in the bits of `mask`. A
  // message is unexpected while it has arrived and no receive for it is posted.
  virtual void forget(std::uint64_t tag, std::uint64_t mask) noexcept { (void)tag, (void)mask; }

  virtual Caps caps() const = 0;

  // Returns a number that changes when bytes leave or arrive, also in the middle of a message;
  // nullopt if the transport does not know. May enter the kernel: for use only while no transfer
  // completes.
  virtual std::optional<std::uint64_t> moved_bytes() const noexcept { return std::nullopt; }

  // Returns why transfers with `peer` fail; ok while they work.
  virtual Status cause(Rank peer) const = 0;

  // Stores the peer's head in `theirs` after a receive from `peer` (in some transports also a send)
  // ended with kMismatch; returns false if the head is unknown.
  virtual bool disputed(Rank peer, Head& theirs) const noexcept {
    (void)peer, (void)theirs;
    return false;
  }

  // Searches the unexpected messages of `peer` (kNoRank: all peers) for one with a head whose tag
  // equals `tag` in the bits of `mask`. Returns the sender and stores the head in `theirs`; kNoRank
  // if there is none. The message stays in the transport. For a task that makes no progress: cheap
  // only while there are no unexpected messages.
  virtual Rank unexpected(Rank peer, std::uint64_t tag, std::uint64_t mask, Head& theirs) noexcept {
    (void)peer, (void)tag, (void)mask, (void)theirs;
    return kNoRank;
  }

  // Prepares for a long time without poll(): passes to the kernel all bytes of completed sends that
  // later polls would have sent.
  virtual void before_pause() noexcept {}

  // Prepares a blocking wait: adds the file descriptors that become readable when poll() has work.
  // Returns false if work is pending and the caller must poll() first.
  virtual bool arm(std::vector<int>& fds) noexcept {
    (void)fds;
    return true;
  }

  // Optional parts of this transport; nullptr: not supported. The result never changes.
  virtual Boards* boards() noexcept { return nullptr; }
  virtual Views* views() noexcept { return nullptr; }  // takes transfers of kind kView
  virtual Staging* staging() noexcept { return nullptr; }
  virtual Recovery* recovery() noexcept { return nullptr; }
  virtual DeviceMemory* device_memory() noexcept { return nullptr; }
};

}  // namespace weft
