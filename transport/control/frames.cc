// Encodes frames, and decodes untrusted bytes. Does not use sockets.
#include "transport/control/frames.h"

#include <zstd.h>

#include <concepts>
#include <cstring>

#include "transport/control/hmac.h"

namespace weft::wire {
namespace {

constexpr char kMagic = '\x57';
constexpr unsigned char kMore = 1;
// Different labels, so that a MAC of one direction cannot be replayed in the other direction.
constexpr std::string_view kHelloLabel = "weft hello 1\n";
constexpr std::string_view kReplyLabel = "weft reply 1\n";

class Writer {
 public:
  template <std::unsigned_integral T>
  Writer& number(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bytes_ += static_cast<char>(value >> (8 * i) & 0xff);
    }
    return *this;
  }
  Writer& raw(std::string_view bytes) {
    bytes_ += bytes;
    return *this;
  }
  Writer& text(std::string_view text) {
    text = text.substr(0, kMaxTextBytes);
    return number(static_cast<std::uint16_t>(text.size())).raw(text);
  }
  std::string take() { return std::move(bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// A read past the end returns zeros and makes ok() false, so one check at the end is sufficient.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <std::unsigned_integral T>
  T number() {
    const std::string_view bytes = raw(sizeof(T));
    T value = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      value =
          static_cast<T>(value | static_cast<T>(static_cast<unsigned char>(bytes[i])) << (8 * i));
    }
    return value;
  }
  std::string_view raw(std::uint64_t bytes) {
    if (bytes > rest_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view result = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return result;
  }
  std::string_view text() {
    const auto bytes = number<std::uint16_t>();
    if (bytes > kMaxTextBytes) ok_ = false;
    return raw(bytes);
  }
  std::string_view rest() const { return rest_; }
  bool ok() const { return ok_; }
  bool done() const { return ok_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

// Converts a rank on the wire; values beyond int become kNoRank.
Rank to_rank(std::uint32_t value) {
  return value <= INT32_MAX ? static_cast<Rank>(value) : kNoRank;
}

std::string hello_mac(std::string_view secret, std::string_view root_nonce, std::string_view body) {
  return hmac_sha256(secret, Writer().raw(kHelloLabel).raw(root_nonce).raw(body).bytes());
}

std::string reply_mac(std::string_view secret, std::string_view root_nonce, const Hello& hello,
                      std::string_view body) {
  return hmac_sha256(secret, Writer()
                                 .raw(kReplyLabel)
                                 .raw(root_nonce)
                                 .raw(hello.nonce)
                                 .number(static_cast<std::uint32_t>(hello.rank))
                                 .number(static_cast<std::uint32_t>(hello.size))
                                 .raw(body)
                                 .bytes());
}

// Splits off the MAC at the end of a payload.
bool split_mac(std::string_view payload, std::string_view& body, std::string_view& mac) {
  if (payload.size() < kMacBytes) return false;
  body = payload.substr(0, payload.size() - kMacBytes);
  mac = payload.substr(body.size());
  return true;
}

}  // namespace

std::string encode_header(Type type, std::size_t payload_bytes, bool more) {
  return Writer()
      .raw({&kMagic, 1})
      .number(static_cast<std::uint8_t>(type))
      .number(static_cast<std::uint8_t>(more ? kMore : 0))
      .number(std::uint8_t{0})
      .number(static_cast<std::uint32_t>(payload_bytes))
      .take();
}

std::string encode_frame(Type type, std::string_view payload, bool more) {
  return encode_header(type, payload.size(), more).append(payload);
}

void Decoder::feed(std::string_view bytes) {
  // Moves the rest to the front only if that is cheap compared to the bytes already consumed.
  if (begin_ > 0 && begin_ >= buffer_.size() / 2) {
    buffer_.erase(0, begin_);
    begin_ = 0;
  }
  buffer_ += bytes;
}

Decoder::Result Decoder::next(Frame& frame) {
  if (malformed_) return Result::kMalformed;
  const std::string_view rest = std::string_view(buffer_).substr(begin_);
  // Garbage is detected by its first byte, before a whole header has arrived.
  if (!rest.empty() && rest[0] != kMagic) {
    malformed_ = true;
    return Result::kMalformed;
  }
  if (rest.size() < kHeaderBytes) return Result::kNeedMore;
  Reader header(rest.substr(1, kHeaderBytes - 1));
  const auto type = header.number<std::uint8_t>();
  const auto flags = header.number<std::uint8_t>();
  const auto reserved = header.number<std::uint8_t>();
  const auto length = header.number<std::uint32_t>();
  const bool more = flags == kMore;
  if (type < static_cast<std::uint8_t>(Type::kChallenge) ||
      type > static_cast<std::uint8_t>(Type::kLast) || flags > kMore || reserved != 0 ||
      length > max_payload_ || (more && static_cast<Type>(type) != Type::kGather)) {
    malformed_ = true;
    return Result::kMalformed;
  }
  if (rest.size() < kHeaderBytes + length) return Result::kNeedMore;
  frame = {static_cast<Type>(type), more, rest.substr(kHeaderBytes, length)};
  begin_ += kHeaderBytes + length;
  return Result::kFrame;
}

std::string encode(const Challenge& challenge) {
  return Writer().number(challenge.version).raw(challenge.nonce).take();
}

std::optional<Challenge> decode_challenge(std::string_view payload) {
  Reader reader(payload);
  Challenge challenge;
  challenge.version = reader.number<std::uint32_t>();
  challenge.nonce = reader.raw(kNonceBytes);
  if (!reader.done()) return std::nullopt;
  return challenge;
}

std::string encode(const Hello& hello, std::string_view secret, std::string_view root_nonce) {
  Writer writer;
  writer.number(static_cast<std::uint32_t>(hello.rank))
      .number(static_cast<std::uint32_t>(hello.size))
      .raw(hello.nonce)
      .raw(hello.instance)
      .number(hello.pid)
      .text(hello.host);
  return writer.raw(hello_mac(secret, root_nonce, writer.bytes())).take();
}

std::optional<Hello> decode_hello(std::string_view payload, std::string_view secret,
                                  std::string_view root_nonce) {
  std::string_view body, mac;
  if (!split_mac(payload, body, mac)) return std::nullopt;
  if (!equal_in_constant_time(mac, hello_mac(secret, root_nonce, body))) return std::nullopt;
  Reader reader(body);
  Hello hello;
  hello.rank = to_rank(reader.number<std::uint32_t>());
  hello.size = to_rank(reader.number<std::uint32_t>());
  hello.nonce = reader.raw(kNonceBytes);
  hello.instance = reader.raw(kInstanceBytes);
  hello.pid = reader.number<std::uint64_t>();
  hello.host = reader.text();
  if (!reader.done()) return std::nullopt;
  return hello;
}

std::string encode(const Reply& reply, std::string_view secret, std::string_view root_nonce,
                   const Hello& hello) {
  Writer writer;
  writer.number(static_cast<std::uint8_t>(reply.accepted))
      .number(reply.remaining_ms)
      .text(reply.text);
  return writer.raw(reply_mac(secret, root_nonce, hello, writer.bytes())).take();
}

std::optional<Reply> decode_reply(std::string_view payload, std::string_view secret,
                                  std::string_view root_nonce, const Hello& hello) {
  std::string_view body, mac;
  if (!split_mac(payload, body, mac)) return std::nullopt;
  if (!equal_in_constant_time(mac, reply_mac(secret, root_nonce, hello, body))) {
    return std::nullopt;
  }
  Reader reader(body);
  Reply reply;
  reply.accepted = reader.number<std::uint8_t>() != 0;
  reply.remaining_ms = reader.number<std::uint32_t>();
  reply.text = reader.text();
  if (!reader.done()) return std::nullopt;
  return reply;
}

std::string encode_start(std::uint32_t period_ms) { return Writer().number(period_ms).take(); }

std::optional<std::uint32_t> decode_start(std::string_view payload) {
  Reader reader(payload);
  const auto period_ms = reader.number<std::uint32_t>();
  if (!reader.done() || period_ms == 0) return std::nullopt;
  return period_ms;
}

std::string encode_heartbeat(const std::vector<Silence>& silent) {
  Writer writer;
  for (const Silence& s : silent) {
    writer.number(static_cast<std::uint32_t>(s.rank)).number(s.age_ms);
  }
  return writer.take();
}

std::optional<std::vector<Silence>> decode_heartbeat(std::string_view payload) {
  Reader reader(payload);
  std::vector<Silence> silent;
  while (reader.ok() && !reader.rest().empty()) {
    const Rank rank = to_rank(reader.number<std::uint32_t>());
    silent.push_back({rank, reader.number<std::uint32_t>()});
  }
  if (!reader.done()) return std::nullopt;
  return silent;
}

std::string encode_failure(const Status& failure, const Scope& scope) {
  return Writer()
      .number(static_cast<std::uint8_t>(failure.code()))
      .number(static_cast<std::uint32_t>(failure.rank()))
      .text(failure.message())
      .number(static_cast<std::uint8_t>(scope.ends))
      .number(static_cast<std::uint32_t>(scope.rank))
      .number(scope.group)
      .number(static_cast<std::uint8_t>(scope.every_rank))
      .take();
}

std::optional<JobFailure> decode_failure(std::string_view payload) {
  Reader reader(payload);
  const auto code = reader.number<std::uint8_t>();
  const Rank rank = to_rank(reader.number<std::uint32_t>());
  const std::string text(reader.text());
  const auto ends = reader.number<std::uint8_t>();
  Scope scope{static_cast<Scope::Ends>(ends), to_rank(reader.number<std::uint32_t>())};
  scope.group = reader.number<std::uint64_t>();
  scope.every_rank = reader.number<std::uint8_t>() != 0;
  if (!reader.done() || code == 0 || code > static_cast<std::uint8_t>(Code::kInternal) ||
      ends > static_cast<std::uint8_t>(Scope::Ends::kGroup)) {
    return std::nullopt;
  }
  return JobFailure{Status(static_cast<Code>(code), text, rank), scope};
}

const char* words_of(Gathering what) {
  switch (what) {
    case Gathering::kForEach:
      return "all_to_all";
    case Gathering::kToRoot:
      return "gather";
    case Gathering::kFromRoot:
      return "scatter";
    case Gathering::kInGroup:
      return "all_gather_in_group";
    case Gathering::kForAll:
      break;
  }
  return "all_gather";
}

std::string encode(const Numbered& numbered) {
  return Writer().number(numbered.sequence).raw(numbered.bytes).take();
}

std::optional<Numbered> decode_numbered(std::string_view payload) {
  Reader reader(payload);
  Numbered numbered;
  numbered.sequence = reader.number<std::uint64_t>();
  numbered.bytes = reader.rest();
  if (!reader.ok()) return std::nullopt;
  return numbered;
}

std::string encode_parts(const std::vector<std::string>& parts) {
  std::size_t total = 0;
  for (const std::string& part : parts) total += sizeof(std::uint64_t) + part.size();
  std::string bytes;
  bytes.reserve(total);
  for (const std::string& part : parts) {
    bytes += Writer().number(static_cast<std::uint64_t>(part.size())).bytes();
    bytes += part;
  }
  return bytes;
}

std::optional<std::vector<std::string>> decode_parts(std::string_view bytes, int count) {
  Reader reader(bytes);
  std::vector<std::string> parts;
  for (int i = 0; i < count && reader.ok(); ++i) {
    parts.emplace_back(reader.raw(reader.number<std::uint64_t>()));
  }
  if (!reader.done()) return std::nullopt;
  return parts;
}

std::string pack_parts(const std::vector<std::string>& parts) {
  // For 1,024 ranks with 8 rails, 1.5 MB compress to 21 KB in 10 ms (level 3: 40 KB).
  constexpr int kLevel = 9;
  const std::string bytes = encode_parts(parts);
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  const std::size_t size =
      ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), kLevel);
  if (ZSTD_isError(size)) throw Error(std::string("zstd: ") + ZSTD_getErrorName(size));
  packed.resize(size);
  return packed;
}

std::optional<std::vector<std::string>> unpack_parts(std::string_view bytes, int count,
                                                     std::size_t most) {
  const auto size = ZSTD_getFrameContentSize(bytes.data(), bytes.size());
  if (size > most) return std::nullopt;  // also if the size is unknown or there is no zstd frame
  std::string parts(size, '\0');
  if (ZSTD_decompress(parts.data(), parts.size(), bytes.data(), bytes.size()) != size)
    return std::nullopt;
  return decode_parts(parts, count);
}

std::optional<std::vector<std::string>> transpose(const std::vector<std::string>& by_sender) {
  std::vector<Reader> readers(by_sender.begin(), by_sender.end());
  std::vector<std::string> by_receiver(by_sender.size());
  for (std::string& all : by_receiver) {
    for (Reader& reader : readers) {
      const auto bytes = reader.number<std::uint64_t>();
      all += Writer().number(bytes).bytes();
      all += reader.raw(bytes);
    }
  }
  for (const Reader& reader : readers)
    if (!reader.done()) return std::nullopt;
  return by_receiver;
}

}  // namespace weft::wire
