// Diagnosis from made-up recorders: every cause, alone and far from the ranks that wait.
#include "coll/observe/diagnosis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace weft {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

OperationReport call(std::uint64_t sequence, OpState state = OpState::kStarted,
                     Collective collective = Collective::kAllReduce) {
  OperationReport o;
  o.members = 4;
  o.number = sequence + 1;
  o.sequence = sequence;
  o.collective = collective;
  o.count = collective == Collective::kBarrier ? 0 : 1024;
  o.state = state;
  o.started_s = state == OpState::kStarted ? 30 : 41;
  o.ended_s = state == OpState::kStarted ? 0 : 41;
  return o;
}

PeerProgress recv(Rank peer, std::uint32_t done = 3, int link = 0) {
  return {peer, link, 0, 0, done + 1, done};
}
PeerProgress both(Rank peer, std::uint32_t sent, std::uint32_t received, std::uint32_t wanted,
                  int link = 0) {
  return {peer, link, sent, sent, wanted, received};
}

// A job whose ranks are in user code; all have completed operation #123.
class Diagnoses : public ::testing::Test {
 protected:
  explicit Diagnoses(int n = 4) {
    evidence_.size = n;
    for (Rank r = 0; r < n; ++r) {
      RankSnapshot t;
      t.rank = r;
      t.host.assign(1, r < n / 2 ? 'a' : 'b');
      t.pid = 1000 + r;
      t.own = true;
      t.state = 'S';
      t.begun = 124;
      t.links = {"shm", "rail 0 (eth0)", "rail 1 (eth1)"};
      t.operations.push_back(call(123, OpState::kDone));
      evidence_.ranks.push_back(t);
    }
  }
  RankSnapshot& rank(Rank r) { return evidence_.ranks[static_cast<std::size_t>(r)]; }
  void waits(Rank r, OperationReport o, std::vector<PeerProgress> peers) {
    o.surveyed = true;
    o.peers = std::move(peers);
    rank(r).operations.push_back(std::move(o));
    rank(r).waits_s = 30;
  }
  // The ranks of a ring wait for their left neighbors, except `without`.
  void ring(OperationReport o, Rank without) {
    for (Rank r = 0; r < evidence_.size; ++r)
      if (r != without) waits(r, o, {recv((r + evidence_.size - 1) % evidence_.size)});
  }
  void expect(Cause cause, Rank rank, const std::string& text) {
    const Diagnosis d = diagnose(evidence_);
    EXPECT_STREQ(name(d.cause), name(cause)) << d.text;
    EXPECT_EQ(d.rank, rank) << d.text;
    EXPECT_THAT(d.text, HasSubstr(text));
    const auto json = nlohmann::json::parse(to_json(d, evidence_));
    EXPECT_EQ(json["cause"], name(cause));
    EXPECT_EQ(json["ranks"].size(), evidence_.ranks.size());
  }

  Evidence evidence_;
};

TEST_F(Diagnoses, NobodyWaits) { expect(Cause::kNone, kNoRank, "no rank waits"); }

TEST_F(Diagnoses, ARankThatNeverCalled) {
  ring(call(124), 2);
  expect(Cause::kNotCalled, 2,
         "rank 2 never called all_reduce #124 (last: #123, 41 s ago; sleeping");
}

// Rank 0 waits for rank 3, which waits for 2, ...: the end of the chain is the root cause.
TEST_F(Diagnoses, TheRootIsFarFromTheOneWhoAsks) {
  ring(call(124), 1);
  const Diagnosis d = diagnose(evidence_);
  EXPECT_EQ(d.rank, 1) << d.text;
  EXPECT_EQ(d.edges.size(), 3u);
  EXPECT_THAT(d.edges, ::testing::Contains("rank 0 waits for rank 3 in all_reduce #124 (shm)"));
}

// One thread of rank 2 has ended; its other threads make short calls on another communicator.
TEST_F(Diagnoses, CallsOfAMomentAreNoReason) {
  ring(call(124), 2);
  OperationReport quick = call(4000);
  quick.comm = 7;
  quick.started_s = 0.004;
  for (const Rank r : {1, 2, 3}) waits(r, quick, {recv(0)});
  rank(2).waits_s = 0.004;
  expect(Cause::kNotCalled, 2, "rank 2 never called all_reduce #124");
}

