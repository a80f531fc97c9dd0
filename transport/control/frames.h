// The bytes of the rendezvous and the control plane. Pure: no sockets, no clock, no threads, so
// that unit tests and the fuzzer reach all of it.
//
// A frame is 8 bytes of header (magic, type, flags, 0, length of the payload as u32) and the
// payload. All integers are little endian. The handshake of a connection:
//
//     rank 0                                  rank r
//       | -- kChallenge: version, nonce A ----> |
//       | <- kHello: rank, size, nonce B, MAC - |   MAC over A and the rest of the hello
//       | -- kReply: verdict, text, MAC ------> |   MAC over A, B, rank, size and the rest
//       | <- kConfirm ------------------------- |   of several connections r keeps this one
//       | -- kStart or kFailure --------------> |   everyone is here, or who is not
//
// Before kConfirm a frame carries at most kMaxHandshakeBytes, so a stranger costs little.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topo/base/status.h"

namespace weft::wire {

inline constexpr std::uint32_t kVersion = 3;
inline constexpr std::size_t kHeaderBytes = 8;
inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kInstanceBytes = 16;
inline constexpr std::size_t kMaxHandshakeBytes = 1024;
inline constexpr std::size_t kMaxFrameBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxTextBytes = 700;  // of a message for people, in any frame

enum class Type : std::uint8_t {
  kChallenge = 1,
  kHello,
  kReply,
  kConfirm,
  kStart,         // period of the heartbeats, ms
  kHeartbeat,     // from rank 0: the ranks that it has not heard of for a while
  kGather,        // sequence number and bytes; the only type that comes in several frames
  kGatherFailed,  // sequence number and why
  kFailure,       // a Status: to rank 0 a report, from rank 0 the verdict
  kLeave,         // to rank 0: my going away is no failure
  kGoodbye,       // from rank 0: understood; or: mine is none either
  kInquire,       // a number: what do you know? A leaf's goes to rank 0, which asks the others
  kTestimony,     // a number and bytes: the answer, by way of rank 0
  kShrink,        // to rank 0: something failed, and this rank goes on; its door in the new job
  kShrunk,        // who goes on, one character per rank: '1' or '0'; then kDoors of the new job
  kDoor,          // to rank 0: where this rank listens in case that rank 0 dies: "address port"
  kDoors,         // from rank 0: those of all
  kLast = kDoors,
};

struct Frame {
  Type type = Type::kConfirm;
  bool more = false;         // the next frame of this type continues this one
  std::string_view payload;  // lives until the decoder's next call
};

// `payload` is at most kMaxFrameBytes.
std::string encode_frame(Type type, std::string_view payload, bool more = false);
// The header alone, for a payload sent from elsewhere.
std::string encode_header(Type type, std::size_t payload_bytes, bool more = false);

// Cuts a stream of bytes into frames. After kMalformed the stream is lost.
class Decoder {
 public:
  enum class Result { kFrame, kNeedMore, kMalformed };

  explicit Decoder(std::size_t max_payload) : max_payload_(max_payload) {}
  void set_max_payload(std::size_t max_payload) { max_payload_ = max_payload; }

  void feed(std::string_view bytes);
  Result next(Frame& frame);
  bool partial() const { return begin_ < buffer_.size(); }  // of a frame, some bytes are here

 private:
  std::string buffer_;
  std::size_t begin_ = 0;  // of what has not been returned yet
  std::size_t max_payload_;
  bool malformed_ = false;
};

// The decoders below return nothing when the payload is malformed or its MAC is wrong.

struct Challenge {
  std::uint32_t version = kVersion;
  std::string nonce;
};
std::string encode(const Challenge& challenge);
std::optional<Challenge> decode_challenge(std::string_view payload);

struct Hello {
  Rank rank = 0;
  int size = 1;
  std::string nonce;     // kNonceBytes
  std::string instance;  // kInstanceBytes, random: tells two processes from one that tries twice
  std::uint64_t pid = 0;
  std::string host;
};
std::string encode(const Hello& hello, std::string_view secret, std::string_view root_nonce);
std::optional<Hello> decode_hello(std::string_view payload, std::string_view secret,
                                  std::string_view root_nonce);

struct Reply {
  bool accepted = false;
  std::uint32_t remaining_ms = 0;  // that rank 0 will go on waiting for the others
  std::string text;                // accepted: who rank 0 is; otherwise why not
};
std::string encode(const Reply& reply, std::string_view secret, std::string_view root_nonce,
                   const Hello& hello);
std::optional<Reply> decode_reply(std::string_view payload, std::string_view secret,
                                  std::string_view root_nonce, const Hello& hello);

std::string encode_start(std::uint32_t period_ms);
std::optional<std::uint32_t> decode_start(std::string_view payload);

struct Silence {
  Rank rank = 0;
  std::uint32_t age_ms = 0;
};
std::string encode_heartbeat(const std::vector<Silence>& silent);
std::optional<std::vector<Silence>> decode_heartbeat(std::string_view payload);

std::string encode_failure(const Status& failure);
std::optional<Status> decode_failure(std::string_view payload);

// In the number of a kGather to rank 0: the bytes are encode_parts() of what each rank is to get.
inline constexpr std::uint64_t kForEach = std::uint64_t{1} << 63;

// The payload of kGather, kGatherFailed, kInquire and kTestimony. An inquiry's number has a rank in
// its upper half: who asked (between rank 0 and those it asks), who answers (to who asked).
struct Numbered {
  std::uint64_t sequence = 0;
  std::string_view bytes;
};
std::string encode(const Numbered& numbered);
std::optional<Numbered> decode_numbered(std::string_view payload);

// What all ranks contributed, as one string.
std::string encode_parts(const std::vector<std::string>& parts);
std::optional<std::vector<std::string>> decode_parts(std::string_view bytes, int count);
// From encode_parts() of what each rank has for all, encode_parts() of what all have for each.
std::optional<std::vector<std::string>> transpose(const std::vector<std::string>& by_sender);

}  // namespace weft::wire
