// A peer that says over UCX what it may not say, on a fake UCP. tests/fuzz/ucx_fuzz.cc says
// everything else.
// ctest: alone
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "support/fakes/fake_ucx.h"
#include "support/fakes/forged_job.h"
#include "topo/topology.h"
#include "transport/ucx/transport.h"
#include "transport/ucx/ucx.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::unique_ptr<Transport> rank_0_of_3(const Forge& forge = {}) {
  Nic rail;
  rail.name = rail.netdev = "eth0";
  rail.up = true;
  ForgedJob job(3, forge);
  return make_ucx_transport(job, separate_hosts(3, rail), rail);
}

// A peer's front, with what a test makes of it.
template <class Change>
std::string front(Rank source, std::size_t bytes, Change change) {
  UcxFront f;
  f.source = source;
  f.tag = 5;
  f.bytes = bytes;
  f.headed = 1;
  f.head.sign = 17;
  change(f);
  return {reinterpret_cast<const char*>(&f), sizeof f};
}
std::string front(Rank source, std::size_t bytes = 8) {
  return front(source, bytes, [](UcxFront&) {});
}

class UcxPeer : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_.on_progress = nullptr;
    fake_.slow = false;
    fake_.prompt = true;
    transport_ = rank_0_of_3();
  }
  void TearDown() override { fake_.slow = false; }

  void poll(int times = 3) {
    for (int i = 0; i < times; ++i) {
      Completion out[8];
      const std::size_t n = transport_->poll(out);
      done_.insert(done_.end(), out, out + n);
    }
  }
  void receive(Rank from, void* to, std::size_t bytes, std::uint64_t id) {
    const Transfer t{.kind = Transfer::Kind::kRecv,
                     .peer = from,
                     .tag = 5,
                     .data = to,
                     .bytes = bytes,
                     .id = id,
                     .head = &head_};
    transport_->post({&t, 1});
  }
  // Rank 1 is named and hears no more; rank 2 goes on.
  void expect_end(std::string_view why) {
    poll();
    const Status cause = transport_->cause(1);
    EXPECT_EQ(cause.code(), Code::kTransport);
    EXPECT_EQ(cause.rank(), 1);
    EXPECT_THAT(cause.message(), AllOf(HasSubstr("host1"), HasSubstr(std::string(why))));
    char bytes[8];
    done_.clear();
    receive(1, bytes, sizeof bytes, 70);
    receive(2, bytes, sizeof bytes, 71);
    fake_.arrive(front(1), "no more!");
    fake_.arrive(front(2), "it goes!");
    poll();
    ASSERT_EQ(done_.size(), 2u);
    EXPECT_EQ(done_[0].code, Code::kTransport);
    EXPECT_EQ(done_[1].id, 71u);
    EXPECT_EQ(done_[1].code, Code::kOk);
    EXPECT_EQ(std::string_view(bytes, 8), "it goes!");
    EXPECT_TRUE(transport_->cause(2).ok());
  }

  FakeUcx& fake_ = FakeUcx::get();
  Head head_{.sign = 17};
  std::vector<Completion> done_;
  std::unique_ptr<Transport> transport_;
};

TEST_F(UcxPeer, ThatIsNoRankIsNobody) {
  Head head;
  fake_.arrive(front(3), "12345678");
  fake_.arrive(front(0), "12345678");  // this rank itself
  fake_.arrive(front(-1), "12345678");
  fake_.arrive(front(1, 8, [](UcxFront& f) { f.magic = 1; }), "12345678");
  fake_.arrive("", "12345678");
  fake_.arrive(std::string(15, 'x'), std::string(9000, 'x'));
  poll(8);
  EXPECT_EQ(transport_->unclaimed(kNoRank, 5, 7, head), kNoRank);
  EXPECT_EQ(head.sign, 0u);
  for (const Rank r : {1, 2}) EXPECT_TRUE(transport_->cause(r).ok());
}

TEST_F(UcxPeer, IsNamedByWhatItSent) {
  Head head;
  fake_.arrive(front(2), "12345678");
  poll();
  EXPECT_EQ(transport_->unclaimed(kNoRank, 5, 7, head), 2);
  EXPECT_EQ(head.sign, 17u);
}

