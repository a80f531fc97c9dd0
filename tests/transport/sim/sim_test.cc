// The simulated fabric: seeds, failures, data, and the driver of its events.
// labels: sim
#include "transport/offers.h"
#include "transport/sim/sim.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "transport/sim_bench.h"

namespace weft {
namespace {

using namespace testing::simulated;

// --- seeds

// Every rank sends `count` messages to each other; returns the fabric afterwards.
std::unique_ptr<Bench> all_to_all(SimFabricOptions o, int count) {
  auto b = std::make_unique<Bench>(std::move(o));
  const int n = b->fabric.nranks();
  for (int i = 1; i <= count; ++i) {
    for (Rank from = 0; from < n; ++from) {
      for (Rank to = 0; to < n; ++to) {
        if (from == to) continue;
        const std::uint64_t tag = i;
        b->post(from, Transfer::Kind::kSend, to, tag, 500, nullptr, tag << 40 | 1u << 20 | to);
        b->post(to, Transfer::Kind::kRecv, from, tag, 500, nullptr, tag << 40 | 2u << 20 | from);
      }
    }
  }
  b->run();
  return b;
}

// The tags of rank 0's messages from rank 1, in order of arrival.
std::vector<std::uint64_t> tags_from_1(const Bench& b) {
  std::vector<std::uint64_t> tags;
  for (const std::uint64_t id : b.order.at(0)) {
    if ((id & 0xffffffff) == (2u << 20 | 1)) tags.push_back(id >> 40);
  }
  return tags;
}

TEST(SimSeed, SameSeedSameTraceOtherSeedOtherTrace) {
  SimFabricOptions o = fabric_of(3, 2);
  o.delay_us_max = 20;
  const auto a = all_to_all(o, 20);
  const auto b = all_to_all(o, 20);
  EXPECT_EQ(a->fabric.trace(), b->fabric.trace());
  EXPECT_EQ(a->at, b->at);
  o.seed = 2;
  const auto c = all_to_all(o, 20);
  EXPECT_NE(a->fabric.trace(), c->fabric.trace());
  EXPECT_NE(a->at, c->at);
  EXPECT_EQ(a->at.size(), c->at.size());
}

TEST(SimSeed, DelaysKeepTheOrderOfAPairUnlessAskedToReorder) {
  SimFabricOptions o = fabric_of(3, 2);
  o.delay_us_max = 20;
  const auto kept = tags_from_1(*all_to_all(o, 50));
  ASSERT_EQ(kept.size(), 50u);
  EXPECT_TRUE(std::ranges::is_sorted(kept));
  o.reorder = true;
  auto mixed = tags_from_1(*all_to_all(o, 50));
  ASSERT_EQ(mixed.size(), 50u);
  EXPECT_FALSE(std::ranges::is_sorted(mixed));
  std::ranges::sort(mixed);
  EXPECT_EQ(mixed, kept);
}

TEST(SimSeed, DelaysStayWithinTheirBound) {
  SimFabricOptions o = fabric_of(2, 1);
  o.delay_us_max = 3;
  Bench b(o);
  bool differ = false;
  for (int i = 1; i <= 100; ++i) {
    const std::int64_t start = b.fabric.now_ps();
    b.message(0, 1, i, 10);
    b.run();
    const std::int64_t extra = b.at[{1, i}] - start - kRail - 10 * kRailByte;
    EXPECT_GE(extra, 0);
    EXPECT_LE(extra, 3 * kUs);
    differ |= extra > kUs;
  }
  EXPECT_TRUE(differ);
}

// --- failures

TEST(SimFailures, PeersOfADeadRankLearnItAfterTheDetectionDelay) {
  SimFabricOptions o = fabric_of(4, 1);
  o.failures = {{.at_us = 10, .rank = 2}};
  o.detect_us = 50;
  Bench b(o);
  b.message(0, 2, 1, 100);      // complete before: 5 us + 8 ns
  b.message(2, 1, 2, 1 << 20);  // in flight: 84 us
  b.recv(0, 2, 3, 100);         // never sent
  b.send(3, 2, 4, 1 << 20);     // never received
  b.message(0, 1, 5, 1 << 20);  // not affected
  b.run_until_us(59);
  EXPECT_TRUE(b.ends[0]->cause(2).ok());
  EXPECT_FALSE(b.fabric.alive(2));
  EXPECT_TRUE(b.fabric.alive(0));
  b.run();
  EXPECT_EQ((b.last[{2, 1}].code), Code::kOk);
  const std::int64_t known = 60 * kUs;
  for (const auto& [rank, id] : {std::pair{1, 2u}, {0, 3u}, {3, 4u}}) {
    EXPECT_EQ((b.last[{rank, id}].code), Code::kPeerFailed) << rank;
    EXPECT_EQ((b.at[{rank, id}]), known) << rank;
    const Status why = b.ends[rank]->cause(2);
    EXPECT_EQ(why.code(), Code::kPeerFailed);
    EXPECT_EQ(why.rank(), 2);
    EXPECT_NE(why.message().find("rank 2 (host 2) died at 10 us"), std::string::npos)
        << why.message();
  }
  EXPECT_EQ(b.at.count({2, 2}), 0u);  // dead ranks complete nothing
  EXPECT_EQ((b.last[{1, 5}].code), Code::kOk);
  EXPECT_TRUE(b.ends[0]->cause(1).ok());
  b.recv(0, 2, 6, 8);  // known by now: fails at once
  b.collect();
  EXPECT_EQ((b.last[{0, 6}].code), Code::kPeerFailed);
}

TEST(SimFailures, WhatLeftADeadRankInTimeStillArrives) {
  SimFabricOptions o = fabric_of(2, 1);
  o.failures = {{.at_us = 1, .rank = 0}};
  Bench b(o);
  b.message(0, 1, 1, 100);      // sent after 8 ns
  b.message(0, 1, 2, 1 << 20);  // not sent
  b.run();
  EXPECT_EQ((b.last[{1, 1}].code), Code::kOk);
  EXPECT_EQ((b.last[{1, 2}].code), Code::kPeerFailed);
}

TEST(SimFailures, ALinkThatGoesDownCutsItsNicOnly) {
  SimFabricOptions o = fabric_of(2, 2);
  o.failures = {{.at_us = 10, .host = 1, .rail = 0}};
  o.detect_us = 50;
  Bench b(o);
  b.message(0, 2, 1, 1 << 20);  // over the NIC of host 1 on rail 0
  b.message(1, 3, 2, 1 << 20);  // the other rail
  b.message(3, 2, 3, 1 << 20);  // inside host 1
  b.message(0, 2, 4, 1 << 20);
  b.run();
  for (const std::uint64_t id : {1, 4}) {
    EXPECT_EQ((b.last[{2, id}].code), Code::kTransport);
    EXPECT_EQ((b.at[{2, id}]), 60 * kUs);
  }
  EXPECT_EQ((b.last[{3, 2}].code), Code::kOk);
  EXPECT_EQ((b.last[{2, 3}].code), Code::kOk);
  const Status why = b.ends[0]->cause(2);
  EXPECT_EQ(why.code(), Code::kTransport);
  EXPECT_EQ(why.rank(), 2);
  EXPECT_NE(why.message().find("link of host 1, rail 0"), std::string::npos) << why.message();
  EXPECT_EQ(b.ends[2]->cause(0).rank(), 2);  // also on the other side of the link
  EXPECT_TRUE(b.ends[1]->cause(3).ok());
  EXPECT_TRUE(b.ends[3]->cause(2).ok());
}

TEST(SimFailures, MisuseCompletesWithACodeAndACause) {
  Bench b(fabric_of(2, 1));
  b.send(0, 7, 1, 8);
  b.send(0, 1, 2, 8);
  b.recv(1, 0, 2, 16);
  b.run();
  EXPECT_EQ((b.last[{0, 1}].code), Code::kInvalidArgument);
  EXPECT_NE(b.ends[0]->cause(7).message().find("7"), std::string::npos);
  EXPECT_EQ((b.last[{0, 2}].code), Code::kMismatch);
  EXPECT_EQ((b.last[{1, 2}].code), Code::kMismatch);
  EXPECT_NE(b.ends[1]->cause(0).message().find("has 8 bytes, the other 16"), std::string::npos)
      << b.ends[1]->cause(0).message();
}

// --- data and views

TEST(SimData, BytesAreReadWhenTheyLeaveAndWrittenWhenTheyHaveArrived) {
  SimFabricOptions o = fabric_of(2, 1);
  o.carry_data = true;
  Bench b(o);
  std::vector<char> from(20000, 'a'), to(20000, 'x');
  b.post(0, Transfer::Kind::kSend, 1, 1, from.size(), from.data());
  b.post(1, Transfer::Kind::kRecv, 0, 1, to.size(), to.data());
  while (b.at.count({0, 1}) == 0) {
    ASSERT_TRUE(b.fabric.advance());
    b.collect();
  }
  std::ranges::fill(from, 'b');  // the send is complete: this must not be visible
  EXPECT_EQ(std::ranges::count(to, 'x'), 20000);
  b.run();
  EXPECT_EQ(std::ranges::count(to, 'a'), 20000);
}

TEST(SimData, AReleasedViewIsVisiblyGone) {
  SimFabricOptions o = fabric_of(2, 1);
  o.carry_data = true;
  Bench b(o);
  std::vector<char> from(100, 'a');
  b.post(0, Transfer::Kind::kSend, 1, 1, from.size(), from.data());
  b.post(1, Transfer::Kind::kView, 0, 1, from.size());
  b.run();
  const Completion c = b.last[{1, 1}];
  const auto* bytes = static_cast<const char*>(c.view);
  ASSERT_NE(bytes, nullptr);
  EXPECT_EQ(std::count(bytes, bytes + 100, 'a'), 100);
  EXPECT_EQ(b.fabric.views_lent(), 1u);
  b.ends[1]->views()->release(c.token);
  EXPECT_EQ(b.fabric.views_lent(), 0u);
  EXPECT_EQ(std::count(bytes, bytes + 100, 'a'), 0);  // the pool still owns the memory
  EXPECT_DEATH(b.ends[1]->views()->release(c.token), "not lent");
}

TEST(SimOptions, ErrorsNameTheOptionAndItsValue) {
  const auto message = [](auto change) -> std::string {
    SimFabricOptions o = fabric_of(2, 2);
    change(o);
    try {
      SimFabric fabric(o);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  using O = SimFabricOptions;
  EXPECT_NE(message([](O& o) { o.host_of_rank.clear(); }).find("host_of_rank"), std::string::npos);
  EXPECT_NE(message([](O& o) { o.rail.gbps = -1; }).find("rail.gbps = -1"), std::string::npos);
  EXPECT_NE(message([](O& o) { o.rail_of_rank = {0}; }).find("1 entries"), std::string::npos);
  EXPECT_NE(message([](O& o) {
              o.rail_scale = {1, 0};
            }).find("rail_scale[1] = 0"),
            std::string::npos);
  EXPECT_NE(message([](O& o) { o.payload_share = 0; }).find("payload_share"), std::string::npos);
  EXPECT_NE(message([](O& o) { o.reorder = true; }).find("delay_us_max"), std::string::npos);
  EXPECT_NE(message([](O& o) { o.detect_us = -5; }).find("detect_us = -5"), std::string::npos);
  EXPECT_NE(message([](O& o) { o.failures = {{.rank = 9}}; }).find("rank 9"), std::string::npos);
  EXPECT_EQ(message([](O&) {}), "no error");
  SimFabric fabric(fabric_of(1, 2));
  const auto end = fabric.endpoint(0);
  EXPECT_THROW(fabric.endpoint(0), Error);
  EXPECT_THROW(fabric.endpoint(2), Error);
}

// --- the driver

TEST(SimDrive, RunsToTheEndAndSeesADeadlock) {
  SimFabric fabric(fabric_of(2, 1));
  auto a = fabric.endpoint(0);
  auto b = fabric.endpoint(1);
  int hops = 0;  // a ping-pong of 10 hops
  const auto start = [&] {
    const Transfer send{.kind = Transfer::Kind::kSend, .peer = 1, .bytes = 100, .id = 1};
    a->post({&send, 1});
  };
  const auto progress = [&](Rank r) {
    Transport& me = r == 0 ? *a : *b;
    if (hops == 0 && r == 1) {
      const Transfer recv{.kind = Transfer::Kind::kRecv, .peer = 0, .bytes = 100, .id = 2};
      me.post({&recv, 1});
    }
    Completion c;
    while (me.poll({&c, 1}) == 1) {
      if (c.id != 2) continue;
      if (++hops == 10) return;
      const Transfer send{.kind = Transfer::Kind::kSend, .peer = 1 - r, .bytes = 100, .id = 1};
      const Transfer recv{.kind = Transfer::Kind::kRecv, .peer = r, .bytes = 100, .id = 2};
      me.post({&send, 1});
      (r == 0 ? *b : *a).post({&recv, 1});
    }
  };
  start();
  EXPECT_TRUE(drive(fabric, progress, [&] { return hops == 10; }));
  EXPECT_EQ(fabric.now_ps(), 10 * (kRail + 100 * kRailByte));
  EXPECT_FALSE(drive(fabric, progress, [&] { return hops == 11; }));
}

TEST(SimDrive, WakesRanksAtTheirTime) {
  SimFabric fabric(fabric_of(1, 3));
  std::vector<std::pair<Rank, std::int64_t>> seen;
  fabric.wake(2, 7);
  fabric.wake(1, 3.5);
  const auto progress = [&](Rank r) { seen.emplace_back(r, fabric.now_ps()); };
  EXPECT_TRUE(drive(fabric, progress, [&] { return seen.size() == 5; }));
  EXPECT_EQ(seen[3], (std::pair<Rank, std::int64_t>{1, 3.5 * kUs}));
  EXPECT_EQ(seen[4], (std::pair<Rank, std::int64_t>{2, 7 * kUs}));
}

// --- scale: 1024 ranks pass slices around rings of their host and of their rail

TEST(SimScale, MessagesOf1024RanksAreCountedAndTimed) {
  constexpr int kHosts = 128, kPerHost = 8, kRanks = kHosts * kPerHost;
  constexpr int kRounds = 24;  // x 1024 ranks x 8 in flight = 196,608 messages
  constexpr int kWindow = 8;
  constexpr std::size_t kBytes = 1 << 16;
  SimFabricOptions o = fabric_of(kHosts, kPerHost);
  SimFabric fabric(o);
  std::vector<std::unique_ptr<Transport>> ends;
  for (Rank r = 0; r < kRanks; ++r) ends.push_back(fabric.endpoint(r));
  // Channels 0-3 go to the next rank of the host, 4-7 to the next of the rail. A rank sends a
  // channel's next message when it has received the previous one.
  std::vector<int> received(kRanks * kWindow);
  std::vector<char> started(kRanks);
  int channels_done = 0;
  std::uint64_t completions = 0;
  const auto next = [](Rank r, int channel, int step) {
    const int host = r / kPerHost, local = r % kPerHost;
    if (channel < kWindow / 2) return host * kPerHost + (local + step + kPerHost) % kPerHost;
    return (host + step + kHosts) % kHosts * kPerHost + local;
  };
  const auto post = [&](Rank r, int channel) {
    const std::uint64_t tag =
        static_cast<std::uint64_t>(received[r * kWindow + channel]) << 8 | channel;
    const std::uint64_t id = static_cast<std::uint64_t>(channel) << 1;
    const Transfer pair[] = {{.kind = Transfer::Kind::kSend,
                              .peer = next(r, channel, 1),
                              .tag = tag,
                              .bytes = kBytes,
                              .id = id},
                             {.kind = Transfer::Kind::kRecv,
                              .peer = next(r, channel, -1),
                              .tag = tag,
                              .bytes = kBytes,
                              .id = id | 1}};
    ends[r]->post(pair);
  };
  const auto progress = [&](Rank r) {
    if (!started[r]) {
      started[r] = 1;
      for (int c = 0; c < kWindow; ++c) post(r, c);
    }
    Completion c[16];
    while (const std::size_t n = ends[r]->poll(c)) {
      completions += n;
      for (std::size_t i = 0; i < n; ++i) {
        if ((c[i].id & 1) == 0) continue;
        const int channel = static_cast<int>(c[i].id >> 1);
        if (++received[r * kWindow + channel] < kRounds) {
          post(r, channel);
        } else {
          ++channels_done;
        }
      }
    }
  };
  ASSERT_TRUE(drive(fabric, progress, [&] { return channels_done == kRanks * kWindow; }));
  while (fabric.advance()) {
  }
  const SimStatistics s = fabric.statistics();
  EXPECT_EQ(s.messages, std::uint64_t{kRanks} * kWindow * kRounds);
  EXPECT_EQ(s.cross_rail_bytes, 0u);
  for (const std::uint64_t bytes : s.rail_bytes) {
    EXPECT_EQ(bytes, std::uint64_t{kHosts} * kWindow / 2 * kRounds * kBytes);
  }
  // The NICs need twice the time per byte of the local ports, and are always busy.
  EXPECT_EQ(fabric.now_ps(), kRounds * 4 * static_cast<std::int64_t>(kBytes) * kRailByte + kRail);
}

}  // namespace
}  // namespace weft
