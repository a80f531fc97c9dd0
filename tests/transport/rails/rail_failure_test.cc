// Dead peers and canceled operations in the NIC transports.
// labels: multiproc
#include <algorithm>

#include "transport/rail_ranks.h"

namespace weft::testing {
namespace {

class RailFailure : public OverRails {};
INSTANTIATE_TEST_SUITE_P(Over, RailFailure, ::testing::Values("tcp", "ucx"), rail_name);

using std::chrono::milliseconds;

void expect_dead(RailEnd& end, Rank peer) {
  const Status cause = end.rail().cause(peer);
  EXPECT_EQ(cause.code(), Code::kPeerFailed);
  EXPECT_EQ(cause.rank(), peer);
  const std::string name = "rank " + std::to_string(peer) + " on host host" + std::to_string(peer);
  EXPECT_NE(cause.message().find(name), std::string::npos) << cause.message();
  // Afterwards, operations with this peer fail at once.
  int word = 0;
  end.recv(peer, 900, &word, sizeof word, 900);
  end.send(peer, 900, &word, sizeof word, 901);
  EXPECT_EQ(end.wait(900), Code::kPeerFailed);
  EXPECT_EQ(end.wait(901), Code::kPeerFailed);
}

void ping_pong(RailEnd& end, Rank me, Rank peer, std::uint64_t tag) {
  Rank word = kNoRank;
  end.recv(peer, tag, &word, sizeof word, 2 * tag);
  end.send(peer, tag, &me, sizeof me, 2 * tag + 1);
  EXPECT_EQ(end.wait(2 * tag), Code::kOk);
  EXPECT_EQ(end.wait(2 * tag + 1), Code::kOk);
  EXPECT_EQ(word, peer);
}

// Rank 0 only receives from the victim, rank 1; rank 2 must not be affected.
TEST_P(RailFailure, AReceiveFromAKilledPeerEnds) {
  run_ranks(
      3,
      [](SharedBoard& board, Rank me) {
        RailEnd end(board, me, GetParam());
        char data[64];
        if (me == 1) {
          end.send(0, 1, data, 8, 1);
          end.wait(1);
          EXPECT_TRUE(SharedBoard::wait([&] { return end.poll(), board.flag(0).load() == 1; }));
          kill(getpid(), SIGKILL);
        }
        ping_pong(end, me, 2 - me, 100);
        if (me == 0) {
          end.recv(1, 1, data, 8, 1);
          EXPECT_EQ(end.wait(1), Code::kOk);
          end.recv(1, 2, data, 64, 2);
          end.recv(2, 3, data, 4, 3);
          board.flag(0) = 1;
          EXPECT_EQ(end.wait(2), Code::kPeerFailed);
          expect_dead(end, 1);
          EXPECT_FALSE(end.done(3)) << "a receive from a peer that lives";
        } else {
          EXPECT_TRUE(SharedBoard::wait([&] { return end.poll(), board.flag(1).load() == 1; }));
          end.send(0, 3, data, 4, 3);
          EXPECT_EQ(end.wait(3), Code::kOk);
        }
        if (me == 0) {
          board.flag(1) = 1;
          EXPECT_EQ(end.wait(3), Code::kOk);
        }
        ping_pong(end, me, 2 - me, 101);
        EXPECT_TRUE(end.rail().cause(2 - me).ok());
      },
      {1});
}

// There is no connection yet: the first post detects the death.
TEST_P(RailFailure, APeerThatDiedBeforeTheFirstMessageIsFound) {
  run_ranks(2,
            [](SharedBoard& board, Rank me) {
              RailEnd end(board, me, GetParam());
              if (me == 1) {
                board.flag(0) = getpid();
                kill(getpid(), SIGKILL);
              }
              ASSERT_TRUE(wait_dead(board.flag(0)));
              char word[8];
              end.recv(1, 1, word, 8, 1);
              EXPECT_EQ(end.wait(1), Code::kPeerFailed);
              expect_dead(end, 1);
            },
            {1});
}

// How a large message moves: tcp, or UCX by rendezvous (RDMA write to the receiver's memory) or
// eagerly, in fragments. A half-sent message is a different state in each.
class RailHalfway : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr std::size_t kBytes = 64u << 20;
  static bool tcp() { return GetParam() == std::string("tcp"); }
  static const char* transport() { return tcp() ? "tcp" : "ucx"; }
  void SetUp() override {
    if (!tcp() && !ucx_available()) GTEST_SKIP() << "missing capability: UCX";
    if (!tcp()) setenv("UCX_RNDV_THRESH", GetParam(), 1);
  }
  void TearDown() override { unsetenv("UCX_RNDV_THRESH"); }
};

TEST_P(RailHalfway, TransfersWithAKilledPeerEnd) {
  run_ranks(
      2,
      [](SharedBoard& board, Rank me) {
        RailEnd end(board, me, transport());
        std::vector<unsigned char> sent(kBytes, 1), got(kBytes, 0);
        end.recv(1 - me, 1, got.data(), kBytes, 1);
        end.recv(1 - me, 2, got.data(), 8, 2);
        end.send(1 - me, 1, sent.data(), kBytes, 3);
        if (me == 1) {
          EXPECT_TRUE(SharedBoard::wait([&] { return end.poll(), board.flag(0).load() == 1; }));
          board.flag(1) = getpid();
          kill(getpid(), SIGKILL);
        }
        ASSERT_TRUE(SharedBoard::wait([&] { return end.poll(), got[kBytes / 16] == 1; }));
        board.flag(0) = 1;
        ASSERT_TRUE(wait_dead(board.flag(1)));  // without polling, so that the rest does not arrive
        ASSERT_EQ(got[kBytes - 1], 0) << "cannot test: the message has arrived as a whole";
        EXPECT_EQ(end.wait(1), Code::kPeerFailed);
        EXPECT_EQ(end.wait(2), Code::kPeerFailed);
        end.wait(3);  // with any result: its last bytes may have been sent before
        expect_dead(end, 1);
      },
      {1});
}

TEST_P(RailHalfway, CancelLetsGoOfMemoryBeingFilled) {
  run_ranks(2, [](SharedBoard& board, Rank me) {
    RailEnd end(board, me, transport());
    std::vector<unsigned char> data(kBytes, static_cast<unsigned char>(me));
    constexpr std::uint64_t kOperation = 7;
    if (me == 1) {
      end.send(0, 1, data.data(), kBytes, 1);
      char word[8];
      end.recv(0, 9, word, 8, 2);
      if (tcp()) {
        end.send(0, 2, word, 8, 3);
        EXPECT_EQ(end.wait(3), Code::kOk);
      } else {
        EXPECT_EQ(end.wait(2), Code::kPeerFailed) << "rank 0 has closed the connection";
      }
      end.wait(1);
      board.flag(0) = 1;
      EXPECT_TRUE(SharedBoard::wait([&] { return end.poll(), board.flag(1).load() == 1; }));
      return;
    }
    char other[8];
    end.recv(1, 1, data.data(), kBytes, kOperation << 32 | 1);
    end.recv(1, 2, other, 8, (kOperation + 1) << 32);
    ASSERT_TRUE(SharedBoard::wait([&] { return end.poll(), data[kBytes / 16] == 1; }));
    ASSERT_EQ(data[kBytes - 1], 0) << "cannot test: the message has arrived as a whole";
    end.rail().cancel(kOperation);
    const std::vector<unsigned char> before = data;
    EXPECT_TRUE(SharedBoard::wait([&] { return end.poll(), board.flag(0).load() == 1; }));
    end.poll_for(milliseconds(50));
    EXPECT_TRUE(data == before) << "written to after cancel()";
    EXPECT_FALSE(end.done(kOperation << 32 | 1)) << "reported after cancel()";
    if (tcp()) {
      EXPECT_EQ(end.wait((kOperation + 1) << 32), Code::kOk) << "of another operation";
      EXPECT_TRUE(end.rail().cause(1).ok());
    } else {
      EXPECT_EQ(end.wait((kOperation + 1) << 32), Code::kAborted) << "the price: see ucx.h";
      EXPECT_EQ(end.rail().cause(1).code(), Code::kAborted);
    }
    board.flag(1) = 1;
  });
}

TEST_P(RailHalfway, CancelLetsGoOfASendNobodyTakes) {
  run_ranks(2, [](SharedBoard& board, Rank me) {
    RailEnd end(board, me, transport());
    if (me == 0) {
      std::vector<unsigned char> data(kBytes, 1);
      end.send(1, 1, data.data(), kBytes, std::uint64_t{7} << 32);
      end.poll_for(milliseconds(20));
      end.rail().cancel(7);
      std::vector<unsigned char>().swap(data);  // unmapped: a later read would crash
      end.poll_for(milliseconds(50));
      EXPECT_FALSE(end.done(std::uint64_t{7} << 32));
      board.flag(0) = 1;
    } else {
      char word[8];
      end.recv(0, 2, word, 8, 1);
      EXPECT_TRUE(SharedBoard::wait([&] { return end.poll(), board.flag(0).load() == 1; }));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Protocols, RailHalfway, ::testing::Values("tcp", "8k", "inf"),
                         [](const auto& p) {
                           const std::string name = p.param;
                           return name == "tcp"   ? "Tcp"
                                  : name == "inf" ? "UcxEager"
                                                  : "UcxRendezvous";
                         });

// Cancellation drops unpolled completions.
TEST_P(RailFailure, UndeliveredCompletionsAreForgotten) {
  SharedBoard board(1);
  RailEnd end(board, 0, GetParam());
  int word = 0;
  end.recv(9, 0, &word, sizeof word, std::uint64_t{1} << 32);  // fails at once: no rank 9
  end.recv(9, 0, &word, sizeof word, std::uint64_t{2} << 32);
  end.rail().cancel(1);
  EXPECT_EQ(end.wait(std::uint64_t{2} << 32), Code::kInvalidArgument);
  EXPECT_FALSE(end.done(std::uint64_t{1} << 32));
}

// Destruction does not wait for a stopped or dead peer with pending messages.
TEST_P(RailFailure, DestructionIsBounded) {
  run_ranks(2,
            [](SharedBoard& board, Rank me) {
              RailEnd end(board, me, GetParam());
              ping_pong(end, me, 1 - me, 50);
              if (me == 1) {
                board.flag(0) = getpid();
                raise(SIGSTOP);
              }
              EXPECT_TRUE(SharedBoard::wait([&] { return board.flag(0).load() != 0; }));
              std::vector<char> data(32u << 20), got(8);
              end.send(1, 1, data.data(), data.size(), 1);
              end.recv(1, 2, got.data(), 8, 2);
              end.poll_for(milliseconds(20));
              end.destroy();  // alarm() ends a hang
              kill(board.flag(0), SIGKILL);
            },
            {1});
}

}  // namespace
}  // namespace weft::testing
