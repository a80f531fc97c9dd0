// The transport seam: how bytes move between two ranks on one rail, or inside a host.
//
// A Transport knows nothing about collectives. Calls are non-blocking and batched, and no call
// waits, sleeps or reads a clock, so that a simulated fabric can implement the very same seam in
// virtual time. A Transport is used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "topo/base/status.h"

namespace weft {

// What travels with a message beside its bytes, so that both ends can tell that they mean the same
// message: see Transfer::head. What it says is not the transports' business.
struct Head {
  std::uint64_t sign = 0;       // must be the same at both ends; never 0
  std::uint64_t about[4] = {};  // whatever helps to say how two signs differ
};

// One message of a rank to a peer. Messages match by (source, destination, tag), each tag being
// used by one message of a pair at a time; the receiver knows the exact size beforehand.
struct Transfer {
  enum class Kind : std::uint8_t {
    kSend,  // completes when `data` may be written again
    kRecv,  // completes when the bytes are at `data`
    kView,  // a receive that lends the bytes where they landed, until release(). Bytes lent are
            // read-only. Only where caps().views; otherwise use kRecv.
  };
  Kind kind = Kind::kSend;
  bool buffered = false;   // kSend: must complete even if the peer never releases its view; the
                           // transport copies where it would have lent `data` itself
  bool streaming = false;  // the destination will not be read soon: non-temporal stores may pay
  // Where caps().checks. kSend: `crc` is the crc32c of the bytes already. kView: the caller
  // computes that of what it reads and gives it to verify() before release().
  bool summed = false, by_reader = false;
  // `data` is memory of a GPU, at both ends, that reaches_device(): the processor keeps off it.
  bool on_device = false;
  std::uint32_t crc = 0;
  Rank peer = kNoRank;  // world rank
  std::uint64_t tag = 0;
  void* data = nullptr;   // null for kView, and always null where caps().phantom
  std::size_t bytes = 0;  // 0 is a message like any other
  std::uint64_t id = 0;   // the caller's, returned in the Completion; unique among those under way
  // null, or what the sender sends along and what the receiver expects; both ends give one or none.
  // Must stay as it is until the transfer is over. Where the signs differ the receive ends with
  // kMismatch, whatever the sizes, and disputed() returns the sender's head. What cannot take one
  // along (ucx: long messages) goes without.
  const Head* head = nullptr;
};

struct Completion {
  std::uint64_t id = 0;
  Code code = Code::kOk;       // not kOk: the transfer failed, cause(peer) says why
  std::int8_t rail = -1;       // that the message came over, where rails stand in for each other
  const void* view = nullptr;  // kView: the bytes
  std::uint64_t token = 0;     // kView: what release() takes
};

struct Caps {
  std::string name;                 // "shm", "tcp", "ucx", "verbs", "sim"
  bool views = false;               // kView is supported
  bool phantom = false;             // no bytes are carried (simulated): data and views are null
  std::size_t inline_bytes = 0;     // messages up to this size are sent with their descriptor
  std::size_t max_view = SIZE_MAX;  // largest message a kView can take
  int tag_bits = 64;                // of Transfer::tag that are carried
  bool cuda = false;                // takes device pointers
  bool checks = false;              // messages are checked end to end: see checked.h
  bool recoverable = false;  // sever(), reopen() and meet() work: see transport/rails/rails.h
};

// Small messages among ranks that share memory: each member publishes one message per round, data
// and flag in one cache line, and reads those of the others where they are.
class Board {
 public:
  virtual ~Board() = default;
  virtual std::size_t capacity() const noexcept = 0;  // bytes of one message
  // Round numbers start at 1 and rise by 1. The caller has read every member's message of round
  // r - 1 before it publishes round r + 1: two rounds are kept. The head lies beside the message.
  virtual void publish(std::uint32_t round, const void* data, std::size_t bytes,
                       const Head& head) noexcept = 0;
  // Member i's message of the round, nullptr until it is there.
  virtual const void* read(int member, std::uint32_t round) const noexcept = 0;
  // The same of all members, whose messages must be there. Returns the first member whose head has
  // another sign than this one, -1 when all agree. This rank's own message is not looked at: what
  // others have read may have left its cache.
  virtual int collect(std::uint32_t round, std::uint64_t sign,
                      const void** from) const noexcept = 0;
  // Of a message that is there.
  virtual Head head(int member, std::uint32_t round) const noexcept = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;

  // Starts every transfer. Never fails by itself: a transfer that cannot work completes with a
  // code. Order of posting does not matter for matching.
  virtual void post(std::span<const Transfer> transfers) noexcept = 0;

  // Makes progress and writes up to out.size() completions; returns how many.
  virtual std::size_t poll(std::span<Completion> out) noexcept = 0;

  // Gives a view back. The memory may be reused by the peer from then on.
  // False: the peer took the bytes back meanwhile, as it gave the operation up; what was read from
  // the view may be anything.
  virtual bool release(std::uint64_t token) noexcept {
    (void)token;
    return true;
  }

