// Strangers and a hostile rank attack the tcp transport: replay, forgery, floods, invalid frames.
// Strangers are ignored; a hostile rank is disconnected and named, and the other ranks continue.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "transport/shared_job.h"
#include "transport/tcp/wire.h"
#include "transport/tcp_raw.h"

namespace weft::testing {
namespace {

using Asks = tcp::Datagram::Asks;

// Rank 0, and ranks 1 and 2 played by the test; rank 1 also sends datagrams.
class TcpHostile : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("WEFT_TCP_DATAGRAMS", "1", 1);
    setenv("WEFT_UNEXPECTED_BYTES", "65536", 1);
    socket_ = tcp::open_socket("lo", "127.0.0.1", true);
    const auto says = [this](Rank, const std::string& right) {
      return with_port(right, port_of(socket_.get()));
    };
    raw_ = std::make_unique<RawPeer>(says, 3);
    unsetenv("WEFT_TCP_DATAGRAMS");
    unsetenv("WEFT_UNEXPECTED_BYTES");
    for (const Rank r : {1, 2}) {
      streams_[r] = Fd::from([&] { return raw_->connect_as_peer(r); });
      raw_->poll();
      ASSERT_TRUE(raw_->welcomes(streams_[r].get(), r));
    }
    // From now on rank 0 reads datagrams in every poll.
    raw_->say_datagram(socket_.get(), raw_->signed_datagram({.asks = Asks::kWhetherHeard}, ""));
    ASSERT_TRUE(SharedBoard::wait([&] { return raw_->poll(), hears(); }));
  }
  // The other ranks continue.
  void TearDown() override {
    if (!raw_) return;
    raw_->completions.clear();
    std::array<char, 4> got{};
    raw_->receive(77, got.data(), got.size(), 78, 2);
    say(2, eager(77, "well"));
    EXPECT_TRUE(SharedBoard::wait([&] { return raw_->poll(), !raw_->completions.empty(); }));
    EXPECT_EQ(raw_->completions.back().code, Code::kOk);
    EXPECT_EQ(std::string_view(got.data(), got.size()), "well");
    EXPECT_TRUE(raw_->transport->cause(2).ok());
  }

  void say(Rank rank, const std::string& bytes) { RawPeer::say(streams_[rank].get(), bytes); }
  void say_frame(const tcp::Frame& f) {
    say(1, std::string(reinterpret_cast<const char*>(&f), sizeof f));
  }
  bool hears() {
    char room[2048];
    return ::recv(socket_.get(), room, sizeof room, MSG_DONTWAIT) > 0;
  }
  // Rank 1 is disconnected and named.
  void expect_end(std::string_view why) {
    ASSERT_TRUE(SharedBoard::wait([&] { return raw_->poll(1), !raw_->transport->cause(1).ok(); }));
    const Status cause = raw_->transport->cause(1);
    EXPECT_EQ(cause.code(), Code::kTransport);
    EXPECT_EQ(cause.rank(), 1);
    EXPECT_EQ(cause.message().find("rank 1 on host"), 0u) << cause.message();
    EXPECT_NE(cause.message().find(why), std::string::npos) << cause.message();
  }

  Fd socket_;
  std::unique_ptr<RawPeer> raw_;
  std::array<Fd, 3> streams_;
};

TEST(TcpKeys, EveryUseDirectionAndConnectionHasItsOwn) {
  std::set<tcp::Key> all;
  const tcp::Nonce one = tcp::new_nonce(), other = tcp::new_nonce();
  int made = 0;
  for (const std::string job : {"a", "b"})
    for (const tcp::Use use :
         {tcp::Use::kHello, tcp::Use::kWelcome, tcp::Use::kCrossed, tcp::Use::kDatagrams})
      for (const Rank from : {1, 2})
        for (const Rank to : {1, 2})
          for (const tcp::Nonce& a : {one, other})
            for (const tcp::Nonce& b : {one, other}) {
              all.insert(tcp::derive(job, use, {from, a}, {to, b}));
              ++made;
            }
  EXPECT_EQ(all.size(), static_cast<std::size_t>(made));
}

