// Which transport `auto` takes between hosts follows from what their rails are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/factory/transport_factory.h"
#include "transport/ucx/ucx.h"
#include "transport/verbs/verbs.h"

namespace weft {
namespace {

Nic device(bool rdma, bool up = true) {
  Nic nic;
  nic.name = rdma ? "mlx5_0" : "eth0";
  nic.netdev = "eth0";
  nic.address = "192.0.2.1";
  nic.rdma = rdma;
  nic.up = up;
  return nic;
}

std::string taken(const std::vector<std::vector<Nic>>& rails) {
  std::vector<Place> places;
  for (std::size_t r = 0; r < rails.size(); ++r) {
    places.emplace_back();
    places.back().host = places.back().machine = std::string(1, static_cast<char>('a' + r));
    places.back().rails = rails[r];
  }
  return transport_between_hosts(Topology(places));
}

TEST(BetweenHosts, TheTransportFollowsFromTheRails) {
  const std::string rdma = ucx_available() ? "ucx" : "tcp";
  EXPECT_EQ(taken({{device(true)}, {device(true)}}), verbs_available() ? "verbs" : rdma);
  EXPECT_EQ(taken({{device(true)}, {device(true, false)}}), verbs_available() ? "verbs" : rdma)
      << "verbs names the port that is down";
  EXPECT_EQ(taken({{device(false)}, {device(false)}}), "tcp");
  EXPECT_EQ(taken({{device(true)}, {device(false)}}), "tcp") << "all ranks take the same";
  EXPECT_EQ(taken({{device(true), device(false)}, {device(true), device(false)}}), "tcp");
}

TEST(BetweenHosts, ADeviceThatARankCannotOpenIsNotUsedAndNamed) {
  std::vector<Place> places(2);
  for (std::size_t r = 0; r < 2; ++r) {
    places[r].host = places[r].machine = std::string(1, static_cast<char>('a' + r));
    places[r].rails = {device(true)};
  }
  EXPECT_EQ(why_no_rdma(Topology(places)), "");
  places[1].no_rdma = "mlx5_0: /dev/infiniband is not in this container";
  places[1] = decode_place(encode(places[1]));
  EXPECT_EQ(transport_between_hosts(Topology(places)), "tcp");
  EXPECT_THAT(why_no_rdma(Topology(places)),
              ::testing::StartsWith(
                  "rank 1 on host b: mlx5_0: /dev/infiniband is not in this container; tcp is "));
}

}  // namespace
}  // namespace weft
