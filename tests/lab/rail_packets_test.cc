// The rail contract on real interfaces: every packet is counted, and none crosses rails; a
// violating step is refused with its path; and messages to a rank on another rail go through shared
// memory to the rank of this host on that rail first. Needs root.
// labels: lab
// ctest: whole alone
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "coll/api/communicator.h"
#include "coll/api/metrics.h"
#include "support/process/shell.h"
#include "tests/lab/shared_lab.h"

namespace {

using ::testing::HasSubstr;
using weft::Output;
using weft::run;

constexpr int kRails = 2, kTimes = 20;
constexpr std::size_t kBlock = 200'000;  // elements of 4 bytes

// Counts the IPv4 packets of this host's rails, in and out. Rail r is the network 10.r.0.0/24.
class PacketCount {
 public:
  PacketCount() : fd_(socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, htons(ETH_P_IP))) {
    if (fd_ < 0) throw weft::Error("no packet socket");
    const int bytes = 64 << 20;
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
    const timeval patience{0, 50'000};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    for (int r = 0; r < kRails; ++r)
      rail_of_[static_cast<int>(if_nametoindex(fmt::format("rail{}", r).c_str()))] = r;
    thread_ = std::thread([this] { count(); });
  }
  ~PacketCount() {
    stop_ = true;
    thread_.join();
    close(fd_);
  }
  std::array<std::atomic<std::int64_t>, kRails> own{}, stray{};

 private:
  void count() {
    iphdr header{};
    sockaddr_ll from{};
    while (!stop_) {
      socklen_t length = sizeof from;
      const ssize_t n =
          recvfrom(fd_, &header, sizeof header, 0, reinterpret_cast<sockaddr*>(&from), &length);
      if (n < static_cast<ssize_t>(sizeof header)) continue;
      const auto it = rail_of_.find(from.sll_ifindex);
      if (it == rail_of_.end()) continue;
      const auto r = static_cast<std::size_t>(it->second);
      const auto rail = [](std::uint32_t address) { return ntohl(address) >> 16 & 0xff; };
      const bool stays = rail(header.saddr) == r && rail(header.daddr) == r;
      ++(stays ? own : stray)[r];
    }
  }

  int fd_;
  std::map<int, int> rail_of_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

std::int32_t value(int from, int to, std::size_t i) {
  return static_cast<std::int32_t>(i * 31) + from * 1009 + to * 7;
}

int rank_main(const std::string& algorithm) try {
  const char* local = std::getenv("WEFT_LOCAL_RANK");
  std::unique_ptr<PacketCount> packets;
  if (local && std::string(local) == "0") packets = std::make_unique<PacketCount>();
  auto world = weft::World::from_environment();
  weft::Communicator all = world->world();
  all.set_algorithm(weft::Collective::kAllToAll, algorithm);
  const int n = world->size(), me = world->rank();
  std::vector<std::int32_t> in(kBlock * static_cast<std::size_t>(n)), out(in.size());
  for (int to = 0; to < n; ++to)
    for (std::size_t i = 0; i < kBlock; ++i)
      in[static_cast<std::size_t>(to) * kBlock + i] = value(me, to, i);
  for (int k = 0; k < kTimes; ++k) {
    all.all_to_all(in.data(), out.data(), kBlock, weft::DType::kInt32).check();
    for (int from = 0; from < n; ++from)
      for (std::size_t i = 0; i < kBlock; ++i)
        if (out[static_cast<std::size_t>(from) * kBlock + i] != value(from, me, i))
          throw weft::Error(fmt::format("wrong: element {} from rank {}", i, from));
  }
  all.barrier().check();
  std::string text;
  for (const auto& t : world->metrics().traffic)
    text += fmt::format("sent {} {} {} {}\n", me, t.peer, t.bytes_sent, t.link);
  for (std::size_t r = 0; packets && r < kRails; ++r)
    text += fmt::format("packets {} {} {} {}\n", me, r, packets->own[r].load(),
                        packets->stray[r].load());
  std::fputs(text.c_str(), stdout);
  return 0;
} catch (const std::exception& e) {
  std::printf("FAILED: %s\n", e.what());
  return 1;
}

class RailPackets : public weft::testing::LabTest {
 protected:
  void all_to_all(const std::string& environment, const std::string& algorithm) {
    result_ = run(fmt::format("{} {} lab netlab --use {} --ppn 2 -- {} --rank {}", environment,
                              WEFT_BINARY, lab(2, 2),
                              std::filesystem::read_symlink("/proc/self/exe").string(), algorithm));
    std::istringstream lines(result_.text);
    for (std::string line, word; std::getline(lines, line);) {
      std::istringstream words(line);
      words >> word;
      if (word == "packets") {
        int rank = 0, rail = 0;
        std::int64_t own = 0, stray = 0;
        words >> rank >> rail >> own >> stray;
        own_[{rank, rail}] = own;
        stray_ += stray;
      } else if (word == "sent") {
        int from = 0, to = 0;
        std::int64_t bytes = 0;
        std::string link;
        words >> from >> to >> bytes;
        std::getline(words >> std::ws, link);
        if (bytes > 0) sent_[{from, to, link.substr(0, 6)}] += bytes;
      }
    }
  }
  std::int64_t sent(int from, int to, const std::string& link) const {
    const auto it = sent_.find({from, to, link});
    return it == sent_.end() ? 0 : it->second;
  }

  Output result_;
  std::map<std::pair<int, int>, std::int64_t> own_;  // by the host's first rank, and rail
  std::int64_t stray_ = 0;
  std::map<std::tuple<int, int, std::string>, std::int64_t> sent_;  // from, to, link
};

constexpr std::int64_t kBytes = static_cast<std::int64_t>(kBlock) * 4 * kTimes;

// Ranks 0 and 2 are on rail 0, 1 and 3 on rail 1.
TEST_F(RailPackets, NoneGoesFromRailToRail) {
  all_to_all("", "hierarchical");
  ASSERT_EQ(result_.exit_code, 0) << result_.text;
  ASSERT_EQ(own_.size(), 4u) << result_.text;
  for (const auto& [where, packets] : own_)
    EXPECT_GT(packets, 500) << "rank " << where.first << " rail " << where.second;
  EXPECT_EQ(stray_, 0) << result_.text;
  for (const int home : {0, 1}) {
    const int there = home + 2, beside = 1 - home;
    const std::string rail = fmt::format("rail {}", home);
    // Its own block for the rank there, and its neighbor's, received through shared memory.
    EXPECT_GE(sent(home, there, rail), 2 * kBytes) << result_.text;
    EXPECT_GE(sent(home, beside, "shm"), 2 * kBytes) << result_.text;
    for (const auto& [key, bytes] : sent_)
      EXPECT_FALSE(std::get<0>(key) == home && std::get<1>(key) == beside + 2)
          << bytes << " bytes went straight to a rank of the other rail";
  }
}

// Shows that the test above would detect a schedule that violates the contract.
TEST_F(RailPackets, StepsThatLeaveItShowWhereTheyAreAllowed) {
  all_to_all("WEFT_CROSS_RAIL=allow", "pairwise");
  ASSERT_EQ(result_.exit_code, 0) << result_.text;
  EXPECT_GE(sent(0, 3, "rail 0"), kBytes) << result_.text;
}

TEST_F(RailPackets, AStrayStepIsRefusedWithItsPath) {
  all_to_all("", "pairwise");
  EXPECT_NE(result_.exit_code, 0);
  EXPECT_THAT(result_.text,
              HasSubstr("all_to_all pairwise leaves its rail: rank 0 (host 0, rail 0) "
                        "-> rank 3 (host 1, rail 1): step "));
  EXPECT_THAT(result_.text, HasSubstr("0 -> 1 (inside host 0) -> 3 (along rail 1)"));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--rank") return rank_main(argv[2]);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