TEST_F(Diagnoses, ARankThatWasStoppedBeforeTheCall) {
  ring(call(124), 2);
  rank(2).state = 'T';
  rank(2).own = false;
  expect(Cause::kStopped, 2,
         "rank 2 never called all_reduce #124 (last: #123, 41 s ago; stopped in state T");
}

TEST_F(Diagnoses, ARankThatWasStoppedInTheCall) {
  ring(call(124), 2);
  rank(2).operations.push_back(call(124));
  rank(2).state = 'T';
  expect(Cause::kStopped, 2, "rank 2 is stopped in state T in all_reduce #124");
}

TEST_F(Diagnoses, AStoppedRankThatNobodyWaitsForIsNoRoot) {
  rank(3).state = 'T';
  expect(Cause::kNone, kNoRank, "no rank waits");
}

TEST_F(Diagnoses, ADeadRank) {
  ring(call(124), 2);
  rank(2).state = 'X';
  expect(Cause::kDead, 2,
         "rank 2 (host b, pid 1002) is dead; its last call: all_reduce #123, done");
}

TEST_F(Diagnoses, ARankThatHasLeft) {
  ring(call(124), 2);
  rank(2).state = 'L';
  expect(Cause::kNotCalled, 2, "it has left the job");
}

TEST_F(Diagnoses, ASilentRank) {
  ring(call(124), 2);
  evidence_.ranks.erase(evidence_.ranks.begin() + 2);
  expect(Cause::kUnknown, 2, "rank 2 has no snapshot");
  evidence_.silent = {2};
  expect(Cause::kSilent, 2, "rank 2 does not respond");
  evidence_.silent = {0};
  expect(Cause::kSilent, 0, "rank 0 does not respond");
}

TEST_F(Diagnoses, OtherCounts) {
  OperationReport other = call(124);
  other.count = 2048;
  ring(call(124), 2);
  waits(2, other, {recv(1)});
  expect(Cause::kMismatch, 2,
         "all_reduce #124: rank 0 passed 1024 x float32, sum, rank 2 passed 2048 x float");
}

// In an all_to_all_v each pair has its own counts; a rank that passes 0 for a peer sends it
// nothing.
TEST_F(Diagnoses, CountsOfAPairThatDiffer) {
  OperationReport o = call(124);
  o.collective = Collective::kAllToAll;
  o.is_vector = true;
  OperationReport over = call(124, OpState::kDone);
  over.collective = o.collective;
  over.is_vector = true;
  over.count = 7;  // its own count, which is no mismatch
  waits(1, o, {recv(0)});
  for (const Rank r : {0, 2, 3}) rank(r).operations.push_back(over);
  expect(Cause::kMismatch, 0,
         "all_to_all_v #124: rank 1 expects elements from rank 0, which sends it fewer, or none");
  // Rank 0 now waits for other ranks: it has no data for rank 1.
  rank(0).operations.pop_back();
  waits(0, o, {recv(1), recv(2)});
  rank(0).operations.back().peers.erase(rank(0).operations.back().peers.begin());
  rank(2).operations.pop_back();
  expect(Cause::kMismatch, 0, "rank 1 expects elements from rank 0");
}

TEST_F(Diagnoses, CountsWithTheSameSum) {
  OperationReport o = call(124);
  o.collective = Collective::kReduceScatter;
  o.is_vector = true;
  o.digest = 0xabc;
  for (const Rank r : {0, 1, 2}) waits(r, o, {recv(3)});
  o.digest = 0xdef;
  waits(3, o, {recv(0)});
  expect(Cause::kMismatch, 3,
         "reduce_scatter_v #124: rank 0 passed 1024 x float32 in all (digest of "
         "the counts 000abc), sum, rank 3 passed 1024 x float32 in all (digest "
         "of the counts 000def), sum");
}

