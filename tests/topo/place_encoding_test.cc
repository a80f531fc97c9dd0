// The text form of a Place: round trips, and errors for garbage.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "topo/topology.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

Place example() {
  Place place;
  place.host = "node \"7\" \n ü";
  place.machine = "boot:1:0";
  place.leaf = "leaf 3";
  place.numa_node = 1;
  place.gpu = "0000:3a:00.0";
  Nic nic;
  nic.name = "mlx5_0";
  nic.rdma = true;
  nic.netdev = "eth0";
  nic.pci = "0000:3b:00.0";
  nic.numa_node = 0;
  nic.rate_gbps = 0.4;
  nic.from_gpu = 4;
  nic.address = "10.0.0.1";
  nic.ipv6 = "fd00::1";
  nic.up = true;
  place.rails = {nic, Nic()};
  place.rails[1].name = "lo";
  return place;
}

std::string decode_error(const std::string& text) {
  try {
    decode_place(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(PlaceEncoding, RoundTrip) {
  const Place before = example();
  const Place after = decode_place(encode(before));
  EXPECT_EQ(after.host, before.host);
  EXPECT_EQ(after.machine, before.machine);
  EXPECT_EQ(after.leaf, before.leaf);
  EXPECT_EQ(after.numa_node, before.numa_node);
  EXPECT_EQ(after.gpu, before.gpu);
  ASSERT_EQ(after.rails.size(), before.rails.size());
  for (std::size_t i = 0; i < before.rails.size(); ++i) {
    EXPECT_EQ(after.rails[i].name, before.rails[i].name);
    EXPECT_EQ(after.rails[i].rdma, before.rails[i].rdma);
    EXPECT_EQ(after.rails[i].netdev, before.rails[i].netdev);
    EXPECT_EQ(after.rails[i].pci, before.rails[i].pci);
    EXPECT_EQ(after.rails[i].numa_node, before.rails[i].numa_node);
    EXPECT_EQ(after.rails[i].rate_gbps, before.rails[i].rate_gbps);
    EXPECT_EQ(after.rails[i].from_gpu, before.rails[i].from_gpu);
    EXPECT_EQ(after.rails[i].address, before.rails[i].address);
    EXPECT_EQ(after.rails[i].ipv6, before.rails[i].ipv6);
    EXPECT_EQ(after.rails[i].up, before.rails[i].up);
  }
}

TEST(PlaceEncoding, UnknownKeysAndMissingOnesAreTolerated) {
  const Place place =
      decode_place(R"({"host":"a","colour":"blue","rails":[{"name":"x","speed":{"now":[1]}}]})");
  EXPECT_EQ(place.host, "a");
  EXPECT_EQ(place.numa_node, -1);
  ASSERT_EQ(place.rails.size(), 1u);
  EXPECT_EQ(place.rails[0].name, "x");
  EXPECT_FALSE(place.rails[0].up);
  EXPECT_TRUE(decode_place(R"({"host":""})").rails.empty());
}

TEST(PlaceEncoding, AHostNameThatIsNoUtf8IsSent) {
  Place place = example();
  place.host = "a\xff";
  EXPECT_THAT(decode_place(encode(place)).host, ::testing::StartsWith("a"));
}

TEST(PlaceEncoding, MalformedTextIsAnErrorThatSaysWhat) {
  for (const char* text : {"", "x", "{", "{\"host\":\"a\"", "{\"host\":\"\xff\"}", "{}}"}) {
    EXPECT_THAT(decode_error(text), HasSubstr("not JSON")) << text;
  }
  for (const char* text : {"null", "3", "[]", "\"host\""}) {
    EXPECT_THAT(decode_error(text), HasSubstr("not an object")) << text;
  }
  EXPECT_THAT(decode_error("{}"), HasSubstr("'host'"));
  EXPECT_THAT(decode_error(R"({"host":1})"), HasSubstr("'host'"));
  EXPECT_THAT(decode_error(R"({"host":"a","machine":[]})"), HasSubstr("'machine'"));
  EXPECT_THAT(decode_error(R"({"host":"a","rails":{}})"), HasSubstr("'rails'"));
  EXPECT_THAT(decode_error(R"({"host":"a","rails":["eth0"]})"), HasSubstr("a rail"));
  EXPECT_THAT(decode_error(R"({"host":"a","rails":[{}]})"), HasSubstr("'name'"));
  EXPECT_THAT(decode_error(R"({"host":"a","rails":[{"name":"x","up":1}]})"), HasSubstr("'up'"));
  for (const char* node : {"1.5", "1e300", "-2", "99999999999999999999", "4294967296", "\"0\""}) {
    EXPECT_THAT(decode_error(std::string(R"({"host":"a","numa_node":)") + node + "}"),
                HasSubstr("'numa_node'"))
        << node;
  }
  for (const char* rate : {"-1", "\"fast\"", "null"}) {
    EXPECT_THAT(decode_error(std::string(R"({"host":"a","rails":[{"name":"x","rate_gbps":)") +
                             rate + "}]}"),
                HasSubstr("'rate_gbps'"))
        << rate;
  }
}

TEST(PlaceEncoding, DeepNestingIsRefused) {
  EXPECT_THAT(decode_error(std::string(200000, '[')), HasSubstr("not JSON"));
  EXPECT_THAT(decode_error(std::string(200000, '[') + std::string(200000, ']')),
              HasSubstr("not an object"));
}

}  // namespace
}  // namespace weft
