// The datagrams that two peers exchange (PeerTalk), over a channel in memory that drops the
// datagrams that a test selects.
#include "transport/rails/peer_talk.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "transport/datagram_channel.h"

namespace weft {
namespace {

constexpr int kRails = 2;

// One end: its datagrams go to `to`, except for those of rails that are `dead`.
class End final : public DatagramChannel, public PeerTalk::Listener {
 public:
  explicit End(Rank me) : talk(*this, 1 - me, kRails), me_(me) {}

  void send(Rank rank, int rail, std::string_view bytes) noexcept override {
    EXPECT_EQ(rank, 1 - me_);
    ++sent;
    if (!dead[rail]) to->mail.push_back({me_, rail, std::string(bytes)});
  }
  bool receive(Datagram&) noexcept override { return false; }
  bool link_up(int) noexcept override { return true; }

  void on_answer(Rank, bool again) override { answers += again ? "again " : "answer "; }
  void on_note(Rank, std::string_view body) override {
    notes.emplace_back(body);
    if (body == "ask") talk.say("reply", false, 0);
  }
  void on_told(Rank) override { ++told; }

  void read_all(std::int64_t now) {
    for (; !mail.empty(); mail.pop_front()) {
      const Datagram one = mail.front();
      talk.read(one, now, *this);
    }
  }

  End* to = nullptr;
  bool dead[kRails] = {};
  PeerTalk talk;
  std::deque<Datagram> mail;
  std::vector<std::string> notes;
  std::string answers;
  int sent = 0, told = 0;

 private:
  Rank me_;
};

class Talk : public ::testing::Test {
 protected:
  Talk() {
    a_.to = &b_;
    b_.to = &a_;
  }
  void exchange(std::int64_t now = 0) {
    while (!a_.mail.empty() || !b_.mail.empty()) {
      a_.read_all(now);
      b_.read_all(now);
    }
  }
  End a_{0}, b_{1};
};

TEST_F(Talk, ANoteComesOnceAndInOrderOverTheRailThatWorks) {
  a_.dead[0] = true;
  EXPECT_TRUE(a_.talk.say("first", false, 0));
  EXPECT_FALSE(a_.talk.say("second", true, 0)) << "one note at a time";
  EXPECT_EQ(a_.talk.notes().moves(), 1);
  a_.talk.send_note(1);  // b has not read yet: a second copy
  exchange();
  EXPECT_EQ(b_.notes, (std::vector<std::string>{"first", "second"}));
  EXPECT_EQ(a_.told, 2);
  EXPECT_TRUE(a_.talk.notes().empty());
  EXPECT_EQ(a_.talk.notes().moves(), 0);
}

TEST_F(Talk, ANoteWhoseAcknowledgementIsLostIsAcknowledgedAgain) {
  b_.dead[0] = b_.dead[1] = true;
  a_.talk.say("note", false, 0);
  exchange();
  EXPECT_FALSE(a_.talk.notes().empty());
  b_.dead[0] = b_.dead[1] = false;
  a_.talk.send_note(1);
  exchange();
  EXPECT_TRUE(a_.talk.notes().empty());
  EXPECT_EQ(b_.notes.size(), 1U);
}

TEST_F(Talk, ANoteMayBeAnsweredWhileItIsRead) {
  a_.talk.say("ask", false, 0);
  exchange();
  EXPECT_EQ(a_.notes, std::vector<std::string>{"reply"});
  EXPECT_TRUE(a_.talk.notes().empty());
  EXPECT_TRUE(b_.talk.notes().empty());
}

TEST_F(Talk, APingIsAnsweredOnThePathsThatWork) {
  a_.dead[1] = true;
  a_.talk.ping(5);
  exchange(6);
  EXPECT_EQ(a_.answers, "answer ");
  EXPECT_TRUE(a_.talk.pings().reached());
  EXPECT_EQ(a_.talk.pings().streak(0), 1);
  EXPECT_EQ(a_.talk.pings().asked_since(1), 5);
}

TEST_F(Talk, DatagramsOfAMutedPeerAndShortOnesAreDropped) {
  for (const char* text : {"", "n", "a", "o", "x", "nab"}) b_.talk.read({0, 0, text}, 0, b_);
  EXPECT_TRUE(b_.talk.mute());
  EXPECT_FALSE(b_.talk.mute());
  a_.talk.say("note", false, 0);
  a_.talk.ping(1);
  exchange();
  EXPECT_TRUE(b_.notes.empty());
  EXPECT_TRUE(b_.answers.empty());
  EXPECT_EQ(b_.sent, 0);
}

}  // namespace
}  // namespace weft
