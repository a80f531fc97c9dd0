// The transport that `auto` selects between hosts depends on their rails.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/factory/transport_factory.h"
#include "transport/ucx/ucx.h"
#include "transport/verbs/verbs.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::StartsWith;

Nic device(bool rdma, bool up = true) {
  Nic nic;
  nic.name = rdma ? "mlx5_0" : "eth0";
  nic.netdev = "eth0";
  nic.address = "192.0.2.1";
  nic.rdma = rdma;
  nic.up = up;
  return nic;
}

Nic without_rc() {
  Nic nic = device(true);
  nic.name = "rdmap0s31";
  nic.no_rc = true;
  return nic;
}

// One host per rank.
std::vector<Place> hosts(const std::vector<std::vector<Nic>>& rails) {
  std::vector<Place> places;
  for (std::size_t r = 0; r < rails.size(); ++r) {
    places.emplace_back();
    places.back().host = places.back().machine = std::string(1, static_cast<char>('a' + r));
    places.back().rails = rails[r];
  }
  return places;
}

// The topology as the other ranks receive it.
Topology heard(const std::vector<Place>& places) {
  std::vector<Place> all;
  for (const Place& p : places) all.push_back(decode_place(encode(p)));
  return Topology(all);
}

std::string taken(const std::vector<std::vector<Nic>>& rails) {
  return transport_between_hosts(heard(hosts(rails)));
}

std::string refused(const Topology& topology, const char* transport) {
  try {
    check_libraries(topology, transport);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(BetweenHosts, TheTransportFollowsFromTheRails) {
  EXPECT_EQ(taken({{device(true)}, {device(true)}}), "verbs");
  EXPECT_EQ(taken({{device(true)}, {device(true, false)}}), "verbs")
      << "verbs names the port that is down";
  EXPECT_EQ(taken({{device(false)}, {device(false)}}), "tcp");
  EXPECT_EQ(taken({{device(true)}, {device(false)}}), "tcp") << "all ranks take the same";
  EXPECT_EQ(taken({{device(true), device(false)}, {device(true), device(false)}}), "tcp");
  EXPECT_EQ(taken({{without_rc()}, {without_rc()}}), "ucx");
  EXPECT_EQ(taken({{without_rc()}, {device(true)}}), "tcp") << "no wire joins the two";
  EXPECT_EQ(taken({{}, {}}), "tcp");
}

TEST(BetweenHosts, ADeviceThatARankCannotOpenIsNotUsedAndNamed) {
  std::vector<Place> places = hosts({{device(true)}, {device(true)}});
  EXPECT_EQ(why_no_rdma(heard(places)), "");
  places[1].no_rdma = "mlx5_0: /dev/infiniband is not in this container";
  EXPECT_EQ(transport_between_hosts(heard(places)), "tcp");
  EXPECT_THAT(
      why_no_rdma(heard(places)),
      StartsWith("rank 1 on host b: mlx5_0: /dev/infiniband is not in this container; tcp is "));
}

TEST(BetweenHosts, AHostWithoutTheLibraryIsNamed) {
  std::vector<Place> places = hosts({{device(true)}, {device(true)}, {device(true)}});
  places[2].no_verbs = "libibverbs.so.1: cannot open shared object file";
  places[0].no_ucx = "libucp.so.0: no such file";  // which no rank needs
  EXPECT_EQ(transport_between_hosts(heard(places)), "tcp") << "the same on ranks 0 and 2";
  const std::string lost = "rank 2 on host c: libibverbs.so.1: cannot open shared object file; ";
  EXPECT_THAT(why_no_rdma(heard(places)),
              AllOf(StartsWith(lost + "tcp is used between hosts. Install libibverbs1"),
                    EndsWith("or say --transport tcp")));
  EXPECT_THAT(refused(heard(places), "verbs"),
              AllOf(StartsWith("transport verbs: " + lost + "install libibverbs1"),
                    EndsWith("or use --transport auto")));
  for (const char* other : {"auto", "tcp", "shm"}) EXPECT_EQ(refused(heard(places), other), "");

  places = hosts({{without_rc()}, {without_rc()}});
  places[1].no_ucx = "libucp.so.0: no such file";
  EXPECT_EQ(transport_between_hosts(heard(places)), "tcp");
  EXPECT_THAT(why_no_rdma(heard(places)),
              StartsWith("rank 1 on host b: libucp.so.0: no such file; tcp is used between hosts. "
                         "Install libucx0"));
  EXPECT_THAT(refused(heard(places), "ucx"), StartsWith("transport ucx: rank 1 on host b: "));
}

TEST(BetweenHosts, ARankLooksForTheLibrariesThatItsDevicesNeed) {
  std::vector<Place> places = hosts({{device(true)}, {without_rc()}, {device(false)}});
  for (Place& p : places) note_libraries(p, "auto");
  EXPECT_EQ(places[0].no_verbs, why_no_verbs());
  EXPECT_EQ(places[0].no_ucx, "");
  EXPECT_EQ(places[1].no_verbs, "");
  EXPECT_EQ(places[1].no_ucx, why_no_ucx());
  EXPECT_EQ(places[2].no_verbs + places[2].no_ucx, "");
  note_libraries(places[2], "verbs");
  EXPECT_EQ(places[2].no_verbs, why_no_verbs());
}

}  // namespace
}  // namespace weft
