// The tcp transport sends short messages as datagrams. If the network loses, duplicates or delays
// datagrams, no message is lost, duplicated or delayed forever.
// labels: multiproc
#include <array>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <random>
#include <utility>

#include "transport/lost_datagrams.h"
#include "transport/rail_ranks.h"
#include "transport/tcp/wire.h"
#include "transport/tcp_raw.h"

namespace weft::testing {
namespace {

using Asks = tcp::Datagram::Asks;

TEST(TcpHeard, TellsWhatHasComeBefore) {
  tcp::Heard heard;
  EXPECT_TRUE(heard.first(1));
  EXPECT_FALSE(heard.first(1));
  EXPECT_TRUE(heard.first(3));
  EXPECT_FALSE(heard.first(3));
  EXPECT_FALSE(heard.first(34)) << "too far ahead to be told of";
  EXPECT_TRUE(heard.first(33));
  EXPECT_EQ(heard.all(), 1u);
  const auto has = [&](std::uint32_t n) { return tcp::Heard::has(heard.all(), heard.more(), n); };
  EXPECT_TRUE(has(1) && has(3) && has(33));
  EXPECT_FALSE(has(2) || has(4) || has(32) || has(34));
  EXPECT_TRUE(heard.first(2));
  EXPECT_EQ(heard.all(), 3u);
  EXPECT_TRUE(has(2) && has(33));
  EXPECT_FALSE(has(4));
}

// Sequence numbers wrap around.
TEST(TcpHeard, InAnyOrderAndForAnyTime) {
  EXPECT_TRUE(tcp::Heard::has(2, 0, UINT32_MAX));
  EXPECT_TRUE(tcp::Heard::has(UINT32_MAX, 2, 1));
  EXPECT_FALSE(tcp::Heard::has(UINT32_MAX, 2, 0));
  std::mt19937 random(1);
  tcp::Heard heard;
  for (std::uint32_t first = 1; first < 3200; first += 32) {
    std::vector<std::uint32_t> numbers(32);
    std::iota(numbers.begin(), numbers.end(), first);
    std::shuffle(numbers.begin(), numbers.end(), random);
    for (const std::uint32_t n : numbers) {
      EXPECT_TRUE(heard.first(n));
      EXPECT_FALSE(heard.first(n));
    }
    EXPECT_EQ(heard.all(), first + 31);
    EXPECT_EQ(heard.more(), 0u);
  }
}

class TcpDatagrams : public ::testing::Test {
 protected:
  // Enables datagrams even if ranks share cores.
  void SetUp() override { setenv("WEFT_TCP_DATAGRAMS", "1", 1); }
  void TearDown() override { unsetenv("WEFT_TCP_DATAGRAMS"); }
};

// Rank 1, played by the test: a connection and a datagram socket.
struct Speaker {
  Speaker()
      : datagrams(tcp::open_socket("lo", "127.0.0.1", true)),
        raw([this](Rank, const std::string& right) {
          return with_port(right, port_of(datagrams.get()));
        }),
        stream(Fd::from([this] { return raw.connect_as_peer(); })) {
    raw.poll();
    EXPECT_TRUE(raw.welcomes(stream.get()));
  }

  void say(const tcp::Datagram& d, const std::string& message = {}) {
    say_unheard(d, message);
    raw.poll();
  }
  void say_unheard(tcp::Datagram d, const std::string& message) {
    raw.say_datagram(datagrams.get(), raw.signed_datagram(d, message));
  }
  // Sends the copy of a datagram over the connection.
  void say_copy(std::uint32_t number, const std::string& message) {
    const tcp::Frame f{.kind = tcp::FrameKind::kCopy,
                       .length = static_cast<std::uint32_t>(message.size()),
                       .tag = number,
                       .bytes = message.size()};
    RawPeer::say(stream.get(), std::string(reinterpret_cast<const char*>(&f), sizeof f) + message);
    raw.poll();
  }
  void say_frame(const tcp::Frame& f) { RawPeer::say(stream.get(), &f, sizeof f); }

  // Rank 0's next datagram; if there is none, an impossible sequence number.
  std::pair<tcp::Datagram, std::string> hear() {
    char room[2048];
    const ssize_t n = ::recv(datagrams.get(), room, sizeof room, MSG_DONTWAIT);
    tcp::Datagram d{.number = UINT32_MAX};
    if (n < static_cast<ssize_t>(sizeof d)) return {d, ""};
    std::memcpy(&d, room, sizeof d);
    return {d, std::string(room + sizeof d, room + n)};
  }
  std::optional<tcp::Frame> hear_frame() {
    tcp::Frame f;
    if (::recv(stream.get(), &f, sizeof f, MSG_DONTWAIT | MSG_PEEK) < ssize_t{sizeof f}) return {};
    (void)!::recv(stream.get(), &f, sizeof f, 0);
    return f;
  }
  std::string hear_bytes(std::size_t n) {
    std::string text(n, '?');
    EXPECT_EQ(::recv(stream.get(), text.data(), n, MSG_WAITALL), static_cast<ssize_t>(n));
    return text;
  }

