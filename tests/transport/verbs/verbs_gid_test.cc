// The choice of GIDs, the settings, and the texts of failed completions, without a device.
// ctest: alone
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "topo/base/status.h"
#include "transport/loaded/loaded.h"
#include "transport/verbs/device.h"
#include "transport/verbs/gid.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/settings.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

GidBytes ipv4(std::uint8_t a, std::uint8_t b, std::uint8_t c, std::uint8_t d) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d};
}
GidBytes ipv6(std::uint8_t first, std::uint8_t second, std::uint8_t last) {
  GidBytes g{};
  g[0] = first, g[1] = second, g[15] = last;
  return g;
}
Gid gid(GidType type, int index, const GidBytes& bytes) {
  return {kind_of(type, bytes), index, bytes};
}
// The table of a Soft-RoCE or ConnectX port: each address as RoCE v1 and as RoCE v2.
std::vector<Gid> port(std::uint8_t host, int shift = 0) {
  return {gid(GidType::kRoce1, shift + 0, ipv6(0xfe, 0x80, host)),
          gid(GidType::kRoce2, shift + 1, ipv6(0xfe, 0x80, host)),
          gid(GidType::kRoce1, shift + 2, ipv4(10, 0, 0, host)),
          gid(GidType::kRoce2, shift + 3, ipv4(10, 0, 0, host))};
}

VerbsPort infiniband() {
  VerbsPort p;
  p.lid = 7;
  p.mtu = 4096;
  p.ethernet = false;
  return p;
}

TEST(VerbsGid, KindsAreToldFromTypeAndBytes) {
  EXPECT_EQ(kind_of(GidType::kRoce2, ipv4(10, 0, 0, 1)), GidKind::kRoce2Ipv4);
  EXPECT_EQ(kind_of(GidType::kRoce2, ipv6(0xfe, 0x80, 1)), GidKind::kRoce2Local);
  EXPECT_EQ(kind_of(GidType::kRoce2, ipv6(0xfe, 0xbf, 1)), GidKind::kRoce2Local);
  EXPECT_EQ(kind_of(GidType::kRoce2, ipv6(0xfe, 0xc0, 1)), GidKind::kRoce2Ipv6);
  EXPECT_EQ(kind_of(GidType::kRoce2, ipv6(0x20, 0x01, 1)), GidKind::kRoce2Ipv6);
  EXPECT_EQ(kind_of(GidType::kRoce1, ipv4(10, 0, 0, 1)), GidKind::kRoce1);
  EXPECT_EQ(kind_of(GidType::kInfiniBand, ipv6(0xfe, 0x80, 1)), GidKind::kInfiniBand);
  EXPECT_EQ(to_string(ipv4(10, 0, 1, 2)), "10.0.1.2");
  EXPECT_EQ(to_string(ipv6(0xfe, 0x80, 1)), "fe80:0000:0000:0000:0000:0000:0000:0001");
}

TEST(VerbsGid, APacketToAnotherSubnetIsRouted) {
  VerbsPort here = infiniband(), there = here;
  here.gids = {gid(GidType::kInfiniBand, 0, ipv6(0xfe, 0x80, 1))};
  there.gids = {gid(GidType::kInfiniBand, 0, ipv6(0xfe, 0x80, 2))};
  EXPECT_FALSE(verbs_path(here, there, "here").global);
  there.gids[0].bytes[7] = 1;  // another subnet prefix
  EXPECT_TRUE(verbs_path(here, there, "here").global);
  EXPECT_TRUE(verbs_path(there, here, "there").global);
}

// A peer's LID belongs to its own subnet. Subnet managers of routed subnets put the plain address
// at index 0, and the address with the LID that routers know at index 1.
TEST(VerbsGid, ToAnotherSubnetGoesTheLidThatRoutersKnow) {
  const auto address = [](std::uint8_t subnet, std::uint16_t lid, std::uint8_t last) {
    GidBytes g = ipv6(0xfe, 0xc0, last);
    g[4] = static_cast<std::uint8_t>(lid >> 8), g[5] = static_cast<std::uint8_t>(lid);
    g[7] = subnet;
    return g;
  };
  const auto at = [&](std::uint8_t subnet, std::uint16_t lid, std::uint8_t last) {
    VerbsPort p = infiniband();
    p.gids = {gid(GidType::kInfiniBand, 0, address(subnet, 0, last)),
              gid(GidType::kInfiniBand, 1, address(subnet, lid, last))};
    return p;
  };
  const VerbsPort a = at(1, 0xb011, 1), b = at(2, 0xb022, 2), c = at(1, 0xb013, 3);
  const VerbsPath there = verbs_path(a, b, "a"), back = verbs_path(b, a, "b");
  EXPECT_TRUE(there.global && back.global);
  EXPECT_EQ(there.lid, 0xb022);
  EXPECT_EQ(back.lid, 0xb011);
  EXPECT_EQ(there.mine.index, 1);
  EXPECT_EQ(there.theirs.bytes, back.mine.bytes);
  const VerbsPath near = verbs_path(a, c, "a");  // same subnet: no router
  EXPECT_FALSE(near.global);
  EXPECT_EQ(near.lid, 7);
  VerbsPort one = a, other = c;  // WEFT_VERBS_GID_INDEX=1
  one.gids.erase(one.gids.begin());
  other.gids.erase(other.gids.begin());
  EXPECT_FALSE(verbs_path(one, other, "a").global);
}

