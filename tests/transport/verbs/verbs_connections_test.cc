// The first message connects queue pairs, which are closed if places are scarce; and the set-up
// cost of a large job. Uses the fake device.
// ctest: alone
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "coll/schedule/algorithm.h"
#include "support/fakes/verbs_peer.h"
#include "transport/conformance.h"
#include "transport/verbs/connections/letters.h"
#include "transport/verbs/greeting.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Nic fake_rail() {
  Nic rail;
  rail.name = "fake";
  rail.rdma = rail.up = true;
  return rail;
}

class VerbsConnections : public ::testing::Test {
 protected:
  void SetUp() override {
    // Variables that VerbsPeers has set.
    for (const char* variable : {"QPS", "SLOTS", "SLOT_BYTES", "WINDOWS", "SEND_DEPTH"})
      unsetenv((std::string("WEFT_VERBS_") + variable).c_str());
    fake_.wired = true;
    fake_.counts.pairs = 0;
  }
  void TearDown() override {
    fake_.wired = false;
    for (const char* variable : set_) unsetenv(variable);
    EXPECT_TRUE(fake_.pairs.empty());
    EXPECT_TRUE(fake_.regions.empty());
  }
  void set(const char* variable, int value) {
    setenv(variable, std::to_string(value).c_str(), 1);
    set_.push_back(variable);
  }
  static Net net(int n) {
    return Net(make_in_threads(n, [n](Job& job, Rank) {
      return make_verbs_transport(job, separate_hosts(n, fake_rail()), fake_rail());
    }));
  }
  // Sends a message of `bytes` bytes from `a` to `b` and checks it.
  static void pass(Net& net, Rank a, Rank b, std::uint64_t tag, std::size_t bytes) {
    Buffer from(bytes), to(bytes);
    from.fill(tag);
    net[a].send(b, tag, from);
    net[b].recv(a, tag, to);
    ASSERT_TRUE(net.finish());
    EXPECT_TRUE(has_pattern(to.data(), bytes, tag));
  }
  FakeVerbs& fake_ = FakeVerbs::get();
  std::vector<const char*> set_;
};

