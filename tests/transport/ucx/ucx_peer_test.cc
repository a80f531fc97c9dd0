// A peer sends invalid messages over UCX, on a fake UCP. tests/fuzz/ucx_fuzz.cc covers the rest.
// ctest: alone
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "support/fakes/fake_device.h"
#include "support/fakes/fake_ucx.h"
#include "support/fakes/forged_job.h"
#include "topo/topology.h"
#include "transport/offers.h"
#include "transport/ucx/ucx.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kTagBits = 62;  // of three ranks: two bits above are the source

std::unique_ptr<Transport> rank_0_of_3(const Forge& forge = {}) {
  Nic rail;
  rail.name = rail.netdev = "eth0";
  rail.up = true;
  ForgedJob job(3, forge);
  return make_ucx_transport(job, separate_hosts(3, rail), rail);
}

std::string headed(std::uint64_t sign) {
  constexpr std::uint64_t kMagic = 0x7765'6674'4865'6164;
  Head head;
  head.sign = sign;
  std::string text(reinterpret_cast<const char*>(&kMagic), sizeof kMagic);
  return text.append(reinterpret_cast<const char*>(&head), sizeof head) + "12345678";
}

TEST(UcxPeer, ThatIsNoRankIsNobody) {
  const auto transport = rank_0_of_3();
  Completion out[1];
  Head head;
  FakeUcx::get().arrive(ucp_tag_t{3} << kTagBits | 5, headed(1));
  transport->poll(out);
  EXPECT_EQ(transport->unexpected(kNoRank, 5, 7, head), kNoRank);
  EXPECT_EQ(head.sign, 0u);
}

TEST(UcxPeer, IsNamedByWhatItSent) {
  const auto transport = rank_0_of_3();
  Completion out[1];
  Head head;
  FakeUcx::get().arrive(ucp_tag_t{2} << kTagBits | 5, headed(17));
  transport->poll(out);
  EXPECT_EQ(transport->unexpected(kNoRank, 5, 7, head), 2);
  EXPECT_EQ(head.sign, 17u);
}

TEST(UcxPeer, WhoseAddressIsNotWholeIsNamed) {
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

TEST(UcxPeer, IsMetWhereItsAddressIsWhole) {
  const auto transport = rank_0_of_3();
  transport->recovery()->disconnect(1);
  const std::string address = transport->recovery()->reopen(1);
  EXPECT_FALSE(transport->recovery()->connect(1, ""));
  EXPECT_FALSE(transport->recovery()->connect(1, std::string_view(address).substr(0, 12)));
  std::string wrong = address;
  wrong[10] = static_cast<char>(wrong[10] ^ 1);
  EXPECT_FALSE(transport->recovery()->connect(1, wrong));
  EXPECT_TRUE(transport->recovery()->connect(1, address));
}

// Messages of an ended connection are dropped before reconnecting.
TEST(UcxPeer, IsNotDroppedForEver) {
  FakeUcx& fake = FakeUcx::get();
  const auto transport = rank_0_of_3();
  std::byte byte{};
  Transfer t;
  t.kind = Transfer::Kind::kRecv;
  t.peer = 1;
  t.data = &byte;
  t.bytes = 1;
  transport->post({&t, 1});
  fake.lose(fake.endpoints.front());
  transport->recovery()->disconnect(1);
  const std::string address = transport->recovery()->reopen(1);
  fake.slow = true;
  fake.on_progress = [&] { fake.arrive(ucp_tag_t{1} << kTagBits | 5, headed(1)); };
  EXPECT_FALSE(transport->recovery()->connect(1, address));
  fake.on_progress = nullptr;
  fake.slow = false;
}

// A posted receive belongs to no connection: UCX alone would let it wait forever.
TEST(UcxPeer, ThatIsGoneEndsTheReceivesThatWaitForIt) {
  FakeUcx& fake = FakeUcx::get();
  const auto transport = rank_0_of_3();
  char gone[8], there[] = "untouched";
  Transfer t{.kind = Transfer::Kind::kRecv, .peer = 1, .tag = 5, .data = gone, .bytes = 8, .id = 1};
  transport->post({&t, 1});
  t.peer = 2;
  t.data = there;
  t.id = 2;
  transport->post({&t, 1});
  fake.lose(fake.endpoints.front());
  Completion out[2];
  ASSERT_EQ(transport->poll(out), 1u);
  EXPECT_EQ(out[0].id, 1u);
  EXPECT_EQ(out[0].code, Code::kPeerFailed);
  EXPECT_EQ(transport->cause(1).rank(), 1);
  EXPECT_THAT(transport->cause(1).message(), HasSubstr("connection lost"));
  EXPECT_TRUE(transport->cause(2).ok());
  fake.arrive(ucp_tag_t{2} << kTagBits | 5, "from two");
  ASSERT_EQ(transport->poll(out), 1u);
  EXPECT_EQ(out[0].id, 2u);
  EXPECT_EQ(out[0].code, Code::kOk);
  EXPECT_STREQ(there, "from twod");
}

// A canceled receive's memory is not written, even if its message was being received; the message
// remains for the next receive.
TEST(UcxPeer, WhoseMessageWasBeingTakenWritesToNoReceiveThatIsGivenUp) {
  FakeUcx& fake = FakeUcx::get();
  const auto transport = rank_0_of_3();
  Completion out[2];
  Head head;
  fake.slow = true;
  fake.arrive(ucp_tag_t{1} << kTagBits | 5, headed(17));
  EXPECT_EQ(transport->poll(out), 0u);
  EXPECT_EQ(transport->unexpected(1, 5, ~std::uint64_t{0}, head), kNoRank) << "bytes are to come";
  head.sign = 17;
  std::string given_up = "given up", later(8, ' ');
  Transfer t{.kind = Transfer::Kind::kRecv,
             .peer = 1,
             .tag = 5,
             .data = given_up.data(),
             .bytes = 8,
             .id = std::uint64_t{7} << 32,
             .head = &head};
  transport->post({&t, 1});
  transport->cancel(7);
  EXPECT_EQ(transport->poll(out), 0u);
  fake.slow = false;
  EXPECT_EQ(given_up, "given up");
  t.data = later.data();
  t.id = std::uint64_t{8} << 32;
  transport->post({&t, 1});
  ASSERT_EQ(transport->poll(out), 1u);
  EXPECT_EQ(out[0].id, t.id);
  EXPECT_EQ(out[0].code, Code::kOk);
  EXPECT_EQ(later, "12345678");
}

// ---- GPU memory ----------------------------------------------------------------------------

class UcxGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    gpus_ = &use_fake_device();
    fake_.cuda = true;
    fake_.reach_memory = [this](void* memory) {
      return gpus_->residence(memory).kind == MemoryKind::kDevice ? gpus_->local(memory) : memory;
    };
    transport_ = rank_0_of_3();
    memory_ = gpus_->alloc(1, 64);
    std::memcpy(gpus_->local(memory_), "what the GPU has", 16);
  }
  void TearDown() override {
    transport_.reset();
    gpus_->free(memory_);
    fake_.cuda = false;
    fake_.reach_memory = nullptr;
  }
  Completion post(Transfer::Kind kind, void* data, std::uint64_t bytes, bool sums = false) {
    head_.sign = 7;
    const Transfer t{.kind = kind,
                     .sums = sums,
                     .peer = 1,
                     .tag = 5,
                     .data = data,
                     .bytes = bytes,
                     .id = ++id_,
                     .head = &head_};
    transport_->post({&t, 1});
    Completion out[1];
    return transport_->poll(out) == 1 ? out[0] : Completion{};
  }
  Completion poll() {
    Completion out[1];
    for (int i = 0; i < 4; ++i)
      if (transport_->poll(out) == 1) return out[0];
    return {};
  }
  std::string on_gpu() { return {static_cast<const char*>(gpus_->local(memory_)), 16}; }

  FakeDevice* gpus_ = nullptr;
  FakeUcx& fake_ = FakeUcx::get();
  std::unique_ptr<Transport> transport_;
  void* memory_ = nullptr;
  Head head_;
  std::uint64_t id_ = 0;
};

