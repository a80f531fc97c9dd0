// The wire format: encoding and decoding round-trip, and nothing else decodes.
#include <gtest/gtest.h>

#include "transport/control/frames.h"
#include "transport/control/hmac.h"

namespace weft::wire {
namespace {

const std::string kSecret = "secret", kRootNonce(kNonceBytes, 'A');

Hello a_hello() {
  return {3, 8, std::string(kNonceBytes, 'B'), std::string(kInstanceBytes, 'C'), 1234, "host b"};
}

TEST(Hmac, IsTheStandardOne) {  // RFC 4231, test case 2
  EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_TRUE(equal_in_constant_time("same", "same"));
  EXPECT_FALSE(equal_in_constant_time("same", "sama"));
  EXPECT_FALSE(equal_in_constant_time("same", "samesame"));
  EXPECT_NE(random_bytes(32), random_bytes(32));
}

TEST(Hmac, TheShortMacIsTheStandardOne) {  // SipHash paper, appendix A
  ShortMac mac;
  ShortMac::Key key;
  std::array<std::uint8_t, 15> text;
  for (std::uint8_t i = 0; i < 16; ++i) key[i] = i;
  for (std::uint8_t i = 0; i < 15; ++i) text[i] = i;
  for (const int again : {1, 2}) {
    std::uint64_t value = 0;
    ASSERT_TRUE(mac.compute(key, text.data(), text.size(), value)) << again;
    EXPECT_EQ(value, 0xa129ca6149be45e5u);
    std::uint64_t other = 0;
    const ShortMac::Key zero{};
    ASSERT_TRUE(mac.compute(zero, text.data(), text.size(), other));
    EXPECT_NE(value, other);
  }
}

TEST(Decoder, CutsAnyStreamTheSameWay) {
  const std::string stream = encode_frame(Type::kHeartbeat, "") +
                             encode_frame(Type::kGather, "abc", true) +
                             encode_frame(Type::kGather, std::string(1000, 'x'));
  for (std::size_t step = 1; step <= stream.size(); ++step) {
    Decoder decoder(kMaxFrameBytes);
    std::string seen;
    for (std::size_t at = 0; at < stream.size(); at += step) {
      decoder.feed(std::string_view(stream).substr(at, step));
      Frame frame;
      Decoder::Result result;
      while ((result = decoder.next(frame)) == Decoder::Result::kFrame) {
        seen += encode_frame(frame.type, frame.payload, frame.more);
      }
      ASSERT_EQ(result, Decoder::Result::kNeedMore);
    }
    ASSERT_EQ(seen, stream) << "in pieces of " << step;
  }
}

TEST(Decoder, RefusesGarbageAtTheFirstByteAndForGood) {
  Decoder decoder(kMaxFrameBytes);
  Frame frame;
  decoder.feed("G");
  EXPECT_EQ(decoder.next(frame), Decoder::Result::kMalformed);
  decoder.feed(encode_frame(Type::kHeartbeat, ""));
  EXPECT_EQ(decoder.next(frame), Decoder::Result::kMalformed);
}

TEST(Decoder, RefusesEveryWrongHeader) {
  const std::string good = encode_frame(Type::kHello, "x");
  const auto result = [](std::string bytes, std::size_t limit) {
    Decoder decoder(limit);
    decoder.feed(bytes);
    Frame frame;
    return decoder.next(frame);
  };
  EXPECT_EQ(result(good, 1), Decoder::Result::kFrame);
  EXPECT_EQ(result(good, 0), Decoder::Result::kMalformed) << "longer than allowed";
  for (const auto& [at, value] :
       {std::pair{0, 'X'}, {1, '\0'}, {1, '\x63'}, {2, '\1'}, {2, '\2'}, {3, '\1'}}) {
    std::string bad = good;
    bad[static_cast<std::size_t>(at)] = value;
    EXPECT_EQ(result(bad, 100), Decoder::Result::kMalformed) << "byte " << at;
  }
  // A length of 4 GiB is refused when read, before memory is allocated.
  EXPECT_EQ(result(good.substr(0, 4) + "\xff\xff\xff\xff", kMaxFrameBytes),
            Decoder::Result::kMalformed);
}

TEST(Handshake, HelloIsBoundToSecretNonceAndEveryBit) {
  const std::string payload = encode(a_hello(), kSecret, kRootNonce);
  const auto hello = decode_hello(payload, kSecret, kRootNonce);
  ASSERT_TRUE(hello);
  EXPECT_EQ(hello->rank, 3);
  EXPECT_EQ(hello->size, 8);
  EXPECT_EQ(hello->nonce, a_hello().nonce);
  EXPECT_EQ(hello->instance, a_hello().instance);
  EXPECT_EQ(hello->pid, 1234U);
  EXPECT_EQ(hello->host, "host b");
  EXPECT_FALSE(decode_hello(payload, "another", kRootNonce));
  EXPECT_FALSE(decode_hello(payload, kSecret, std::string(kNonceBytes, 'Z'))) << "replayed";
  for (std::size_t i = 0; i < payload.size(); ++i) {
    std::string changed = payload;
    changed[i] ^= 1;
    ASSERT_FALSE(decode_hello(changed, kSecret, kRootNonce)) << "byte " << i;
    ASSERT_FALSE(decode_hello(payload.substr(0, i), kSecret, kRootNonce));
  }
}

TEST(Handshake, ReplyIsBoundToTheHelloItAnswers) {
  const std::string payload = encode(Reply{true, 500, "rank 0"}, kSecret, kRootNonce, a_hello());
  const auto reply = decode_reply(payload, kSecret, kRootNonce, a_hello());
  ASSERT_TRUE(reply);
  EXPECT_TRUE(reply->accepted);
  EXPECT_EQ(reply->remaining_ms, 500U);
  EXPECT_EQ(reply->text, "rank 0");
  Hello other = a_hello();
  other.rank = 4;
  EXPECT_FALSE(decode_reply(payload, kSecret, kRootNonce, other));
  other = a_hello();
  other.nonce[0] = 'x';
  EXPECT_FALSE(decode_reply(payload, kSecret, kRootNonce, other));
  EXPECT_FALSE(decode_reply(payload, "another", kRootNonce, a_hello()));
}

TEST(Handshake, ARightMacOverNonsenseIsStillNonsense) {
  for (std::size_t bytes : {0, 1, 40, 63, 64, 200}) {
    const std::string body(bytes, '\xff');
    const std::string mac = hmac_sha256(kSecret, "weft hello 1\n" + kRootNonce + body);
    EXPECT_FALSE(decode_hello(body + mac, kSecret, kRootNonce)) << bytes;
  }
}

TEST(Payloads, ComeBackAsTheyWere) {
  const std::string nonce(kNonceBytes, 'n');
  EXPECT_EQ(decode_challenge(encode(Challenge{7, nonce}))->nonce, nonce);
  EXPECT_EQ(decode_challenge(encode(Challenge{7, nonce}))->version, 7U);
  EXPECT_FALSE(decode_challenge(encode(Challenge{7, nonce}) + "x"));
  EXPECT_EQ(decode_start(encode_start(250)), 250U);
  EXPECT_FALSE(decode_start(encode_start(0))) << "a heartbeat without a pause";

  const auto silent = decode_heartbeat(encode_heartbeat({{3, 700}, {5, 9000}}));
  ASSERT_TRUE(silent);
  ASSERT_EQ(silent->size(), 2U);
  EXPECT_EQ((*silent)[1].rank, 5);
  EXPECT_EQ((*silent)[1].age_ms, 9000U);
  EXPECT_FALSE(decode_heartbeat("1234567"));

  const Scope scope{Scope::Ends::kGroup, 3, std::uint64_t{7} << 40, true};
  const auto failure = decode_failure(encode_failure(Status(Code::kPeerFailed, "why", 5), scope));
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->status.code(), Code::kPeerFailed);
  EXPECT_EQ(failure->status.rank(), 5);
  EXPECT_EQ(failure->status.message(), "why");
  EXPECT_EQ(failure->scope, scope);
  const auto of_all = decode_failure(encode_failure(Status(Code::kTimeout, "", kNoRank)));
  EXPECT_EQ(of_all->status.rank(), kNoRank);
  EXPECT_EQ(of_all->scope, Scope{});
  EXPECT_FALSE(decode_failure(encode_failure(Status()))) << "ok is no failure";
  const Status long_story(Code::kInternal, std::string(5000, 'x'));
  EXPECT_EQ(decode_failure(encode_failure(long_story))->status.message().size(), kMaxTextBytes);

