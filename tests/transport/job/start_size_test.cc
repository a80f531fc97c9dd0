// Rank 0's cost of starting a large job, computed with the ranks' encoders, for hosts of 8 ranks
// and 8 rails.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ctime>
#include <random>
#include <utility>

#include "topo/topology.h"
#include "transport/control/frames.h"

namespace weft {
namespace {

constexpr int kOnHost = 8;  // ranks, and rails

// The description of a DGX-like host.
Place place_of(Rank r) {
  const int host = r / kOnHost;
  std::minstd_rand random(static_cast<unsigned>(host) + 1);
  Place place;
  place.host =
      fmt::format("gpu-{:04}.cluster.example#{:08x}-{:04x}", host, random() * 3U, random() % 65536);
  place.machine = place.host + ":4026531836:1000";
  place.numa_node = r % kOnHost / 4;
  place.gpu = fmt::format("0000:{:02x}:00.0", 0x1a + r % kOnHost * 9);
  for (int i = 0; i < kOnHost; ++i) {
    Nic nic;
    nic.name = fmt::format("mlx5_{}", i);
    nic.netdev = fmt::format("eth{}", i);
    nic.pci = fmt::format("0000:{:02x}:00.0", 0x18 + i * 9);
    nic.address = fmt::format("10.{}.{}.{}", i, host >> 8, host & 255);
    nic.numa_node = i / 4;
    nic.rate_gbps = 400;
    nic.rdma = nic.up = true;
    nic.from_gpu = i == r % kOnHost ? 1 : 4;
    place.rails.push_back(nic);
  }
  for (int i = 0; i < 2; ++i) {  // both ports of the management network
    Nic nic;
    nic.name = nic.netdev = fmt::format("eno{}", i);
    nic.address = fmt::format("192.168.{}.{}", host >> 8, host & 255);
    nic.rate_gbps = 25;
    nic.up = true;
    place.others.push_back(nic);
  }
  return place;
}

struct Start {
  double megabytes = 0;  // sent by rank 0 to all other ranks
  double seconds = 0;    // CPU time of the encoding
};

Start start_of(int ranks) {
  std::minstd_rand random(7);
  const auto digits = [&](unsigned most) { return random() % most; };
  std::vector<std::string> places, modes, ports, books, doors, verdicts;
  for (Rank r = 0; r < ranks; ++r) {
    places.push_back(fmt::format("{}\n/proc/{}/fd/5", encode(place_of(r)), digits(4194304)));
    modes.push_back("none auto auto 0 0 1 1 0\n");
    std::string udp = fmt::format("{:08x}{:08x} ", digits(~0U), digits(~0U));
    const unsigned port = 32768 + digits(28232);
    for (int i = 0; i < kOnHost; ++i) udp += fmt::format("{} ", port);
    ports.push_back(udp);
    std::string book(24, '\0');  // a process id and a file
    for (int i = 0; i < 3; ++i) book[static_cast<std::size_t>(i)] = static_cast<char>(digits(256));
    books.push_back(book);
    doors.push_back(
        fmt::format("10.0.{}.{} {}", r / kOnHost >> 8, r / kOnHost & 255, 32768 + digits(28232)));
    verdicts.emplace_back("s1");
  }
  const std::clock_t begin = std::clock();
  double bytes = 0;
  for (const auto* parts : {&places, &modes, &ports, &books, &doors, &verdicts})
    bytes += static_cast<double>(wire::pack_parts(*parts).size());
  // Descriptions on a host: cores and memory of 8 processes, some hundred bytes.
  std::vector<std::string> neighbours(static_cast<std::size_t>(ranks));
  for (int i = 0; i < kOnHost; ++i) neighbours[static_cast<std::size_t>(i)] = std::string(168, 'x');
  bytes += static_cast<double>(wire::pack_parts(neighbours).size());
  return {bytes * (ranks - 1) / 1e6, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC};
}

// docs/limits.md
TEST(StartAtSize, BytesThroughRankZeroAreAsThePageSays) {
  for (const auto& [ranks, most_megabytes] : {std::pair{64, 0.25}, {1024, 50.0}, {8192, 3000.0}}) {
    const Start start = start_of(ranks);
    EXPECT_LE(start.megabytes, most_megabytes) << ranks;
    fmt::print("{} ranks: {:.1f} MB, encoded in {:.3f} s\n", ranks, start.megabytes, start.seconds);
  }
}

}  // namespace
}  // namespace weft