TEST(VerbsPartition, FullMembersFirst) {
  const std::vector<std::uint16_t> table = {0x7fff, 0, 0x0001, 0x8001, 0x8002};
  EXPECT_EQ(choose_pkey(table, 0), 3);
  EXPECT_EQ(choose_pkey(table, 0x0002), 4);
  EXPECT_EQ(choose_pkey(table, 0x8001), 3) << "the full membership of it";
  EXPECT_EQ(choose_pkey(table, 0xffff), 0) << "a limited one, where there is no other";
  EXPECT_EQ(choose_pkey(table, 0x8003), -1);
  EXPECT_EQ(choose_pkey(std::vector<std::uint16_t>{0, 0x7fff, 0}, 0), 1);
  EXPECT_EQ(choose_pkey({}, 0), -1);
}

TEST(VerbsPartition, EndsInDifferentOnesAreNamed) {
  VerbsPort here = infiniband(), there = VerbsPort::decode(here.encode());
  EXPECT_EQ(there.pkey, kEveryPartition);
  here.pkey = 0x8001;
  there.pkey = 0x0001;
  EXPECT_EQ(verbs_path(here, VerbsPort::decode(there.encode()), "here").lid, 7);
  for (const std::uint16_t mine : {std::uint16_t{0x0001}, std::uint16_t{0x8002}}) {
    here.pkey = mine;
    try {
      verbs_path(here, VerbsPort::decode(there.encode()), "device ib0 port 1");
      ADD_FAILURE() << "they cannot hear each other";
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), AllOf(HasSubstr("device ib0 port 1"), HasSubstr("0x0001"),
                                  HasSubstr("WEFT_VERBS_PKEY")));
    }
  }
}

TEST(VerbsPartition, TheSettingIsAKey) {
  setenv("WEFT_VERBS_PKEY", "0x8001", 1);
  EXPECT_EQ(verbs_settings().pkey, 0x8001);
  for (const char* wrong : {"", "1", "0x", "0x8000", "0x18001", "0x80g1"}) {
    setenv("WEFT_VERBS_PKEY", wrong, 1);
    EXPECT_THROW((void)verbs_settings(), Error) << wrong;
  }
  unsetenv("WEFT_VERBS_PKEY");
  EXPECT_EQ(verbs_settings().pkey, 0);
}

TEST(VerbsGid, TheSameKindOnBothSidesWhateverTheIndices) {
  const auto a = candidates(port(1)), b = candidates(port(2, 4));
  const auto ab = agree(a, b), ba = agree(b, a);
  ASSERT_TRUE(ab && ba);
  EXPECT_EQ(ab->mine.kind, GidKind::kRoce2Ipv4);
  EXPECT_EQ(ab->mine.index, 3);
  EXPECT_EQ(ab->theirs.index, 7);
  EXPECT_EQ(ba->mine.bytes, ab->theirs.bytes);
  EXPECT_EQ(ba->theirs.bytes, ab->mine.bytes);
}

TEST(VerbsGid, WithoutACommonIpv4TheNextKindIsTaken) {
  std::vector<Gid> no_ipv4 = port(2);
  no_ipv4.pop_back();
  const auto pair = agree(candidates(port(1)), candidates(no_ipv4));
  ASSERT_TRUE(pair);
  EXPECT_EQ(pair->mine.kind, GidKind::kRoce2Local);
  EXPECT_EQ(pair->theirs.kind, GidKind::kRoce2Local);
  const std::vector<Gid> one = {gid(GidType::kRoce2, 1, ipv4(10, 0, 0, 1))};
  const std::vector<Gid> other = {gid(GidType::kRoce1, 0, ipv4(10, 0, 0, 2))};
  EXPECT_FALSE(agree(one, other));
  EXPECT_FALSE(agree(one, {}));
}

TEST(VerbsGid, OfSeveralSubnetsTheCommonOneAndTheSamePairOnBothSides) {
  const std::vector<Gid> a = {gid(GidType::kRoce2, 1, ipv4(192, 168, 7, 1)),
                              gid(GidType::kRoce2, 3, ipv4(10, 0, 0, 1))};
  const std::vector<Gid> b = {gid(GidType::kRoce2, 1, ipv4(10, 0, 0, 2)),
                              gid(GidType::kRoce2, 9, ipv4(172, 16, 0, 2))};
  EXPECT_EQ(agree(a, b)->mine.index, 3);
  EXPECT_EQ(agree(a, b)->theirs.index, 1);
  EXPECT_EQ(agree(b, a)->mine.index, 1);
  EXPECT_EQ(agree(b, a)->theirs.index, 3);
  // Without a common subnet and with equal prefixes, both ends still choose each other's GID.
  const std::vector<Gid> c = {gid(GidType::kRoce2, 5, ipv4(10, 1, 0, 3)),
                              gid(GidType::kRoce2, 2, ipv4(10, 1, 1, 3))};
  const std::vector<Gid> d = {gid(GidType::kRoce2, 8, ipv4(10, 2, 0, 4)),
                              gid(GidType::kRoce2, 7, ipv4(10, 2, 9, 4))};
  EXPECT_EQ(agree(c, d)->mine.bytes, agree(d, c)->theirs.bytes);
  EXPECT_EQ(agree(c, d)->theirs.bytes, agree(d, c)->mine.bytes);
}

