// Rail datagrams sent as letters of the job, and the link of an RDMA device.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "support/process/temporary_folder.h"
#include "transport/rails/datagram_channel_letters.h"

namespace weft::testing {
namespace {

Topology two_rails(bool rdma) {
  std::vector<Place> places(2);
  for (std::size_t r = 0; r < 2; ++r) {
    places[r].host = "host" + std::to_string(r);
    places[r].rails.resize(2);
    for (Nic& nic : places[r].rails) nic.name = "none", nic.rdma = rdma, nic.up = true;
  }
  return Topology(places);
}

TEST(RailLetters, ComeWithTheirRailAndSender) {
  auto jobs = local_jobs(2);
  const Topology topology = two_rails(true);
  const auto a = make_letter_paths(*jobs[0], topology), b = make_letter_paths(*jobs[1], topology);
  ASSERT_TRUE(a && b);
  Datagram d;
  EXPECT_FALSE(b->receive(d));
  a->send(1, 1, "one");
  a->send(1, 0, "");
  a->send(1, 7, "of no rail");
  ASSERT_TRUE(b->receive(d));
  EXPECT_EQ(d.from, 0);
  EXPECT_EQ(d.rail, 1);
  EXPECT_EQ(d.bytes, "one");
  ASSERT_TRUE(b->receive(d));
  EXPECT_EQ(d.rail, 0);
  EXPECT_EQ(d.bytes, "");
  EXPECT_FALSE(b->receive(d));
  EXPECT_TRUE(a->link_up(0)) << "of a device that the kernel does not know, nothing is known";
}

// With rail addresses, answers over the rail itself are better evidence.
TEST(RailLetters, AreForRdmaDevicesOnly) {
  auto jobs = local_jobs(2);
  EXPECT_EQ(make_letter_paths(*jobs[0], two_rails(false)), nullptr);
}

TEST(RailLetters, LinkIsThatOfAnyPort) {
  const TemporaryFolder root;
  const auto port = [&](int number, const std::string& state) {
    const std::string folder =
        root.path() + "/class/infiniband/mlx5_0/ports/" + std::to_string(number);
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/state") << state << "\n";
  };
  EXPECT_TRUE(rdma_link_up(root.path(), "mlx5_0"));
  port(1, "1: DOWN");
  EXPECT_FALSE(rdma_link_up(root.path(), "mlx5_0"));
  port(2, "4: ACTIVE");
  EXPECT_TRUE(rdma_link_up(root.path(), "mlx5_0"));
}

}  // namespace
}  // namespace weft::testing
