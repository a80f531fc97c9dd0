// Connections of the ucx transport that end and begin anew, over the loopback device: one rank's
// end is no other rank's, nothing of the old connection is seen on the new one, and nothing that
// was given up is written to.
// labels: multiproc
// ctest: alone
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>

#include "transport/conformance.h"
#include "transport/ucx/ucx.h"

namespace weft::testing {
namespace {

constexpr std::size_t kLong = 8u << 20;

class UcxSever : public ::testing::Test {
 protected:
  static Endpoints endpoints() {
    setenv("UCX_RNDV_THRESH", "8k", 1);
    Endpoints made = make_in_threads(3, [](Job& job, Rank rank) {
      const Topology topology = one_host(3);
      return make_ucx_transport(job, topology, topology.place(rank).rails[0]);
    });
    unsetenv("UCX_RNDV_THRESH");
    return made;
  }
  void anew(Rank a, Rank b) {
    net_[a].transport().sever(b);
    net_[b].transport().sever(a);
    const std::string of_a = net_[a].transport().reopen(b);
    const std::string of_b = net_[b].transport().reopen(a);
    ASSERT_TRUE(net_[a].transport().meet(b, of_b));
    ASSERT_TRUE(net_[b].transport().meet(a, of_a));
  }
  // Messages of some sizes arrive, both ways.
  void exchange(Rank a, Rank b) {
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{5000}, kLong}) {
      Buffer from(bytes), to(bytes), back(bytes);
      from.fill(++seed_);
      const std::uint64_t sent[] = {net_[a].send(b, 9, from), net_[b].send(a, 9, from)};
      const std::uint64_t got[] = {net_[a].recv(b, 9, back), net_[b].recv(a, 9, to)};
      ASSERT_TRUE(net_.until([&] {
        return net_[a].done(sent[0]) && net_[b].done(sent[1]) && net_[a].done(got[0]) &&
               net_[b].done(got[1]);
      })) << "ranks "
          << a << " and " << b << ", " << bytes << " bytes";
      EXPECT_EQ(net_[a].result(got[0]).code, Code::kOk) << net_[a].transport().cause(b).to_string();
      EXPECT_EQ(net_[b].result(got[1]).code, Code::kOk) << net_[b].transport().cause(a).to_string();
      ASSERT_TRUE(has_pattern(to.data(), bytes, seed_));
      ASSERT_TRUE(has_pattern(back.data(), bytes, seed_));
    }
  }
  // Whether messages arrive; if not, both ends are told.
  bool flows(Rank a, Rank b) {
    Buffer from(8), to(8), back(8);
    const std::uint64_t ids[] = {net_[a].send(b, 8, from), net_[a].recv(b, 8, back),
                                 net_[b].send(a, 8, from), net_[b].recv(a, 8, to)};
    EXPECT_TRUE(net_.until([&] {
      return net_[a].done(ids[0]) && net_[a].done(ids[1]) && net_[b].done(ids[2]) &&
             net_[b].done(ids[3]);
    }));
    return net_[a].done(ids[1]) && net_[a].result(ids[1]).code == Code::kOk &&
           net_[b].done(ids[3]) && net_[b].result(ids[3]).code == Code::kOk;
  }

  std::deque<Buffer> memory_;  // outlives the transports
  Net net_{endpoints()};
  std::uint64_t seed_ = 0;
};

TEST_F(UcxSever, BeginsAnewAgainAndAgain) {
  ASSERT_NO_FATAL_FAILURE(exchange(0, 1));
  for (int i = 0; i < 10; ++i) {
    ASSERT_NO_FATAL_FAILURE(anew(0, 1));
    ASSERT_NO_FATAL_FAILURE(exchange(0, 1));
  }
  ASSERT_NO_FATAL_FAILURE(exchange(0, 2));
  ASSERT_NO_FATAL_FAILURE(exchange(1, 2));
}

// Short and long, with a receive and without, arrived and on their way.
TEST_F(UcxSever, WhatWasSentBeforeIsNotSeenAfter) {
  ASSERT_TRUE(net_.connect());
  for (int i = 0; i < 5; ++i) {
    Buffer& old = memory_.emplace_back(kLong);
    Buffer& into = memory_.emplace_back(kLong);
    old.fill(77);
    const std::uint64_t stays = net_[2].recv(1, 4, memory_.emplace_back(8));
    net_[0].post(Kind::kSend, 1, 9, old.data(), 8, 5);
    net_[0].post(Kind::kSend, 1, 10, old.data(), kLong, 5);
    net_[0].post(Kind::kSend, 1, 11, old.data(), kLong, 5);
    net_[1].post(Kind::kRecv, 0, 11, into.data(), kLong, 5);
    for (int polls = 0; polls < 5 * i; ++polls) net_.poll_all();
    ASSERT_NO_FATAL_FAILURE(anew(0, 1));
    net_[0].give_up();
    net_[1].cancel(5);
    into.wipe();
    Head head;
    ASSERT_NO_FATAL_FAILURE(exchange(0, 1));
    EXPECT_TRUE(into.clean()) << "written to after sever()";
    EXPECT_EQ(net_[1].transport().unclaimed(0, 10, ~std::uint64_t{0}, head), kNoRank);
    net_[1].send(2, 4, memory_.back());
    ASSERT_TRUE(net_.until([&] { return net_[2].done(stays); }));
    EXPECT_EQ(net_[2].result(stays).code, Code::kOk) << "of another peer";
    ASSERT_TRUE(net_.finish());
  }
}

// Only one side has ever sent, so that the two count their connections differently; then messages
// half done are given up.
TEST_F(UcxSever, OneWayTrafficMayBeCancelledAfterwards) {
  Buffer& long_one = memory_.emplace_back(kLong);
  long_one.fill(5);
  net_[0].post(Kind::kSend, 1, 20, long_one.data(), kLong, 6);
  net_.settle();
  ASSERT_NO_FATAL_FAILURE(anew(0, 1));
  net_[0].give_up();
  for (int i = 0; i < 4; ++i) {
    Buffer& into = memory_.emplace_back(kLong);
    net_[0].post(Kind::kSend, 1, 21, long_one.data(), kLong, 7);
    net_[1].post(Kind::kRecv, 0, 21, into.data(), kLong, 8);
    for (int polls = 0; polls < 3 * i; ++polls) net_.poll_all();
    net_[1].cancel(8);
    into.wipe();
    net_.settle();
    EXPECT_TRUE(into.clean()) << "written to after cancel()";
    net_[0].give_up();
    ASSERT_NO_FATAL_FAILURE(anew(0, 1));
  }
  // UCX may find the endpoint that a peer is closing: then both are told, and begin anew once more.
  int tries = 1;
  while (!flows(0, 1) && tries < 20) {
    ASSERT_NO_FATAL_FAILURE(anew(0, 1));
    ++tries;
  }
  EXPECT_LT(tries, 20);
  ASSERT_NO_FATAL_FAILURE(anew(1, 2));  // its rail may have ended as a whole
  ASSERT_NO_FATAL_FAILURE(exchange(1, 2));
}

}  // namespace
}  // namespace weft::testing
