// Places for connections, on the fake device: VerbsSlots in isolation, the cost of places, and an
// all_to_all over more ranks than a rank has places.
// ctest: alone
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "coll/schedule/algorithm.h"
#include "support/fakes/fake_verbs.h"
#include "transport/conformance.h"
#include "transport/verbs/slots.h"
#include "transport/verbs/verbs.h"

namespace weft::testing {
namespace {

class VerbsPlaces : public ::testing::Test {
 protected:
  void SetUp() override { fake_.wired = true; }
  void TearDown() override {
    fake_.wired = false;
    unsetenv("WEFT_VERBS_CONNECTIONS");
    EXPECT_TRUE(fake_.pairs.empty());
  }
  static Net net(int n, int connections) {
    setenv("WEFT_VERBS_CONNECTIONS", std::to_string(connections).c_str(), 1);
    Nic rail;
    rail.name = "fake";
    rail.rdma = rail.up = true;
    return Net(make_in_threads(n, [&](Job& job, Rank) {
      std::vector<Place> hosts(static_cast<std::size_t>(n));
      for (std::size_t r = 0; r < hosts.size(); ++r) {
        hosts[r].host = "host" + std::to_string(r);
        hosts[r].rails = {rail};
      }
      return make_verbs_transport(job, Topology(hosts), rail);
    }));
  }
  FakeVerbs& fake_ = FakeVerbs::get();
};

// Each queue pair of each place has slots of its own, inside the registered memory.
TEST_F(VerbsPlaces, SlotsOfQueuePairsDoNotOverlap) {
  VerbsSettings settings = verbs_settings();
  settings.qps = 2;
  settings.slots = 4;
  const VerbsDevice device("fake", settings);
  VerbsSlots slots(device, {.places = 5, .slot_bytes = 512});
  EXPECT_EQ(slots.planned(), 5);
  slots.agree(256);
  slots.add(2, true);
  slots.add(3, false);
  EXPECT_EQ(slots.queues().size(), 1u);
  EXPECT_EQ(fake_.regions.size(), 2u);
  constexpr std::size_t kBytes = 4 * 256;
  std::vector<std::byte*> begins;
  for (int place = 0; place < 5; ++place)
    for (int pair = 0; pair < 2; ++pair) {
      const VerbsSlots::Part part = slots.of(place, pair);
      EXPECT_EQ(&part.queue, &slots.queues().front());
      const ibv_mr& region = fake_.region(part.rkey)->mr;
      EXPECT_EQ(region.lkey, part.lkey);
      for (std::byte* begin : {part.staging, part.ring}) {
        EXPECT_GE(begin, region.addr);
        EXPECT_LE(begin + kBytes, static_cast<std::byte*>(region.addr) + region.length);
        begins.push_back(begin);
      }
    }
  std::ranges::sort(begins);
  for (std::size_t i = 1; i < begins.size(); ++i) EXPECT_GE(begins[i] - begins[i - 1], kBytes);
  slots.add(1, true);
  EXPECT_EQ(&slots.of(5, 0).queue, &slots.queues().back());
  EXPECT_NE(&slots.of(5, 0).queue, &slots.queues().front());
}

// The device's completion queue limits the places; one that has no room for one place is an error.
TEST_F(VerbsPlaces, FitIntoTheCompletionQueue) {
  VerbsSettings settings = verbs_settings();
  const VerbsDevice device("fake", settings);
  const int most = device.limits().max_cqe;
  const VerbsSlots slots(device, {.places = most, .slot_bytes = 512});
  EXPECT_LT(slots.planned(), most);
  EXPECT_GT(slots.planned(), 0);
  settings.send_depth = most;
  const VerbsDevice deep("fake", settings);
  EXPECT_THROW(VerbsSlots(deep, {.places = 1, .slot_bytes = 512}), Error);
}

// Only ranks in use have registered slots: a large job pins no more than a small one.
TEST_F(VerbsPlaces, OfRanksThatAreNotUsedCostNothing) {
  const auto registered = [&] {
    std::size_t bytes = 0;
    for (const FakeVerbs::Region& r : fake_.regions) bytes += r.mr.length;
    return bytes;
  };
  constexpr int kRanks = 24;
  std::size_t few = 0;
  {
    Net two = net(9, 64);
    few = registered() / 9;
  }
  Net all = net(kRanks, 64);
  const std::size_t start = registered();
  EXPECT_EQ(start, few * kRanks);
  const auto pass = [&](Rank to) {
    Buffer from(500), got(500);
    all[0].send(to, 1, from);
    all[to].recv(0, 1, got);
    ASSERT_TRUE(all.finish());
  };
  for (Rank to = 1; to <= 8; ++to) pass(to);
  EXPECT_EQ(registered(), start);
  pass(9);
  EXPECT_EQ(registered(), start + few) << "places for as many again";
}

// The steps of an algorithm, as posted by the engine: all independent ones at once.
TEST_F(VerbsPlaces, AnAllToAllOpensNoConnectionTwice) {
  const Algorithm* const pairwise = find_algorithm(Collective::kAllToAll, "pairwise");
  ASSERT_NE(pairwise, nullptr);
  for (const auto& [ranks, connections] :
       {std::pair(12, 3), std::pair(24, 4), std::pair(48, 8), std::pair(33, 5)})
    for (const std::size_t bytes : {std::size_t{64}, std::size_t{40'000}}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(bytes) + " bytes");
      Net all = net(ranks, connections);
      fake_.counts.connections = 0;
      Shape shape;
      shape.nranks = ranks;
      std::mt19937 random(7);
      std::deque<Buffer> to;
      std::vector<Buffer> from;
      for (Rank r = 0; r < ranks; ++r) from.emplace_back(bytes).fill(static_cast<std::uint64_t>(r));
      std::vector<Rank> source;
      for (Rank r = 0; r < ranks; ++r) {
        shape.rank = r;
        for (const Step& step : pairwise->build(shape).steps) {
          if (step.op == Op::kSend) {
            all[r].send(step.peer, 1, from[static_cast<std::size_t>(r)]);
          } else if (step.op == Op::kRecv) {
            all[r].recv(step.peer, 1, to.emplace_back(bytes));
            source.push_back(step.peer);
          }
        }
        for (auto n = random() % 8; n > 0; --n) all[static_cast<Rank>(random() % ranks)].poll();
      }
      ASSERT_TRUE(all.finish());
      for (std::size_t i = 0; i < to.size(); ++i)
        ASSERT_TRUE(has_pattern(to[i].data(), bytes, static_cast<std::uint64_t>(source[i])));
      EXPECT_EQ(fake_.counts.connections, static_cast<std::size_t>(ranks * (ranks - 1) / 2));
    }
}

}  // namespace
}  // namespace weft::testing
