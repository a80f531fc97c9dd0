// Messages over tcp: from a peer that dies, beyond the limits, canceled half way, and while one end
// does not poll.
// labels: multiproc
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <string>
#include <thread>

#include "transport/conformance.h"
#include "transport/late_messages.h"
#include "transport/rail_ranks.h"
#include "transport/tcp/wire.h"
#include "transport/tcp_raw.h"

namespace weft::testing {
namespace {

using std::chrono::milliseconds;

// Complete messages of a killed sender can be received, others cannot.
TEST(TcpFailure, TheLastMessagesOfADeadPeerAreHeard) {
  run_ranks(2,
            [](SharedBoard& board, Rank me) {
              RailEnd end(board, me, "tcp");
              const auto data = pattern(50000, 4);
              if (me == 1) {
                for (std::uint64_t i = 0; i < 20; ++i) end.send(0, i, data.data(), data.size(), i);
                for (std::uint64_t i = 0; i < 20; ++i) ASSERT_EQ(end.wait(i), Code::kOk);
                board.flag(0) = getpid();
                kill(getpid(), SIGKILL);
              }
              std::vector<unsigned char> got(data.size());
              end.recv(1, 0, got.data(), got.size(), 0);
              EXPECT_EQ(end.wait(0), Code::kOk);
              ASSERT_TRUE(wait_dead(board.flag(0)));
              end.poll_for(milliseconds(20));
              for (std::uint64_t i = 1; i < 20; ++i) {
                end.recv(1, i, got.data(), got.size(), i);
                ASSERT_EQ(end.wait(i), Code::kOk) << i;
                EXPECT_TRUE(got == data);
              }
              end.recv(1, 20, got.data(), got.size(), 20);
              EXPECT_EQ(end.wait(20), Code::kPeerFailed);
            },
            {1});
}

// A peer ahead of this rank's receives is slowed, not failed, and its messages stay within the
// memory limit.
TEST(TcpMessages, OfAPeerThatIsFarAheadWaitInTheKernel) {
  constexpr std::size_t kLimit = 2 << 20, kBytes = 48 << 10, kMessages = 1000;
  setenv("WEFT_UNEXPECTED_BYTES", std::to_string(kLimit).c_str(), 1);
  Net two(make_in_threads(2, [](Job& job, Rank) {
    return make_tcp_transport(job, separate_hosts(2, loopback()), loopback());
  }));
  unsetenv("WEFT_UNEXPECTED_BYTES");
  expect_slowed_not_failed(two, kLimit, kBytes, kMessages);
}

TEST(TcpMessages, ThatWereLateLeaveNoMemoryBehind) {
  Net two(make_in_threads(2, [](Job& job, Rank) {
    return make_tcp_transport(job, separate_hosts(2, loopback()), loopback());
  }));
  expect_memory_comes_back(two, 20 << 20, 20);
  expect_memory_comes_back(two, 48 << 10, 4000);
}

// This applies even if this rank connected and the peer dies before this rank reads the welcome.
TEST(TcpFailure, WhatAPeerSaidWithItsWelcomeIsHeardThoughItIsGone) {
  std::uint64_t got = 0;
  const std::uint64_t data = 77;
  const Fd listener = tcp::open_socket("lo", "127.0.0.1");
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  const std::string contact = fmt::format("s127.0.0.1 {} {:032x}", port_of(listener.get()), 0);
  ForgedJob job(2, [&](Rank, const std::string&) { return contact; });
  const auto rail = make_tcp_transport(job, separate_hosts(2, loopback()), loopback());
  std::vector<Completion> over;
  const auto poll = [&] {
    Completion out[8];
    over.insert(over.end(), out, out + rail->poll(out));
  };
  const Transfer receive{
      .kind = Transfer::Kind::kRecv, .peer = 1, .tag = 5, .data = &got, .bytes = 8, .id = 1};
  rail->post({&receive, 1});
  for (int i = 0; i < 100; ++i) poll();

  const int peer = ::accept(listener.get(), nullptr, nullptr);
  ASSERT_GE(peer, 0);
  tcp::Hello hello;
  ASSERT_EQ(::recv(peer, &hello, sizeof hello, MSG_WAITALL), ssize_t{sizeof hello});
  const tcp::Nonce mine{};
  const tcp::Answer welcome{.proof = tcp::derive(derive_key("forged", "tcp"), tcp::Use::kWelcome,
                                                 {1, mine}, {0, hello.nonce})};
  const tcp::Frame frame{.kind = tcp::FrameKind::kEager, .length = 8, .tag = 5, .bytes = 8};
  RawPeer::say(peer, &welcome, sizeof welcome);
  RawPeer::say(peer, &frame, sizeof frame);
  RawPeer::say(peer, &data, sizeof data);
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ASSERT_EQ(setsockopt(peer, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
  ::close(peer);

  const Transfer send{.peer = 1, .tag = 6, .data = &got, .bytes = 8, .id = 2};
  rail->post({&send, 1});
  for (int i = 0; i < 100; ++i) poll();
  ASSERT_EQ(over.size(), 2U);
  for (const Completion& c : over)
    EXPECT_EQ(c.code, c.id == 1 ? Code::kOk : Code::kPeerFailed) << c.id;
  EXPECT_EQ(got, data);
}

// A send completes when the kernel has its bytes: the peer need not poll, and neither must this
// rank afterwards.
TEST(TcpTransfer, ASendNeedsNobodyAfterItIsOver) {
  run_ranks(2, [](SharedBoard& board, Rank me) {
    RailEnd end(board, me, "tcp");
    Rank word = -1;
    end.send(1 - me, 1, &me, sizeof me, 1);
    end.recv(1 - me, 1, &word, sizeof word, 2);
    ASSERT_EQ(end.wait(1), Code::kOk);
    ASSERT_EQ(end.wait(2), Code::kOk);
    const auto data = pattern(60000, 5);
    if (me == 0) {
      for (std::uint64_t i = 0; i < 4; ++i) end.send(1, 10 + i, data.data(), data.size(), 10 + i);
      for (std::uint64_t i = 0; i < 4; ++i) ASSERT_EQ(end.wait(10 + i), Code::kOk);
      board.flag(0) = 1;  // from now on this rank does nothing
      EXPECT_TRUE(SharedBoard::wait([&] { return board.flag(1).load() == 1; }));
    } else {
      ASSERT_TRUE(SharedBoard::wait([&] { return board.flag(0).load() == 1; }))
          << "without polling";
      std::vector<unsigned char> got(data.size());
      for (std::uint64_t i = 0; i < 4; ++i) {
        end.recv(0, 10 + i, got.data(), got.size(), 10 + i);
        ASSERT_EQ(end.wait(10 + i), Code::kOk);
        EXPECT_TRUE(got == data);
      }
      board.flag(1) = 1;
    }
  });
}

// Both ends report the bytes of an incomplete message.
TEST(TcpTransfer, WhatMovesIsTold) {
  run_ranks(2, [](SharedBoard& board, Rank me) {
    constexpr std::size_t kBytes = 64 << 20;  // more than the sockets hold
    std::vector<unsigned char> data(kBytes, 7);
    RailEnd end(board, me, "tcp");
    const auto moved = [&] { return *end.rail().moved_bytes(); };
    const std::uint64_t before = moved();
    if (me == 0) {
      end.send(1, 1, data.data(), kBytes, 1);
    } else {
      end.recv(0, 1, data.data(), kBytes, 1);
    }
    bool half = false;
    while (!end.done(1)) {
      end.poll();
      half = half || (moved() > before + 1024 && moved() < before + kBytes);
    }
    EXPECT_TRUE(half);
    EXPECT_TRUE(SharedBoard::wait([&] {
      end.poll();
      return moved() >= before + kBytes;
    })) << "the other end has all of it";
    board.flag(me) = 1;
    EXPECT_TRUE(SharedBoard::wait([&] { return board.flag(1 - me).load() == 1; }));
  });
}

// A send canceled half way never completes a receive with wrong bytes, and the connection stays
// usable for the next message.
TEST(TcpCancel, AHalfSentMessageIsNotReceived) {
  constexpr std::size_t kBytes = 64u << 20;
  run_ranks(2, [](SharedBoard& board, Rank me) {
    RailEnd end(board, me, "tcp");
    const auto good = pattern(100000, 2);
    std::vector<unsigned char> data(kBytes, me == 0), got(good.size());
    if (me == 0) {
      end.send(1, 1, data.data(), kBytes, std::uint64_t{7} << 32);
      ASSERT_TRUE(SharedBoard::wait([&] { return end.poll(), board.flag(0).load() == 1; }));
      ASSERT_FALSE(end.done(std::uint64_t{7} << 32)) << "cannot test: it was sent as a whole";
      end.rail().cancel(7);
      std::vector<unsigned char>().swap(data);
      end.send(1, 2, good.data(), good.size(), 2);
      EXPECT_EQ(end.wait(2), Code::kOk);
      EXPECT_FALSE(end.done(std::uint64_t{7} << 32));
    } else {
      end.recv(0, 1, data.data(), kBytes, std::uint64_t{8} << 32);
      ASSERT_TRUE(SharedBoard::wait([&] { return end.poll(), data[0] == 1; }));
      board.flag(0) = 1;
      end.recv(0, 2, got.data(), got.size(), 2);
      EXPECT_EQ(end.wait(2), Code::kOk);
      EXPECT_TRUE(got == good);
      EXPECT_FALSE(end.done(std::uint64_t{8} << 32));
      EXPECT_TRUE(end.rail().cause(0).ok());
    }
    board.flag(2 + me) = 1;
    EXPECT_TRUE(SharedBoard::wait([&] { return end.poll(), board.flag(3 - me).load() == 1; }));
  });
}

// A message withdrawn half way and sent again is written from the start of its receive.
TEST(TcpCancel, AWithdrawnMessageIsForgotten) {
  constexpr std::size_t kBytes = 2 * tcp::kMostEager, kHalf = kBytes / 2;
  RawPeer raw;
  const Fd fd = Fd::from([&] { return raw.connect_as_peer(); });
  raw.poll();
  ASSERT_TRUE(raw.welcomes(fd.get()));
  std::vector<char> got(kBytes, '-');
  raw.receive(5, got.data(), kBytes, 1);
  const auto say = [&](tcp::FrameKind kind, const std::string& bytes) {
    const tcp::Frame f{.kind = kind,
                       .length = static_cast<std::uint32_t>(bytes.size()),
                       .tag = 5,
                       .bytes = kind == tcp::FrameKind::kPiece ? kBytes : 0};
    RawPeer::say(fd.get(), std::string(reinterpret_cast<const char*>(&f), sizeof f) + bytes);
    raw.poll();
  };
  say(tcp::FrameKind::kPiece, std::string(kHalf, 'o'));
  ASSERT_TRUE(SharedBoard::wait([&] { return raw.poll(), got[kHalf - 1] == 'o'; }));
  say(tcp::FrameKind::kWithdraw, "");
  say(tcp::FrameKind::kPiece, std::string(kHalf, 'n'));
  say(tcp::FrameKind::kPiece, std::string(kHalf, 'e'));
  ASSERT_TRUE(SharedBoard::wait([&] { return raw.poll(), !raw.completions.empty(); }));
  EXPECT_EQ(raw.completions[0].code, Code::kOk);
  EXPECT_TRUE(std::string(got.data(), kBytes) == std::string(kHalf, 'n') + std::string(kHalf, 'e'));
  EXPECT_TRUE(raw.transport->cause(1).ok());
}

}  // namespace
}  // namespace weft::testing