TEST_F(Diagnoses, OtherTypesAndOperators) {
  OperationReport other = call(124);
  other.op = RedOp::kMax;
  waits(0, other, {recv(1)});
  for (const Rank r : {1, 2, 3}) waits(r, call(124), {recv(0)});
  expect(Cause::kMismatch, 0,
         "rank 0 passed 1024 x float32, max, rank 1 passed 1024 x float32, sum");
}

// The mismatch is found even if rank 3 considers its call complete.
TEST_F(Diagnoses, OtherCollective) {
  waits(0, call(124), {recv(3)});
  waits(1, call(124), {recv(3)});
  waits(2, call(124), {recv(3)});
  rank(3).operations.push_back(call(124, OpState::kDone, Collective::kBroadcast));
  expect(Cause::kMismatch, 3,
         "call #124: rank 0 called all_reduce (1024 x float32, sum), rank 3 called broadcast");
}

TEST_F(Diagnoses, AnAsynchronousCallThatGetsNoTime) {
  ring(call(124), 2);
  rank(2).operations.push_back(call(124));
  expect(Cause::kNotWaiting, 2, "rank 2 began all_reduce #124 30 s ago and does not wait for it");
}

// All ranks of a ring wait; rank 1's posted message to rank 2 has not arrived.
TEST_F(Diagnoses, ALinkThatMovesNothing) {
  waits(0, call(124), {both(3, 0, 7, 9), both(1, 9, 0, 0)});
  waits(1, call(124), {both(0, 0, 9, 10), both(2, 9, 0, 0, 2)});
  waits(2, call(124), {both(1, 0, 5, 7, 2), both(3, 7, 0, 0)});
  waits(3, call(124), {both(2, 0, 7, 8), both(0, 7, 0, 0)});
  expect(Cause::kLink, 1,
         "rail 1 (eth1) between hosts a and b moves no bytes: what rank 1 sent in all_reduce #124 "
         "has not reached rank 2");
}

// Messages of rail 0 are striped over both rails. The part sent over rail 0 has arrived; the part
// sent over rail 1 is missing.
TEST_F(Diagnoses, TheRailThatMovesNothingIsNotThatOfThePair) {
  PeerProgress sender = both(2, 9, 3, 7, 1), receiver = both(1, 9, 5, 9, 1);
  sender.sends_on = 0b100;
  sender.recvs_on = receiver.sends_on = receiver.recvs_on = 0b110;
  waits(1, call(124), {sender});
  waits(2, call(124), {receiver});
  for (const int link : {1, 2}) {
    rank(1).operations.back().peers[0].link = rank(2).operations.back().peers[0].link = link;
    expect(Cause::kLink, 1,
           "rail 1 (eth1) between hosts a and b moves no bytes: what rank 1 sent in all_reduce "
           "#124 has not reached rank 2");
  }
  // Only the receiver has evidence.
  rank(1).operations.back() = call(124, OpState::kDone);
  rank(1).waits_s = 0;
  expect(Cause::kLink, 1, "rail 0 (eth0) and rail 1 (eth1) between hosts a and b move no bytes");
}

TEST_F(Diagnoses, ALinkThatMovesNothingToARankThatWaitsForNothingElse) {
  waits(0, call(124), {recv(2, 5, 1)});
  rank(2).operations.push_back(call(124, OpState::kDone));
  expect(Cause::kLink, 2, "rail 0 (eth0) between hosts b and a moves no bytes");
}

TEST_F(Diagnoses, TwoCommunicatorsInDifferentOrder) {
  OperationReport one = call(5), two = call(7);
  one.comm = 3;
  two.comm = 4;
  waits(0, one, {recv(1)});
  waits(1, two, {recv(0)});
  rank(0).operations[0].comm = 9;
  rank(1).operations[0].comm = 9;
  expect(Cause::kCircle, 0, "in the same order on all ranks");
  expect(Cause::kCircle, 0, "rank 0 is in all_reduce #5 of communicator 3");
  expect(Cause::kCircle, 0, "rank 1 is in all_reduce #7 of communicator 4");
}

