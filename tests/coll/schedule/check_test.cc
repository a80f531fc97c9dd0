// The checker's message for each kind of fault, and its model of ordering.
#include "coll/schedule/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "tests/coll/schedules.h"

namespace weft {
namespace {

using ::testing::AllOf;
using testing::build_all;
using ::testing::HasSubstr;
using testing::on_one_host;

std::vector<Schedule> ring(int n, Collective c = Collective::kAllReduce) {
  return build_all(*find_algorithm(c, "ring"), on_one_host(n));
}

std::vector<Schedule> empty(int n, int nchunks) {
  std::vector<Schedule> all(n);
  for (int r = 0; r < n; ++r) {
    all[r].rank = r;
    all[r].nranks = n;
    all[r].nchunks = nchunks;
  }
  return all;
}

TEST(Check, NamesAStepWithoutPartner) {
  auto all = ring(4);
  all[2].steps.erase(all[2].steps.begin());  // its first send
  all[2].steps.pop_back();                   // and its last receive
  EXPECT_THAT(check(Collective::kAllReduce, all), HasSubstr("of rank"));

  all = empty(2, 1);
  all[0].send(1, {0, 1}, 3);
  EXPECT_EQ(check(Collective::kAllReduce, all),
            "step 0 of rank 0 (send to 1, chunks [0,1), channel 3) is never received: rank 1 has "
            "no matching receive");
  all = empty(2, 1);
  all[1].recv(0, {0, 1});
  EXPECT_EQ(check(Collective::kAllReduce, all),
            "step 0 of rank 1 (recv from 0, chunks [0,1), channel 0) waits for a message that rank "
            "0 never sends");
}

// Chunks that share a place must not be live at the same time.
TEST(Check, NamesAChunkWhosePlaceIsTaken) {
  const Algorithm& a = *find_algorithm(Collective::kReduceScatter, "hierarchical");
  auto all = build_all(a, testing::uniform(6, 2));
  EXPECT_EQ(check(Collective::kReduceScatter, all), "");
  // Rank 0 forwards its sums one after the other. Reordered so that two are live, the schedule is
  // right with two places and wrong with one.
  auto again = all;
  Schedule& s = again[0];
  ASSERT_EQ(s.place.size(), 12u);
  std::vector<int> passed;  // along the rail
  for (const Step& step : s.steps)
    if (step.op == Op::kSend && step.channel == 1) passed.push_back(step.at.first);
  ASSERT_GE(passed.size(), 2u);
  const auto first_send = std::ranges::find_if(
      s.steps, [](const Step& step) { return step.op == Op::kSend && step.channel == 1; });
  const Step late = *first_send;
  s.steps.erase(first_send);
  const auto second_send = std::ranges::find_if(
      s.steps, [](const Step& step) { return step.op == Op::kSend && step.channel == 1; });
  s.steps.insert(second_send, late);  // still in order, with both live
  EXPECT_EQ(check(Collective::kReduceScatter, again), "");
  s.place[static_cast<std::size_t>(passed[1])] = s.place[static_cast<std::size_t>(passed[0])];
  EXPECT_THAT(
      check(Collective::kReduceScatter, again),
      AllOf(HasSubstr("of rank 0 touches chunk"), HasSubstr("after another chunk took its place")));
  all[1].place.pop_back();
  EXPECT_EQ(check(Collective::kReduceScatter, all), "rank 1 has 11 places for 12 chunks");
}

TEST(Check, NamesPartnersWithOtherChunks) {
  auto all = empty(2, 3);
  all[0].send(1, {0, 2});
  all[1].recv_reduce(0, {1, 2});
  EXPECT_EQ(check(Collective::kAllReduce, all),
            "step 0 of rank 0 (send to 1, chunks [0,2), channel 0) and step 0 of rank 1 "
            "(recv_reduce from 0, chunks [1,3), channel 0) do not match: their chunks differ");
}

TEST(Check, NamesWhatIsMissingOrDouble) {
  auto all = empty(3, 1);
  const Chunks c{0, 1};
  for (int from : {1, 2}) {
    all[from].send(0, c);
    all[0].recv_reduce(from, c);
  }
  for (int to : {1, 2}) {
    all[0].send(to, c);
    all[to].recv(0, c);
  }
  EXPECT_EQ(check(Collective::kAllReduce, all), "");
  auto twice = all;
  twice[1].send(0, c);  // rank 1 sends the result back ...
  twice[0].recv_reduce(1, c);
  EXPECT_THAT(check(Collective::kAllReduce, twice), HasSubstr("chunk 0 on rank 0"));
  auto again = all;  // ... or its own value a second time
  again[1].steps.insert(again[1].steps.begin(), again[1].steps[0]);
  again[0].steps.insert(again[0].steps.begin(), again[0].steps[0]);
  EXPECT_EQ(
      check(Collective::kAllReduce, again),
      "at the end chunk 0 on rank 0 has the contribution of rank 1 twice, expected each rank's "
      "contribution once");
  all[0].steps[1].op = Op::kRecv;  // overwrites its own contribution
  EXPECT_EQ(
      check(Collective::kAllReduce, all),
      "at the end chunk 0 on rank 0 has only the contribution of rank 2, expected each rank's "
      "contribution once");
  auto lacks = empty(3, 1);
  lacks[1].send(0, c);
  lacks[0].recv_reduce(1, c);
  EXPECT_EQ(check(Collective::kAllReduce, lacks),
            "at the end chunk 0 on rank 0 lacks the contribution of rank 2, expected each rank's "
            "contribution once");
}

TEST(Check, NamesAChunkThatNothingHasWritten) {
  auto all = empty(2, 2);
  all[0].send(1, {0, 2});
  all[1].recv(0, {0, 2});
  EXPECT_EQ(check(Collective::kAllGather, all),
            "step 0 of rank 0 (send to 1, chunks [0,2), channel 0) sends chunk 1, which "
            "has no value");
  all = empty(2, 1);
  all[0].send(1, {0, 1});
  all[1].recv_reduce(0, {0, 1});
  EXPECT_EQ(check(Collective::kBroadcast, all),
            "step 0 of rank 1 (recv_reduce from 0, chunks [0,1), channel 0) reduces into chunk 0, "
            "which has no value");
  EXPECT_EQ(check(Collective::kBroadcast, empty(2, 1)),
            "at the end chunk 0 on rank 1 is unwritten, expected rank 0's");
}

TEST(Check, NamesAnotherRanksData) {
  // An all-gather by 3 ranks, in which rank 2 obtains chunk 1 by reducing into it.
  auto all = build_all(*find_algorithm(Collective::kAllGather, "direct"), on_one_host(3));
  all[0].send(2, {0, 1}, 1);
  all[2].recv_reduce(0, {0, 1}, 1);
  EXPECT_EQ(check(Collective::kAllGather, all), "at the end chunk 0 on rank 2 is not rank 0's");
}

TEST(Check, WantsTheSameOrderOfAdditionOnAllRanks) {
  // Each rank reduces the others' values into its own. As one run of receives it is one reduction
  // in rank order; one chunk at a time, the runs are separated.
  auto all = empty(3, 2);
  for (int r = 0; r < 3; ++r) {
    for (int i : {1, 2}) all[r].send((r + i) % 3, {0, 2});
    for (int i : {2, 1}) all[r].recv_reduce((r + i) % 3, {0, 2});
  }
  EXPECT_EQ(check(Collective::kAllReduce, all), "");
  for (Schedule& s : all) {
    const std::vector<Step> whole = std::exchange(s.steps, {});
    for (const Step& step : whole)
      for (int chunk : {0, 1}) s.steps.push_back({step.op, step.peer, 0, {chunk, 1}});
  }
  EXPECT_EQ(check(Collective::kAllReduce, all),
            "at the end chunk 0 was added up in another order on rank 1 than on rank 0");
}

// A forwarded value is reduced at the forwarder's position, not at its owner's.
TEST(Check, WhatIsHandedOnIsNotAddedUpInTheOrderOfRanks) {
  const Chunks c{0, 1};
  auto all = empty(4, 1);  // rank 3 forwards 0's value to the root, and rank 0 its own
  all[0].send(3, c);
  all[3].send(0, c);
  all[3].recv(0, c);
  all[0].recv(3, c);
  for (const Rank r : {0, 2, 3}) all[r].send(1, c);
  for (const Rank r : {0, 2, 3}) all[1].recv_reduce(r, c);
  EXPECT_EQ(check(Collective::kReduce, all, {.credits = 2, .root = 1}), "");
  EXPECT_EQ(check(Collective::kReduce, all, {.credits = 2, .root = 1, .canonical = true}),
            "at the end chunk 0 on rank 1 was not added up in the order of ranks");
}

// A second message, from one peer or on another channel, is a separate reduction, with rounding in
// between.
TEST(Check, TwoMessagesOfOnePeerAreTwoReductions) {
  const Chunks c{0, 1};
  for (const int channel : {0, 1}) {
    auto all = empty(3, 1);
    all[0].send(1, c);
    all[1].send(2, c);
    all[1].recv(0, c);
    all[1].send(2, c, channel);
    for (const int on : {0, channel}) all[2].recv_reduce(1, c, on);
    EXPECT_EQ(check(Collective::kReduce, all, {.root = 2}), "");
    EXPECT_EQ(check(Collective::kReduce, all, {.root = 2, .canonical = true}),
              "at the end chunk 0 on rank 2 was not added up in the order of ranks");
  }
}

TEST(Check, NamesWhoMayLeaveTheBarrierTooEarly) {
  auto all = empty(3, 1);
  const Chunks c{0, 1};
  all[1].send(0, c);
  all[0].recv_reduce(1, c);
  EXPECT_EQ(check(Collective::kBarrier, all),
            "rank 0 may leave the barrier before rank 2 has entered");
  // List order does not help without data: rank 1 enters after it has sent.
  all = build_all(*find_algorithm(Collective::kBarrier, "dissemination"), on_one_host(4));
  EXPECT_EQ(check(Collective::kBarrier, all), "");
  for (Schedule& s : all) std::swap(s.steps[1], s.steps[2]);  // sends round 2 before round 1 came
  EXPECT_EQ(check(Collective::kBarrier, all),
            "rank 0 may leave the barrier before rank 1 has entered");
}

TEST(Check, SymmetricExchangeIsNoDeadlock) {
  auto all = empty(2, 1);
  for (int r : {0, 1}) {
    all[r].send(1 - r, {0, 1});
    all[r].recv_reduce(1 - r, {0, 1});
  }
  for (int credits : {0, 1, 2, std::numeric_limits<int>::max()})
    EXPECT_EQ(check(Collective::kAllReduce, all, {.credits = credits}), "");
}

TEST(Check, ReceivingOverWhatOneSendsNeedsACredit) {
  // Swap: each send must complete before the receive overwrites its chunk.
  auto all = empty(2, 1);
  for (int r : {0, 1}) {
    all[r].send(1 - r, {0, 1});
    all[r].recv(1 - r, {0, 1});
  }
  // As an exchange of a barrier it is right ...
  EXPECT_EQ(check(Collective::kBarrier, all, {.credits = 1}), "");
  // ... but not under rendezvous.
  EXPECT_EQ(check(Collective::kBarrier, all, {.credits = 0}),
            "deadlock with 0 credits: step 0 of rank 0 (send to 1, chunks [0,1), channel 0) waits "
            "for step 1 of rank 1 (recv from 0, chunks [0,1), channel 0), which waits for step 0 "
            "of rank 1 (send to 0, chunks [0,1), channel 0), which waits for step 1 of rank 0 "
            "(recv from 1, chunks [0,1), channel 0), which waits for the first");
}

TEST(Check, FindsADeadlockThatTwoCreditsHide) {
  // Each rank sends three messages and receives over their chunks before it takes the peer's.
  auto all = empty(2, 4);
  for (int r : {0, 1}) {
    for (int c = 0; c < 3; ++c) all[r].send(1 - r, {c, 1});
    all[r].recv(1 - r, {0, 1});
    all[r].recv(1 - r, {1, 1});
    all[r].recv(1 - r, {2, 1});
  }
  for (int credits : {1, 2, 3})
    EXPECT_EQ(check(Collective::kBarrier, all, {.credits = credits}), "") << credits;
  for (int r : {0, 1}) std::swap(all[r].steps[3], all[r].steps[5]);
  EXPECT_THAT(check(Collective::kBarrier, all, {.credits = 3}), HasSubstr("their chunks differ"));
  // All at once: a first message that waits for the chunk of the last one sent.
  all = empty(2, 3);
  for (int r : {0, 1}) {
    for (int c = 0; c < 3; ++c) all[r].send(1 - r, {c, 1}, c == 2 ? 0 : 1);
    all[r].recv(1 - r, {0, 1}, 1);
    all[r].recv(1 - r, {1, 1}, 1);
    all[r].recv(1 - r, {2, 1}, 0);
  }
  EXPECT_THAT(check(Collective::kBarrier, all, {.credits = 0}), HasSubstr("deadlock"));
  EXPECT_EQ(check(Collective::kBarrier, all, {.credits = 1}), "");
}

TEST(Check, AReductionHoldsItsCreditsUntilAllOfItIsThere) {
  // Rank 2 sends its part of the first chunk only after rank 1's last message is received, but the
  // first message holds the credit for it.
  const Chunks c0{0, 1}, c1{1, 1}, c2{2, 1}, c{0, 3};
  auto all = empty(3, 3);
  for (const auto& [peer, at] : {std::pair{1, c0}, {2, c0}, {1, c1}, {1, c2}, {2, c1}, {2, c2}})
    all[0].recv_reduce(peer, at);
  for (const Rank r : {1, 2}) {
    all[0].send(r, c);
    if (r == 2) all[r].send(1, c), all[r].recv(1, c);
    for (const Chunks at : {c0, c1, c2}) all[r].send(0, at);
    if (r == 1) all[r].recv(2, c), all[r].send(2, c);
    all[r].recv(0, c);
  }
  for (const int credits : {0, 1})
    EXPECT_THAT(check(Collective::kAllReduce, all, {.credits = credits}), HasSubstr("deadlock"));
  EXPECT_EQ(check(Collective::kAllReduce, all, {.credits = 2}), "");
}

TEST(Check, WaitsInACircleAreADeadlockWithAnyCredits) {
  auto all = empty(3, 1);
  for (int r = 0; r < 3; ++r) {
    all[r].recv_reduce((r + 2) % 3, {0, 1});
    all[r].send((r + 1) % 3, {0, 1});
  }
  for (int credits : {0, 1000})
    EXPECT_THAT(check(Collective::kAllReduce, all, {.credits = credits}),
                AllOf(HasSubstr("deadlock"), HasSubstr("step 0 of rank 0")));
}

TEST(Check, NamesMalformedSchedules) {
  const auto with = [](auto change) {
    auto all = ring(3);
    change(all);
    return check(Collective::kAllReduce, all);
  };
  EXPECT_THAT(with([](auto& all) { all[1].rank = 2; }), HasSubstr("schedules[1] is for rank 2"));
  EXPECT_THAT(with([](auto& all) { all[2].nranks = 4; }), HasSubstr("4 ranks, expected 3"));
  EXPECT_THAT(with([](auto& all) { all[2].nchunks = 4; }), HasSubstr("into 4 chunks"));
  EXPECT_THAT(with([](auto& all) { all[1].weight = {1, 2, 3}; }), HasSubstr("rank 1"));
  EXPECT_THAT(with([](auto& all) { all[1].block = {0, 2, 1}; }), HasSubstr("rank 1"));
  EXPECT_THAT(with([](auto& all) {
                for (auto& s : all) s.weight = {1, 2};
              }),
              HasSubstr("2 weights for 3 chunks"));
  EXPECT_THAT(with([](auto& all) {
                for (auto& s : all) s.weight = {1, 2, -1};
              }),
              HasSubstr("chunk 2 has weight -1"));
  EXPECT_THAT(with([](auto& all) { all[1].steps[2].peer = 3; }), HasSubstr("has peer 3"));
  EXPECT_THAT(with([](auto& all) { all[1].steps[2].peer = 1; }), HasSubstr("has peer 1"));
  EXPECT_THAT(with([](auto& all) { all[0].steps[1].at = {2, 2}; }), HasSubstr("step 1 of rank 0"));
  EXPECT_THAT(with([](auto& all) { all[0].steps[1].at = {2, 0}; }), HasSubstr("0 chunks"));
  EXPECT_THAT(with([](auto& all) { all[0].steps[1].channel = -1; }), HasSubstr("channel -1"));
  // In a message's tag it would be channel 0.
  EXPECT_THAT(with([](auto& all) {
                for (auto& s : all)
                  for (Step& step : s.steps) step.channel = 8;
              }),
              HasSubstr("has channel 8, expected 0 to 7"));
}

TEST(Check, BlocksMustCoverAllRanks) {
  auto all = ring(3, Collective::kAllGather);
  for (auto& s : all) s.block = {0, 1, 1};
  EXPECT_EQ(check(Collective::kAllGather, all), "no chunk holds the block of rank 2");
  for (auto& s : all) s.block = {0, 1, 3};
  EXPECT_THAT(check(Collective::kAllGather, all), HasSubstr("chunk 2 is of the block of rank 3"));
  EXPECT_THAT(check(Collective::kReduceScatter, empty(2, 3)), HasSubstr("3 chunks"));
}

TEST(Check, RefusesWhatItCannotCheck) {
  EXPECT_NE(check(Collective::kSendRecv, ring(2)), "");
  EXPECT_NE(check(Collective::kAllReduce, {}), "");
  EXPECT_NE(check(Collective::kAllReduce, ring(2), {.credits = -1}), "");
  EXPECT_NE(check(Collective::kBroadcast, ring(2), {.root = 2}), "");
}

}  // namespace
}  // namespace weft
