// Unit tests of the parts of Rails that need no transport: messages, receipts, pings, notes, the
// speed and the life of a lane, and the choice of a message's rail.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "transport/rails/lane.h"
#include "transport/rails/messages.h"
#include "transport/rails/note_queue.h"
#include "transport/rails/pings.h"
#include "transport/rails/rail_table.h"
#include "transport/rails/receipt_delay.h"
#include "transport/rails/receipts.h"
#include "transport/rails/routes.h"

namespace weft::testing {
namespace {

std::vector<std::uint64_t> kept(const ReceiptStream& stream) {
  std::vector<std::uint64_t> tags;
  stream.for_each_kept([&](std::uint64_t tag) { tags.push_back(tag); });
  return tags;
}

TEST(ReceiptStream, KeepsTagsUntilTheirReceiptIsConfirmed) {
  ReceiptStream here, there;
  for (std::uint64_t tag = 1; tag <= 3; ++tag) here.arrived(tag);
  EXPECT_EQ(here.pending(), 3u);
  ReceiptStream::Outgoing out = here.next(2, true);
  EXPECT_EQ(out.receipt.count, 2u);
  EXPECT_EQ(out.number, 0u);
  EXPECT_EQ(here.pending(), 1u);
  EXPECT_EQ(kept(here), (std::vector<std::uint64_t>{3, 1, 2}));

  there.came(out.number);
  there.read(out.receipt);
  EXPECT_TRUE(there.owes());
  // A receipt without a confirmation leaves the peer's receipts unconfirmed.
  here.read(there.next(2, false).receipt);
  EXPECT_TRUE(there.owes());
  EXPECT_EQ(kept(here).size(), 3u);
  here.read(there.next(2, true).receipt);
  EXPECT_FALSE(there.owes());
  EXPECT_EQ(kept(here), std::vector<std::uint64_t>{3});
}

TEST(ReceiptStream, ReceiptsCountInAnyOrderAndOnce) {
  ReceiptStream stream;
  std::uint32_t posted = 0;
  while (stream.wants_receive()) EXPECT_EQ(stream.post_receive(), posted++);
  EXPECT_EQ(posted, ReceiptStream::kWindow);
  stream.came(1);
  EXPECT_FALSE(stream.wants_receive()) << "number 0 is missing";
  stream.came(0);
  stream.came(0);
  posted = 0;
  for (; stream.wants_receive(); ++posted) (void)stream.post_receive();
  EXPECT_EQ(posted, 2u);
  EXPECT_FALSE(stream.lags());
  for (std::uint32_t n = 2; n < 2 * ReceiptStream::kWindow; ++n) stream.came(n);
  EXPECT_TRUE(stream.lags());
}

TEST(ReceiptStream, CountsFromWhenSomethingWaits) {
  ReceiptStream stream;
  EXPECT_FALSE(stream.waited(true, 100));
  stream.arrived(7);
  EXPECT_EQ(stream.waited(true, 200), 0);
  EXPECT_EQ(stream.waited(true, 250), 50);
  (void)stream.next(2, true);
  EXPECT_FALSE(stream.waited(true, 300));
  stream.read({.count = 1});
  EXPECT_FALSE(stream.waited(false, 400)) << "it may not confirm now";
  EXPECT_EQ(stream.waited(true, 500), 0);
}

TEST(ReceiptDelay, HoldsForAboutAGapAndNotForTheLast) {
  ReceiptDelay delay;
  for (int i = 0; i < 4; ++i) delay.posted();
  EXPECT_TRUE(delay.arrived(1000, 1000));
  delay.ended();
  EXPECT_EQ(delay.hold(1000), 0) << "no gap is known";
  delay.sent(1);
  EXPECT_TRUE(delay.arrived(1000, 1100));
  delay.ended();
  EXPECT_EQ(delay.hold(1100), 300);
  EXPECT_EQ(delay.hold(1350), 50);
  EXPECT_FALSE(delay.arrived(1000, 1360)) << "one is urgent already";
  delay.ended();
  delay.sent(2);
  EXPECT_FALSE(delay.urgent());
  EXPECT_TRUE(delay.arrived(1000, 1400));
  EXPECT_EQ(delay.hold(1400), 0) << "no other message is to come";
}

TEST(ReceiptDelay, DoesNotHoldForAWhileAfterWaitsInVain) {
  ReceiptDelay delay;
  for (int i = 0; i < 200; ++i) delay.posted();
  std::int64_t now = 1000;
  int held = 0;
  for (int i = 0; i < 100; ++i, now += 100) {
    (void)delay.arrived(1000, now);
    delay.ended();
    held += delay.hold(now) > 0;
    delay.give_up_holding(delay.held());
    delay.sent(1);
  }
  EXPECT_GT(held, 0);
  EXPECT_LT(held, 10);
}

TEST(PeerPings, APathIsSilentWhileAnotherOneAnswers) {
  PeerPings pings(2);
  std::int64_t now = 1000;
  for (int i = 0; i < 4; ++i, now += 100) {
    pings.sent(now);
    (void)pings.answered(1, now, now + 10);
  }
  EXPECT_FALSE(pings.silent(0, now, 1000)) << "not for long";
  EXPECT_TRUE(pings.silent(0, now + 1000, 1000));
  EXPECT_FALSE(pings.silent(1, now + 1000, 1000));
  EXPECT_EQ(pings.streak(1), 4);
  pings.forget(0);
  EXPECT_FALSE(pings.silent(0, now + 1000, 1000));
}

TEST(PeerPings, APeerThatPollsAndNeverAnswersIsCounted) {
  PeerPings pings(1);
  EXPECT_EQ(pings.count_unanswered(1000, 10), 0) << "it may not poll";
  for (int i = 1; i <= PeerPings::kMostUnanswered; ++i) {
    pings.peer_polls();
    EXPECT_EQ(pings.count_unanswered(1000 + 20 * i, 10), i);
  }
  EXPECT_TRUE(pings.answered(0, 2000, 2001)) << "it had been taken for mute";
  EXPECT_TRUE(pings.reached());
  pings.peer_polls();
  EXPECT_EQ(pings.count_unanswered(9000, 10), 0);
}

TEST(NoteQueue, OneAtATimeUntilAcknowledged) {
  NoteQueue notes;
  EXPECT_TRUE(notes.add("a", false));
  EXPECT_FALSE(notes.add("b", true)) << "it waits for the first";
  EXPECT_EQ(notes.moves(), 1);
  EXPECT_FALSE(notes.acknowledged(1));
  EXPECT_TRUE(notes.acknowledged(0));
  EXPECT_FALSE(notes.acknowledged(0)) << "repeated";
  EXPECT_EQ(notes.first().body, "b");
  EXPECT_TRUE(notes.acknowledged(1));
  EXPECT_EQ(notes.moves(), 0);
  EXPECT_TRUE(notes.empty());

  EXPECT_FALSE(notes.take(1)) << "number 0 is missing";
  EXPECT_FALSE(notes.taken(0));
  EXPECT_TRUE(notes.take(0));
  EXPECT_FALSE(notes.take(0)) << "repeated";
  EXPECT_TRUE(notes.taken(0));
}

TEST(LaneLife, IsOverOnlyWhenBothEndsHaveGivenItUp) {
  LaneLife here_first, peer_first;
  EXPECT_TRUE(here_first.up());
  here_first.give_up(5, "cut");
  EXPECT_FALSE(here_first.in_use());
  EXPECT_FALSE(here_first.over());
  EXPECT_TRUE(here_first.peer_gives_up());
  EXPECT_TRUE(here_first.over());

  EXPECT_TRUE(peer_first.peer_gives_up());
  peer_first.theirs().push_back(7);
  EXPECT_TRUE(peer_first.up()) << "until this rank gives it up too";
  peer_first.give_up(5, "cut");
  EXPECT_TRUE(peer_first.over());
  peer_first.settle();
  EXPECT_TRUE(peer_first.down());
  EXPECT_TRUE(peer_first.theirs().empty());
  EXPECT_EQ(peer_first.cause(), "cut");
  EXPECT_FALSE(peer_first.peer_gives_up()) << "a repeated note";
  EXPECT_FALSE(peer_first.over());
}

TEST(LaneLife, OneEndAsksAndTheOtherIsReady) {
  LaneLife asks, answers;
  for (LaneLife* end : {&asks, &answers}) {
    end->give_up(100, "cut");
    EXPECT_TRUE(end->peer_gives_up());
    end->settle();
  }
  EXPECT_FALSE(asks.rested(149, 50));
  EXPECT_TRUE(asks.rested(150, 50));
  asks.ask();
  answers.adopt(asks.generation());
  EXPECT_FALSE(asks.peer_gives_up()) << "there is no connection";
  answers.ready();
  EXPECT_TRUE(answers.in_use()) << "the other end may already send";
  EXPECT_TRUE(answers.is_ready(asks.generation()));
  EXPECT_FALSE(answers.is_ready(asks.generation() - 1)) << "a late note of an earlier attempt";
  EXPECT_TRUE(asks.asked(answers.generation()));
  EXPECT_FALSE(asks.asked(answers.generation() + 1));
  for (LaneLife* end : {&asks, &answers}) {
    end->open();
    EXPECT_TRUE(end->up());
  }
  asks.ask();
  asks.refused(200);
  EXPECT_TRUE(asks.down());
  EXPECT_FALSE(asks.rested(210, 50));
}

TEST(LaneRate, MeasuresWhatIsUnderWayOnly) {
  LaneRate rate;
  std::int64_t now = 0;
  const auto clock = [&] { return now; };
  for (int i = 0; i < 20; ++i, now += 1'000'000) {  // pauses do not count
    rate.begin(clock);
    now += 100;
    rate.end(50'000, 50'000, clock);
  }
  EXPECT_NEAR(rate.rate(), 500, 1);
  EXPECT_NEAR(rate.mean(), 500, 1);
  rate.begin(clock);
  now += 100;
  rate.end(0, 50'000, clock);  // given up
  EXPECT_NEAR(rate.mean(), 500, 1);
}

TEST(RailMessages, SendsOfOneTagAreInOrder) {
  RailMessages messages;
  TagTable sends;
  std::uint32_t s[3];
  for (std::uint32_t& one : s) {
    one = messages.take(RailSlot::Use::kSend);
    messages[one].t.tag = 7;
    messages.keep_send(sends, one);
  }
  const auto order = [&] {
    std::vector<std::uint32_t> all;
    messages.for_each_send(sends.find(7), [&](std::uint32_t one) { all.push_back(one); });
    return all;
  };
  EXPECT_EQ(order(), (std::vector{s[0], s[1], s[2]}));
  messages.forget_send(sends, s[1]);
  EXPECT_EQ(order(), (std::vector{s[0], s[2]}));
  messages.forget_send(sends, s[0]);
  EXPECT_EQ(order(), std::vector{s[2]});
  EXPECT_EQ(messages.kept_sends(), 1u);
  messages.forget_send(sends, s[2]);
  EXPECT_TRUE(order().empty());
}

TEST(RailMessages, ASlotThatIsUsedAgainHasAnotherId) {
  RailMessages messages;
  const std::uint32_t s = messages.take(RailSlot::Use::kRecv);
  const std::uint64_t before = messages.inner_id(s);
  EXPECT_EQ(RailMessages::index_in(before), s);
  EXPECT_TRUE(messages.full(1));
  messages.free(s);
  EXPECT_FALSE(messages.full(1));
  ASSERT_EQ(messages.take(RailSlot::Use::kRecv), s);
  ++messages[s].nonce;
  EXPECT_NE(messages.inner_id(s), before);
  EXPECT_EQ(RailMessages::index_in(messages.inner_id(s)), s);
}

TEST(RailTable, SharesFollowRatesWhereMeansDiffer) {
  const auto share = [](const RailTable& table, int rail) {
    return static_cast<int>(std::ranges::count(table, rail));
  };
  const RailTable equal = rail_table(std::vector<RailSpeed>{{2, 9, 1.0}, {0, 3, 1.2}}, 1.25);
  EXPECT_EQ(share(equal, 2), 16) << "means that differ by less count as equal";
  EXPECT_EQ(equal[0], 2) << "short messages take the first rail";
  EXPECT_NE(equal[1], equal[2]) << "neighbors are on different rails";
  const RailTable unequal = rail_table(std::vector<RailSpeed>{{2, 9, 3.0}, {0, 3, 1.0}}, 1.25);
  EXPECT_EQ(share(unequal, 2), 24);
  EXPECT_EQ(share(unequal, 0), 8);
  const RailTable slow = rail_table(std::vector<RailSpeed>{{1, 1000, 1000}, {0, 1, 1}}, 1.25);
  EXPECT_GE(share(slow, 0), 1) << "a rail that is not used is not measured";
  EXPECT_FALSE(nearly_alike(equal, unequal, 3));
  RailTable changed = unequal;
  *std::ranges::find(changed, 2) = 0;
  EXPECT_TRUE(nearly_alike(changed, unequal, 3));
  EXPECT_FALSE(nearly_alike(rail_table(std::vector<RailSpeed>{{2, 0, 0}}, 1.25), unequal, 3));
}

RailRoutes::Tables all_on(int rail, std::size_t homes) {
  RailTable table;
  table.fill(static_cast<std::uint8_t>(rail));
  return RailRoutes::Tables(homes, table);
}

TEST(RailRoutes, AChoiceReachesThePeerWithWhatWasLeftOnOtherRails) {
  RailRoutes here, there;
  here.begin(all_on(0, 2));
  there.begin(all_on(0, 2));
  here.choose(all_on(1, 2));
  EXPECT_EQ(here.out(1, 3), 1);
  EXPECT_EQ(here.in(1, 3), 0);
  std::string more, last;
  RailRoutes::write_left(more, 7, 0);
  here.write(last);
  RailRoutes::write_left(last, 8, 0);
  RailRoutes::write_left(last, 9, 5);  // the peers have no rail 5

  there.read_left(more, 2);
  EXPECT_EQ(there.kept(), 1U);
  EXPECT_EQ(there.take_left(7), -1) << "before the tables";
  ASSERT_TRUE(there.read(last, 2));
  EXPECT_EQ(there.in(1, 3), 1);
  EXPECT_EQ(there.out(1, 3), 0);
  EXPECT_EQ(there.kept(), 0U);
  there.arrived(8);
  EXPECT_EQ(there.take_left(7), 0);
  for (const std::uint64_t tag : {7, 8, 9}) EXPECT_EQ(there.take_left(tag), -1) << tag;
}

TEST(RailRoutes, TablesThatNameNoRailOrEndTooSoonChangeNothing) {
  RailRoutes here, there;
  here.begin(all_on(2, 2));
  there.begin(all_on(1, 2));
  std::string text;
  here.write(text);
  EXPECT_FALSE(there.read(text, 2));
  EXPECT_FALSE(there.read(text.substr(1), 3));
  EXPECT_EQ(there.in(0, 0), 1);
  EXPECT_TRUE(there.read(text, 3));
  EXPECT_EQ(there.in(0, 0), 2);
}

}  // namespace
}  // namespace weft::testing
