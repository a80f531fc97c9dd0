// The flight recorder: records are read correctly, also during writes, by other ranks, and after
// the ring wraps around.
// sanitize: address threads
#include "coll/observe/recorder.h"

#include <gtest/gtest.h>

#include <thread>

#include "support/jobs/ranks.h"

namespace weft {
namespace {

TEST(SeqBox, NobodyReadsHalfAValue) {
  struct Four {
    std::uint64_t a, b, c, d;
  };
  SeqBox<Four> box{};
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (std::uint64_t i = 1; !stop; ++i) box.store({i, 2 * i, 3 * i, 4 * i});
  });
  int read = 0;
  while (read < 20000) {
    Four v{};
    if (!box.load(v)) continue;
    ++read;
    ASSERT_EQ(v.b, 2 * v.a);
    ASSERT_EQ(v.c, 3 * v.a);
    ASSERT_EQ(v.d, 4 * v.a);
  }
  stop = true;
  writer.join();
}

CallDescriptor an_operation(std::uint64_t sequence) {
  CallDescriptor o;
  o.sequence = sequence;
  o.count = 1000 + sequence;
  o.comm = 7;
  o.leader = 2;
  o.members = 3;
  o.root = 1;
  o.collective = Collective::kBroadcast;
  o.type = DType::kInt64;
  return o;
}

// Runs body(rank, recorder) on threads as ranks of one machine.
void with_recorders(int n, const std::function<void(Rank, Recorder&)>& body) {
  auto jobs = local_jobs(n);
  const auto places = testing::places({n});
  std::vector<std::thread> ranks;
  for (Rank r = 0; r < n; ++r)
    ranks.emplace_back([&, r] {
      Job& job = *jobs[static_cast<std::size_t>(r)];
      Recorder recorder(job, Topology(places), {"shm", "rail 0 (lo)"});
      job.all_gather("");
      body(r, recorder);
      job.all_gather("");
      job.leave();
    });
  for (auto& t : ranks) t.join();
}

TEST(Recorder, TellsWhatRanAndHowItEnded) {
  with_recorders(1, [](Rank, Recorder& recorder) {
    CallDescriptor o = an_operation(5), p = an_operation(6), q = an_operation(7);
    const auto first = recorder.begin(o), second = recorder.begin(p), third = recorder.begin(q);
    recorder.end_at_once(first);
    recorder.end(second, OpState::kFailed);
    const RankSnapshot t = recorder.own();
    EXPECT_EQ(t.rank, 0);
    EXPECT_EQ(t.pid, getpid());
    EXPECT_EQ(t.host, "host0");
    EXPECT_TRUE(t.state == 'R' || t.state == 'S') << t.state;
    EXPECT_EQ(t.begun, third);
    EXPECT_EQ(t.waits_s, 0);
    ASSERT_EQ(t.links.size(), 2u);
    EXPECT_EQ(t.links[1], "rail 0 (lo)");
    ASSERT_EQ(t.operations.size(), 3u);
    EXPECT_EQ(t.operations[0].state, OpState::kDone);
    EXPECT_EQ(t.operations[1].state, OpState::kFailed);
    const OperationReport& last = t.operations[2];
    EXPECT_EQ(last.state, OpState::kStarted);
    EXPECT_EQ(last.sequence, 7u);
    EXPECT_EQ(last.count, 1007u);
    EXPECT_EQ(last.comm, 7u);
    EXPECT_EQ(last.leader, 2);
    EXPECT_EQ(last.members, 3);
    EXPECT_EQ(title(last), "broadcast #7");
    EXPECT_EQ(arguments(last), "1007 x int64, root 1");
    EXPECT_FALSE(last.surveyed);
  });
}

TEST(Recorder, AStallIsToldWhileItLasts) {
  with_recorders(1, [](Rank, Recorder& recorder) {
    CallDescriptor o = an_operation(1);
    const auto number = recorder.begin(o);
    recorder.stalled({{number, 0, 10, 4, {{3, 1, 5, 5, 6, 4}}}});
    RankSnapshot t = recorder.own();
    EXPECT_GT(t.waits_s, 0);
    ASSERT_EQ(t.operations.size(), 1u);
    ASSERT_TRUE(t.operations[0].surveyed);
    EXPECT_EQ(t.operations[0].rounds, 10u);
    EXPECT_EQ(t.operations[0].rounds_done, 4u);
    ASSERT_EQ(t.operations[0].peers.size(), 1u);
    const PeerProgress& p = t.operations[0].peers[0];
    EXPECT_EQ(p.peer, 3);
    EXPECT_EQ(p.link, 1);
    EXPECT_TRUE(p.receives());
    EXPECT_FALSE(p.sends());
    recorder.moving();
    t = recorder.own();
    EXPECT_EQ(t.waits_s, 0);
    EXPECT_FALSE(t.operations[0].surveyed);
  });
}

