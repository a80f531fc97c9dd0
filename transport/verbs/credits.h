// Who may write into whose slots: the arithmetic of one queue pair, without verbs.
//
// A queue pair's receiver owns a ring of slots, which the sender fills in order; the receiver is
// done with a slot as soon as it has looked at it (it copies what nobody has asked for yet), also
// in order. So a credit is a count, and the state of the ring is two counts. The receiver tells how
// many messages it has taken, ever, modulo 2^16, with every message of its own; when it owes half
// of a ring and has nothing to say, in an empty message.
//
// Why no receive is ever missing (no RNR): whatever arrives takes one receive request. Before the
// sender hears of new credits, at most `slots` messages, a write for each window granted, and
// kEmptyMessages can come; recv_depth() is their sum. A receiver gives its receive requests back
// before it tells of credits or grants a window.
#pragma once

#include <cstdint>

namespace weft {

class VerbsSendCredits {
 public:
  explicit VerbsSendCredits(int slots) : slots_(static_cast<std::uint64_t>(slots)) {}
  bool available() const { return sent_ - taken_ < slots_; }
  int next() const { return static_cast<int>(sent_ % slots_); }  // the slot to fill next
  int take() { return static_cast<int>(sent_++ % slots_); }      // the slot to fill
  // What the peer told. False: it cannot be, the peer claims more than was sent.
  bool heard(std::uint16_t count) {
    const auto more = static_cast<std::uint16_t>(count - static_cast<std::uint16_t>(taken_));
    if (more > sent_ - taken_) return false;
    taken_ += more;
    return true;
  }

 private:
  std::uint64_t slots_;
  std::uint64_t sent_ = 0, taken_ = 0;
};

class VerbsRecvCredits {
 public:
  // A burst of messages can bring at most two empty answers before the peer hears of them; one
  // more may have been under way.
  static constexpr int kEmptyMessages = 4;
  static int recv_depth(int slots, int windows) { return slots + windows + kEmptyMessages; }

  explicit VerbsRecvCredits(int slots) : slots_(static_cast<std::uint64_t>(slots)) {}
  int next() const { return static_cast<int>(taken_ % slots_); }  // the slot that comes next
  void took() { ++taken_; }
  bool owes() const { return taken_ - told_ >= (slots_ + 1) / 2; }
  std::uint16_t tell() {
    told_ = taken_;
    return static_cast<std::uint16_t>(told_);
  }

 private:
  std::uint64_t slots_;
  std::uint64_t taken_ = 0, told_ = 0;
};

// What the 32 bits of immediate data say: what has come, and the sender's count of messages taken.
struct VerbsImmediate {
  enum class Kind : std::uint32_t {
    kMessage,  // in slot `index`
    kWindow,   // the memory of window `index` is filled
    kEmpty,    // only the count
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
