// Rails over a simulated fabric whose links go down and come back at random: every message arrives
// once, whole, and in no memory that was given back.
// labels: sim
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "transport/rails.h"
#include "transport/sim_rails.h"

namespace weft {
namespace {

constexpr std::byte kFree{0xee};

struct Setting {
  std::vector<int> host_of_rank = {0, 1};
  int rails = 2;
  bool stalls = false;  // links that are down hold messages, as TCP does; else they lose them
  std::uint64_t seed = 1;
  std::size_t most_bytes = 40'000;
  RailsOptions options = {};
};

// A job of ranks that send each other messages, and what is checked about each.
class Job {
 public:
  explicit Job(const Setting& s)
      : setting_(s), random_(s.seed), rails_(fabric_options(s), s.rails) {
    const int n = static_cast<int>(s.host_of_rank.size());
    RailsOptions o = s.options;
    o.polls_per_look = 1;
    for (Rank p = 0; p < n; ++p) {
      std::vector<std::unique_ptr<Transport>> inner;
      for (int r = 0; r < s.rails; ++r) inner.push_back(rails_.transport(p, r));
      Member m;
      m.rails = std::make_unique<Rails>(std::move(inner), rails_.paths(p), p, n, o);
      m.rails->on_event([this, p](const RailEvent& e) { events_.push_back({p, e}); });
      for (int r = 0; r < s.rails; ++r) m.faces.push_back(m.rails->face(r));
      members_.push_back(std::move(m));
    }
  }
  ~Job() {
    for (Member& m : members_) m.faces.clear();
  }

  SimRails& rails() { return rails_; }
  Rails& of(Rank p) { return *members_[at(p)].rails; }
  std::mt19937_64& random() { return random_; }
  const auto& events() const { return events_; }
  double now_us() { return rails_.fabric().now_us(); }

  // A message; both sides post it at a time of their own.
  void message(Rank from, Rank to, int home, std::size_t bytes, double send_us, double recv_us) {
    const std::uint64_t tag = next_tag_[{from, to}]++;
    const std::size_t i = messages_.size();
    messages_.push_back({});
    Message& m = messages_.back();
    m.from = from;
    m.to = to;
    m.home = home;
    m.tag = tag;
    m.sent.resize(bytes);
    for (std::byte& b : m.sent) b = static_cast<std::byte>(random_());
    m.given = m.sent;
    m.received.assign(bytes, kFree);
    at_.emplace(send_us, [this, i] { post(i, true); });
    at_.emplace(recv_us, [this, i] { post(i, false); });
    wake(from, send_us);
    wake(to, recv_us);
  }
  void at_time(double us, std::function<void()> what) {
    at_.emplace(us, std::move(what));
    wake(0, us);
  }

  // From the completion of its last send on the rank does not poll.
  void rests_when_sent(Rank p) { resting_ = p; }

  // In between the rank does not poll.
  void rests(Rank p, double from_us, double to_us) {
    rests_.push_back({p, from_us, to_us});
    wake(p, to_us);
  }

  // False: the messages are not all over by then.
  bool run(double until_us) {
    bool late = false;
    const auto over = [&] {
      late = now_us() > until_us;
      return late || (ended_ == 2 * messages_.size() && at_.empty());
    };
    const bool moved = drive(rails_.fabric(), [this](Rank f) { progress(rails_.rank_of(f)); }, over);
    return moved && !late;
  }
  // What is not over, for a failing test.
  void print() {
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      const Message& m = messages_[i];
      if (m.sends && m.receives) continue;
      std::printf("message %zu: %d -> %d home %d tag %llu, %zu bytes: sent %d, received %d\n", i,
                  m.from, m.to, m.home, static_cast<unsigned long long>(m.tag), m.sent.size(),
                  m.sends, m.receives);
    }
    for (std::size_t p = 0; p < members_.size(); ++p)
      for (std::size_t q = 0; q < members_.size(); ++q)
        if (p != q)
          std::printf("%zu with %zu: %s\n", p, q,
                      members_[p].rails->describe(static_cast<Rank>(q)).c_str());
  }
  // The bytes that came, and that nothing was written where a message was over.
  void check() {
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      const Message& m = messages_[i];
      ASSERT_EQ(m.sends, 1) << "message " << i;
      ASSERT_EQ(m.receives, 1) << "message " << i;
      ASSERT_TRUE(std::ranges::all_of(m.received, [](std::byte b) { return b == kFree; }))
          << "message " << i << " was written to after its end";
    }
  }

 private:
  struct Message {
    Rank from, to;
    int home;
    std::uint64_t tag;
    std::vector<std::byte> sent, given, received;
    int sends = 0, receives = 0;  // completions
  };
  struct Member {
    std::unique_ptr<Rails> rails;
    std::vector<std::unique_ptr<Transport>> faces;
  };
  static std::size_t at(Rank r) { return static_cast<std::size_t>(r); }
  static SimFabricOptions fabric_options(const Setting& s) {
    SimFabricOptions o;
    o.host_of_rank = s.host_of_rank;
    o.views = false;
    o.rail = {5, 10};
    o.cut_stalls = s.stalls;
    o.detect_us = 2000;
    o.seed = s.seed;
    o.delay_us_max = 20;
    o.reorder = true;
    return o;
  }
  void wake(Rank p, double us) { rails_.fabric().wake(p * setting_.rails, us); }

