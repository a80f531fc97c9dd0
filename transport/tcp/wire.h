// The wire format of the tcp transport. Uses no sockets, so tests and the fuzzer cover the whole
// file.
//
// A connection begins with a Hello of the connecting rank; the peer responds with an Answer. Each
// of these messages proves that its sender has the job's secret. Then both ranks send frames, each
// with a Head if `headed`:
//
//     a short message:   sender  -- kEager, bytes --> receiver
//     a long message:    sender  -- kAnnounce ------> receiver   RTS, if no kReady has arrived
//                        sender  <- kReady ---------- receiver   CTS, when the receive is posted
//                        sender  -- kPiece, bytes --> receiver   as many pieces as needed
//
// The shortest messages are sent as datagrams outside the connection, between ranks that have
// received a datagram of each other. Datagrams are numbered, and each acknowledges all received
// datagrams. The sender retransmits an unacknowledged message in the stream, as kCopy. Every
// datagram has a MAC under a key for its direction of the pair (keys.h), and a sequence number that
// is accepted once.
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
// A random number in a rank's contact. Keys are derived from the nonces of both ranks.
using Nonce = std::array<std::uint8_t, 16>;

struct Hello {
  static constexpr std::uint64_t kMagic = 0x3270'6374'7466'6577;  // "wefttcp2"
  std::uint64_t magic = kMagic;
  std::uint32_t rank = 0;  // the connecting rank
  std::uint32_t zero = 0;
  Nonce nonce{};  // nonce of that rank's contact, which the listener may not have yet
  Key proof{};    // keys.h, Use::kHello
};
static_assert(sizeof(Hello) == 48);

struct Answer {
  enum class Kind : std::uint8_t {
    kWelcome = 'w',
    kCrossed = 'x',  // both ranks connected at once, and the lower rank's connection is kept
  };
  Kind kind = Kind::kWelcome;
  std::array<std::uint8_t, 7> zero{};
  Key proof{};  // keys.h, Use::kWelcome or kCrossed
};
static_assert(sizeof(Answer) == 24);

enum class FrameKind : std::uint8_t {
  kEager = 1,
  kPiece,
  kAnnounce,
  kReady,
  kRefuse,    // answers kAnnounce: the receive expects another message
  kWithdraw,  // the sender cancelled a message that was announced or begun
  kUnready,   // the receiver cancelled a receive after kReady
  kCopy,      // repeats the message of the datagram whose number is `tag`
  kLostOne,   // answers kCopy: its datagram was lost
  kLast = kLostOne,
};

struct Frame {
  static constexpr std::uint16_t kMagic = 0x7766;  // "fw"
  std::uint16_t magic = kMagic;
  FrameKind kind = FrameKind::kEager;
  std::uint8_t headed = 0;   // 1: a Head follows the frame
  std::uint32_t length = 0;  // bytes that follow
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;  // size of the whole message
};
static_assert(sizeof(Frame) == 24);

inline constexpr std::size_t kMostFront = sizeof(Frame) + sizeof(Head);
inline constexpr std::size_t kMostShort = 512;  // bytes of the longest message sent as a datagram
inline constexpr std::size_t kMostCopy = kMostFront + kMostShort;

// The header of a datagram. A kEager frame follows, its Head if `headed`, and its bytes.
struct Datagram {
  enum class Asks : std::uint32_t { kNothing, kWhetherHeard, kAnswers };
  std::uint64_t mac = 0;       // SipHash of all bytes after this field
  std::uint64_t sequence = 0;  // number of the datagram among the sender's to the receiver, from 1
  std::uint32_t from = 0;      // the sender's rank
  std::uint32_t number = 0;    // number of the message, from 1; 0: the datagram has no message
  std::uint32_t all = 0;       // Heard::all() and more() of the sender: an acknowledgment
  std::uint32_t more = 0;
  Asks asks = Asks::kNothing;
  std::uint32_t zero = 0;
};
static_assert(sizeof(Datagram) == 40);

// The set of datagram numbers that have arrived.
class Heard {
 public:
  // Adds a number. Returns false if it is a duplicate, or too far ahead to acknowledge.
  bool first(std::uint32_t number) {
    const std::uint32_t ahead = number - all_ - 1;  // numbers may wrap
    if (ahead >= kWindow || more_ >> ahead & 1) return false;
    more_ |= 1u << ahead;
    for (; more_ & 1; more_ >>= 1) ++all_;
    return true;
  }
  std::uint32_t all() const { return all_; }    // every number up to all() has arrived
  std::uint32_t more() const { return more_; }  // bit i: all() + 1 + i has arrived
  // True if the acknowledgment (all, more) contains the number.
  static bool has(std::uint32_t all, std::uint32_t more, std::uint32_t number) {
    const std::uint32_t ahead = number - all - 1;
    return ahead < kWindow ? more >> ahead & 1 : static_cast<std::int32_t>(ahead) < 0;
  }

 private:
  static constexpr std::uint32_t kWindow = 32;
  std::uint32_t all_ = 0, more_ = 0;
};

// The received sequence numbers among the last 64; each is accepted once (RFC 4303, 3.4.3).
class Window {
 public:
  bool first(std::uint64_t sequence) {
    if (sequence > last_) {
      seen_ = sequence - last_ < 64 ? seen_ << (sequence - last_) | 1 : 1;
      last_ = sequence;
      return true;
    }
    const std::uint64_t ago = last_ - sequence;
    if (ago >= 64 || seen_ >> ago & 1) return false;
    seen_ |= std::uint64_t{1} << ago;
    return true;
  }

 private:
  std::uint64_t last_ = 0, seen_ = 1;  // number 0 is never sent
};

// Returns the reason if no rank can have sent this frame; nullptr if the frame is valid.
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
      return f.length != 0 ? "a payload on a frame kind without payload" : nullptr;
  }
}

// Writes the frame and, if `head` is not null, the head. Returns the bytes written, at most
// kMostFront.
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

// Assembles a frame and its head from the pieces of a stream, which may have any size.
class Front {
 public:
  // Takes the missing bytes from the start of `bytes`. Returns true if frame() and head() are
  // complete, or if malformed(frame()) is not nullptr.
  bool take(std::span<const std::byte>& bytes) {
    for (;;) {
      const std::size_t want = size();
      const std::size_t n = std::min(want - have_, bytes.size());
      if (n) std::memcpy(bytes_ + have_, bytes.data(), n);
      have_ += n;
      bytes = bytes.subspan(n);
      if (have_ < want) return false;
      if (have_ == size() || malformed(frame())) return true;  // otherwise read the head
    }
  }
  void clear() { have_ = 0; }
  bool begun() const { return have_ != 0; }
  Frame frame() const {
    Frame f;
    std::memcpy(&f, bytes_, sizeof f);
    return f;
  }
  // Copies the header to `room` and returns `room`; nullptr if the frame has no header.
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