  // Of a view `by_reader`: whether what was read is what was sent. False: the view is taken back,
  // and the transfer will complete once more. Where there are others to be checked for the same
  // purpose, release none before all are right.
  virtual bool verify(std::uint64_t token, std::uint32_t crc) noexcept {
    (void)token, (void)crc;
    return true;
  }

  // Forgets every transfer whose id has these upper 32 bits (one operation given up): no
  // completion for them will be reported and their `data` is not touched after the call returns.
  virtual void cancel(std::uint32_t id_high) noexcept = 0;

  // Drops messages that have come, of whichever peer, whose tag is `tag` in the bits of `mask`, and
  // that no receive has asked for.
  virtual void forget(std::uint64_t tag, std::uint64_t mask) noexcept { (void)tag, (void)mask; }

  // Memory lent for a message about to be sent by one or more kSend whose `data` points to it,
  // so that a result can be produced right where the peers will read it. nullptr when the
  // transport has none to lend now. unstage() ends the loan; posted sends stay valid.
  virtual void* stage(std::size_t bytes) noexcept {
    (void)bytes;
    return nullptr;
  }
  virtual void unstage(void* staged) noexcept { (void)staged; }

  // True when peers read these bytes without any copy by us, so that staging would be a waste.
  virtual bool mapped(const void* data, std::size_t bytes) const noexcept {
    (void)data, (void)bytes;
    return false;
  }

  virtual Caps caps() const = 0;

  // Whether the rail's hardware itself reads and writes this memory of a GPU (GPUDirect). False:
  // something else would bring it there, or touches what passes. May register the memory: for such
  // as is used again and again.
  virtual bool reaches_device(void* data, std::size_t bytes) noexcept {
    (void)data, (void)bytes;
    return false;
  }

  // Changes when bytes go to peers or come from them, also those of messages that are not over yet;
  // nothing where the transport cannot tell. For when nothing ends: it may ask the system.
  virtual std::optional<std::uint64_t> moved_bytes() const noexcept { return std::nullopt; }

  // Why transfers with `peer` fail; ok when they do not.
  virtual Status cause(Rank peer) const = 0;

  // The head that `peer` gave, after a receive from it ended with kMismatch (some transports know
  // it when a send did, too); false where it is unknown.
  virtual bool disputed(Rank peer, Head& theirs) const noexcept {
    (void)peer, (void)theirs;
    return false;
  }

  // Looks for a message of `peer` (kNoRank: of anybody) with a head, that no receive has asked for
  // so far, and whose tag is `tag` in the bits of `mask`. Returns its sender and its head, kNoRank
  // where there is none. The message stays where it is. A search: for when nothing moves; cheap
  // where no message waits for its receive.
  virtual Rank unclaimed(Rank peer, std::uint64_t tag, std::uint64_t mask, Head& theirs) noexcept {
    (void)peer, (void)tag, (void)mask, (void)theirs;
    return kNoRank;
  }

  // A board takes a part of memory from every member. This rank's part, reserved and cleared, for
  // a board that is about to be made; 0: there is none left. It goes to board() or
  // withdraw_board().
  virtual std::uint64_t offer_board() noexcept { return 0; }
  virtual void withdraw_board(std::uint64_t part) noexcept { (void)part; }
  // A board shared with `members` (world ranks, this one included) over the part that each of them
  // offered; nullptr where there is none. Its destruction frees this rank's part once every member
  // has destroyed its own; it must happen before the transport's.
  virtual std::unique_ptr<Board> board(std::span<const Rank> members,
                                       std::span<const std::uint64_t> parts) {
    (void)members, (void)parts;
    return nullptr;
  }
  // A part that every rank has from the start, without an offer, for ids 0 ... 2.
  static constexpr std::uint32_t kFixedBoards = 3;
  virtual std::unique_ptr<Board> fixed_board(std::span<const Rank> members, std::uint32_t id) {
    (void)members, (void)id;
    return nullptr;
  }

  // The end of a connection, and a new beginning, where caps().recoverable. sever() gives up every
  // transfer with the peer: no completion will be reported for them, their `data` is not touched
  // after the call returns, and what has come from the peer and was not asked for is dropped. It
  // may end the connections with other peers, too: their transfers then complete with an error.
  virtual void sever(Rank peer) noexcept { (void)peer; }
  // After sever() on both sides: what the peer must know for meet(). Empty: not possible now.
  virtual std::string reopen(Rank peer) noexcept {
    (void)peer;
    return {};
  }
  // With what the peer's reopen() gave. Then messages with it flow again; false: they cannot.
  virtual bool meet(Rank peer, std::string_view theirs) noexcept {
    (void)peer, (void)theirs;
    return false;
  }

  // Nobody may poll for long. What only later polls would finish of sends that are over goes to the
  // kernel now.
  virtual void leave() noexcept {}

  // Ready for a blocking wait: returns file descriptors that become readable when poll() has
  // something to do, or says by `false` that something is pending right now and poll() must run.
  virtual bool arm(std::vector<int>& fds) noexcept {
    (void)fds;
    return true;
  }
};

}  // namespace weft
