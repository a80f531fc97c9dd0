// A peer that says over UCX what it may not say, on a fake UCP. tests/fuzz/ucx_fuzz.cc says
// everything else.
// ctest: alone
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "support/fakes/fake_ucx.h"
#include "support/fakes/forged_job.h"
#include "topo/topology.h"
#include "transport/ucx/ucx.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kTagBits = 62;  // of three ranks: a source of two bits is above

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
  EXPECT_EQ(transport->unclaimed(kNoRank, 5, 7, head), kNoRank);
  EXPECT_EQ(head.sign, 0u);
}

TEST(UcxPeer, IsNamedByWhatItSent) {
  const auto transport = rank_0_of_3();
  Completion out[1];
  Head head;
  FakeUcx::get().arrive(ucp_tag_t{2} << kTagBits | 5, headed(17));
  transport->poll(out);
  EXPECT_EQ(transport->unclaimed(kNoRank, 5, 7, head), 2);
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
  transport->sever(1);
  const std::string address = transport->reopen(1);
  EXPECT_FALSE(transport->meet(1, ""));
  EXPECT_FALSE(transport->meet(1, std::string_view(address).substr(0, 12)));
  std::string wrong = address;
  wrong[10] = static_cast<char>(wrong[10] ^ 1);
  EXPECT_FALSE(transport->meet(1, wrong));
  EXPECT_TRUE(transport->meet(1, address));
}

// What it sent over a connection that has ended is dropped before it is met again.
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
  transport->sever(1);
  const std::string address = transport->reopen(1);
  fake.slow = true;
  fake.on_progress = [&] { fake.arrive(ucp_tag_t{1} << kTagBits | 5, headed(1)); };
  EXPECT_FALSE(transport->meet(1, address));
  fake.on_progress = nullptr;
  fake.slow = false;
}

}  // namespace
}  // namespace weft::testing