// Both rails of a host are down, and no rank shows lost bytes.
TEST_F(Diagnoses, ACircleInOneCallNamesTheLinksAndWhoIsNotHeard) {
  waits(0, call(124), {recv(2, 3, 1)});
  waits(2, call(124), {recv(0, 3, 2)});
  expect(Cause::kCircle, 0,
         "rank 0 is in all_reduce #124 and waits for rank 2 (rail 0 (eth0)), rank 2 is in "
         "all_reduce #124 and waits for rank 0 (rail 1 (eth1)); all have made the same call");
  evidence_.silent = {2};
  expect(Cause::kSilent, 2, "rank 2 on host b does not respond");
}

// Rank 0 is in the second call: its wait for rank 1 there does not delay the first call.
TEST_F(Diagnoses, ALaterCallOfTheSameRankMakesNoCircle) {
  const OperationReport barrier = call(124, OpState::kStarted, Collective::kBarrier);
  waits(0, barrier, {recv(2, 0, 1)});
  waits(0, call(125, OpState::kStarted, Collective::kBroadcast), {recv(1, 0)});
  waits(1, barrier, {recv(0, 0)});
  waits(2, barrier, {both(0, 1, 0, 1, 1)});
  waits(3, barrier, {recv(0, 0)});
  expect(Cause::kLink, 2, "rail 0 (eth0) between hosts b and a moves no bytes: what rank 2 sent");
}

OperationReport message(bool sends, Rank peer, std::uint64_t sequence = 0) {
  OperationReport o = call(sequence, OpState::kStarted, Collective::kSendRecv);
  o.message = true;
  o.sends = sends;
  o.root = peer;
  return o;
}

TEST_F(Diagnoses, TwoReceivesThatWaitForEachOther) {
  waits(0, message(false, 1), {recv(1, 0)});
  waits(1, message(false, 0), {recv(0, 0)});
  expect(Cause::kCircle, 0, "rank 0 is in recv #0 from rank 1");
  expect(Cause::kCircle, 0, "call the communicators, and messages, in the same order on all ranks");
}

TEST_F(Diagnoses, AMessageThatIsNeverSent) {
  waits(0, message(false, 1, 2), {recv(1, 0)});
  expect(Cause::kNotCalled, 1, "rank 1 never called send #2 to rank 0");
}

TEST_F(Diagnoses, TheCircleIsNotToBlameWhenARankIsMissing) {
  // Direct exchange: every rank waits for every other.
  for (const Rank r : {0, 1, 3}) {
    std::vector<PeerProgress> peers;
    for (const Rank other : {0, 1, 2, 3})
      if (other != r) peers.push_back(other == 2 ? recv(2, 0) : PeerProgress{other, 0, 1, 0, 1, 1});
    waits(r, call(124), peers);
  }
  expect(Cause::kNotCalled, 2, "rank 2 never called");
}

// Two causes: the more severe one is the root.
TEST_F(Diagnoses, AStopOutweighsALateRank) {
  waits(0, call(124), {recv(2), recv(3)});
  waits(1, call(124), {recv(2), recv(3)});
  rank(3).state = 't';
  expect(Cause::kStopped, 3, "stopped in state t");
}

TEST_F(Diagnoses, TheWordOfTheRankItselfCounts) {
  ring(call(124), 2);
  RankSnapshot old = rank(2);
  old.own = false;
  old.state = 'T';
  evidence_.ranks.insert(evidence_.ranks.begin(), old);
  expect(Cause::kNotCalled, 2, "never called");
}

// Communicators with the same id are distinguished by their members.
TEST_F(Diagnoses, HostCommunicatorsAreNotConfused) {
  OperationReport a = call(9), b = call(9);
  a.comm = b.comm = 1;
  a.members = b.members = 2;
  a.leader = 0;
  b.leader = 2;
  b.count = 77;
  waits(0, a, {recv(1)});
  waits(2, b, {recv(3)});
  waits(3, b, {recv(2)});
  expect(Cause::kNotCalled, 1,
         "rank 1 never called all_reduce #9 of communicator 1 (2 ranks, first 0)");
}

TEST(Seconds, AreShort) {
  EXPECT_EQ(seconds(0.012), "12 ms");
  EXPECT_EQ(seconds(0.34), "0.3 s");
  EXPECT_EQ(seconds(41.3), "41 s");
}

}  // namespace
}  // namespace weft
