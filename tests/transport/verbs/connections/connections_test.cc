// Tests VerbsConnections in isolation: its operations on queue pairs, and the letters between
// several instances.
#include "transport/verbs/connections/connections.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::testing {
namespace {

using Link = VerbsConnection::Link;

struct Mail {
  std::vector<std::deque<Letter>> boxes;
  std::vector<VerbsLetter> sent;
};

class Box final : public Mailbox {
 public:
  Box(Mail& mail, Rank me) : mail_(mail), me_(me) {}
  void send(Rank to, std::string_view bytes) noexcept override {
    VerbsLetterFront front;
    std::memcpy(&front, bytes.data(), sizeof front);
    mail_.sent.push_back(front.what);
    mail_.boxes[static_cast<std::size_t>(to)].push_back({me_, std::string(bytes)});
  }
  bool receive(Letter& letter) noexcept override {
    auto& box = mail_.boxes[static_cast<std::size_t>(me_)];
    if (box.empty()) return false;
    letter = std::move(box.front());
    box.pop_front();
    return true;
  }
  bool waiting() const noexcept override {
    return !mail_.boxes[static_cast<std::size_t>(me_)].empty();
  }

 private:
  Mail& mail_;
  const Rank me_;
};

// One rank. Its queue pairs are counted only: nothing is in flight unless the test says so.
class End final : public VerbsQueuePairs {
 public:
  End(Mail& mail, Rank me, int ranks, int most_places)
      : all(static_cast<std::size_t>(ranks)),
        connections(*this, std::make_unique<Box>(mail, me), me, "here", most_places) {
    for (Rank r = 0; r < ranks; ++r) all[static_cast<std::size_t>(r)].rank = r;
    connections.begin();
  }
  VerbsConnection& to(Rank rank) { return all[static_cast<std::size_t>(rank)]; }
  // A message waits for the peer until the connection is open.
  void message(Rank rank) {
    waits[rank] = true;
    connections.request(to(rank));
  }

  VerbsConnection* connection(Rank rank) noexcept override { return &to(rank); }
  void add_places(int places, bool) override { registered += places; }
  void make(VerbsConnection&) override { ++made; }
  std::string invitation(const VerbsConnection& c) override {
    const VerbsInvitation front{.number = c.mine};
    return {reinterpret_cast<const char*>(&front), sizeof front};
  }
  bool invites(std::string_view text) const override {
    return text.size() == sizeof(VerbsInvitation);
  }
  void join(VerbsConnection&, std::string_view) override {
    if (refuses) throw Error("no way there");
  }
  void opened(VerbsConnection& c, bool) override { waits[c.rank] = false; }
  void end(VerbsConnection&) noexcept override { ++ended; }
  void interrupt(VerbsConnection&) noexcept override { ++ended; }
  void fail(VerbsConnection& c, Code code, const std::string& why) noexcept override {
    c.failure = Status(code, why, c.rank);
    connections.closed(c);
  }
  bool has_messages(const VerbsConnection& c) const override { return waits[c.rank]; }
  bool idle(const VerbsConnection& c) const override { return c.link == Link::kOpen; }
  bool quiesce(VerbsConnection& c) override { return idle(c); }
  bool awaits(const VerbsConnection& c) const override { return c.rank == awaited; }
  std::vector<std::uint64_t> sent(const VerbsConnection&) const override { return {0}; }
  std::vector<std::uint64_t> taken(const VerbsConnection&) const override { return {0}; }
  std::size_t reap() noexcept override { return 0; }

  std::vector<VerbsConnection> all;
  bool waits[8] = {};
  Rank awaited = kNoRank;
  bool refuses = false;
  int registered = 0, made = 0, ended = 0;
  VerbsConnections connections;
};

struct Ranks {
  Ranks(int n, int most_places) {
    mail.boxes.resize(static_cast<std::size_t>(n));
    for (Rank r = 0; r < n; ++r) ends.push_back(std::make_unique<End>(mail, r, n, most_places));
  }
  End& operator[](Rank r) { return *ends[static_cast<std::size_t>(r)]; }
  void poll(int times = 8) {
    for (int i = 0; i < times; ++i)
      for (const auto& end : ends) end->connections.poll();
  }
  Mail mail;
  std::vector<std::unique_ptr<End>> ends;
};

TEST(VerbsConnectionsAlone, TheFirstMessageConnectsBothEnds) {
  Ranks two(2, 4);
  two[0].message(1);
  two.poll();
  EXPECT_EQ(two[0].to(1).link, Link::kOpen);
  EXPECT_EQ(two[1].to(0).link, Link::kOpen);
  EXPECT_FALSE(two[0].waits[1]);
  EXPECT_EQ(two.mail.sent,
            (std::vector{VerbsLetter::kInvite, VerbsLetter::kInvite, VerbsLetter::kReady}));
  EXPECT_EQ(two[0].made, 1);
  EXPECT_EQ(two[1].made, 1);
}

// Both ends lose a connection that is closed, so this happens only if no place is free.
TEST(VerbsConnectionsAlone, OneIsClosedOnlyForWantOfAPlace) {
  Ranks ranks(6, 4);
  for (Rank r = 1; r <= 4; ++r) ranks[0].message(r);
  ranks.poll();
  for (Rank r = 1; r <= 4; ++r) EXPECT_EQ(ranks[0].to(r).link, Link::kOpen) << r;
  EXPECT_EQ(ranks[0].ended, 0);
  EXPECT_EQ(ranks[0].registered, 4);
  for (const VerbsLetter letter : ranks.mail.sent) EXPECT_NE(letter, VerbsLetter::kClose);
  ranks[0].connections.use(ranks[0].to(1));
  ranks[0].message(5);
  ranks.poll();
  EXPECT_EQ(ranks[0].to(5).link, Link::kOpen);
  EXPECT_EQ(ranks[0].to(2).link, Link::kClosed) << "it was used longest ago";
  EXPECT_EQ(ranks[0].ended, 1);
  EXPECT_EQ(ranks[0].registered, 4);
}

TEST(VerbsConnectionsAlone, APeerThatWaitsForMessagesKeepsTheConnection) {
  Ranks ranks(3, 1);
  ranks[0].message(1);
  ranks.poll();
  ranks[1].awaited = 0;
  ranks[0].message(2);
  ranks.poll();
  EXPECT_EQ(ranks[1].to(0).link, Link::kOpen);
  EXPECT_GE(std::ranges::count(ranks.mail.sent, VerbsLetter::kStay), 1);
  EXPECT_EQ(ranks[0].to(2).link, Link::kClosed);
  ranks[1].awaited = kNoRank;
  ranks.poll(5000);
  EXPECT_EQ(ranks[0].to(2).link, Link::kOpen);
  EXPECT_EQ(ranks[0].to(1).link, Link::kClosed);
}

TEST(VerbsConnectionsAlone, ARefusalFailsBothEnds) {
  Ranks two(2, 4);
  two[1].refuses = true;
  two[0].message(1);
  two.poll();
  EXPECT_NE(two[0].to(1).failure.message().find("no way there"), std::string::npos);
  EXPECT_FALSE(two[1].to(0).failure.ok());
  EXPECT_EQ(two[0].to(1).place, -1);
}

}  // namespace
}  // namespace weft::testing