  void post(std::size_t i, bool sends) {
    Message& m = messages_[i];
    Transfer t;
    t.kind = sends ? Transfer::Kind::kSend : Transfer::Kind::kRecv;
    t.peer = sends ? m.to : m.from;
    t.tag = m.tag;
    t.data = sends ? m.given.data() : m.received.data();
    t.bytes = m.sent.size();
    t.id = static_cast<std::uint64_t>(2 * i + sends + 1) << 32;
    members_[at(sends ? m.from : m.to)].faces[static_cast<std::size_t>(m.home)]->post({&t, 1});
  }
  void progress(Rank p) {
    while (!at_.empty() && at_.begin()->first <= now_us() + 1e-6) {
      const auto what = std::move(at_.begin()->second);
      at_.erase(at_.begin());
      what();
    }
    if (p == resting_ && std::ranges::all_of(messages_, [p](const Message& m) {
          return m.from != p || m.sends > 0;
        }))
      return;
    for (const Rest& rest : rests_)
      if (rest.rank == p && now_us() >= rest.from_us && now_us() < rest.to_us) return;
    std::vector<Completion> out(16);
    for (int turn = 0; turn < 2; ++turn)  // what one face's poll finds may be for another
      for (auto& face : members_[at(p)].faces)
        while (const std::size_t n = face->poll(out))
          for (std::size_t c = 0; c < n; ++c) complete(out[c]);
  }
  void complete(const Completion& c) {
    const std::uint64_t id = (c.id >> 32) - 1;
    Message& m = messages_.at(id / 2);
    ASSERT_EQ(c.code, Code::kOk) << "message " << id / 2;
    ++ended_;
    if (id % 2) {  // the sender writes there again
      ++m.sends;
      std::ranges::fill(m.given, std::byte{0x55});
    } else {
      ++m.receives;
      ASSERT_EQ(m.received, m.sent) << "message " << id / 2 << " from " << m.from << " to " << m.to;
      std::ranges::fill(m.received, kFree);
    }
  }

  Setting setting_;
  std::mt19937_64 random_;
  SimRails rails_;
  std::vector<Member> members_;
  std::deque<Message> messages_;
  std::map<std::pair<Rank, Rank>, std::uint64_t> next_tag_;
  std::multimap<double, std::function<void()>> at_;
  std::size_t ended_ = 0;
  Rank resting_ = kNoRank;
  struct Rest {
    Rank rank;
    double from_us, to_us;
  };
  std::vector<Rest> rests_;
  std::vector<std::pair<Rank, RailEvent>> events_;
};

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

// One at a time, so that each has a receipt of its own.
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

// A rank whose sends are complete may do something else for long, without polling. Its peers must
// not need it any more: neither for bytes that its transport has not sent yet, nor for a note about
// where a message went.
TEST(Rails, ARankWhoseSendsAreCompleteIsNotNeeded) {
  int moves = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
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
      job.message(0, 1, i % 2, i % 3 ? 30'000 : 2000 + 200 * (i % 60), i * 40, i * 40 + 5000 * (i >= 50));
    job.rests_when_sent(0);
    const bool over = job.run(1e6);
    if (!over) job.print();
    ASSERT_TRUE(over);
    job.check();
    moves += static_cast<int>(job.of(0).counters().moves);
  }
  EXPECT_GT(moves, 20) << "too quiet to prove anything";
}

// A firewall, or routes that lead a host's datagrams to itself astray: messages pass, datagrams do
// not. Nothing is amiss then, and nothing may change that the peer would have to be told.
TEST(Rails, WhereNoDatagramPassesHealthyRailsCarryOn) {
  int moves = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed)
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
  EXPECT_GT(moves, 20) << "too quiet to prove anything";
}

// A rank that has something else to do answers late, and not on all rails at the same moment.
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
  int seen = 0, back[2] = {};
  for (const auto& [rank, e] : job.events()) {
    seen += e.seen_here;
    back[rank] += e.kind == RailEvent::Kind::kBack;
  }
  EXPECT_GE(seen, 1) << "somebody noticed";
  EXPECT_EQ(back[0], 1);
  EXPECT_EQ(back[1], 1);
}

TEST_P(RailsDown, NothingIsLostWhateverTheMoments) {
  int out = 0, back = 0, moves = 0;
  for (std::uint64_t seed = 1; seed <= 250; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937_64 shape(seed);
    Setting s;
    s.seed = seed;
    s.stalls = GetParam();
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
  EXPECT_GT(out, 500) << "too quiet to prove anything";
  EXPECT_GT(back, 300);
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
