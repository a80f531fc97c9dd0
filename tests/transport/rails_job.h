// A job over a simulated fabric with rails: ranks that send each other messages, and the checks of
// each message.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "transport/rails/rails.h"
#include "transport/sim/rails.h"

namespace weft::testing::rails {

inline constexpr std::byte kFree{0xee};

struct Setting {
  std::vector<int> host_of_rank = {0, 1};
  int rails = 2;
  std::size_t own_rail = 0;  // every own_rail-th message has Transfer::own_rail; 0: none
  bool stalls = false;       // links that are down hold messages, as TCP does; else they lose them
  std::uint64_t seed = 1;
  std::size_t most_bytes = 40'000;
  std::uint64_t tags = UINT64_MAX;  // of a pair, before the first one is reused
  RailsOptions options = {};
};

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

  // Adds a message. Each side posts it at its own time; kChained: when its previous message is
  // complete.
  static constexpr double kChained = -1;
  void message(Rank from, Rank to, int home, std::size_t bytes, double send_us, double recv_us) {
    const std::uint64_t tag = next_tag_[{from, to}]++ % setting_.tags;
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
    for (const bool sends : {true, false}) {
      const double us = sends ? send_us : recv_us;
      m.chained[sends] = us == kChained;
      if (m.chained[sends]) continue;
      at_.emplace(us, [this, i, sends] { post(i, sends); });
      wake(sends ? from : to, us);
    }
  }
  void at_time(double us, std::function<void()> what) {
    at_.emplace(us, std::move(what));
    wake(0, us);
  }

  // The rank stops polling once its last send completes.
  void rests_when_sent(Rank p) { resting_ = p; }

  // The rank does not poll between these times.
  void rests(Rank p, double from_us, double to_us) {
    rests_.push_back({p, from_us, to_us});
    wake(p, to_us);
  }

  // Returns false if messages are incomplete at that time.
  bool run(double until_us) {
    bool late = false;
    const auto over = [&] {
      late = now_us() > until_us;
      return late || (ended_ == 2 * messages_.size() && at_.empty());
    };
    const bool moved = drive(
        rails_.fabric(), [this](Rank f) { progress(rails_.rank_of(f)); }, over);
    return moved && !late;
  }
  // Prints incomplete messages, for a failing test.
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
  // Checks received bytes, and that no buffer was written after its message completed.
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
    bool chained[2] = {};         // its receive, its send
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
    t.own_rail = setting_.own_rail > 0 && i % setting_.own_rail == 0;
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
    for (int turn = 0; turn < 2; ++turn)  // a rail's poll may complete messages of the other
      for (auto& face : members_[at(p)].faces)
        while (const std::size_t n = face->poll(out))
          for (std::size_t c = 0; c < n; ++c) complete(out[c]);
  }
  void complete(const Completion& c) {
    const std::uint64_t id = (c.id >> 32) - 1;
    Message& m = messages_.at(id / 2);
    ASSERT_EQ(c.code, Code::kOk) << "message " << id / 2;
    ++ended_;
    if (id % 2) {  // the sender reuses the buffer
      ++m.sends;
      std::ranges::fill(m.given, std::byte{0x55});
    } else {
      ++m.receives;
      ASSERT_EQ(m.received, m.sent) << "message " << id / 2 << " from " << m.from << " to " << m.to;
      std::ranges::fill(m.received, kFree);
    }
    const std::size_t next = id / 2 + 1;
    if (next < messages_.size() && messages_[next].chained[id % 2]) post(next, id % 2);
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

}  // namespace weft::testing::rails