TEST_F(UcxPeer, EndsByAWrongLength) {
  fake_.arrive(front(1, 9), "12345678");
  expect_end("an impossible length");
}

TEST_F(UcxPeer, EndsByAWrongLengthOfARendezvous) {
  fake_.arrive(front(1, 1u << 30), std::string(9000, 'x'));
  expect_end("an impossible length");
}

TEST_F(UcxPeer, EndsByAnUnknownKind) {
  fake_.arrive(front(1, 8, [](UcxFront& f) { f.kind = UcxFront::Kind{7}; }), "12345678");
  expect_end("no known kind");
}

TEST_F(UcxPeer, EndsByAnImpossibleHead) {
  fake_.arrive(front(1, 8, [](UcxFront& f) { f.headed = 2; }), "12345678");
  expect_end("an impossible head");
}

TEST_F(UcxPeer, EndsByACutFront) {
  fake_.arrive(front(1).substr(0, 40), "12345678");
  expect_end("a front of an impossible length");
}

TEST_F(UcxPeer, EndsByALongFront) {
  fake_.arrive(front(1) + "x", "12345678");
  expect_end("a front of an impossible length");
}

TEST_F(UcxPeer, EndsTooFarAhead) {
  transport_.reset();
  setenv("WEFT_UNCLAIMED_BYTES", "65536", 1);
  transport_ = rank_0_of_3();
  unsetenv("WEFT_UNCLAIMED_BYTES");
  for (int i = 0; i < 100; ++i) fake_.arrive(front(1, 1000), std::string(1000, 'x'));
  poll(100);
  expect_end("more than 65536 bytes");
}

// Their bytes stay at the peer, but not the book-keeping.
TEST_F(UcxPeer, EndsByRendezvousWithoutEnd) {
  transport_.reset();
  setenv("WEFT_UNCLAIMED_BYTES", "65536", 1);
  transport_ = rank_0_of_3();
  unsetenv("WEFT_UNCLAIMED_BYTES");
  for (int i = 0; i < 1000; ++i) fake_.arrive(front(1, 4096), std::string(4096, 'x'));
  poll(1000);
  expect_end("more than 65536 bytes");
  EXPECT_TRUE(fake_.kept.empty()) << "all of it is released";
}

// Another size than the receive's, however long: not a byte is written.
TEST_F(UcxPeer, SendsWhatNobodyExpects) {
  char bytes[16] = {};
  for (const std::size_t sent : {8u, 9000u}) {
    receive(1, bytes, sizeof bytes, 1);
    fake_.arrive(front(1, sent), std::string(sent, 'x'));
    poll();
    ASSERT_EQ(done_.size(), 1u);
    EXPECT_EQ(done_[0].code, Code::kMismatch);
    EXPECT_EQ(bytes[0], 0);
    EXPECT_TRUE(fake_.kept.empty());
    done_.clear();
  }
}

TEST_F(UcxPeer, WaitsWithARendezvousForItsReceive) {
  std::string bytes(9000, 0);
  Head head;
  fake_.arrive(front(1, 9000), std::string(9000, 'x'));
  poll();
  EXPECT_EQ(fake_.kept.size(), 1u);
  EXPECT_EQ(transport_->unclaimed(1, 5, 7, head), 1);
  receive(1, bytes.data(), bytes.size(), 1);
  poll();
  ASSERT_EQ(done_.size(), 1u);
  EXPECT_EQ(done_[0].code, Code::kOk);
  EXPECT_EQ(bytes, std::string(9000, 'x'));
  fake_.arrive(front(1, 9000), std::string(9000, 'x'));
  poll();
  transport_->forget(5, 7);
  EXPECT_TRUE(fake_.kept.empty());
  EXPECT_EQ(transport_->unclaimed(1, 5, 7, head), kNoRank);
}