TEST(TcpWindow, TakesEachSequenceNumberOnce) {
  tcp::Window window;
  EXPECT_FALSE(window.first(0));
  EXPECT_TRUE(window.first(1));
  EXPECT_FALSE(window.first(1));
  EXPECT_TRUE(window.first(70));
  EXPECT_TRUE(window.first(69));
  EXPECT_TRUE(window.first(7));
  EXPECT_FALSE(window.first(6)) << "too old to know";
  EXPECT_FALSE(window.first(7));
  EXPECT_TRUE(window.first(std::uint64_t{1} << 40));
  EXPECT_FALSE(window.first(70));
}

// Hellos and datagrams on the wire reveal no key.
TEST_F(TcpHostile, NoKeyTravels) {
  const tcp::Hello hello = raw_->hello();
  const std::string datagram = raw_->signed_datagram({.number = 1}, eager(1, "text"));
  const std::string seen =
      std::string(reinterpret_cast<const char*>(&hello), sizeof hello) + datagram;
  for (const tcp::Use use : {tcp::Use::kWelcome, tcp::Use::kCrossed, tcp::Use::kDatagrams})
    for (const auto& [from, to] : {std::pair{1, 0}, {0, 1}}) {
      const tcp::Key key = raw_->key(use, from, to);
      EXPECT_EQ(seen.find(std::string(key.begin(), key.end())), std::string::npos);
    }
}

// A recorded hello is replayed, also as another rank's.
TEST_F(TcpHostile, ARepeatedHelloIsTurnedAway) {
  for (const Rank as : {1, 2}) {
    tcp::Hello hello = raw_->hello(1);
    hello.rank = static_cast<std::uint32_t>(as);
    const Fd again = Fd::from([&] { return raw_->connect(); });
    RawPeer::say(again.get(), &hello, sizeof hello);
    raw_->poll();
    char byte = 0;
    EXPECT_TRUE(SharedBoard::wait([&] {
      return raw_->poll(), ::recv(again.get(), &byte, 1, MSG_DONTWAIT) == 0;
    })) << "no answer, and the end";
  }
  EXPECT_TRUE(raw_->transport->cause(1).ok());
}

// A connection to a stranger in the peer's place: its answer has no proof.
TEST(TcpAnswer, WhoDoesNotKnowTheSecretIsNotThePeer) {
  const Fd listener = tcp::open_socket("lo", "127.0.0.1");
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  const std::string contact =
      "s127.0.0.1 " + std::to_string(port_of(listener.get())) + " " + std::string(32, '0');
  RawPeer raw([&](Rank, const std::string&) { return contact; });
  std::array<char, 4> got{};
  raw.receive(5, got.data(), got.size(), 1);
  raw.poll();
  const Fd fd = Fd::from([&] { return ::accept(listener.get(), nullptr, nullptr); });
  const tcp::Answer answer{};
  RawPeer::say(fd.get(), &answer, sizeof answer);
  RawPeer::say(fd.get(), eager(5, "evil"));
  ASSERT_TRUE(SharedBoard::wait([&] { return raw.poll(), !raw.completions.empty(); }));
  EXPECT_EQ(raw.completions[0].code, Code::kPeerFailed);
  EXPECT_EQ(got[0], 0);
  EXPECT_NE(raw.transport->cause(1).message().find("not the expected rank"), std::string::npos);
}

TEST_F(TcpHostile, ARepeatedDatagramSaysNothing) {
  const std::string asks = raw_->signed_datagram({.asks = Asks::kWhetherHeard}, "");
  raw_->say_datagram(socket_.get(), asks);
  ASSERT_TRUE(SharedBoard::wait([&] { return raw_->poll(), hears(); }));
  for (int i = 0; i < 8; ++i) raw_->say_datagram(socket_.get(), asks);
  raw_->poll(200);
  EXPECT_FALSE(hears());
}

// Rank 0's own datagram is reflected, and rank 1's is sent as rank 2's.
TEST_F(TcpHostile, ADatagramCountsInItsDirectionOnly) {
  const auto signed_by = [&](Rank from, Rank to, Rank says) {
    tcp::Datagram d{
        .sequence = 50, .from = static_cast<std::uint32_t>(says), .asks = Asks::kWhetherHeard};
    ShortMac mac;
    EXPECT_TRUE(mac.compute(raw_->key(tcp::Use::kDatagrams, from, to),
                            reinterpret_cast<const char*>(&d) + sizeof d.mac,
                            sizeof d - sizeof d.mac, d.mac));
    return std::string(reinterpret_cast<const char*>(&d), sizeof d);
  };
  raw_->say_datagram(socket_.get(), signed_by(0, 1, 1));
  raw_->say_datagram(socket_.get(), signed_by(1, 0, 2));
  raw_->say_datagram(socket_.get(), signed_by(2, 1, 1));
  raw_->poll(200);
  EXPECT_FALSE(hears());
  raw_->say_datagram(socket_.get(), signed_by(1, 0, 1));
  EXPECT_TRUE(SharedBoard::wait([&] { return raw_->poll(), hears(); }));
}