TEST(VerbsGid, TheBestKindsAreSent) {
  std::vector<Gid> many;
  for (int i = 0; i < 20; ++i)
    many.push_back(gid(GidType::kRoce1, i, ipv4(10, 0, 1, static_cast<std::uint8_t>(i))));
  many.push_back(gid(GidType::kRoce2, 20, ipv4(10, 0, 0, 1)));
  const auto few = candidates(many);
  ASSERT_EQ(few.size(), kMostGids);
  EXPECT_EQ(few[0].index, 20);
  EXPECT_EQ(few[1].index, 0);
  EXPECT_THAT(describe(few), HasSubstr("RoCE v2 IPv4 10.0.0.1 (index 20)"));
  EXPECT_EQ(describe({}), "none");
}

TEST(VerbsGid, APortSurvivesTheWire) {
  VerbsPort port;
  port.lid = 17, port.mtu = 4096, port.ethernet = false;
  port.gids = candidates(weft::port(9));
  const VerbsPort back = VerbsPort::decode(port.encode());
  EXPECT_EQ(back.lid, 17);
  EXPECT_EQ(back.mtu, 4096);
  EXPECT_FALSE(back.ethernet);
  EXPECT_EQ(describe(back.gids), describe(port.gids));
  EXPECT_THROW(VerbsPort::decode("short"), Error);
  std::string bad = port.encode();
  bad[0] ^= 1;
  EXPECT_THROW(VerbsPort::decode(bad), Error);
}

// Otherwise, on an old kernel, a forked child leaves the NIC with pages that no longer belong to
// this process.
TEST(VerbsForks, AreKnownToTheLibrary) {
  (void)verbs_devices();
  EXPECT_NE(ibv_is_fork_initialized(), IBV_FORK_DISABLED);
}

TEST(VerbsCause, NamesTheStatusAndWhatToLookFor) {
  ASSERT_TRUE(verbs_library()) << verbs_library().why_not();
  const std::string retry = verbs_cause(IBV_WC_RETRY_EXC_ERR);
  EXPECT_THAT(retry, HasSubstr("status 12"));
  EXPECT_THAT(retry, HasSubstr("the peer stopped acknowledging"));
  EXPECT_THAT(retry, HasSubstr("link down, wrong GID or ACL"));
  EXPECT_THAT(verbs_cause(IBV_WC_REM_ACCESS_ERR, 0x88), HasSubstr("vendor 0x88"));
  EXPECT_THAT(verbs_cause(IBV_WC_RNR_RETRY_EXC_ERR), HasSubstr("status 13"));
  for (int s = 1; s <= IBV_WC_GENERAL_ERR; ++s)
    EXPECT_GT(verbs_cause(static_cast<ibv_wc_status>(s)).size(), 30u) << s;
}

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

std::string refusal() {
  try {
    verbs_settings();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(VerbsSettings, AreReadAndChecked) {
  EXPECT_EQ(verbs_settings().retry_count, 6);
  {
    const Variable dscp("WEFT_VERBS_DSCP", "26");
    EXPECT_EQ(verbs_settings().traffic_class, 104);
    const Variable both("WEFT_VERBS_TRAFFIC_CLASS", "8");
    EXPECT_THAT(refusal(), HasSubstr("contradicts"));
  }
  {
    const Variable mtu("WEFT_VERBS_MTU", "1500");
    EXPECT_THAT(refusal(), HasSubstr("WEFT_VERBS_MTU=1500"));
  }
  {
    const Variable retry("WEFT_VERBS_RETRY_COUNT", "8");
    EXPECT_THAT(refusal(), HasSubstr("WEFT_VERBS_RETRY_COUNT"));
  }
  EXPECT_EQ(slot_bytes_for(2.5) % 64, 0u);
  EXPECT_GT(slot_bytes_for(2.5), slot_bytes_for(400));
  const Variable slot("WEFT_VERBS_SLOT_BYTES", "1000");
  EXPECT_THAT(refusal(), HasSubstr("WEFT_VERBS_SLOT_BYTES=1000"));
}

TEST(VerbsDevices, OneThatIsNotThereIsNamed) {
  try {
    VerbsDevice device("no_such_device");
    FAIL();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("'no_such_device'"));
  }
}

}  // namespace
}  // namespace weft
