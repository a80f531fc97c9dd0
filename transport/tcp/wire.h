// The bytes of the tcp transport. Pure: no sockets, so that tests and the fuzzer reach all of it.
//
// A connection begins with a Hello of the rank that connects; the other answers with one byte. Then
// frames go both ways, each with a Head where `headed`:
//
//     a short message:   sender  -- kEager, bytes --> receiver
//     a long message:    sender  -- kAnnounce ------> receiver   where its receive is not known yet
//                        sender  <- kReady ---------- receiver   as soon as the receive is posted
//                        sender  -- kPiece, bytes --> receiver   as many as it takes
//
// The shortest messages go as datagrams beside the connection, between ranks that have heard each
// other's: numbered, and each tells which ones have come. What the peer does not tell of comes once
// more in the stream, as kCopy.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "topo/base/status.h"
#include "transport/transport.h"

namespace weft::tcp {

inline constexpr std::size_t kMostEager = std::size_t{64} << 10;
inline constexpr std::size_t kMostPiece = std::size_t{1} << 20;

using Key = std::array<std::uint8_t, 16>;

struct Hello {
  static constexpr std::uint64_t kMagic = 0x3170'6374'7466'6577;  // "wefttcp1"
  std::uint64_t magic = kMagic;
  std::uint32_t rank = 0;  // who connects
  std::uint32_t zero = 0;
  Key key{};  // the peer's, for this rank
};
static_assert(sizeof(Hello) == 32);

enum class Answer : std::uint8_t {
  kWelcome = 'w',
  kCrossed = 'x',  // both connect at once, and the other's connection is kept
};

enum class FrameKind : std::uint8_t {
  kEager = 1,
  kPiece,
  kAnnounce,
  kReady,
  kRefuse,    // of what was announced: the receive means another message
  kWithdraw,  // of what was announced or begun: its sender gave it up
  kUnready,   // of what was ready: the receive was given up
  kCopy,      // the bytes are the message of a datagram, whose number is the tag
  kLostOne,   // the datagram of a copy had not come
  kLast = kLostOne,
};

struct Frame {
  static constexpr std::uint16_t kMagic = 0x7766;  // "fw"
  std::uint16_t magic = kMagic;
  FrameKind kind = FrameKind::kEager;
  std::uint8_t headed = 0;   // a Head comes between this and the bytes
  std::uint32_t length = 0;  // of bytes that follow
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;  // of the whole message
};
static_assert(sizeof(Frame) == 24);

inline constexpr std::size_t kMostFront = sizeof(Frame) + sizeof(Head);
inline constexpr std::size_t kMostShort = 512;  // bytes of a message that goes as a datagram
inline constexpr std::size_t kMostCopy = kMostFront + kMostShort;

// In front of a datagram's message: a frame kEager, its head where it has one, its bytes.
struct Datagram {
  enum class Asks : std::uint32_t { kNothing, kWhetherHeard, kAnswers };
  Key key{};                 // the receiver's, for the sender
  std::uint32_t from = 0;    // rank
  std::uint32_t number = 0;  // from 1 on, rising by 1; 0: there is no message
  std::uint32_t all = 0;     // see Heard, of what came from the receiver
  std::uint32_t more = 0;
  Asks asks = Asks::kNothing;
  std::uint32_t zero = 0;
};
static_assert(sizeof(Datagram) == 40);

// Which numbers have come.
class Heard {
 public:
  // False: it has come before, or is too far ahead to be told of.
  bool first(std::uint32_t number) {
    const std::uint32_t ahead = number - all_ - 1;  // numbers may wrap round
    if (ahead >= kWindow || more_ >> ahead & 1) return false;
    more_ |= 1u << ahead;
    for (; more_ & 1; more_ >>= 1) ++all_;
    return true;
  }
  std::uint32_t all() const { return all_; }    // every number up to this
  std::uint32_t more() const { return more_; }  // bit i: all() + 1 + i
  static bool has(std::uint32_t all, std::uint32_t more, std::uint32_t number) {
    const std::uint32_t ahead = number - all - 1;
    return ahead < kWindow ? more >> ahead & 1 : static_cast<std::int32_t>(ahead) < 0;
  }

 private:
  static constexpr std::uint32_t kWindow = 32;
  std::uint32_t all_ = 0, more_ = 0;
};

// Why this cannot be the frame of a rank; nullptr where it can.
inline const char* malformed(const Frame& f) {
  if (f.magic != Frame::kMagic) return "no frame";
  if (f.kind < FrameKind::kEager || f.kind > FrameKind::kLast) return "an unknown kind of frame";
  if (f.headed > 1) return "an unknown flag";
  switch (f.kind) {
    case FrameKind::kEager:
      return f.length != f.bytes || f.bytes > kMostEager ? "an impossible length" : nullptr;
    case FrameKind::kPiece:
      return f.length == 0 || f.length > kMostPiece || f.length > f.bytes ? "an impossible length"
                                                                          : nullptr;
    case FrameKind::kCopy:
      return f.length != f.bytes || f.length < sizeof(Frame) || f.length > kMostCopy
                 ? "an impossible length"
                 : nullptr;
    default:
      return f.length != 0 ? "bytes where there are none" : nullptr;
  }
}

// The frame, and the head behind it. Returns how many bytes, kMostFront at most.
inline std::size_t write_front(std::byte* to, const Frame& frame, const Head* head) {
  std::memcpy(to, &frame, sizeof frame);
  if (!head) return sizeof frame;
  std::memcpy(to + sizeof frame, head, sizeof *head);
  return sizeof frame + sizeof *head;
}

inline Frame eager_frame(const Transfer& t) {
  return {.kind = FrameKind::kEager,
          .headed = t.head != nullptr,
          .length = static_cast<std::uint32_t>(t.bytes),
          .tag = t.tag,
          .bytes = t.bytes};
}

// Collects what a frame has in front of its bytes, from pieces of a stream of any size.
class Front {
 public:
  // Takes what it needs from the front of `bytes`. True: frame() and head() are whole, or
  // malformed(frame()) says what is wrong.
  bool take(std::span<const std::byte>& bytes) {
    for (;;) {
      const std::size_t want = size();
      const std::size_t n = std::min(want - have_, bytes.size());
      if (n) std::memcpy(bytes_ + have_, bytes.data(), n);
      have_ += n;
      bytes = bytes.subspan(n);
      if (have_ < want) return false;
      if (have_ == size() || malformed(frame())) return true;  // else the head is still to come
    }
  }
  void clear() { have_ = 0; }
  bool begun() const { return have_ != 0; }
  Frame frame() const {
    Frame f;
    std::memcpy(&f, bytes_, sizeof f);
    return f;
  }
  // nullptr where the frame has none.
  const Head* head(Head& room) const {
    if (have_ < kMostFront) return nullptr;
    std::memcpy(&room, bytes_ + sizeof(Frame), sizeof room);
    return &room;
  }

 private:
  std::size_t size() const {
    return have_ < sizeof(Frame) || !frame().headed ? sizeof(Frame) : kMostFront;
  }
  std::byte bytes_[kMostFront];
  std::size_t have_ = 0;
};

}  // namespace weft::tcp