TEST_F(UcxGpu, GoesToUcxAsItIsAndWithoutAHead) {
  EXPECT_TRUE(transport_->caps().cuda);
  post(Transfer::Kind::kSend, memory_, 16);
  ASSERT_EQ(fake_.requests.size(), 1u);
  EXPECT_EQ(fake_.requests.front().param.memory_type, UCS_MEMORY_TYPE_CUDA);
  EXPECT_EQ(fake_.leave(), "what the GPU has");
  EXPECT_EQ(poll().code, Code::kOk);
  char host[16] = "of the host";
  post(Transfer::Kind::kSend, host, 16);
  EXPECT_EQ(fake_.requests.front().param.memory_type, UCS_MEMORY_TYPE_HOST);
  EXPECT_GT(fake_.leave().size(), 16u) << "a head goes with memory of the host";
}

TEST_F(UcxGpu, TakesAMessageFirstOrLast) {
  post(Transfer::Kind::kRecv, memory_, 16);
  fake_.arrive(ucp_tag_t{1} << kTagBits | 5, "comes afterwards");
  EXPECT_EQ(poll().code, Code::kOk);
  EXPECT_EQ(on_gpu(), "comes afterwards");
  fake_.arrive(ucp_tag_t{1} << kTagBits | 5, "had come before!");
  poll();
  const Completion done = post(Transfer::Kind::kRecv, memory_, 16);
  EXPECT_EQ((done.id ? done : poll()).code, Code::kOk);
  EXPECT_EQ(on_gpu(), "had come before!");
}

// unexpected() has taken the message from UCX, into memory of the host.
TEST_F(UcxGpu, TakesAMessageThatWasLookedAt) {
  fake_.arrive(ucp_tag_t{1} << kTagBits | 5, "was looked at 01");
  poll();
  Head theirs;
  EXPECT_EQ(transport_->unexpected(1, 5, ~std::uint64_t{0}, theirs), kNoRank) << "it has no head";
  const Completion done = post(Transfer::Kind::kRecv, memory_, 16);
  EXPECT_EQ(done.id, id_);
  EXPECT_EQ(done.code, Code::kOk);
  EXPECT_EQ(on_gpu(), "was looked at 01");
}

TEST_F(UcxGpu, AMessageOfAnotherLengthIsADispute) {
  post(Transfer::Kind::kRecv, memory_, 32);
  fake_.arrive(ucp_tag_t{1} << kTagBits | 5, std::string(20, 'x'));
  EXPECT_EQ(poll().code, Code::kMismatch);
  EXPECT_THAT(transport_->cause(1).message(), HasSubstr("20 bytes where 32"));
}

TEST_F(UcxGpu, HasNoSums) {
  const Completion done = post(Transfer::Kind::kSend, memory_, 16, true);
  EXPECT_EQ(done.code, Code::kInvalidArgument);
  EXPECT_THAT(transport_->cause(1).message(),
              HasSubstr("checksums are not supported for GPU memory"));
}

TEST_F(UcxGpu, IsNotTakenByAUcxWithoutCuda) {
  transport_.reset();
  fake_.cuda = false;
  transport_ = rank_0_of_3();
  EXPECT_FALSE(transport_->caps().cuda);
}

}  // namespace
}  // namespace weft::testing
