// The wire format of the bootstrap and the control plane. Uses no sockets, clocks or threads, so
// unit tests and the fuzzer cover all of it.
//
// A frame is 8 bytes of header (magic, type, flags, 0, length of the payload as u32) and the
// payload. All integers are little endian. The handshake of a connection:
//
//     rank 0                                  rank r
//       | -- kChallenge: version, nonce A ----> |
//       | <- kHello: rank, size, nonce B, MAC - |   MAC over A and the rest of the hello
//       | -- kReply: verdict, text, MAC ------> |   MAC over A, B, rank, size and the rest
// | <- kConfirm ------------------------- |   r keeps this connection only
//       | -- kStart or kFailure --------------> |   all ranks are here, or the missing ranks
//
// Before kConfirm a payload has at most kMaxHandshakeBytes, which limits unauthenticated peers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topo/base/status.h"
#include "transport/control/scope.h"

namespace weft::wire {

inline constexpr std::uint32_t kVersion = 6;
inline constexpr std::size_t kHeaderBytes = 8;
inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kInstanceBytes = 16;
inline constexpr std::size_t kMaxHandshakeBytes = 1024;
inline constexpr std::size_t kMaxFrameBytes = std::size_t{1} << 20;
inline constexpr std::size_t kMaxTextBytes = 700;  // an error text in any frame

enum class Type : std::uint8_t {
  kChallenge = 1,
  kHello,
  kReply,
  kConfirm,
  kStart,         // the period of the heartbeats, ms
  kHeartbeat,     // from rank 0: the unresponsive ranks and their ages
  kGather,        // sequence number and bytes; the only type that spans several frames
  kGatherFailed,  // sequence number and error text
  kFailure,       // a Status: a report to rank 0, or rank 0's verdict
  kLeave,         // to rank 0: this rank ends without failure
  kGoodbye,       // from rank 0: kLeave has arrived, or rank 0 leaves too
  kInquire,       // an inquiry's number; rank 0 forwards a leaf's inquiry to all ranks
  kTestimony,     // an inquiry's number and a rank's snapshot, through rank 0
  // A door is a port on which a rank listens so that other ranks can connect to it if rank 0 dies.
  kShrink,  // to rank 0: this rank continues after a failure; its door in the new job
  kShrunk,  // the surviving ranks, '1' or '0' per rank; then kDoors of the new job
  kDoor,    // to rank 0: this rank's door, "address port"
  kDoors,   // from rank 0: the doors of all ranks
  // A mailbox number and a rank: to rank 0: the receiver's rank; from rank 0: the sender's rank.
  kLetter,
  kLast = kLetter,
};

struct Frame {
  Type type = Type::kConfirm;
  bool more = false;         // the next frame of this type continues this frame
  std::string_view payload;  // valid until the decoder's next call
};

// `payload` is at most kMaxFrameBytes.
std::string encode_frame(Type type, std::string_view payload, bool more = false);
// Returns the header alone; the caller sends the payload from its own memory.
std::string encode_header(Type type, std::size_t payload_bytes, bool more = false);

// Splits a stream of bytes into frames. After kMalformed every next() returns kMalformed.
class Decoder {
 public:
  enum class Result { kFrame, kNeedMore, kMalformed };

  explicit Decoder(std::size_t max_payload) : max_payload_(max_payload) {}
  void set_max_payload(std::size_t max_payload) { max_payload_ = max_payload; }

  void feed(std::string_view bytes);
  Result next(Frame& frame);
  // True if an incomplete frame is buffered.
  bool partial() const { return begin_ < buffer_.size(); }

 private:
  std::string buffer_;
  std::size_t begin_ = 0;  // start of the bytes that next() has not returned
  std::size_t max_payload_;
  bool malformed_ = false;
};

// The decoders below return nullopt when the payload is malformed or its MAC is wrong.

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
  std::string instance;  // kInstanceBytes, random; equal in all attempts of a process
  std::uint64_t pid = 0;
  std::string host;
};
std::string encode(const Hello& hello, std::string_view secret, std::string_view root_nonce);
std::optional<Hello> decode_hello(std::string_view payload, std::string_view secret,
                                  std::string_view root_nonce);

struct Reply {
  bool accepted = false;
  std::uint32_t remaining_ms = 0;  // time that rank 0 still waits for missing ranks
  std::string text;                // accepted: rank 0's description; otherwise the reason
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

std::string encode_failure(const Status& failure, const Scope& scope = {});
std::optional<JobFailure> decode_failure(std::string_view payload);

// The kind of a gather, as a flag in the sequence number of a kGather to rank 0.
enum class Gathering : std::uint64_t {
  kForAll = 0,                        // each rank's bytes are sent to all ranks
  kForEach = std::uint64_t{1} << 63,  // the bytes are encode_parts() of one part per rank
  // Each rank's bytes are sent to rank 0; other ranks get no bytes.
  kToRoot = std::uint64_t{1} << 62,
  kFromRoot = std::uint64_t{1} << 61,  // rank 0's bytes are encode_parts(): each rank gets its own
  kInGroup = std::uint64_t{1} << 60,   // the bytes are encode_parts() of a group's name and the
                                       // rank's bytes: to all ranks of that group
};
inline constexpr std::uint64_t kGatheringFlags = std::uint64_t{15} << 60;
const char* words_of(Gathering what);  // the name of the call, for error messages

// The payload of kGather, kGatherFailed, kInquire, kTestimony and kLetter. The number of a kLetter
// contains the mailbox in its upper half and a rank in its lower half. The upper half of an
// inquiry's number is the asking rank in frames between rank 0 and the asked ranks, and the
// responding rank in other frames.
struct Numbered {
  std::uint64_t sequence = 0;
  std::string_view bytes;
};
std::string encode(const Numbered& numbered);
std::optional<Numbered> decode_numbered(std::string_view payload);

// Joins the contributions of all ranks into one string.
std::string encode_parts(const std::vector<std::string>& parts);
std::optional<std::vector<std::string>> decode_parts(std::string_view bytes, int count);
// encode_parts() compressed with zstd: the ranks' parts are mostly alike, and rank 0 sends them to
// every rank. unpack_parts() returns nullopt if the bytes are malformed, the number of parts
// differs, or the size exceeds `most` bytes.
std::string pack_parts(const std::vector<std::string>& parts);
std::optional<std::vector<std::string>> unpack_parts(std::string_view bytes, int count,
                                                     std::size_t most);
// The argument contains encode_parts() of each sender's parts; returns encode_parts() of each
// receiver's parts.
std::optional<std::vector<std::string>> transpose(const std::vector<std::string>& by_sender);

}  // namespace weft::wire
