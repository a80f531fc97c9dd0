// The bytes of the tcp transport. Pure: no sockets, so that tests and the fuzzer reach all of it.
//
// A connection begins with a Hello of the rank that connects; the other answers with one byte. Then
// frames go both ways, each with a Head where `headed`:
//
//     a short message:   sender  -- kEager, bytes --> receiver
//     a long message:    sender  -- kAnnounce ------> receiver   where its receive is not known yet
//                        sender  <- kReady ---------- receiver   as soon as the receive is posted
//                        sender  -- kPiece, bytes --> receiver   as many as it takes
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "topo/status.h"
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
  kLast = kUnready,
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
    default:
      return f.length != 0 ? "bytes where there are none" : nullptr;
  }
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
