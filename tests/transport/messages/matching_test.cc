// Matching in isolation: receives and messages of one peer, in every possible order.
#include "transport/messages/matching.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "transport/messages/completions.h"
#include "transport/messages/unexpected_limit.h"

namespace weft {
namespace {

struct Bytes {
  std::unique_ptr<std::string> text;  // makes a message move-only
};
using Matched = Matching<Bytes>;

constexpr std::uint64_t kAll = ~std::uint64_t{0};

Transfer receive_of(std::uint64_t tag, std::uint64_t id, std::size_t bytes = 8) {
  return {.kind = Transfer::Kind::kRecv, .tag = tag, .bytes = bytes, .id = id};
}

Matched::Unexpected& keep(Matched& matching, std::uint64_t tag, const std::string& text) {
  Matched::Unexpected& one = matching.keep(tag, text.size(), text.size());
  one.kept.text = std::make_unique<std::string>(text);
  return one;
}

std::vector<std::uint64_t> ids_of(const Matched& matching) {
  std::vector<std::uint64_t> ids;
  for (const Receive& one : matching.receives()) ids.push_back(one.transfer.id);
  return ids;
}

std::vector<std::string> texts_of(Matched& matching) {
  std::vector<std::string> texts;
  matching.for_each_unexpected([&](Matched::Unexpected& one) { texts.push_back(*one.kept.text); });
  return texts;
}

// After a late rank has taken a few long unexpected messages, their memory is free again.
TEST(Matching, TheMemoryOfLongMessagesIsNotKeptForLaterOnes) {
  Matched matching;
  matching.drop(&keep(matching, 7, std::string(4096, 'a')));
  Matched::Unexpected& reuses = matching.keep(8, 1, 1);
  ASSERT_NE(reuses.kept.text, nullptr) << "a short message leaves its memory";
  EXPECT_EQ(reuses.kept.text->size(), 4096u);
  matching.drop(&reuses);
  for (int i = 0; i < 20; ++i) matching.drop(&keep(matching, 7, std::string(4097, 'a')));
  for (int i = 0; i < 20; ++i) {
    const Matched::Unexpected& one = matching.keep(9, 1, 1);
    EXPECT_TRUE(!one.kept.text || one.kept.text->size() <= 4096) << i;
  }
}

// The limit counts all peers of a process together.
TEST(Matching, TheProcessCountsTheMemoryOfAllPeers) {
  const std::size_t before = UnexpectedMemory::of_process();
  {
    Matched one, other;
    keep(one, 7, std::string(1000, 'a'));
    Matched::Unexpected& moves = keep(other, 7, std::string(500, 'b'));
    EXPECT_EQ(UnexpectedMemory::of_process(), before + 1500 + 2 * sizeof(Matched::Unexpected));
    other.recount(moves, 100);
    EXPECT_EQ(UnexpectedMemory::of_process(), before + 1100 + 2 * sizeof(Matched::Unexpected));
    other.drop(&moves);
    EXPECT_TRUE(one.far_ahead(2000));
    EXPECT_FALSE(one.far_ahead(4000));
    EXPECT_FALSE(other.far_ahead(0)) << "it has nothing here";
    const Matched moved = std::move(one);
  }
  EXPECT_EQ(UnexpectedMemory::of_process(), before);
}

TEST(Matching, AReceiveThatComesFirstIsTakenByItsTag) {
  Matched matching;
  EXPECT_EQ(matching.find(7), nullptr);
  matching.post({receive_of(7, 70)});
  EXPECT_EQ(matching.find(8), nullptr);
  Receive* const found = matching.find(7);
  ASSERT_NE(found, nullptr);
  found->arrived = 3;
  const Receive taken = matching.take(found);
  EXPECT_EQ(taken.transfer.id, 70u);
  EXPECT_EQ(taken.arrived, 3u) << "what has arrived of the message goes along";
  EXPECT_EQ(matching.find(7), nullptr) << "a receive takes one message";
}

TEST(Matching, ReceivesOfATagAreTakenInTheOrderOfPosting) {
  Matched matching;
  for (const std::uint64_t id : {1, 2, 3}) {
    matching.post({receive_of(7, id)});
    matching.post({receive_of(9, id + 10)});
  }
  for (const std::uint64_t id : {1, 2, 3}) {
    EXPECT_EQ(matching.take(matching.find(7)).transfer.id, id);
    EXPECT_EQ(matching.take(matching.find(9)).transfer.id, id + 10);
  }
  EXPECT_TRUE(matching.receives().empty());
}

// Searching a list compares the tags of all earlier receives; the table compares few.
TEST(Matching, ReceivesThatStayPostedDoNotSlowDownOthers) {
  constexpr std::uint64_t kStay = 100'000;
  Matched matching;
  for (std::uint64_t tag = 0; tag < kStay; ++tag) matching.post({receive_of(tag, tag)});
  for (std::uint64_t i = 0; i < 4 * kStay; ++i) {
    matching.post({receive_of(kStay + i % 3, i)});
    ASSERT_EQ(matching.take(matching.find(kStay + i % 3)).transfer.id, i);
  }
  for (std::uint64_t i = 0; i < kStay; ++i) matching.post({receive_of(kStay, i)});
  for (std::uint64_t i = 0; i < kStay; ++i)
    ASSERT_EQ(matching.take(matching.find(kStay)).transfer.id, i) << "of one tag";
  EXPECT_EQ(matching.receives().size(), kStay);
}

TEST(Matching, AMessageThatComesFirstWaitsUnderItsTag) {
  Matched matching;
  EXPECT_FALSE(matching.has_unexpected());
  EXPECT_EQ(matching.find_unexpected(7), nullptr);
  Matched::Unexpected& kept = keep(matching, 7, "seven");
  EXPECT_TRUE(matching.has_unexpected());
  EXPECT_EQ(kept.tag, 7u);
  EXPECT_EQ(kept.bytes, 5u);
  EXPECT_EQ(kept.head_or_null(), nullptr);
  EXPECT_EQ(matching.find_unexpected(6), nullptr);
  EXPECT_EQ(matching.find_unexpected(8), nullptr);
  ASSERT_EQ(matching.find_unexpected(7), &kept);
  matching.drop(&kept);
  EXPECT_EQ(matching.find_unexpected(7), nullptr) << "a message goes to one receive";
  EXPECT_EQ(matching.unexpected(), 0u);
}

TEST(Matching, MessagesOfATagKeepTheOrderOfTheirArrival) {
  Matched matching;
  for (const char* const text : {"a", "b", "c"}) {
    keep(matching, 7, text);
    keep(matching, 5, std::string("of 5: ") + text);
  }
  for (const char* const text : {"a", "b", "c"}) {
    Matched::Unexpected* const oldest = matching.find_unexpected(7);
    ASSERT_NE(oldest, nullptr);
    EXPECT_EQ(*oldest->kept.text, text);
    matching.drop(oldest);
  }
  EXPECT_EQ(texts_of(matching), (std::vector<std::string>{"of 5: a", "of 5: b", "of 5: c"}));
}

// Transports keep pointers to messages that are still arriving.
TEST(Matching, AMessageStaysWhereItIsWhileOthersComeAndGo) {
  Matched matching;
  Matched::Unexpected* const stays = &keep(matching, 500, "stays");
  for (std::uint64_t tag = 0; tag < 1000; ++tag) keep(matching, tag, "goes");
  matching.drop_if([&](const Matched::Unexpected& one) { return *one.kept.text == "goes"; });
  EXPECT_EQ(matching.unexpected(), 1u);
  EXPECT_EQ(matching.find_unexpected(500), stays);
  EXPECT_EQ(*stays->kept.text, "stays");
}

// drop() identifies the message, not just its tag.
TEST(Matching, OfAliasesThatOneGoesWhichIsNamed) {
  Matched matching;
  keep(matching, 7, "a");
  Matched::Unexpected& middle = keep(matching, 7, "b");
  keep(matching, 7, "c");
  matching.drop(&middle);
  EXPECT_EQ(texts_of(matching), (std::vector<std::string>{"a", "c"}));
}

TEST(Matching, AMessageThatHasItsReceiveIsNoOtherReceives) {
  Matched matching;
  Matched::Unexpected& arriving = keep(matching, 7, "first");
  keep(matching, 7, "second");
  arriving.wanted = true;
  arriving.receive = {receive_of(7, 70)};
  ASSERT_NE(matching.find_unexpected(7), nullptr);
  EXPECT_EQ(*matching.find_unexpected(7)->kept.text, "second");
}

// ---- cancellation of receives

TEST(Matching, CancelWithdrawsTheReceivesOfATaskAndNoOthers) {
  Matched matching;
  for (const std::uint64_t id : {1, 2, 3, 4}) matching.post({receive_of(7, id)});
  Matched::Unexpected& mine = keep(matching, 8, "mine");
  Matched::Unexpected& other = keep(matching, 8, "other");
  mine.wanted = other.wanted = true;
  mine.receive = {receive_of(8, 12)};
  other.receive = {receive_of(8, 13)};
  matching.cancel([](const Transfer& t) { return t.id % 2 == 0; });
  EXPECT_EQ(ids_of(matching), (std::vector<std::uint64_t>{1, 3}));
  EXPECT_FALSE(mine.wanted);
  EXPECT_TRUE(other.wanted);
  EXPECT_EQ(matching.find_unexpected(8), &mine) << "the message waits for another receive";
}

TEST(Matching, ThePeersEndEndsEachReceiveOnce) {
  Matched matching;
  matching.post({receive_of(7, 1)});
  matching.post({receive_of(8, 2)});
  Matched::Unexpected& arriving = keep(matching, 9, "arriving");
  arriving.wanted = true;
  arriving.receive = {receive_of(9, 3)};
  std::vector<std::uint64_t> ended;
  const auto end = [&](std::uint64_t id) { ended.push_back(id); };
  matching.end_receives(end);
  EXPECT_EQ(ended, (std::vector<std::uint64_t>{1, 2, 3}));
  matching.end_receives(end);
  EXPECT_EQ(ended.size(), 3u);
  EXPECT_TRUE(matching.receives().empty());
}

TEST(Matching, ForgetDropsByTheBitsOfAMask) {
  Matched matching;
  for (const std::uint64_t tag : {0x101, 0x102, 0x201, 0x202}) keep(matching, tag, "x");
  matching.drop_if([](const Matched::Unexpected& one) { return (one.tag & 0xf00) == 0x100; });
  EXPECT_EQ(matching.find_unexpected(0x101), nullptr);
  EXPECT_EQ(matching.find_unexpected(0x102), nullptr);
  EXPECT_NE(matching.find_unexpected(0x201), nullptr);
  EXPECT_NE(matching.find_unexpected(0x202), nullptr);
}

// ---- has_unexpected(), which stuck tasks call

TEST(Matching, UnclaimedFindsAHeadByTheBitsOfAMask) {
  Matched matching;
  Head head;
  EXPECT_FALSE(matching.has_unexpected(0, 0, head));
  Matched::Unexpected& kept = keep(matching, 0x1234, "x");
  EXPECT_FALSE(matching.has_unexpected(0, 0, head)) << "a message without a head says nothing";
  kept.headed = true;
  EXPECT_FALSE(matching.has_unexpected(0, 0, head)) << "the sign 0 is that of a sum alone";
  kept.head = {.sign = 99, .about = {1, 2, 3, 4}};
  EXPECT_FALSE(matching.has_unexpected(0x1235, kAll, head));
  EXPECT_FALSE(matching.has_unexpected(0x1334, 0xff00, head));
  ASSERT_TRUE(matching.has_unexpected(0x12ff, 0xff00, head))
      << "the bits outside of the mask are any";
  EXPECT_EQ(head.sign, 99u);
  EXPECT_EQ(head.about[3], 4u);
  head = {};
  EXPECT_TRUE(matching.has_unexpected(~std::uint64_t{0}, 0, head)) << "no bits: any message";
  EXPECT_EQ(head.sign, 99u);
  kept.wanted = true;
  EXPECT_FALSE(matching.has_unexpected(0, 0, head)) << "a receive has claimed the message";
}

// ---- mismatches

TEST(Matching, AMessageAgreesInLengthAndInTheSignOfItsHead) {
  Head ours{.sign = 5}, theirs{.sign = 5};
  Transfer receive = receive_of(7, 1, 100);
  EXPECT_TRUE(agrees(receive, 100, nullptr));
  EXPECT_FALSE(agrees(receive, 99, nullptr));
  EXPECT_FALSE(agrees(receive, 101, nullptr));
  EXPECT_FALSE(agrees(receive, 100, &theirs)) << "a head where none is expected";
  receive.head = &ours;
  EXPECT_TRUE(agrees(receive, 100, &theirs));
  EXPECT_FALSE(agrees(receive, 99, &theirs));
  EXPECT_FALSE(agrees(receive, 100, nullptr)) << "no head where one is expected";
  theirs.sign = 6;
  EXPECT_FALSE(agrees(receive, 100, &theirs));
  ours.sign = 0;  // a head for its checksum alone
  EXPECT_TRUE(agrees(receive, 100, nullptr));
}

TEST(Matching, ADisputeSaysWhatDiffers) {
  const Transfer receive = receive_of(7, 1, 100);
  EXPECT_EQ(disagreement(receive, 90), "sent 90 bytes where 100 were expected");
  EXPECT_EQ(disagreement(receive, 100),
            "sent 100 bytes where 100 were expected, for a different task");
}

TEST(Matching, ADisputeIsOnThePeersRecord) {
  PeerRecord peer;
  peer.rank = 3;
  peer.where = "rank 3 on host a";
  const Head theirs{.sign = 6};
  peer.disagree(receive_of(7, 1, 100), 90, &theirs, "tcp");
  EXPECT_EQ(peer.note.code(), Code::kMismatch);
  EXPECT_EQ(peer.note.rank(), 3);
  EXPECT_EQ(peer.note.message(), "rank 3 on host a: tcp: sent 90 bytes where 100 were expected");
  EXPECT_EQ(peer.disputed.sign, 6u);
  peer.disagree(receive_of(7, 1, 100), 80, nullptr, "tcp");
  EXPECT_EQ(peer.disputed.sign, 6u) << "a message without a head leaves the head that is known";
}

// ---- the limit of unexpected messages

TEST(Matching, TheLimitCountsBytesAndBookKeeping) {
  constexpr std::size_t kLimit = 4096, kEach = sizeof(Matched::Unexpected);
  Matched matching;
  EXPECT_TRUE(matching.allows(kLimit - kEach, kLimit));
  EXPECT_FALSE(matching.allows(kLimit - kEach + 1, kLimit));
  EXPECT_FALSE(matching.allows(kLimit + 1, kLimit)) << "no underflow";
  EXPECT_FALSE(matching.allows(~std::size_t{0}, kLimit));
  std::size_t kept = 0;  // messages of no bytes cost memory as well
  while (matching.allows(0, kLimit)) {
    matching.keep(kept, 0, 0);
    ASSERT_LE(++kept, kLimit);
  }
  EXPECT_EQ(kept, kLimit / kEach);
}

TEST(Matching, WhatIsDroppedCountsNoMore) {
  constexpr std::size_t kLimit = 4096;
  Matched matching;
  Matched::Unexpected& big = matching.keep(1, 3000, 3000);
  EXPECT_FALSE(matching.allows(1000, kLimit));
  matching.recount(big, 0);  // its bytes have moved elsewhere
  EXPECT_TRUE(matching.allows(1000, kLimit));
  matching.recount(big, 3000);
  EXPECT_FALSE(matching.allows(1000, kLimit));
  matching.drop(&big);
  EXPECT_TRUE(matching.allows(kLimit - sizeof(Matched::Unexpected), kLimit));
  for (int round = 0; round < 100; ++round) {  // with memory of earlier messages
    for (const std::uint64_t tag : {1, 2, 3}) matching.keep(tag, 500, 500);
    matching.drop_if([](const Matched::Unexpected& one) { return one.tag != 2; });
    matching.drop(matching.find_unexpected(2));
  }
  EXPECT_TRUE(matching.allows(kLimit - sizeof(Matched::Unexpected), kLimit));
}

TEST(Matching, TheLimitIsAVariableAndTheErrorNamesIt) {
  const char* const of_the_user = std::getenv("WEFT_UNEXPECTED_BYTES");
  const std::string before = of_the_user ? of_the_user : "";
  unsetenv("WEFT_UNEXPECTED_BYTES");
  EXPECT_EQ(unexpected_limit(), std::size_t{1} << 30);
  setenv("WEFT_UNEXPECTED_BYTES", "4096", 1);
  EXPECT_EQ(unexpected_limit(), 4096u);
  for (const char* const wrong : {"4095", "much", "-1", "2251799813685248"}) {
    setenv("WEFT_UNEXPECTED_BYTES", wrong, 1);
    try {
      (void)unexpected_limit();
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("WEFT_UNEXPECTED_BYTES"), std::string::npos)
          << error.what();
    }
  }
  before.empty() ? unsetenv("WEFT_UNEXPECTED_BYTES")
                 : setenv("WEFT_UNEXPECTED_BYTES", before.c_str(), 1);
  EXPECT_EQ(
      too_far_ahead(4096),
      "its unexpected messages exceed 4096 bytes, or those of all ranks exceed 8589934592; raise "
      "WEFT_UNEXPECTED_BYTES (or WEFT_UNEXPECTED_TOTAL_BYTES), or let it run less far ahead");
}

// The memory of a finished message is reused: the new message must not inherit any state.
TEST(Matching, AMessageInUsedMemoryIsNew) {
  Matched matching;
  Matched::Unexpected& old = keep(matching, 7, "old");
  old.headed = old.wanted = true;
  old.head.sign = 99;
  matching.drop(&old);
  Matched::Unexpected& next = matching.keep(8, 20, 20);
  EXPECT_EQ(next.tag, 8u);
  EXPECT_EQ(next.bytes, 20u);
  EXPECT_FALSE(next.wanted);
  EXPECT_EQ(next.head_or_null(), nullptr);
  EXPECT_EQ(matching.find_unexpected(7), nullptr);
  EXPECT_EQ(matching.find_unexpected(8), &next);
}

// ---- random operations

// A naive matcher: two lists, searched from the front.
struct Naive {
  struct Message {
    std::uint64_t tag;
    std::string text;
  };
  std::vector<Transfer> receives;
  std::vector<Message> messages;
};

// Random receives and messages at both ends; each message must match the same receive as with the
// naive matcher, with few tags (long queues) and with many.
TEST(Matching, MatchesAsTwoListsDo) {
  std::mt19937_64 random(1);
  for (const std::uint64_t tags : {1u, 3u, 50u, 4000u}) {
    Matched matching;
    Naive naive;
    std::vector<std::pair<std::uint64_t, std::string>> ours, expected;  // id, text
    for (std::uint64_t step = 1; step <= 6000; ++step) {
      const std::uint64_t tag = random() % tags << 20;
      const auto of_tag = [&](const auto& one) { return one.tag == tag; };
      const std::uint64_t what = random() % 100;
      if (what < 48) {  // post a receive
        if (Matched::Unexpected* const message = matching.find_unexpected(tag)) {
          ours.emplace_back(step, *message->kept.text);
          matching.drop(message);
        } else {
          matching.post({receive_of(tag, step)});
        }
        const auto at = std::find_if(naive.messages.begin(), naive.messages.end(), of_tag);
        if (at != naive.messages.end()) {
          expected.emplace_back(step, at->text);
          naive.messages.erase(at);
        } else {
          naive.receives.push_back(receive_of(tag, step));
        }
      } else if (what < 96) {  // a message arrives
        const std::string text = std::to_string(step);
        if (Receive* const receive = matching.find(tag))
          ours.emplace_back(matching.take(receive).transfer.id, text);
        else
          keep(matching, tag, text);
        const auto at = std::find_if(naive.receives.begin(), naive.receives.end(), of_tag);
        if (at != naive.receives.end()) {
          expected.emplace_back(at->id, text);
          naive.receives.erase(at);
        } else {
          naive.messages.push_back({tag, text});
        }
      } else if (what < 98) {  // cancel a task
        const std::uint64_t of = random() % 7;
        const auto its = [&](const Transfer& t) { return t.id % 7 == of; };
        matching.cancel(its);
        std::erase_if(naive.receives, its);
      } else {  // drop the unexpected messages of a tag
        matching.drop_if([&](const Matched::Unexpected& one) { return one.tag == tag; });
        std::erase_if(naive.messages, of_tag);
      }
      ASSERT_EQ(ours.size(), expected.size());
      if (!ours.empty()) ASSERT_EQ(ours.back(), expected.back());
      ASSERT_EQ(matching.unexpected(), naive.messages.size());
      ASSERT_EQ(matching.receives().size(), naive.receives.size());
    }
    EXPECT_GT(ours.size(), 500u) << tags << " tags";
  }
}

}  // namespace
}  // namespace weft