// The connection goes, and no other one.
TEST_F(UcxPeer, LosesItsConnectionToACancelHalfDone) {
  std::string bytes(9000, 0);
  char other[8];
  receive(1, bytes.data(), bytes.size(), std::uint64_t{7} << 32);
  receive(2, other, sizeof other, 2);
  fake_.slow = true;
  fake_.arrive(front(1, 9000), std::string(9000, 'x'));
  poll();
  transport_->cancel(7);
  EXPECT_TRUE(std::ranges::none_of(fake_.requests, [&](const auto& r) { return !r.send; }));
  EXPECT_EQ(bytes, std::string(9000, 0));
  EXPECT_EQ(transport_->cause(1).code(), Code::kAborted);
  fake_.arrive(front(2), "it goes!");
  poll();
  ASSERT_EQ(done_.size(), 1u);
  EXPECT_EQ(done_[0].id, 2u);
  EXPECT_EQ(done_[0].code, Code::kOk);
  EXPECT_TRUE(transport_->cause(2).ok());
}

TEST_F(UcxPeer, HearsThatItsConnectionHasEnded) {
  std::string ends;
  char bytes[8];
  receive(1, bytes, sizeof bytes, 1);
  fake_.prompt = false;
  fake_.arrive(front(1, 9), "12345678");
  poll();
  ends = fake_.leave().header;
  UcxFront said;
  ASSERT_EQ(ends.size(), sizeof said);
  std::memcpy(&said, ends.data(), sizeof said);
  EXPECT_EQ(said.kind, UcxFront::Kind::kEnd);
  EXPECT_EQ(said.source, 0);
  fake_.prompt = true;
}

TEST_F(UcxPeer, EndsTheConnection) {
  char bytes[8];
  receive(1, bytes, sizeof bytes, 1);
  fake_.arrive(front(1, 0, [](UcxFront& f) { f.kind = UcxFront::Kind::kEnd; }), "");
  poll();
  ASSERT_EQ(done_.size(), 1u);
  EXPECT_EQ(done_[0].code, Code::kPeerFailed);
  EXPECT_THAT(transport_->cause(1).message(), HasSubstr("it has closed the connection"));
}

TEST(UcxContact, WhoseAddressIsNotWholeIsNamed) {
  for (const std::size_t bytes : {1, 3, 5, 20}) {
    try {
      rank_0_of_3([=](Rank from, const std::string& right) {
        return from == 2 ? right.substr(0, bytes) : right;
      });
      ADD_FAILURE() << "an address of " << bytes << " bytes";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("host2"), HasSubstr("address")));
    }
  }
}

TEST(UcxContact, IsMetWhereItsAddressIsWhole) {
  const auto transport = rank_0_of_3();
  transport->sever(1);
  const std::string address = transport->reopen(1);
  EXPECT_FALSE(transport->meet(1, ""));
  EXPECT_FALSE(transport->meet(1, std::string_view(address).substr(0, 12)));
  std::string wrong = address;
  wrong[10] = static_cast<char>(wrong[10] ^ 1);
  EXPECT_FALSE(transport->meet(1, wrong));
  EXPECT_TRUE(transport->meet(1, address));
}

// What it sent over a connection that has ended is dropped, also after it is met again.
TEST_F(UcxPeer, IsNotHeardOverAConnectionThatHasEnded) {
  char bytes[8] = {};
  receive(1, bytes, sizeof bytes, 1);
  fake_.arrive(front(1), "12345678");
  transport_->sever(1);
  const std::string address = transport_->reopen(1);
  ASSERT_TRUE(transport_->meet(1, address));
  receive(1, bytes, sizeof bytes, 2);
  poll();
  EXPECT_TRUE(done_.empty());
  fake_.arrive(front(1, 0, [](UcxFront& f) { f.kind = UcxFront::Kind::kEnd; }), "");
  poll();
  EXPECT_TRUE(transport_->cause(1).ok()) << "a late end of the connection before";
  fake_.arrive(front(1, 8, [](UcxFront& f) { f.connection = 1; }), "news now");
  poll();
  ASSERT_EQ(done_.size(), 1u);
  EXPECT_EQ(done_[0].id, 2u);
  EXPECT_EQ(std::string_view(bytes, 8), "news now");
}

}  // namespace
}  // namespace weft::testing
