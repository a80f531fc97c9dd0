// Rails over a simulated fabric with random link failures: every message arrives once, intact, and
// nothing is written to released memory.
// labels: sim
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "transport/rails_job.h"

namespace weft {
namespace {

using testing::rails::Job;
using testing::rails::Setting;

std::size_t some_bytes(std::mt19937_64& random, std::size_t most) {
  switch (random() % 4) {
    case 0:
      return random() % 3;
    case 1:
      return random() % 2000;
    default:
      return random() % most;
  }
}

void traffic(Job& job, const Setting& s, int messages, double over_us) {
  auto& random = job.random();
  const auto n = s.host_of_rank.size();
  for (int i = 0; i < messages; ++i) {
    const auto from = static_cast<Rank>(random() % n);
    Rank to;
    do to = static_cast<Rank>(random() % n);
    while (s.host_of_rank[static_cast<std::size_t>(to)] ==
           s.host_of_rank[static_cast<std::size_t>(from)]);
    const double when = static_cast<double>(random() % static_cast<std::uint64_t>(over_us));
    const double other = when + static_cast<double>(random() % 3000) - 1500;
    job.message(from, to, static_cast<int>(random() % static_cast<unsigned>(s.rails)),
                some_bytes(random, s.most_bytes), std::max(0.0, when), std::max(0.0, other));
  }
}

TEST(Rails, CarriesMessagesOverTheirOwnRail) {
  Setting s;
  Job job(s);
  for (int i = 0; i < 100; ++i) job.message(0, 1, i % 2, 30'000, i * 10, i * 10);
  ASSERT_TRUE(job.run(1e6));
  job.check();
  const auto bytes = job.rails().fabric().statistics().rail_bytes;
  EXPECT_GE(bytes[0], 50 * 30'000);
  EXPECT_LT(bytes[0], 51 * 30'000) << "and receipts";
  EXPECT_GE(bytes[1], 50 * 30'000);
  EXPECT_EQ(job.of(0).counters().taken_out, 0u);
}

// One message at a time, so that each has its own receipt.
TEST(Rails, ReceiptsOfLongMessagesTakeLittleOfTheWire) {
  constexpr int kMessages = 400, kBytes = 16 << 10;
  Setting s;
  Job job(s);
  for (int i = 0; i < kMessages; ++i) job.message(0, 1, 0, kBytes, i * 100, i * 100);
  ASSERT_TRUE(job.run(1e6));
  job.check();
  const auto bytes = job.rails().fabric().statistics().rail_bytes;
  EXPECT_GE(job.of(1).counters().receipts, kMessages);
  EXPECT_LT(bytes[0] - kMessages * kBytes, kMessages * kBytes / 400);
}

TEST(Rails, StripesLargeMessagesOverTheRailsOfARank) {
  Setting s;
  s.options.stripes = [](Rank, int) { return std::vector<int>{0, 1}; };
  Job job(s);
  for (int i = 0; i < 160; ++i) job.message(0, 1, 0, 30'000, 0, 0);
  for (int i = 0; i < 10; ++i) job.message(0, 1, 0, 100, 0, 0);
  ASSERT_TRUE(job.run(1e6));
  job.check();
  const auto bytes = job.rails().fabric().statistics().rail_bytes;
  EXPECT_EQ(job.of(0).shares(1, 0), (std::vector<int>{16, 16}));
  EXPECT_NEAR(static_cast<double>(bytes[0]), static_cast<double>(bytes[1]), 100'000);
}

TEST(Rails, DoesNotStripeMessagesThatKeepToTheirRail) {
  Setting s;
  s.own_rail = 1;
  s.options.stripes = [](Rank, int home) { return std::vector<int>{home, 1 - home}; };
  Job job(s);
  for (int i = 0; i < 160; ++i) job.message(0, 1, i % 4 == 0 ? 1 : 0, 30'000, 0, 0);
  ASSERT_TRUE(job.run(1e6));
  job.check();
  const auto bytes = job.rails().fabric().statistics().rail_bytes;
  EXPECT_EQ(job.of(0).shares(1, 0), (std::vector<int>{16, 16})) << "of other messages";
  EXPECT_NEAR(static_cast<double>(bytes[0]), 120 * 30'000, 100'000);
  EXPECT_NEAR(static_cast<double>(bytes[1]), 40 * 30'000, 100'000);
}

// in_use() returns the messages in flight and their rails until they are acknowledged.
TEST(Rails, TellsTheRailsThatMessagesAreOn) {
  Setting s;
  s.options.stripes = [](Rank, int) { return std::vector<int>{0, 1}; };
  Job job(s);
  for (int i = 0; i < 64; ++i) job.message(0, 1, 0, 30'000, 0, i % 2 == 0 ? 0 : 10'000);
  std::uint32_t sends = 0, recvs = 0;
  job.at_time(5000, [&] {
    for (const auto& [key, use] : job.of(0).in_use()) sends |= use.sends;
    for (const auto& [key, use] : job.of(1).in_use()) recvs |= use.recvs;
  });
  ASSERT_TRUE(job.run(1e6));
  job.check();
  EXPECT_EQ(sends, 0b10u) << "odd tags";
  EXPECT_EQ(recvs, 0u) << "none is posted that has not come";
  EXPECT_TRUE(job.of(0).in_use().empty());
  EXPECT_TRUE(job.of(1).in_use().empty());
}

// A rank whose sends are complete may stop polling for long. Its peers must not depend on it:
// neither for unsent bytes of its transport, nor for a note about a message's rail.
TEST(Rails, ARankWhoseSendsAreCompleteIsNotNeeded) {
  int moves = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Setting s;
    s.seed = seed;
    s.options.stripes = [](Rank, int) { return std::vector<int>{0, 1}; };
    s.options.spread_bytes = 1000;
    s.options.balance_every = 2;
    s.options.measure_bytes = 1;
    s.options.alike = 1;
    Job job(s);
    job.rails().set_datagram_loss(500);
    for (int i = 0; i < 60; ++i)
      job.message(0, 1, i % 2, i % 3 ? 30'000 : 2000 + 200 * (i % 60), i * 40,
                  i * 40 + 5000 * (i >= 50));
    job.rests_when_sent(0);
    const bool over = job.run(1e6);
    if (!over) job.print();
    ASSERT_TRUE(over);
    job.check();
    moves += static_cast<int>(job.of(0).counters().moves);
  }
  EXPECT_GT(moves, 6) << "too quiet to prove anything";
}

// A firewall or wrong routes drop datagrams, while messages pass. Nothing has failed, and the peer
// cannot be notified, so no message may change its rail.
TEST(Rails, WhereNoDatagramPassesHealthyRailsCarryOn) {
  int moves = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed)
    for (const bool pass : {true, false}) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << (pass ? "" : ", without datagrams"));
      Setting s;
      s.seed = seed;
      s.options.stripes = [](Rank, int) { return std::vector<int>{0, 1}; };
      s.options.balance_every = 2;
      s.options.measure_bytes = 1;
      s.options.alike = 1;
      Job job(s);
      job.rails().set_datagram_loss(pass ? 0 : 1000);
      for (int i = 0; i < 200; ++i)
        for (const Rank p : {0, 1}) job.message(p, 1 - p, i % 2, 20'000 + 100 * i, i * 40, i * 40);
      const bool over = job.run(1e6);
      if (!over) job.print();
      ASSERT_TRUE(over) << "a rank waits where nothing will come";
      job.check();
      for (const Rank p : {0, 1}) {
        EXPECT_EQ(job.of(p).counters().taken_out, 0u);
        if (pass)
          moves += static_cast<int>(job.of(p).counters().moves);
        else
          EXPECT_EQ(job.of(p).counters().moves, 0u);
      }
    }
  EXPECT_GT(moves, 8) << "too quiet to prove anything";
}

// A busy rank answers late, and not on all rails at the same time.
TEST(Rails, ALateAnswerIsNoSilence) {
  Setting s;
  Job job(s);
  job.rails().set_datagram_delay(1, 30'000);
  for (int i = 0; i < 10; ++i)  // receives wait for long
    for (const Rank p : {0, 1})
      job.message(p, 1 - p, i % 2, 30'000, 1e6 + i * 700'000, i * 700'000);
  for (int i = 0; i < 20; ++i) job.rests(1, 50'000 + i * 400'000, 390'000 + i * 400'000);
  ASSERT_TRUE(job.run(1e7));
  job.check();
  for (const Rank p : {0, 1}) EXPECT_EQ(job.of(p).counters().taken_out, 0u) << "rank " << p;
}

class RailsDown : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Links, RailsDown, ::testing::Bool(),
                         [](const auto& i) { return i.param ? "Stall" : "Lose"; });

TEST_P(RailsDown, ARailThatDiesIsReplacedAndTakenBack) {
  Setting s;
  s.stalls = GetParam();
  Job job(s);
  for (int i = 0; i < 400; ++i)
    for (const Rank p : {0, 1})
      job.message(p, 1 - p, i % 2, 30'000, i * 5000, i * 5000 + i % 7 * 300);
  job.at_time(300'100, [&] { job.rails().fabric().cut(1, 0); });
  job.at_time(1'200'000, [&] { job.rails().fabric().mend(1, 0); });
  ASSERT_TRUE(job.run(1e7));
  job.check();
  EXPECT_EQ(job.of(0).counters().taken_out, 1u);
  EXPECT_EQ(job.of(1).counters().taken_out, 1u);
  EXPECT_EQ(job.of(0).counters().taken_back, 1u);
  EXPECT_EQ(job.of(1).counters().taken_back, 1u);
  EXPECT_GT(job.of(0).counters().replayed + job.of(1).counters().replayed, 0u);
  EXPECT_EQ(job.of(0).shares(1, 0), (std::vector<int>{32, 0})) << "as before";
  int out[2] = {}, back[2] = {};
  for (const auto& [rank, e] : job.events()) {
    out[rank] += e.kind == RailEvent::Kind::kOut;
    back[rank] += e.kind == RailEvent::Kind::kBack;
  }
  EXPECT_EQ(out[0], 1);
  EXPECT_EQ(out[1], 1);
  EXPECT_EQ(back[0], 1);
  EXPECT_EQ(back[1], 1);
}

TEST_P(RailsDown, NothingIsLostWhateverTheMoments) {
  int out = 0, back = 0, moves = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937_64 shape(seed);
    Setting s;
    s.seed = seed;
    s.stalls = GetParam();
    s.own_rail = seed % 4;
    s.rails = 2 + static_cast<int>(shape() % 2);
    s.host_of_rank.clear();
    const int hosts = 2 + static_cast<int>(shape() % 2), ppn = 1 + static_cast<int>(shape() % 2);
    for (int h = 0; h < hosts; ++h) s.host_of_rank.insert(s.host_of_rank.end(), ppn, h);
    if (shape() % 2) s.options.stripes = [&](Rank, int) { return std::vector<int>{0, 1}; };
    if (shape() % 2) s.options.balance_every = 2, s.options.measure_bytes = 1;
    Job job(s);
    job.rails().set_datagram_loss(static_cast<int>(shape() % 3) * 100);
    traffic(job, s, 300, 3e6);
    for (int i = 0; i < 6; ++i) {
      const int host = static_cast<int>(shape() % static_cast<unsigned>(hosts));
      const int rail = static_cast<int>(shape() % static_cast<unsigned>(s.rails));
      const double from = static_cast<double>(shape() % 3'000'000);
      const double to = from + static_cast<double>(shape() % 1'000'000);
      job.at_time(from, [&job, host, rail] { job.rails().fabric().cut(host, rail); });
      job.at_time(to, [&job, host, rail] { job.rails().fabric().mend(host, rail); });
    }
    const bool over = job.run(60e6);
    if (!over) job.print();
    ASSERT_TRUE(over) << "not over after 60 s";
    job.check();
    for (Rank p = 0; p < hosts * ppn; ++p) {
      out += static_cast<int>(job.of(p).counters().taken_out);
      back += static_cast<int>(job.of(p).counters().taken_back);
      moves += static_cast<int>(job.of(p).counters().moves);
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(out, 200) << "too quiet to prove anything";
  EXPECT_GT(back, 120);
  EXPECT_GT(moves, out + back) << "also while all is well";
}

TEST_P(RailsDown, ARunRepeatsByItsSeed) {
  const auto once = [&] {
    Setting s;
    s.seed = 77;
    s.stalls = GetParam();
    Job job(s);
    traffic(job, s, 200, 2e6);
    job.at_time(500'000, [&] { job.rails().fabric().cut(0, 1); });
    job.at_time(900'000, [&] { job.rails().fabric().mend(0, 1); });
    EXPECT_TRUE(job.run(60e6));
    return job.rails().fabric().trace();
  };
  EXPECT_EQ(once(), once());
}

}  // namespace
}  // namespace weft
