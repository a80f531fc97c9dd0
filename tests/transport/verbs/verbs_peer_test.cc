// A peer sends invalid messages over verbs, on a fake device: the connection ends with its name,
// without other effects. tests/fuzz/verbs_fuzz.cc covers the rest.
// ctest: alone
#include "support/fakes/verbs_peer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/offers.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint32_t kTheirKey = 0x7fff'ffff;

class VerbsPeer : public ::testing::Test {
 protected:
  std::uint64_t post(Transfer::Kind kind, Rank peer, std::uint64_t tag, std::size_t bytes) {
    buffers_.emplace_back(bytes, std::byte(peer));
    Transfer t;
    t.kind = kind;
    t.peer = peer;
    t.tag = tag;
    t.data = buffers_.back().data();
    t.bytes = bytes;
    t.id = ++next_id_ << 32;
    net_->transport->post({&t, 1});
    poll();
    return t.id;
  }
  void poll() {
    Completion out[16];
    for (int i = 0; i < 8; ++i)
      for (std::size_t n = net_->transport->poll(out), k = 0; k < n; ++k)
        codes_[out[k].id] = out[k].code;
  }
  bool over(std::uint64_t id) const { return codes_.contains(id); }

  // The number of the long message that rank 0 has announced to this peer.
  std::uint32_t announced(Rank peer) {
    for (int k = 0; k < VerbsPeers::kQps; ++k)
      for (const FakeVerbs::Request& r : net_->take(peer, k)) {
        VerbsMessageFront front;
        if (r.bytes.size() < sizeof front) continue;
        std::memcpy(&front, r.bytes.data(), sizeof front);
        if (front.what == VerbsMessage::kRts) return front.number;
      }
    ADD_FAILURE() << "nothing announced to rank " << peer;
    return 0;
  }
  void send_cts(Rank peer, std::uint32_t number, std::uint32_t window = 0) {
    VerbsMessageFront front;
    front.what = VerbsMessage::kCts;
    front.number = number & 0x7fffffff;
    ASSERT_TRUE(net_->message(peer, 0, front, VerbsCts{0x1000, kTheirKey, window}));
    poll();
  }
  // The bytes that rank 0 has written into this peer's memory.
  std::string written(Rank peer) {
    std::string all;
    for (int k = 0; k < VerbsPeers::kQps; ++k)
      for (const FakeVerbs::Request& r : net_->take(peer, k))
        if (r.key == kTheirKey) all += r.bytes;
    poll();
    return all;
  }
  bool message(Rank peer, VerbsMessage what, std::uint64_t tag, std::size_t bytes = 8) {
    VerbsMessageFront front;
    front.what = what;
    front.tag = tag;
    front.bytes = bytes;
    const bool there = net_->message(peer, 0, front, std::uint64_t{7});
    poll();
    return there;
  }
  void expect_refused(Rank peer, const std::string& why) {
    const Status cause = net_->transport->cause(peer);
    EXPECT_EQ(cause.code(), Code::kTransport) << cause.to_string();
    EXPECT_EQ(cause.rank(), peer);
    EXPECT_THAT(cause.to_string(), AllOf(HasSubstr("host" + std::to_string(peer)), HasSubstr(why)));
    EXPECT_EQ(net_->pair(peer), nullptr) << "its queue pairs are gone";
    // The other peer still works.
    const Rank other = 3 - peer;
    EXPECT_TRUE(net_->transport->cause(other).ok());
    const std::uint64_t id = post(Transfer::Kind::kRecv, other, 99, 8);
    EXPECT_TRUE(message(other, VerbsMessage::kData, 99));
    EXPECT_EQ(codes_.at(id), Code::kOk);
  }

  std::vector<std::vector<std::byte>> buffers_;
  std::map<std::uint64_t, Code> codes_;
  std::uint64_t next_id_ = 0;
  std::optional<VerbsPeers> net_{3};
};