// With the right MAC, but not from the peer's host.
TEST_F(TcpHostile, TheSourceOfADatagramIsChecked) {
  std::array<char, 4> got{};
  raw_->receive(5, got.data(), got.size(), 5, 1);
  const Fd other = tcp::open_socket("lo", "127.0.0.2", true);
  ASSERT_TRUE(other);
  const std::string datagram = raw_->signed_datagram({.number = 1}, eager(5, "text"));
  raw_->say_datagram(other.get(), datagram);
  raw_->poll(200);
  EXPECT_TRUE(raw_->completions.empty());
  raw_->say_datagram(socket_.get(), datagram);
  EXPECT_TRUE(SharedBoard::wait([&] { return raw_->poll(), !raw_->completions.empty(); }));
}

// A socket full of strangers' datagrams: the same poll still reads the connections.
TEST_F(TcpHostile, AFloodOfDatagramsKeepsNobodyWaiting) {
  std::array<char, 4> got{};
  for (std::uint64_t tag = 1; tag <= 64; ++tag) {
    raw_->completions.clear();
    raw_->receive(tag, got.data(), got.size(), tag, 2);
    for (int i = 0; i < 100; ++i) raw_->say_datagram(socket_.get(), std::string(60, 'x'));
    say(2, eager(tag, "text"));
    raw_->poll(2);  // the first poll may be too early for the bytes
    ASSERT_EQ(raw_->completions.size(), 1u) << tag;
  }
  EXPECT_TRUE(raw_->transport->cause(1).ok());
}

// The rest of the message on the connection has no receive buffer any more.
TEST_F(TcpHostile, ADatagramInTheMiddleOfAMessageEndsTheConnection) {
  constexpr std::size_t kBytes = 1000;
  std::vector<char> memory(kBytes, 'm');
  raw_->receive(5, memory.data(), kBytes, 5, 1);
  const std::string message = eager(5, std::string(kBytes, 'x'));
  say(1, message.substr(0, sizeof(tcp::Frame) + 100));
  ASSERT_TRUE(SharedBoard::wait([&] { return raw_->poll(), memory[99] == 'x'; }));
  raw_->say_datagram(socket_.get(),
                     raw_->signed_datagram({.number = 1}, eager(5, std::string(500, 'd'))));
  expect_end("two messages of tag 0x5 at once");
  ASSERT_EQ(raw_->completions.size(), 1u);
  EXPECT_EQ(raw_->completions[0].code, Code::kTransport);
  say(1, message.substr(sizeof(tcp::Frame) + 100));
  raw_->poll(200);
  EXPECT_EQ(memory[100], 'm') << "written after the receive was over";
}

TEST_F(TcpHostile, ReceivesWithoutEndEndTheConnection) {
  for (std::uint64_t tag = 0; tag < 2000; ++tag) {
    say_frame({.kind = tcp::FrameKind::kReady, .tag = tag, .bytes = tcp::kMostEager + 1});
    raw_->poll(2);
  }
  expect_end("exceed 65536 bytes");
}

TEST_F(TcpHostile, WhatIsNoFrameEndsTheConnection) {
  std::uint64_t word = 0;
  raw_->receive(5, &word, sizeof word, 9);
  say(1, "this is no frame of weft at all");
  expect_end("no frame");
  ASSERT_EQ(raw_->completions.size(), 1u);
  EXPECT_EQ(raw_->completions[0].code, Code::kTransport);
}

TEST_F(TcpHostile, WrongLengthsEndTheConnection) {
  say_frame({.kind = tcp::FrameKind::kEager, .length = UINT32_MAX, .tag = 1, .bytes = UINT32_MAX});
  expect_end("an impossible length");
}

}  // namespace
}  // namespace weft::testing
