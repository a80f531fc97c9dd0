// Features of the tcp transport only: strangers on its port, crossing and renewed connections, its
// frames.
// labels: multiproc
// sanitize: address threads
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <thread>

#include "transport/messages/unexpected_limit.h"
#include "transport/offers.h"
#include "transport/rail_ranks.h"
#include "transport/tcp/wire.h"
#include "transport/tcp_raw.h"

namespace weft::testing {
namespace {

using std::chrono::milliseconds;

TEST(TcpWire, FramesThatNoRankSendsAreToldApart) {
  const tcp::Frame good{.kind = tcp::FrameKind::kEager, .length = 8, .tag = 1, .bytes = 8};
  EXPECT_EQ(tcp::malformed(good), nullptr);
  const auto with = [&](auto change) {
    tcp::Frame f = good;
    change(f);
    return tcp::malformed(f) != nullptr;
  };
  EXPECT_TRUE(with([](auto& f) { f.magic = 1; }));
  EXPECT_TRUE(with([](auto& f) { f.kind = tcp::FrameKind{0}; }));
  EXPECT_TRUE(with([](auto& f) { f.kind = tcp::FrameKind{10}; }));
  EXPECT_TRUE(with([](auto& f) { f.headed = 2; }));
  EXPECT_TRUE(with([](auto& f) { f.bytes = 9; }));
  EXPECT_TRUE(with([](auto& f) { f.bytes = f.length = tcp::kMostEager + 1; }));
  const auto piece = [&](std::size_t length, std::size_t bytes) {
    return with([=](auto& f) {
      f.kind = tcp::FrameKind::kPiece;
      f.length = static_cast<std::uint32_t>(length);
      f.bytes = bytes;
    });
  };
  EXPECT_FALSE(piece(tcp::kMostPiece, std::size_t{1} << 40));
  EXPECT_TRUE(piece(tcp::kMostPiece + 1, std::size_t{1} << 40));
  EXPECT_TRUE(piece(0, 100));
  EXPECT_TRUE(piece(101, 100));
  EXPECT_TRUE(with([](auto& f) { f.kind = tcp::FrameKind::kReady; }));
}

TEST(TcpWire, AFrontComesInPiecesOfAnySize) {
  std::byte bytes[tcp::kMostFront + 3] = {};
  const tcp::Frame frame{.kind = tcp::FrameKind::kReady, .headed = 1, .tag = 77, .bytes = 99};
  const Head head{5, {6, 7, 8, 9}};
  std::memcpy(bytes, &frame, sizeof frame);
  std::memcpy(bytes + sizeof frame, &head, sizeof head);
  for (std::size_t step = 1; step <= sizeof bytes; ++step) {
    tcp::Front front;
    std::span<const std::byte> rest(bytes);
    bool whole = false;
    while (!whole && !rest.empty()) {
      std::span<const std::byte> piece = rest.first(std::min(step, rest.size()));
      const std::size_t had = piece.size();
      whole = front.take(piece);
      rest = rest.subspan(had - piece.size());
    }
    ASSERT_TRUE(whole);
    EXPECT_EQ(rest.size(), 3u) << "bytes behind the front are not its own";
    EXPECT_EQ(front.frame().tag, 77u);
    Head room;
    const Head* got = front.head(room);
    ASSERT_NE(got, nullptr);
    EXPECT_EQ(got->about[3], 9u);
  }
}

TEST(TcpContact, OnlyAWholeOneIsTaken) {
  const std::string good = "10.0.0.1 4711 00112233445566778899aabbccddeeff";
  tcp::Contact contact;
  ASSERT_TRUE(tcp::parse_contact(good, contact));
  EXPECT_EQ(contact.address, "10.0.0.1");
  EXPECT_EQ(contact.port, 4711);
  EXPECT_EQ(contact.datagrams, 0);
  EXPECT_EQ(contact.nonce[1], 0x11);
  EXPECT_EQ(contact.nonce[15], 0xff);
  ASSERT_TRUE(tcp::parse_contact(good + " 4712", contact));
  EXPECT_EQ(contact.port, 4711);
  EXPECT_EQ(contact.datagrams, 4712);
  const std::vector<std::string> all_bad = {"",
                                            " ",
                                            "10.0.0.1",
                                            "10.0.0.1 4711",
                                            good.substr(0, good.size() - 1),
                                            good + "0",
                                            " 4711 00112233445566778899aabbccddeeff",
                                            "10.0.0.1 0 00112233445566778899aabbccddeeff",
                                            "10.0.0.1 65536 00112233445566778899aabbccddeeff",
                                            "10.0.0.1 4711 0011223344556677 899aabbccddeeff",
                                            good + " 65536",
                                            good + " 4712 1",
                                            "10.0.0.1 47x1 00112233445566778899aabbccddeeff"};
  for (const std::string& bad : all_bad)
    EXPECT_FALSE(tcp::parse_contact(bad, contact)) << "'" << bad << "'";
}

// Scanners, garbage, half a hello, another job's key: none of them is accepted as rank 1; the real
// rank 1 is.
TEST(TcpStrangers, AreTurnedAway) {
  RawPeer raw;
  std::vector<int> fds;
  for (int i = 0; i < 200; ++i) fds.push_back(raw.connect());  // more than are kept at a time
  tcp::Hello hello = raw.hello();
  RawPeer::say(fds[0], "GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n", 36);
  RawPeer::say(fds[1], &hello, sizeof hello - 1);
  hello.proof[3] ^= 1;
  RawPeer::say(fds[2], &hello, sizeof hello);
  hello.proof[3] ^= 1;
  for (const std::uint32_t rank : {0u, 2u, ~0u}) {
    hello.rank = rank;
    fds.push_back(raw.connect());
    RawPeer::say(fds.back(), &hello, sizeof hello);
    raw.poll();
  }
  raw.poll();
  EXPECT_TRUE(raw.transport->cause(1).ok());
  const int peer = raw.connect_as_peer();
  raw.poll();
  ASSERT_TRUE(raw.welcomes(peer));
  std::uint64_t word = 0;
  raw.receive(5, &word, 8, 9);
  RawPeer::say(peer, eager(5, "the word"));
  EXPECT_TRUE(SharedBoard::wait([&] { return raw.poll(), !raw.completions.empty(); }));
  EXPECT_EQ(std::memcmp(&word, "the word", 8), 0);
  for (const int fd : fds) close(fd);
  close(peer);
}

// While this rank computes, a peer connects, and then a scanner.
TEST(TcpStrangers, DoNotDrivePeersOut) {
  RawPeer raw;
  const int peer = raw.connect_as_peer();
  std::vector<int> fds;
  for (int i = 0; i < 100; ++i) fds.push_back(raw.connect());
  raw.poll();
  ASSERT_TRUE(raw.welcomes(peer));
  for (const int fd : fds) close(fd);
  close(peer);
}

// Fragments that exceed their receive are never written to it.
TEST(TcpStrangers, APeerCannotWritePastAReceive) {
  RawPeer raw;
  const int peer = raw.connect_as_peer();
  raw.poll();
  constexpr std::size_t kBytes = tcp::kMostEager + 1000;
  std::vector<unsigned char> memory(2 * tcp::kMostPiece, 7);
  raw.receive(5, memory.data(), kBytes, 9);
  raw.poll();
  const std::vector<unsigned char> bytes(kBytes, 1);
  const tcp::Frame frame{
      .kind = tcp::FrameKind::kPiece, .length = kBytes - 10, .tag = 5, .bytes = kBytes};
  for (int i = 0; i < 2; ++i) {  // together more than the receive takes
    RawPeer::say(peer, &frame, sizeof frame);
    RawPeer::say(peer, bytes.data(), kBytes - 10);
    raw.poll(1000);
  }
  ASSERT_TRUE(SharedBoard::wait([&] { return raw.poll(), !raw.completions.empty(); }));
  EXPECT_EQ(raw.completions[0].code, Code::kTransport);
  EXPECT_NE(raw.transport->cause(1).message().find("a piece that does not belong"),
            std::string::npos);
  EXPECT_TRUE(std::all_of(memory.begin() + kBytes, memory.end(), [](auto b) { return b == 7; }));
  close(peer);
}

// Unexpected messages are limited: beyond, the peer is disconnected before this process runs out of
// memory. Messages that are received do not count.
TEST(TcpStrangers, APeerIsNotEndlesslyAhead) {
  for (const auto kind : {tcp::FrameKind::kEager, tcp::FrameKind::kAnnounce}) {
    setenv("WEFT_UNEXPECTED_BYTES", "8192", 1);
    RawPeer raw;
    unsetenv("WEFT_UNEXPECTED_BYTES");
    const int peer = raw.connect_as_peer();
    raw.poll(10000);  // otherwise a receive would connect to the peer
    char word = 0;
    raw.receive(999, &word, 1, 0);
    RawPeer::say(peer, eager(999, "x"));
    ASSERT_TRUE(SharedBoard::wait([&] { return raw.poll(), !raw.completions.empty(); }));
    const bool whole = kind == tcp::FrameKind::kEager;
    const std::vector<unsigned char> bytes(1000, 1);
    const auto send = [&](std::uint64_t tag) {
      const tcp::Frame frame{.kind = kind,
                             .length = whole ? 1000u : 0u,
                             .tag = tag,
                             .bytes = whole ? 1000u : tcp::kMostEager + 1};
      RawPeer::say(peer, &frame, sizeof frame);
      if (whole) RawPeer::say(peer, bytes.data(), bytes.size());
      raw.poll();
    };
    for (std::uint64_t tag = 0; tag < 200; ++tag) {
      send(tag);
      raw.transport->forget(0, 0);
    }
    ASSERT_TRUE(raw.transport->cause(1).ok()) << raw.transport->cause(1).to_string();
    // Reading stops, and its messages wait in the kernel.
    const std::size_t before = UnexpectedMemory::of_process();
    std::size_t most = 0;
    for (std::uint64_t tag = 0; tag < 200; ++tag) {
      send(tag);
      most = std::max(most, UnexpectedMemory::of_process() - before);
    }
    EXPECT_TRUE(raw.transport->cause(1).ok()) << raw.transport->cause(1).to_string();
    EXPECT_GE(most, 8192u / 2);
    EXPECT_LE(most, 8192u);
    close(peer);
  }
}

// Both connect at the same time, repeatedly: one connection remains, and nothing is lost.
TEST(TcpConnect, ConnectionsThatCrossBecomeOne) {
  for (int round = 0; round < 100; ++round) {
    SharedBoard board(2);
    std::vector<std::thread> threads;
    for (Rank me : {0, 1})
      threads.emplace_back([&board, me] {
        RailEnd end(board, me, "tcp");
        board.flag(me) = 1;
        while (board.flag(1 - me).load() == 0) std::this_thread::yield();
        std::vector<Rank> got(10, -1);
        for (std::uint64_t i = 0; i < 10; ++i) end.send(1 - me, i, &me, sizeof me, i);
        for (std::uint64_t i = 0; i < 10; ++i) end.recv(1 - me, i, &got[i], sizeof me, 100 + i);
        for (std::uint64_t i = 0; i < 10; ++i) {
          EXPECT_EQ(end.wait(i), Code::kOk) << end.rail().cause(1 - me).to_string();
          EXPECT_EQ(end.wait(100 + i), Code::kOk) << end.rail().cause(1 - me).to_string();
          EXPECT_EQ(got[i], 1 - me);
        }
      });
    for (auto& t : threads) t.join();
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

// Disconnecting and reconnecting with messages pending in both directions: nothing of the old
// connection is seen afterwards, and the third rank is not affected.
TEST(TcpConnect, SeveredAndOpenedAnew) {
  constexpr std::size_t kBytes = 3u << 20;
  run_ranks(3, [](SharedBoard& board, Rank me) {
    RailEnd end(board, me, "tcp");
    for (std::uint64_t round = 1; round <= 20; ++round) {
      const auto old = pattern(kBytes, 1), now = pattern(kBytes, static_cast<unsigned>(10 + round));
      std::vector<unsigned char> lost(kBytes), got(kBytes);
      if (me < 2) {
        const Rank peer = 1 - me;
        end.send(peer, 1, old.data(), kBytes, round << 32 | 1);
        end.send(peer, 2, old.data(), 1000, round << 32 | 2);
        if (round % 2) end.recv(peer, 1, lost.data(), kBytes, round << 32 | 3);
        end.poll_for(milliseconds(round % 5));
        end.rail().recovery()->disconnect(peer);
        std::fill(lost.begin(), lost.end(), 9);
        const auto contacts = end.job().all_gather(end.rail().recovery()->reopen(peer));
        if (round % 3 == static_cast<unsigned>(me))
          end.poll_for(milliseconds(2));  // the peer may be first
        ASSERT_TRUE(end.rail().recovery()->connect(peer, contacts[static_cast<std::size_t>(peer)]));
        end.send(peer, 1, now.data(), kBytes, round << 32 | 5);
        end.send(peer, 2, now.data(), 1000, round << 32 | 6);
        end.recv(peer, 1, got.data(), kBytes, round << 32 | 7);
        ASSERT_EQ(end.wait(round << 32 | 7), Code::kOk) << end.rail().cause(peer).to_string();
        EXPECT_TRUE(got == now);
        end.recv(peer, 2, got.data(), 1000, round << 32 | 8);
        ASSERT_EQ(end.wait(round << 32 | 8), Code::kOk);
        EXPECT_TRUE(std::equal(got.begin(), got.begin() + 1000, now.begin()));
        ASSERT_EQ(end.wait(round << 32 | 5), Code::kOk);
        ASSERT_EQ(end.wait(round << 32 | 6), Code::kOk);
        EXPECT_TRUE(std::all_of(lost.begin(), lost.end(), [](auto b) { return b == 9; }));
      } else {
        end.job().all_gather("");
      }
      const Rank next = (me + 1) % 3, previous = (me + 2) % 3;
      Rank word = -1;
      end.send(next, 100 + round, &me, sizeof me, round << 32 | 10);
      end.recv(previous, 100 + round, &word, sizeof word, round << 32 | 11);
      ASSERT_EQ(end.wait(round << 32 | 11), Code::kOk) << end.rail().cause(previous).to_string();
      ASSERT_EQ(end.wait(round << 32 | 10), Code::kOk);
      EXPECT_EQ(word, previous);
      end.job().all_gather("");
    }
  });
}

// One file per peer: in a large job more than the limit of most shells.
TEST(TcpConnect, ThereAreFilesForAllPeers) {
  constexpr int kPeers = 500, kFiles = 256;
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  if (before.rlim_max < 2 * kPeers + kFiles)
    GTEST_SKIP() << "missing capability: " << 2 * kPeers + kFiles << " open files";
  const rlimit low{kFiles, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  {
    std::byte to[8];
    ForgedJob job(1 + kPeers, nullptr);  // all ranks are at rank 0's address
    const auto transport =
        make_rail_transport("tcp", job, separate_hosts(1 + kPeers, loopback()), loopback());
    for (Rank r = 1; r <= kPeers; ++r) {
      const Transfer t{.kind = Transfer::Kind::kRecv, .peer = r, .data = to, .bytes = sizeof to};
      transport->post({&t, 1});
      ASSERT_TRUE(transport->cause(r).ok()) << transport->cause(r).message();
    }
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

// The error must not name the peer, which works: shrink() would exclude it.
TEST(TcpConnect, WhatThisRankCannotOpenIsItsOwnFault) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  std::byte to[8];
  ForgedJob job(2, nullptr);
  const auto transport = make_rail_transport("tcp", job, separate_hosts(2, loopback()), loopback());
  const rlimit none{3, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const Transfer t{.kind = Transfer::Kind::kRecv, .peer = 1, .data = to, .bytes = sizeof to};
  transport->post({&t, 1});
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  const Status cause = transport->cause(1);
  EXPECT_EQ(cause.code(), Code::kTransport);
  EXPECT_EQ(cause.rank(), 0);
  EXPECT_EQ(cause.message().find("rank 0 on host"), 0u) << cause.message();
  EXPECT_NE(cause.message().find("Too many open files; raise"), std::string::npos);
  Completion done;
  ASSERT_EQ(transport->poll({&done, 1}), 1u);
  EXPECT_EQ(done.code, Code::kTransport);
}

// Rank 1 has only an IPv6 address. A rank that cannot reach the peer must not blame it.
TEST(TcpConnect, AWayThatThisHostHasNotIsNotThePeersFault) {
  std::byte to[8];
  ForgedJob job(
      2, [](Rank, std::string right) { return right.replace(right.find("127.0.0.1"), 9, "::1"); });
  const auto transport = make_rail_transport("tcp", job, separate_hosts(2, loopback()), loopback());
  const Transfer t{.kind = Transfer::Kind::kRecv, .peer = 1, .data = to, .bytes = sizeof to};
  transport->post({&t, 1});
  const Status cause = transport->cause(1);
  EXPECT_EQ(cause.code(), Code::kTransport);
  EXPECT_EQ(cause.rank(), 0);
  EXPECT_NE(cause.message().find("no connection from 127.0.0.1 to ::1: Address family not"),
            std::string::npos)
      << cause.message();
}

// A refused connection does not show whether the peer's process is alive.
TEST(TcpConnect, AConnectionThatIsRefusedNamesThePeerAndTheFirewall) {
  std::byte to[8];
  const Fd nobody = tcp::open_socket("lo", "127.0.0.1");  // bound, but not listening
  const std::string contact = fmt::format("s127.0.0.1 {} {:032x}", port_of(nobody.get()), 0);
  ForgedJob job(2, [&](Rank, const std::string&) { return contact; });
  const auto transport = make_rail_transport("tcp", job, separate_hosts(2, loopback()), loopback());
  const Transfer t{.kind = Transfer::Kind::kRecv, .peer = 1, .data = to, .bytes = sizeof to};
  transport->post({&t, 1});
  Completion done;
  ASSERT_TRUE(SharedBoard::wait([&] { return transport->poll({&done, 1}) == 1; }));
  EXPECT_EQ(done.code, Code::kPeerFailed);
  EXPECT_EQ(transport->cause(1).rank(), 1);
  EXPECT_NE(transport->cause(1).message().find("look at the firewalls"), std::string::npos);
}

}  // namespace
}  // namespace weft::testing