TEST_F(VerbsPeer, GetsWhatItGranted) {
  const std::uint64_t id = post(Transfer::Kind::kSend, 2, 5, 2500);
  send_cts(2, announced(2));
  EXPECT_EQ(written(2), std::string(2500, '\2'));
  EXPECT_EQ(codes_.at(id), Code::kOk);
}

// The device reads a send's memory until the send's own last write is acknowledged, whatever was
// acknowledged before on the same queue pair.
TEST_F(VerbsPeer, EndsEachSendByItsOwnAcknowledgement) {
  std::uint64_t ids[3];
  std::uint32_t numbers[3];
  for (std::size_t i = 0; i < 3; ++i) {
    ids[i] = post(Transfer::Kind::kSend, 1, 5 + i, 2500);
    numbers[i] = announced(1);
  }
  send_cts(1, numbers[0], 0);  // queue pairs take turns
  send_cts(1, numbers[1], 1);
  net_->take(1, 1);
  poll();
  ASSERT_TRUE(over(ids[1]) && !over(ids[0]));
  send_cts(1, numbers[2], 1);
  FakeVerbs::Request left;
  do {
    ASSERT_TRUE(net_->fake.leave(*net_->pair(1, 0), &left));
  } while (left.opcode != IBV_WR_RDMA_WRITE_WITH_IMM ||
           VerbsImmediate::unpack(left.immediate).kind != VerbsImmediate::Kind::kWindow);
  poll();
  EXPECT_TRUE(over(ids[0]));
  EXPECT_FALSE(over(ids[2])) << "its bytes have not left";
  EXPECT_EQ(written(1), std::string(2500, '\1'));
  EXPECT_TRUE(over(ids[2]));
}

TEST_F(VerbsPeer, DoesNotGetWhatIsForAnother) {
  const std::uint64_t id = post(Transfer::Kind::kSend, 2, 5, 2500);
  const std::uint32_t number = announced(2);
  send_cts(1, number);
  EXPECT_EQ(written(1), "");
  expect_refused(1, "granted what was not announced");
  EXPECT_FALSE(over(id));
  send_cts(2, number);
  EXPECT_EQ(written(2), std::string(2500, '\2'));
  EXPECT_EQ(codes_.at(id), Code::kOk);
}

TEST_F(VerbsPeer, GrantsOnce) {
  const std::uint64_t id = post(Transfer::Kind::kSend, 1, 5, 2500);
  const std::uint32_t number = announced(1);
  send_cts(1, number);
  send_cts(1, number);
  written(1);
  expect_refused(1, "granted what was not announced");
  EXPECT_EQ(codes_.at(id), Code::kTransport);
}

TEST_F(VerbsPeer, GrantsOnlyWindowsThatThereAre) {
  post(Transfer::Kind::kSend, 1, 5, 2500);
  send_cts(1, announced(1), VerbsPeers::kWindows);
  expect_refused(1, "granted what was not announced");
}

TEST_F(VerbsPeer, SaysWhatMakesSense) {
  const std::pair<std::function<void()>, const char*> bad[] = {
      {[&] { message(1, static_cast<VerbsMessage>(4), 1); }, "makes no sense"},
      {[&] { message(1, VerbsMessage::kData, 1, VerbsPeers::kMostInSlot + 1); }, "makes no sense"},
      {[&] { net_->arrive(1, 0, static_cast<VerbsImmediate::Kind>(3), 0); }, "of an unknown kind"},
      {[&] { net_->fake.arrive(*net_->pair(1), 0, false); }, "without immediate data"},
      {[&] { net_->arrive(1, 0, VerbsImmediate::Kind::kMessage, 1); }, "out of order"},
      {[&] { net_->arrive(1, 0, VerbsImmediate::Kind::kWindow, 9999); }, "not granted"},
  };
  for (const auto& [say, why] : bad) {
    SCOPED_TRACE(why);
    net_.reset();
    net_.emplace(3);
    say();
    poll();
    expect_refused(1, why);
  }
}

