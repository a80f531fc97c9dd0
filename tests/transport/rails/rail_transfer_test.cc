// NIC transports beyond the conformance suite: several rails, mismatched sizes, misuse, set-up.
// labels: multiproc
// sanitize: address threads
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "transport/rail_ranks.h"

namespace weft::testing {
namespace {

class RailTransfer : public OverRails {};
INSTANTIATE_TEST_SUITE_P(Over, RailTransfer, ::testing::Values("tcp", "ucx"), rail_name);

// Two rails in one process with ranks as threads: every transport has its own context.
TEST_P(RailTransfer, RailsAreIndependent) {
  constexpr int kRanks = 3;
  SharedBoard board(kRanks);
  std::vector<std::thread> threads;
  for (Rank me = 0; me < kRanks; ++me) {
    threads.emplace_back([&board, me] {
      RailEnd end(board, me, GetParam());
      end.add_rail();
      const Rank next = (me + 1) % kRanks, previous = (me + 2) % kRanks;
      std::vector<std::vector<unsigned char>> sent, got;
      for (unsigned rail = 0; rail < 2; ++rail) {
        sent.push_back(pattern(300000, 10 * rail + static_cast<unsigned>(me)));
        got.emplace_back(300000);
      }
      for (unsigned rail = 0; rail < 2; ++rail) {  // the same tag on both
        Transfer t[2];
        t[0].kind = Transfer::Kind::kRecv, t[0].peer = previous, t[0].data = got[rail].data();
        t[1].kind = Transfer::Kind::kSend, t[1].peer = next, t[1].data = sent[rail].data();
        for (int i = 0; i < 2; ++i) t[i].bytes = 300000, t[i].tag = 5, t[i].id = 2 * rail + i;
        end.rail(rail).post(t);
      }
      for (std::uint64_t id = 0; id < 4; ++id) EXPECT_EQ(end.wait(id), Code::kOk);
      for (unsigned rail = 0; rail < 2; ++rail) {
        EXPECT_TRUE(got[rail] == pattern(300000, 10 * rail + static_cast<unsigned>(previous)));
      }
    });
  }
  for (auto& t : threads) t.join();
}

TEST_P(RailTransfer, SizesThatDisagreeAreNamed) {
  run_ranks(2, [](SharedBoard& board, Rank me) {
    RailEnd end(board, me, GetParam());
    for (const std::size_t bytes : {64u, 1u << 20}) {
      std::vector<char> data(bytes + 8);
      if (me == 0) {
        end.send(1, 1, data.data(), bytes - 8, bytes);
        end.send(1, 2, data.data(), bytes + 8, bytes + 1);
        end.send(1, 3, data.data(), bytes, bytes + 2);
        end.wait(bytes);
        end.wait(bytes + 1);
        EXPECT_EQ(end.wait(bytes + 2), Code::kOk);
      } else {
        for (unsigned i = 0; i < 3; ++i) end.recv(0, i + 1, data.data(), bytes, bytes + i);
        EXPECT_EQ(end.wait(bytes), Code::kMismatch);
        EXPECT_EQ(end.wait(bytes + 1), Code::kMismatch);
        const Status cause = end.rail().cause(0);
        EXPECT_EQ(cause.code(), Code::kMismatch);
        EXPECT_NE(cause.message().find(std::to_string(bytes)), std::string::npos)
            << cause.message();
        EXPECT_EQ(end.wait(bytes + 2), Code::kOk) << "the other messages are fine";
      }
    }
  });
}

TEST_P(RailTransfer, MisuseCompletesAsInvalid) {
  SharedBoard board(1);
  RailEnd end(board, 0, GetParam());
  EXPECT_FALSE(end.rail().views());
  int word = 0;
  const bool narrow = end.rail().caps().tag_bits < 64;
  const std::uint64_t wide = narrow ? std::uint64_t{1} << end.rail().caps().tag_bits : 1;
  end.send(0, wide, &word, sizeof word, 1);  // tcp: a rank sends no messages to itself
  EXPECT_EQ(end.wait(1), Code::kInvalidArgument);
  EXPECT_NE(end.rail().cause(0).message().find(narrow ? fmt::format("{:#x}", wide) : "itself"),
            std::string::npos);
  end.recv(7, 0, &word, sizeof word, 2);
  EXPECT_EQ(end.wait(2), Code::kInvalidArgument);
  EXPECT_EQ(end.rail().cause(7).code(), Code::kInvalidArgument);
  Transfer view;
  view.kind = Transfer::Kind::kView, view.peer = 0, view.id = 3;
  end.rail().post({&view, 1});
  EXPECT_EQ(end.wait(3), Code::kInvalidArgument);
}

TEST_P(RailTransfer, ArmSaysThatACompletionWaits) {
  SharedBoard board(1);
  RailEnd end(board, 0, GetParam());
  end.recv(3, 0, nullptr, 0, 1);  // completes at once, as invalid
  std::vector<int> fds;
  EXPECT_FALSE(end.rail().arm(fds));
  end.poll();
  EXPECT_TRUE(end.done(1));
}

TEST_P(RailTransfer, WhatWasSentArrivesThoughTheSenderIsGone) {
  run_ranks(2, [](SharedBoard& board, Rank me) {
    RailEnd end(board, me, GetParam());
    const auto data = pattern(4000, 3);
    if (me == 0) {
      for (std::uint64_t i = 0; i < 50; ++i) end.send(1, i, data.data(), data.size(), i);
      for (std::uint64_t i = 0; i < 50; ++i) ASSERT_EQ(end.wait(i), Code::kOk);
      end.destroy();
    } else {
      std::vector<unsigned char> got(50 * 4000);
      for (std::uint64_t i = 0; i < 50; ++i) end.recv(0, i, &got[i * 4000], 4000, i);
      for (std::uint64_t i = 0; i < 50; ++i) {
        ASSERT_EQ(end.wait(i), Code::kOk);
        ASSERT_TRUE(std::equal(data.begin(), data.end(), &got[i * 4000]));
      }
    }
  });
}

// All ranks name a rank that cannot start.
TEST_P(RailTransfer, ABadDeviceIsNamedEverywhere) {
  run_ranks(2, [](SharedBoard& board, Rank me) {
    RailEnd end(board, me, GetParam());
    Nic nic = loopback();
    if (me == 1) nic.name = nic.netdev = "nosuch0", nic.address = "192.0.2.1";
    if (me == 1 && GetParam() == std::string("ucx")) setenv("UCX_NET_DEVICES", "nosuch0", 1);
    try {
      end.add_rail(nic);
      ADD_FAILURE() << "it started";
    } catch (const Error& e) {
      const std::string what = e.what();
      EXPECT_EQ(what.rfind(fmt::format("rank 1 on host host1: {}: ", GetParam()), 0), 0u) << what;
      EXPECT_NE(what.find("nosuch0"), std::string::npos) << what;
    }
  });
}

}  // namespace
}  // namespace weft::testing