  void receive(std::uint64_t tag, std::uint64_t id) {
    raw.receive(tag, got.data(), got.size(), id);
  }
  void send(std::uint64_t tag) {
    const Transfer t{.peer = 1, .tag = tag, .data = word.data(), .bytes = word.size(), .id = tag};
    raw.transport->post({&t, 1});
    raw.poll(1);
    ASSERT_FALSE(raw.completions.empty());
    EXPECT_EQ(raw.completions.back().id, tag);
    EXPECT_EQ(raw.completions.back().code, Code::kOk);
  }
  // Confirms to rank 0 that its datagrams arrive.
  void agree() {
    send(1000);
    EXPECT_TRUE(hear_frame().has_value()) << "before it is known that datagrams pass";
    hear_bytes(word.size());
    const auto [asked, nothing] = hear();
    EXPECT_EQ(asked.asks, Asks::kWhetherHeard);
    EXPECT_EQ(asked.number, 0u);
    EXPECT_TRUE(nothing.empty());
    say({.asks = Asks::kAnswers});
  }

  Fd datagrams;
  RawPeer raw;
  Fd stream;
  std::string word = "question";
  std::array<char, 4> got{};
};

TEST_F(TcpDatagrams, WhatComesTwiceIsReceivedOnce) {
  Speaker s;
  s.say({.asks = Asks::kWhetherHeard});
  EXPECT_EQ(s.hear().first.asks, Asks::kAnswers);
  for (std::uint64_t tag = 1; tag <= 4; ++tag) s.receive(tag, tag);
  const auto ended = [&] {
    std::vector<std::uint64_t> ids;
    for (const Completion& c : std::exchange(s.raw.completions, {})) ids.push_back(c.id);
    return ids;
  };
  using Ids = std::vector<std::uint64_t>;
  s.say({.number = 3}, eager(3, "late"));
  EXPECT_EQ(ended(), Ids{3});
  EXPECT_EQ(std::string_view(s.got.data(), 4), "late");
  s.say({.number = 1}, eager(1, "once"));
  EXPECT_EQ(ended(), Ids{1});
  s.got = {};
  s.say({.number = 1}, eager(1, "more"));
  s.say_copy(3, eager(3, "more"));
  EXPECT_TRUE(ended().empty());
  EXPECT_EQ(s.got[0], 0);
  EXPECT_FALSE(s.hear_frame().has_value()) << "nothing was lost so far";

  s.say_copy(2, eager(2, "copy"));
  EXPECT_EQ(ended(), Ids{2});
  EXPECT_EQ(std::string_view(s.got.data(), 4), "copy");
  const auto said = s.hear_frame();
  ASSERT_TRUE(said.has_value());
  EXPECT_EQ(said->kind, tcp::FrameKind::kLostOne);
  s.say({.number = 2}, eager(4, "no"));
  EXPECT_TRUE(ended().empty());

  // An unexpected message of no bytes; its receive is posted later.
  s.say({.number = 4}, eager(5, ""));
  s.raw.receive(5, nullptr, 0, 5);
  s.raw.poll();
  EXPECT_EQ(ended(), Ids{5});
}

TEST_F(TcpDatagrams, WhoDoesNotKnowTheKeyIsNotHeard) {
  Speaker s;
  s.receive(1, 1);
  for (std::size_t at : {std::size_t{0}, std::size_t{7}, sizeof(std::uint64_t) + 3,
                         sizeof(tcp::Datagram) + sizeof(tcp::Frame)}) {
    std::string bad =
        s.raw.signed_datagram({.number = 1, .asks = Asks::kWhetherHeard}, eager(1, "evil"));
    bad[at] ^= 1;
    s.raw.say_datagram(s.datagrams.get(), bad);
    s.raw.poll();
  }
  s.raw.say_datagram(s.datagrams.get(), "x");
  s.raw.poll();
  EXPECT_TRUE(s.raw.completions.empty());
  EXPECT_EQ(s.hear().first.number, UINT32_MAX) << "strangers get no answer";
  s.say({.number = 1}, eager(1, "good"));
  ASSERT_EQ(s.raw.completions.size(), 1u);
  EXPECT_EQ(std::string_view(s.got.data(), 4), "good");
}

TEST_F(TcpDatagrams, AMessageThatIsNoneEndsTheConnection) {
  for (const std::string& bad : {std::string("x"), eager(1, "good").substr(0, 27),
                                 eager(1, "x") + "y", std::string(sizeof(tcp::Frame), 0)}) {
    Speaker s;
    s.receive(1, 1);
    s.say({.number = 1}, bad);
    ASSERT_EQ(s.raw.completions.size(), 1u);
    EXPECT_EQ(s.raw.completions[0].code, Code::kTransport);
    EXPECT_NE(s.raw.transport->cause(1).message().find("does it run the same version of weft?"),
              std::string::npos);
  }
}

TEST_F(TcpDatagrams, WhatIsNotToldOfGoesByTheConnection) {
  Speaker s;
  s.agree();
  s.send(1);
  s.send(2);
  const auto [first, text] = s.hear();
  EXPECT_EQ(first.number, 1u);
  EXPECT_EQ(text, eager(1, s.word));
  EXPECT_EQ(s.hear().first.number, 2u);
  EXPECT_FALSE(s.hear_frame().has_value());
  s.say({.all = 1});  // and the second one is lost
  s.raw.poll(1 << 12);
  const auto copy = s.hear_frame();
  ASSERT_TRUE(copy.has_value());
  EXPECT_EQ(copy->kind, tcp::FrameKind::kCopy);
  EXPECT_EQ(copy->tag, 2u);
  EXPECT_EQ(s.hear_bytes(copy->length), eager(2, s.word));
  s.raw.poll(1 << 12);
  EXPECT_FALSE(s.hear_frame().has_value()) << "once";

  // A confirmed loss: datagrams pause for a while, then are probed again.
  s.say_frame({.kind = tcp::FrameKind::kLostOne});
  s.raw.poll();
  bool again = false;
  for (int i = 0; i < 3000 && !again; ++i) {
    s.send(100);
    const auto frame = s.hear_frame();
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(frame->kind, tcp::FrameKind::kEager);
    s.hear_bytes(s.word.size());
    again = s.hear().first.asks == Asks::kWhetherHeard;
    EXPECT_TRUE(!again || i > 500) << i;
  }
  EXPECT_TRUE(again);
}

TEST_F(TcpDatagrams, WhoMayNotPollForLongLeavesNothingBehind) {
  Speaker s;
  s.agree();
  s.send(1);
  s.send(2);
  s.say({.more = 2});  // the second one has arrived
  s.raw.transport->before_pause();
  const auto copy = s.hear_frame();
  ASSERT_TRUE(copy.has_value());
  EXPECT_EQ(copy->tag, 1u);
  EXPECT_EQ(s.hear_bytes(copy->length), eager(1, s.word));
  EXPECT_FALSE(s.hear_frame().has_value());
}

TEST_F(TcpDatagrams, WhatAPeerSaidBeforeItWentIsHeard) {
  Speaker s;
  s.receive(1, 1);
  s.receive(2, 2);
  s.say_unheard({.number = 1}, eager(1, "last"));
  s.stream.reset();
  s.raw.poll();
  ASSERT_EQ(s.raw.completions.size(), 2u);
  EXPECT_EQ(s.raw.completions[0].id, 1u);
  EXPECT_EQ(s.raw.completions[0].code, Code::kOk);
  EXPECT_EQ(std::string_view(s.got.data(), 4), "last");
  EXPECT_EQ(s.raw.completions[1].code, Code::kPeerFailed);
}

// A peer that does not poll gets few datagrams, and the remaining messages over its connection.
TEST_F(TcpDatagrams, FewAreUnderWay) {
  Speaker s;
  s.agree();
  for (std::uint64_t tag = 1; tag <= 20; ++tag) s.send(tag);
  std::uint32_t last = 0;
  for (auto d = s.hear().first; d.number != UINT32_MAX; d = s.hear().first) last = d.number;
  EXPECT_EQ(last, 8u);
  for (std::uint64_t tag = 9; tag <= 20; ++tag) {
    const auto frame = s.hear_frame();
    ASSERT_TRUE(frame.has_value());
    EXPECT_EQ(frame->tag, tag);
    s.hear_bytes(s.word.size());
  }
}

// ---- two ranks, and a kernel that loses datagrams ------------------------------------------

// Messages of random lengths, both ways, until datagrams are in use, then `rounds` more.
void exchange(RailEnd& end, Rank me, int rounds, unsigned seed) {
  std::mt19937 random(seed);
  for (int i = 0; i < rounds; ++i) {
    const std::size_t bytes = random() % 600;
    const auto mine = pattern(bytes, static_cast<unsigned>(2 * i + me)),
               theirs = pattern(bytes, static_cast<unsigned>(2 * i + 1 - me));
    std::vector<unsigned char> got(bytes);
    const std::uint64_t tag = (std::uint64_t{seed} << 32) + static_cast<std::uint64_t>(i);
    const std::uint64_t id = 2 * tag;
    end.send(1 - me, tag, mine.data(), bytes, id);
    end.recv(1 - me, tag, got.data(), bytes, id + 1);
    ASSERT_EQ(end.wait(id), Code::kOk);
    ASSERT_EQ(end.wait(id + 1), Code::kOk) << i;
    ASSERT_TRUE(got == theirs) << i;
  }
}

TEST_F(TcpDatagrams, NothingIsLostWhereTheyAre) {
  run_ranks(2, [](SharedBoard& board, Rank me) {
    RailEnd end(board, me, "tcp");
    exchange(end, me, 100, 1);
    lose(16);
    exchange(end, me, 3000, 2);
    board.flag(me) = 1;
    EXPECT_TRUE(SharedBoard::wait([&] { return end.poll(), board.flag(1 - me).load() == 1; }));
  });
}

}  // namespace
}  // namespace weft::testing