TEST(VerbsPeers, AreNotEndlesslyAhead) {
  setenv("WEFT_UNEXPECTED_BYTES", "8192", 1);
  VerbsPeers net(2);
  unsetenv("WEFT_UNEXPECTED_BYTES");
  Completion out[1];
  VerbsMessageFront front;
  front.bytes = 8;
  int sent = 0;
  // Messages that forget() has dropped do not count toward the limit.
  for (; sent < 1000; ++sent) {
    front.tag = static_cast<std::uint64_t>(sent);
    ASSERT_TRUE(net.message(1, 0, front, std::uint64_t{7}));
    net.transport->poll(out);
    net.take(1);
    net.transport->forget(0, 0);
  }
  ASSERT_TRUE(net.transport->cause(1).ok()) << net.transport->cause(1).to_string();
  while (sent < 2000 && net.message(1, 0, front, std::uint64_t{7})) {
    ++sent;
    net.transport->poll(out);
    net.take(1);
  }
  EXPECT_LT(sent, 1200);
  EXPECT_THAT(net.transport->cause(1).to_string(),
              AllOf(HasSubstr("host1"), HasSubstr("8192"), HasSubstr("WEFT_UNEXPECTED_BYTES")));
}

// The requests of a long message exceed one post, and the first part fails when the second one
// begins.
TEST(VerbsPeers, AreGivenUpWhenTheDeviceTakesNothing) {
  VerbsPeers net(2, {}, 64);
  std::map<std::uint64_t, int> ended;
  Code code = Code::kOk;
  const auto poll = [&] {
    Completion out[8];
    for (int i = 0; i < 4; ++i)
      for (std::size_t n = net.transport->poll(out), k = 0; k < n; ++k)
        ++ended[out[k].id], code = out[k].code;
  };
  std::vector<std::byte> bytes(17'000);
  Transfer t;
  t.peer = 1;
  t.data = bytes.data();
  const auto send = [&](std::uint64_t tag, std::size_t size) {
    t.tag = tag;
    t.bytes = size;
    t.id = (tag + 1) << 32;
    net.transport->post({&t, 1});
    poll();
  };
  send(5, bytes.size());
  VerbsMessageFront front;
  for (int k = 0; k < VerbsPeers::kQps; ++k)
    for (const FakeVerbs::Request& r : net.take(1, k))
      if (r.bytes.size() >= sizeof front) std::memcpy(&front, r.bytes.data(), sizeof front);
  ASSERT_EQ(front.what, VerbsMessage::kRts);
  front.what = VerbsMessage::kCts;
  ASSERT_TRUE(net.message(1, 0, front, VerbsCts{0x1000, kTheirKey, 0}));
  net.fake.refuse_sends = true;
  poll();
  EXPECT_EQ(ended, (std::map<std::uint64_t, int>{{t.id, 1}}));
  EXPECT_EQ(code, Code::kTransport);
  EXPECT_THAT(net.transport->cause(1).to_string(), HasSubstr("ibv_post_send"));
  // It can reconnect.
  net.fake.refuse_sends = false;
  net.transport->recovery()->disconnect(1);
  const std::string invitation = net.transport->recovery()->reopen(1);
  net.reopened(1, invitation);
  ASSERT_TRUE(net.transport->recovery()->connect(1, invitation));
  for (std::uint64_t tag = 6; tag < 10; ++tag) {
    send(tag, 8);
    for (int k = 0; k < VerbsPeers::kQps; ++k) net.take(1, k);
    poll();
    EXPECT_EQ(ended[t.id], 1);
    EXPECT_EQ(code, Code::kOk);
  }
}

// With several queue pairs, a long message may be granted on one queue pair and arrive on another,
// which then carries nothing else.
TEST(VerbsPeers, FindAReceiveForAllThatTheyMaySend) {
  VerbsPeers net(2);
  std::vector<std::byte> bytes(2500);
  const auto poll = [&] {
    Completion out[8];
    for (int i = 0; i < 4; ++i) net.transport->poll(out);
    std::uint32_t window = VerbsPeers::kWindows;  // granted
    for (int k = 0; k < VerbsPeers::kQps; ++k)
      for (const FakeVerbs::Request& r : net.take(1, k)) {
        VerbsMessageFront front;
        VerbsCts cts;
        if (r.bytes.size() < sizeof front + sizeof cts) continue;
        std::memcpy(&front, r.bytes.data(), sizeof front);
        std::memcpy(&cts, r.bytes.data() + sizeof front, sizeof cts);
        if (front.what == VerbsMessage::kCts) window = cts.window;
        EXPECT_EQ(k, 0) << "granted over the first queue pair";
      }
    return window;
  };
  VerbsMessageFront front;
  front.what = VerbsMessage::kRts;
  front.bytes = bytes.size();
  for (std::uint32_t n = 1; n < 8; ++n) {
    front.number = n;
    while ((front.tag + 1) * 0x9e3779b97f4a7c15u >> 32 & 1) ++front.tag;
    Transfer t{.kind = Transfer::Kind::kRecv,
               .peer = 1,
               .tag = front.tag++,
               .data = bytes.data(),
               .bytes = bytes.size(),
               .id = std::uint64_t{n} << 32};
    net.transport->post({&t, 1});
    front.tag = t.tag;
    ASSERT_TRUE(net.message(1, 0, front, std::uint64_t{0}));
    ++front.tag;
    const std::uint32_t window = poll();
    ASSERT_LT(window, std::uint32_t{VerbsPeers::kWindows});
    ASSERT_TRUE(net.arrive(1, 1, VerbsImmediate::Kind::kWindow, window));
    poll();
  }
  front.what = VerbsMessage::kData;
  front.bytes = 8;
  for (int i = 0; i < VerbsPeers::kSlots; ++i, ++front.tag)
    EXPECT_TRUE(net.message(1, 1, front, std::uint64_t{7})) << "message " << i;
  EXPECT_TRUE(net.transport->cause(1).ok()) << net.transport->cause(1).to_string();
}

// The fabric is at fault, not the arguments: set-up names a port that is down, and the first
// message names an unreachable peer.
TEST(VerbsPeers, AreNamedWhereTheyCannotBeReached) {
  for (const auto& [error, says] : {std::pair(ETIMEDOUT, "MTU"), std::pair(EINVAL, "settings")}) {
    FakeVerbs::get().unreachable = error;
    VerbsPeers net(2, {}, 16, false);
    std::uint64_t word = 0;
    Transfer t;
    t.peer = 1;
    t.data = &word;
    t.bytes = sizeof word;
    t.id = 5;
    net.transport->post({&t, 1});
    net.letter(1, VerbsLetter::kInvite, 0, VerbsPeers::invitation(1));
    Completion out[2];
    std::size_t n = 0;
    for (int i = 0; i < 8 && n == 0; ++i) n = net.transport->poll(out);
    ASSERT_EQ(n, 1U);
    EXPECT_EQ(out[0].code, Code::kTransport);
    EXPECT_THAT(net.transport->cause(1).to_string(),
                AllOf(HasSubstr("rank 1 on host host1"), HasSubstr(says)));
    ASSERT_FALSE(net.mail->sent.empty());
    VerbsLetterFront front;
    std::memcpy(&front, net.mail->sent.back().bytes.data(), sizeof front);
    EXPECT_EQ(front.what, VerbsLetter::kRefuse) << "the peer is told";
    EXPECT_EQ(front.yours, 1U);
  }
  FakeVerbs::get().unreachable = 0;
  FakeVerbs::get().up = false;
  try {
    VerbsPeers net(2);
    ADD_FAILURE() << "reached";
  } catch (const StatusError& error) {
    EXPECT_EQ(error.status().code(), Code::kTransport);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 0 on host host0"), HasSubstr("link up")));
  }
  FakeVerbs::get().up = true;
}

TEST(VerbsPeers, GreetInFull) {
  for (const std::size_t bytes : {0, 1, 10, 20}) {
    try {
      VerbsPeers net(3, [=](Rank from, const std::string& right) {
        return from == 2 ? right.substr(0, bytes) : right;
      });
      ADD_FAILURE() << "a greeting of " << bytes << " bytes";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("host2"));
    }
  }
}

}  // namespace
}  // namespace weft::testing
