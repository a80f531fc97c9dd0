// A ring of slots (eager buffers) of one queue pair: the contents of a slot, the immediate data of
// an arrival, and the credits, which limit the slots that the sender may fill. This file does not
// depend on verbs. Both ends run the same build, so the structs are the wire format.
//
// The receiver owns the ring, which the sender fills in order. The receiver frees the slots in the
// same order, each as soon as it has read the message (it copies unexpected ones). So two counts
// describe the ring. Every message of the receiver carries the total number of messages that it has
// taken, modulo 2^16; if half a ring of credits is pending and it has no message to send, it sends
// an empty one.
//
// Why a posted receive is never missing (no RNR): each arrival consumes one. A receiver reposts its
// receive requests in batches, returns credits only for messages whose requests it has reposted,
// and reposts all before it sends a CTS. So between two reposts at most `slots` messages, one last
// write per window and kEmptyMessages can arrive; recv_depth() is their sum.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/transport.h"

namespace weft {

enum class VerbsMessage : std::uint32_t {
  kData,      // an eager message: its bytes follow
  kRts,       // a long message waits for its receive (ready to send)
  kCts,       // the receive is posted: a VerbsCts follows
  kWithdraw,  // cancels an RTS
};

// The beginning of a slot. The Head follows if `headed`, then the bytes or the VerbsCts.
struct VerbsMessageFront {
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;  // of the message
  VerbsMessage what = VerbsMessage::kData;
  std::uint32_t headed : 1 = 0;
  std::uint32_t number : 31 = 0;  // of a long message, chosen by its sender
};
static_assert(sizeof(VerbsMessageFront) == 24);

// Clear to send: the registered memory for the long message.
struct VerbsCts {
  std::uint64_t address = 0;
  std::uint32_t key = 0;
  std::uint32_t window = 0;
};

inline constexpr std::size_t kVerbsFrontBytes = sizeof(VerbsMessageFront) + sizeof(Head);

// A window that is not full, in an invitation that resumes a connection (connections/letters.h).
struct VerbsOpenWindow {
  std::uint32_t number = 0;  // of the long message
  std::uint32_t zero = 0;
  VerbsCts cts;
};

class VerbsSendCredits {
 public:
  explicit VerbsSendCredits(int slots) : slots_(static_cast<std::uint64_t>(slots)) {}
  std::uint64_t sent() const { return sent_; }
  bool available() const { return sent_ - taken_ < slots_; }
  int next() const {
    return static_cast<int>(sent_ % slots_);
  }                                                          // the slot that take() returns next
  int take() { return static_cast<int>(sent_++ % slots_); }  // the slot to fill now
  // Applies the peer's count of messages taken. False: the count exceeds the messages sent.
  bool heard(std::uint16_t count) {
    const auto more = static_cast<std::uint16_t>(count - static_cast<std::uint16_t>(taken_));
    if (more > sent_ - taken_) return false;
    taken_ += more;
    return true;
  }
  // Applies the peer's total count of messages taken after the queue pair has ended: messages
  // [taken(), sent()) must be resent. Returns false if the count is below an earlier one or above
  // the messages sent.
  bool resume(std::uint64_t taken) {
    if (taken < taken_ || taken > sent_) return false;
    taken_ = taken;
    return true;
  }
  std::uint64_t taken() const { return taken_; }

 private:
  std::uint64_t slots_;
  std::uint64_t sent_ = 0, taken_ = 0;
};

class VerbsRecvCredits {
 public:
  // Batch size for reposting receive requests.
  static constexpr int kAtOnce = 8;
  // A burst of messages causes at most two empty messages before the peer learns their credits; one
  // more may already be under way. Fewer than kAtOnce requests wait to be reposted.
  static constexpr int kEmptyMessages = 4 + kAtOnce - 1;
  static int recv_depth(int slots, int windows) { return slots + windows + kEmptyMessages; }

  explicit VerbsRecvCredits(int slots) : slots_(static_cast<std::uint64_t>(slots)) {}
  int next() const {
    return static_cast<int>(taken_ % slots_);
  }  // the slot that the peer fills next
  void took() { ++taken_; }
  std::uint64_t taken() const { return taken_; }
  bool owes() const { return taken_ - told_ >= (slots_ + 1) / 2; }
  // Whether enough slots are free to notify the peer of them now.
  bool tells() const { return covered_ - told_ >= (slots_ + 1) / 2; }
  // Whether this many receive requests are due to be reposted.
  bool due(int receives) const { return receives >= kAtOnce || owes(); }
  void reposted() { covered_ = taken_; }  // all of them
  std::uint16_t tell() {
    told_ = covered_;
    return static_cast<std::uint16_t>(told_);
  }

 private:
  std::uint64_t slots_;
  std::uint64_t taken_ = 0, told_ = 0;
  std::uint64_t covered_ = 0;  // messages taken whose receive requests are reposted
};

// The 32 bits of immediate data: the kind of arrival, and the sender's count of messages taken.
struct VerbsImmediate {
  enum class Kind : std::uint32_t {
    kMessage,  // in slot `index`
    kWindow,   // the memory of window `index` is filled
    kEmpty,    // no message, only the count
  };
  static constexpr int kMostIndices = 1 << 14;
  Kind kind;
  std::uint32_t index;
  std::uint16_t taken;

  std::uint32_t pack() const {
    return static_cast<std::uint32_t>(kind) << 30 | index << 16 | taken;
  }
  static VerbsImmediate unpack(std::uint32_t bits) {
    return {static_cast<Kind>(bits >> 30), bits >> 16 & (kMostIndices - 1),
            static_cast<std::uint16_t>(bits)};
  }
};

}  // namespace weft