// Completing an operation whose line has been reused changes no other operation.
TEST(Recorder, TheRingComesRound) {
  with_recorders(1, [](Rank, Recorder& recorder) {
    CallDescriptor old = an_operation(0);
    const auto forgotten = recorder.begin(old);
    std::uint64_t last = 0;
    for (int i = 1; i <= 3 * book::kRecords; ++i) {
      CallDescriptor o = an_operation(static_cast<std::uint64_t>(i));
      last = recorder.begin(o);
      if (i != 3 * book::kRecords - 40) recorder.end_at_once(last);
    }
    recorder.end(forgotten, OpState::kFailed);
    const RankSnapshot t = recorder.own();
    ASSERT_FALSE(t.operations.empty());
    EXPECT_EQ(t.operations.back().number, last);
    EXPECT_LE(t.operations.size(), 20u);
    int under_way = 0;
    for (const OperationReport& o : t.operations) {
      EXPECT_NE(o.state, OpState::kFailed);
      under_way += o.state == OpState::kStarted;
    }
    EXPECT_EQ(under_way, 1);
  });
}

// Unfinished calls stay readable after many newer calls, since other ranks may wait for them.
TEST(Recorder, WhatIsUnderWayOutlivesTheRing) {
  with_recorders(1, [](Rank, Recorder& recorder) {
    CallDescriptor first = an_operation(1), second = an_operation(2);
    const auto a = recorder.begin(first), b = recorder.begin(second);
    const auto call = [&](int times) {
      for (int i = 0; i < times; ++i) {
        CallDescriptor o = an_operation(static_cast<std::uint64_t>(i) + 3);
        recorder.end_at_once(recorder.begin(o));
      }
    };
    const auto under_way = [&] {
      std::vector<std::uint64_t> numbers;
      for (const OperationReport& o : recorder.own().operations)
        if (o.state == OpState::kStarted) numbers.push_back(o.number);
      return numbers;
    };
    call(3 * book::kRecords);
    EXPECT_EQ(under_way(), (std::vector{a, b}));
    recorder.stalled({{b, 0, 10, 4, {{3, 1, 5, 5, 6, 4}}}});
    EXPECT_TRUE(recorder.own().operations[1].surveyed);
    recorder.end(a, OpState::kDone);
    EXPECT_EQ(under_way(), std::vector{b});
    recorder.end(b, OpState::kDone);
    for (int i = 0; i < 3 * book::kElders; ++i) {  // their entries are free again
      CallDescriptor o = an_operation(1000);
      const auto number = recorder.begin(o);
      call(book::kRecords);
      EXPECT_EQ(under_way(), std::vector{number});
      recorder.end(number, OpState::kDone);
    }
  });
}

TEST(Recorder, RanksOfAMachineReadEachOther) {
  with_recorders(3, [](Rank me, Recorder& recorder) {
    CallDescriptor o = an_operation(static_cast<std::uint64_t>(100 + me));
    recorder.begin(o);
    for (;;) {  // until all are read
      const auto all = recorder.of_this_machine();
      ASSERT_EQ(all.size(), 3u);
      bool complete = true;
      for (const RankSnapshot& t : all) complete = complete && !t.operations.empty();
      if (!complete) continue;
      for (Rank r = 0; r < 3; ++r) {
        const RankSnapshot& t = all[static_cast<std::size_t>(r)];
        EXPECT_EQ(t.rank, r);
        EXPECT_EQ(t.operations[0].sequence, static_cast<std::uint64_t>(100 + r));
      }
      return;
    }
  });
}

TEST(RankSnapshot, SurvivesTheWire) {
  RankSnapshot t;
  t.rank = 3;
  t.host = "b";
  t.pid = 17;
  t.state = 'T';
  t.waits_s = 1.5;
  t.begun = 9;
  t.links = {"shm"};
  OperationReport o;
  o.sequence = 124;
  o.collective = Collective::kAllReduce;
  o.count = 1024;
  o.state = OpState::kStarted;
  o.surveyed = true;
  o.peers.push_back({5, 0, 1, 2, 3, 4});
  t.operations.push_back(o);
  const std::string text = encode(t);
  const RankSnapshot back = decode_snapshot(text);
  EXPECT_EQ(encode(back), text);
  EXPECT_EQ(back.operations[0].peers[0].recvs_done, 4u);
  EXPECT_TRUE(back.operations[0].same_call(o));
  for (const char* wrong : {"", "{}", "[1]", R"({"rank": "x"})"})
    EXPECT_THROW((void)decode_snapshot(wrong), Error) << wrong;
}

TEST(ProcessState, OfThisOneAndOfNone) {
  EXPECT_NE(process_state(getpid(), 0), 'X');
  EXPECT_EQ(process_state(getpid(), process_born(getpid()) + 1), 'X');
  EXPECT_EQ(process_state(0x3fffffff, 0), 'X');
}

}  // namespace
}  // namespace weft