  const std::vector<std::string> parts{"", "a", std::string(100000, 'b')};
  EXPECT_EQ(decode_parts(encode_parts(parts), 3), parts);
  EXPECT_FALSE(decode_parts(encode_parts(parts), 2));
  EXPECT_FALSE(decode_parts(encode_parts(parts), 4));
  EXPECT_FALSE(decode_parts(encode_parts(parts).substr(1), 3));

  const std::string packed = pack_parts(parts);
  EXPECT_LT(packed.size(), 100U);
  EXPECT_EQ(unpack_parts(packed, 3, 1 << 20), parts);
  for (const int other : {0, 2, 4}) EXPECT_FALSE(unpack_parts(packed, other, 1 << 20));
  EXPECT_FALSE(unpack_parts(packed, 3, 100000)) << "three lengths more";
  for (std::size_t n = 0; n < packed.size(); ++n)
    EXPECT_FALSE(unpack_parts(packed.substr(0, n), 3, 1 << 20)) << n;
  EXPECT_FALSE(unpack_parts(encode_parts(parts), 3, 1 << 20));
  EXPECT_EQ(unpack_parts(pack_parts({}), 0, 0), std::vector<std::string>());
}

TEST(Payloads, AreTurnedFromSendersToReceivers) {
  const std::vector<std::string> zero{"", "01", "02"}, one{"10", "", "12"}, two{"", "2", ""};
  const auto by_receiver = transpose({encode_parts(zero), encode_parts(one), encode_parts(two)});
  ASSERT_TRUE(by_receiver);
  ASSERT_EQ(by_receiver->size(), 3U);
  EXPECT_EQ(decode_parts((*by_receiver)[0], 3), (std::vector<std::string>{"", "10", ""}));
  EXPECT_EQ(decode_parts((*by_receiver)[1], 3), (std::vector<std::string>{"01", "", "2"}));
  EXPECT_EQ(decode_parts((*by_receiver)[2], 3), (std::vector<std::string>{"02", "12", ""}));
  const std::string good = encode_parts(zero);
  EXPECT_FALSE(transpose({good, good, good.substr(1)}));
  EXPECT_FALSE(transpose({good, good, good + "x"}));
  EXPECT_FALSE(transpose({good, good})) << "three parts for two";
  EXPECT_FALSE(transpose({good, good, encode_frame(Type::kGather, std::string(8, '\xff'))}));
}

}  // namespace
}  // namespace weft::wire
