// Arbitrary bytes from the network: the decoders terminate, stay in bounds, and accepted bytes
// encode to the same bytes again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "transport/control/frames.h"
#include "transport/control/hmac.h"

namespace {

void require(bool truth) {
  if (!truth) std::abort();
}

void decode_payloads(const weft::wire::Frame& frame) {
  using namespace weft::wire;
  const std::string_view payload = frame.payload;
  const std::string secret = "secret", nonce(kNonceBytes, 'n');
  const Hello hello{1, 2, nonce, std::string(kInstanceBytes, 'i'), 3, "host"};
  if (const auto c = decode_challenge(payload)) require(encode(*c) == payload);
  // First the unmodified input, whose MAC is practically never right; then the input with a right
  // MAC.
  require(!decode_hello(payload, secret, nonce) || payload.size() > weft::kMacBytes);
  require(!decode_reply(payload, secret, nonce, hello) || payload.size() > weft::kMacBytes);
  const std::string body(payload);
  const std::string mac = weft::hmac_sha256(secret, "weft hello 1\n" + nonce + body);
  if (const auto h = decode_hello(body + mac, secret, nonce)) {
    // Ranks beyond int decode as kNoRank, everything else round-trips.
    if (h->rank >= 0 && h->size >= 0) require(encode(*h, secret, nonce) == body + mac);
  }
  if (const auto p = decode_start(payload)) require(encode_start(*p) == payload);
  if (const auto s = decode_heartbeat(payload)) require(8 * s->size() == payload.size());
  if (const auto f = decode_failure(payload))
    require(!f->status.ok() && encode_failure(f->status, f->scope).size() <= payload.size());
  if (const auto n = decode_numbered(payload)) require(encode(*n) == payload);
  for (const int count : {0, 1, 3}) {
    if (const auto parts = decode_parts(payload, count)) {
      require(parts->size() == static_cast<std::size_t>(count));
      require(encode_parts(*parts) == payload);
    }
    if (const auto parts = unpack_parts(payload, count, 1 << 16))
      require(unpack_parts(pack_parts(*parts), count, 1 << 16) == parts);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weft::wire;
  if (size == 0) return 0;
  // The first byte sets the sizes of pieces in which the rest arrives, which must not matter.
  const std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::string whole, pieces;
  for (std::string* seen : {&whole, &pieces}) {
    Decoder decoder(kMaxFrameBytes);
    const std::size_t step = seen == &whole ? stream.size() + 1 : std::size_t{data[0]} + 1;
    for (std::size_t at = 0; at < stream.size(); at += step) {
      decoder.feed(stream.substr(at, step));
      Frame frame;
      while (decoder.next(frame) == Decoder::Result::kFrame) {
        if (seen == &whole) decode_payloads(frame);
        *seen += encode_frame(frame.type, frame.payload, frame.more);
      }
    }
  }
  require(whole == pieces);
  require(stream.starts_with(whole));
  return 0;
}