TEST_F(VerbsConnections, AreMadeByTheFirstMessage) {
  Net four = net(4);
  EXPECT_EQ(fake_.counts.pairs, 0u) << "none at start";
  Buffer waits(8);
  four[3].recv(0, 1, waits);
  four.settle();
  EXPECT_EQ(fake_.counts.pairs, 0u) << "a receive asks for none";
  four[3].give_up();
  pass(four, 1, 2, 5, 300);
  EXPECT_EQ(fake_.counts.pairs, 2u) << "one at each end";
  pass(four, 2, 1, 6, 70'000);
  EXPECT_EQ(fake_.counts.pairs, 2u);
}

// Both ends connect at the same time, repeatedly.
TEST_F(VerbsConnections, AreOneWhereBothEndsBegin) {
  for (std::uint64_t round = 0; round < 20; ++round) {
    Net both = net(2);
    fake_.counts.pairs = 0;
    std::deque<Buffer> buffers;
    for (Rank r = 0; r < 2; ++r) {
      buffers.emplace_back(100).fill(round);
      both[r].send(1 - r, round, buffers.back());
      if (round % 3 == 0) both[r].poll();
      both[r].recv(1 - r, round, buffers.emplace_back(100));
    }
    ASSERT_TRUE(both.finish());
    EXPECT_EQ(fake_.counts.pairs, 2u);
    for (const Buffer& b : buffers) EXPECT_TRUE(has_pattern(b.data(), 100, round));
  }
}

TEST_F(VerbsConnections, GiveTheirPlacesToOthers) {
  set("WEFT_VERBS_CONNECTIONS", 2);
  constexpr int kRanks = 6;
  Net six = net(kRanks);
  std::uint64_t tag = 1;
  for (int round = 0; round < 3; ++round)
    for (Rank a = 0; a < kRanks; ++a)
      for (Rank b = 0; b < kRanks; ++b)
        if (a != b) pass(six, a, b, tag, tag % 2 ? 64 : 90'000), ++tag;
  EXPECT_LE(fake_.pairs.size(), 2u * kRanks);
  EXPECT_GT(fake_.counts.pairs, 4u * kRanks) << "many were closed and made again";
}

// A computing peer answers no letters, and its connection keeps its place.
TEST_F(VerbsConnections, DoNotWaitForAPeerThatDoesNotPoll) {
  set("WEFT_VERBS_CONNECTIONS", 1);
  Net three = net(3);
  pass(three, 0, 1, 1, 64);
  Buffer from(9000), to(9000);
  from.fill(2);
  three[0].send(2, 2, from);
  three[2].recv(0, 2, to);
  for (int i = 0; i < 1'000'000 && !three[2].idle(); ++i) three[0].poll(), three[2].poll();
  ASSERT_TRUE(three[2].idle() && three[2].all_ok());
  EXPECT_TRUE(has_pattern(to.data(), 9000, 2));
  pass(three, 1, 0, 3, 64);
}

// An operation canceled before its peer is connected leaves nothing behind.
TEST_F(VerbsConnections, AreNotMadeForWhatIsGivenUp) {
  Net both = net(2);
  Buffer from(100);
  both[0].send(1, 1, from, 7);
  both[0].cancel(7);
  both.settle();
  EXPECT_EQ(fake_.counts.pairs, 0u);
  pass(both, 0, 1, 2, 100);
}

TEST_F(VerbsConnections, RailsOpenThemAnewWhileOthersWait) {
  set("WEFT_VERBS_CONNECTIONS", 1);
  Net three = net(3);
  pass(three, 0, 1, 1, 64);
  pass(three, 0, 2, 2, 64);
  for (int i = 0; i < 3; ++i) {
    Transport &a = three[0].transport(), &b = three[1].transport();
    a.recovery()->disconnect(1), b.recovery()->disconnect(0);
    std::string mine, theirs;
    ASSERT_TRUE(three.until([&] { return !(mine = a.recovery()->reopen(1)).empty(); }));
    ASSERT_TRUE(three.until([&] { return !(theirs = b.recovery()->reopen(0)).empty(); }));
    ASSERT_TRUE(b.recovery()->connect(0, mine));
    ASSERT_TRUE(a.recovery()->connect(1, theirs));
    pass(three, 1, 0, 10 + static_cast<std::uint64_t>(i), 9000);
    pass(three, 0, 2, 20 + static_cast<std::uint64_t>(i), 9000);
  }
}

// A long message uses all queue pairs of a peer, and completes when every part has arrived.
TEST_F(VerbsConnections, ShareALongMessage) {
  set("WEFT_VERBS_QPS", 4);
  Net both = net(2);
  for (std::uint64_t tag = 1; tag < 8; ++tag) {
    const Rank a = static_cast<Rank>(tag % 2);
    pass(both, a, 1 - a, tag, 260'000 + tag * 70'001);
  }
  EXPECT_EQ(fake_.counts.pairs, 8u);
  for (const FakeVerbs::Pair& p : fake_.pairs) EXPECT_GT(p.wrote, 100'000u);
}

// Short messages request an acknowledgement once per half ring.
TEST_F(VerbsConnections, AskForFewAcknowledgements) {
  Net both = net(2);
  for (std::uint64_t tag = 1; tag <= 320; ++tag) pass(both, 0, 1, tag, 8);
  std::size_t signalled = 0, sent = 0;
  for (const FakeVerbs::Pair& p : fake_.pairs) signalled += p.signalled, sent += p.posted;
  EXPECT_GE(sent, 320u);
  EXPECT_LE(signalled, sent / 8);
}

// ---- device events -------------------------------------------------------------------------

// After the port's address changes, new connections use the new one.
TEST_F(VerbsConnections, GoByThePortsAddressOfNow) {
  fake_.wired = false;
  for (const bool told : {false, true}) {
    VerbsPeers net(2, {}, 16, false);
    fake_.address = 77;
    if (told) {
      ibv_async_event event{};
      event.event_type = IBV_EVENT_GID_CHANGE;
      event.element.port_num = 1;
      fake_.reports.push_back(event);
    }
    Completion out[1];
    for (int i = 0; i < 3000; ++i) net.transport->poll(out);
    net.letter(1, VerbsLetter::kInvite, 0, VerbsPeers::invitation(1));
    net.transport->poll(out);
    ASSERT_FALSE(net.mail->sent.empty());
    const std::string& invite = net.mail->sent.back().bytes;
    EXPECT_EQ(invite.find(std::string("\x0a\0\0\x4d", 4)) != std::string::npos, told);
    fake_.address = 1;
  }
}

// ---- at the size of a cluster --------------------------------------------------------------

// The traffic of a ring all_reduce, over the transports of its rails.
TEST_F(VerbsConnections, OfARingAreTwoPerRank) {
  constexpr int kHosts = 4, kRails = 4, kRanks = kHosts * kRails;
  std::vector<Place> places(kRanks);
  for (int r = 0; r < kRanks; ++r) {
    places[static_cast<std::size_t>(r)].host = "host" + std::to_string(r / kRails);
    places[static_cast<std::size_t>(r)].rails.assign(kRails, fake_rail());
  }
  const Topology topology(places);
  ASSERT_EQ(topology.nrails(), kRails);
  // One transport per rail, by rank.
  std::vector<Endpoints> rails;
  for (int rail = 0; rail < kRails; ++rail)
    rails.push_back(make_in_threads(kRanks, [&](Job& job, Rank r) {
      return make_verbs_transport(job, topology,
                                  topology.place(r).rails[static_cast<std::size_t>(rail)]);
    }));
  std::size_t registered = 0;
  for (const FakeVerbs::Region& r : fake_.regions) registered += r.mr.length;
  EXPECT_LE(registered, kRanks * kVerbsMemory);
  EXPECT_EQ(fake_.counts.pairs, 0u);

  Shape shape;
  shape.nranks = kRanks;
  const Algorithm* const ring = find_algorithm(Collective::kAllReduce, "ring");
  ASSERT_NE(ring, nullptr);
  std::vector<std::byte> chunk(256);
  std::size_t under_way = 0;
  std::map<std::pair<Rank, Rank>, std::uint64_t> sent, received;
  const auto poll = [&] {
    Completion out[16];
    for (Endpoints& rail : rails)
      for (auto& end : rail.ends)
        for (std::size_t n = end->poll(out), k = 0; k < n; ++k) {
          ASSERT_EQ(out[k].code, Code::kOk);
          --under_way;
        }
  };
  for (Rank r = 0; r < kRanks; ++r) {
    shape.rank = r;
    for (const Step& step : ring->build(shape).steps) {
      const bool send = step.op == Op::kSend;
      Transfer t;
      t.kind = send ? Transfer::Kind::kSend : Transfer::Kind::kRecv;
      t.peer = step.peer;
      t.tag = send ? sent[{r, step.peer}]++ : received[{step.peer, r}]++;
      t.data = chunk.data();
      t.bytes = chunk.size();
      t.id = std::uint64_t{1} << 32;
      const int rail = topology.rail(std::min(r, step.peer));
      rails[static_cast<std::size_t>(rail)].ends[static_cast<std::size_t>(r)]->post({&t, 1});
      ++under_way;
    }
  }
  EXPECT_EQ(sent, received);
  for (int i = 0; i < 10'000 && under_way > 0; ++i) poll();
  EXPECT_EQ(under_way, 0u);
  EXPECT_EQ(fake_.counts.pairs, 2u * kRanks) << "and not " << (kRanks - 1) * kRails << " per rank";
}

// One rank of 8,192, and rank 0's share of the greetings before the first message.
TEST_F(VerbsConnections, OfALargeJobTakeLittleMemory) {
  constexpr int kHosts = 1024, kPerHost = 8, kRails = 8, kRanks = kHosts * kPerHost;
  fake_.wired = false;
  std::vector<Place> places(kRanks);
  for (int r = 0; r < kRanks; ++r) {
    places[static_cast<std::size_t>(r)].host = "host" + std::to_string(r / kPerHost);
    places[static_cast<std::size_t>(r)].rails.assign(kRails, fake_rail());
  }
  const Topology topology(std::move(places));
  std::size_t asked = 0;  // bytes that rank 0 receives
  std::vector<std::unique_ptr<Transport>> rails;
  for (int rail = 0; rail < kRails; ++rail) {
    ForgedJob job(kRanks, [&](Rank, std::string right) {
      asked += right.size();
      return right;
    });
    rails.push_back(make_verbs_transport(job, topology, fake_rail()));
    EXPECT_TRUE(job.said_to.empty() || job.said_to[1].size() <= 8) << "what rank 0 answers";
  }
  std::size_t registered = 0;
  for (const FakeVerbs::Region& r : fake_.regions) registered += r.mr.length;
  EXPECT_LE(registered, std::size_t{128} << 20);
  EXPECT_GE(registered, std::size_t{32} << 20) << "other settings than a job's";
  EXPECT_LE(asked, std::size_t{8} << 20);
  EXPECT_GE(asked, std::size_t{kRanks - 1} * kRails) << "nothing was counted";
  RecordProperty("registered_bytes", std::to_string(registered));
  RecordProperty("setup_bytes_at_rank_0", std::to_string(asked));
  std::printf("registered %zu bytes per rank, set-up data %zu bytes at rank 0\n", registered,
              asked);
}

// ---- letters of a peer ----------------------------------------------------------------------

class VerbsLetters : public ::testing::Test {
 protected:
  std::uint64_t send(Rank peer, std::size_t bytes = 8) {
    data_.resize(bytes);
    Transfer t;
    t.peer = peer;
    t.tag = ++tag_;
    t.data = data_.data();
    t.bytes = bytes;
    t.id = tag_ << 32;
    net_.transport->post({&t, 1});
    poll();
    return t.id;
  }
  void poll() {
    Completion out[8];
    for (int i = 0; i < 8; ++i)
      for (std::size_t n = net_.transport->poll(out), k = 0; k < n; ++k)
        codes_[out[k].id] = out[k].code;
  }
  // Rank 0's last letter to the peer.
  VerbsLetterFront last(Rank peer) {
    VerbsLetterFront front;
    front.what = static_cast<VerbsLetter>(99);
    for (const ForgedMail::Sent& sent : net_.mail->sent)
      if (sent.to == peer) std::memcpy(&front, sent.bytes.data(), sizeof front);
    net_.mail->sent.clear();
    return front;
  }
  std::vector<std::byte> data_;
  std::uint64_t tag_ = 0;
  std::map<std::uint64_t, Code> codes_;
  VerbsPeers net_{3, {}, 16, false};
};

TEST_F(VerbsLetters, RefuseAConnection) {
  const std::uint64_t id = send(1);
  const VerbsLetterFront invite = last(1);
  ASSERT_EQ(invite.what, VerbsLetter::kInvite);
  // A refusal of another attempt is ignored.
  net_.letter(1, VerbsLetter::kRefuse, invite.mine + 1, "not this one");
  poll();
  EXPECT_TRUE(net_.transport->cause(1).ok());
  net_.letter(1, VerbsLetter::kRefuse, invite.mine, "its port is down");
  poll();
  EXPECT_EQ(codes_.at(id), Code::kTransport);
  EXPECT_THAT(net_.transport->cause(1).to_string(),
              AllOf(HasSubstr("host1"), HasSubstr("its port is down")));
  EXPECT_TRUE(net_.fake.pairs.empty());
  // A later invitation is answered.
  net_.letter(1, VerbsLetter::kInvite, 0, VerbsPeers::invitation(1));
  poll();
  const VerbsLetterFront answer = last(1);
  EXPECT_EQ(answer.what, VerbsLetter::kRefuse);
  EXPECT_EQ(answer.yours, 1u);
}

// Nothing is sent before the peer has confirmed that it is connected.
TEST_F(VerbsLetters, SayWhenToSend) {
  const std::uint64_t id = send(1);
  const VerbsLetterFront invite = last(1);
  net_.letter(1, VerbsLetter::kInvite, 0, VerbsPeers::invitation(1));  // it has not read that yet
  poll();
  EXPECT_EQ(last(1).what, VerbsLetter::kReady);
  EXPECT_FALSE(codes_.contains(id));
  net_.letter(1, VerbsLetter::kReady, invite.mine);
  poll();
  EXPECT_EQ(codes_.at(id), Code::kOk);
  // Repeated letters change nothing.
  net_.letter(1, VerbsLetter::kInvite, 0, VerbsPeers::invitation(1));
  net_.letter(1, VerbsLetter::kReady, invite.mine);
  poll();
  EXPECT_TRUE(net_.transport->cause(1).ok());
  EXPECT_EQ(last(1).what, static_cast<VerbsLetter>(99));
}

TEST(VerbsInvitations, OfNoSenseEndTheConnection) {
  for (const std::string& text :
       {std::string(), std::string(10, 'x'), std::string(400, 'x'), VerbsPeers::invitation(7)}) {
    VerbsPeers net(2, {}, 16, false);
    Completion out[1];
    net.letter(1, VerbsLetter::kInvite, 0, text);
    net.transport->poll(out);
    EXPECT_THAT(net.transport->cause(1).to_string(), HasSubstr("makes no sense"));
  }
}

// While a transfer is pending, a peer's request to close is refused.
TEST_F(VerbsLetters, DoNotCloseWhatIsInUse) {
  net_.connect(1);
  send(1);
  const std::string none(VerbsPeers::kQps * sizeof(std::uint64_t), '\0');
  const auto close = [&](const std::string& counts) {
    net_.mail->sent.clear();
    net_.letter(1, VerbsLetter::kClose, 1, counts);
    poll();
    return last(1).what;
  };
  EXPECT_EQ(close(none), VerbsLetter::kStay) << "its message is not acknowledged";
  for (int k = 0; k < VerbsPeers::kQps; ++k) net_.take(1, k);
  poll();
  std::string one = none;
  one[0] = 1;
  EXPECT_EQ(close(one), VerbsLetter::kStay) << "a message of the peer is on its way";
  EXPECT_EQ(close(none), VerbsLetter::kClose);
  EXPECT_TRUE(net_.fake.pairs.empty());
  EXPECT_TRUE(net_.transport->cause(1).ok());
  // The next message connects again.
  send(1);
  EXPECT_EQ(last(1).what, VerbsLetter::kInvite);
}

// Both ends want to close, and a message of the peer arrives after its letter.
TEST(VerbsPlaces, AreGivenAwayWhenAllThatWasSentHasCome) {
  setenv("WEFT_VERBS_CONNECTIONS", "1", 1);
  VerbsPeers net(3, {}, 16, false);
  unsetenv("WEFT_VERBS_CONNECTIONS");
  net.connect(1);
  std::uint64_t got = 0, word = 5;
  const Transfer both[] = {
      {.kind = Transfer::Kind::kRecv, .peer = 1, .tag = 5, .data = &got, .bytes = 8, .id = 1},
      {.peer = 2, .tag = 6, .data = &word, .bytes = 8, .id = 2}};
  net.transport->post(both);
  std::vector<Completion> over;
  const auto poll = [&] {
    Completion out[8];
    for (int i = 0; i < 8; ++i) over.insert(over.end(), out, out + net.transport->poll(out));
  };
  const auto said = [&](Rank to, VerbsLetter what) {
    return std::ranges::any_of(net.mail->sent, [&](const ForgedMail::Sent& sent) {
      VerbsLetterFront front;
      std::memcpy(&front, sent.bytes.data(), sizeof front);
      return sent.to == to && front.what == what;
    });
  };
  poll();
  EXPECT_FALSE(said(1, VerbsLetter::kMustClose)) << "a receive waits";
  for (int i = 0; i < 3000 && !said(1, VerbsLetter::kMustClose); ++i) poll();
  ASSERT_TRUE(said(1, VerbsLetter::kMustClose)) << "rank 2 needs the only place";
  std::string counts(VerbsPeers::kQps * sizeof(std::uint64_t), '\0');
  counts[0] = 1;
  net.letter(1, VerbsLetter::kClose, 1, counts);
  poll();
  ASSERT_NE(net.pair(1), nullptr) << "a message is on its way";
  VerbsMessageFront front;
  front.what = VerbsMessage::kData;
  front.tag = 5;
  front.bytes = 8;
  ASSERT_TRUE(net.message(1, 0, front, std::uint64_t{7}));
  poll();
  ASSERT_EQ(over.size(), 1u);
  EXPECT_EQ(over[0].code, Code::kOk);
  EXPECT_EQ(got, 7u);
  EXPECT_EQ(net.pair(1), nullptr);
  EXPECT_TRUE(said(2, VerbsLetter::kInvite));
}

// A peer that reconnected by way of rails may want to close before this rank has reconnected.
TEST_F(VerbsLetters, OfAnotherConnectionDoNotCloseThisOne) {
  net_.connect(1);
  net_.letter(1, VerbsLetter::kClose, 1, std::string(VerbsPeers::kQps * sizeof(std::uint64_t), 0),
              2);
  poll();
  const VerbsLetterFront answer = last(1);
  EXPECT_EQ(answer.what, VerbsLetter::kStay);
  EXPECT_EQ(answer.yours, 2u) << "so that the peer goes on";
  EXPECT_NE(net_.pair(1), nullptr);
}

TEST_F(VerbsLetters, OfNoSenseAreNothing) {
  net_.mail->coming.push_back({1, ""});
  net_.mail->coming.push_back({1, "short"});
  net_.mail->coming.push_back({0, std::string(100, 'x')});
  net_.mail->coming.push_back({77, std::string(100, 'x')});
  net_.letter(2, static_cast<VerbsLetter>(50), 1);
  net_.letter(2, VerbsLetter::kReady, 0);
  net_.letter(2, VerbsLetter::kStay, 0);
  net_.letter(2, VerbsLetter::kClose, 0, "abc");
  poll();
  EXPECT_TRUE(net_.transport->cause(1).ok());
  EXPECT_TRUE(net_.transport->cause(2).ok());
  EXPECT_TRUE(net_.fake.pairs.empty());
}

}  // namespace
}  // namespace weft::testing
