// Collectives over two RDMA rails without IP addresses, on the fake device: messages are striped
// over both, and the other rail replaces one whose queue pairs fail.
// labels: multiproc
// ctest: alone
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "support/fakes/fake_verbs.h"
#include "support/jobs/ranks.h"
#include "transport/rails/datagram_channel_letters.h"

namespace weft::testing {
namespace {

std::vector<Place> without_ip(int n, int rails) {
  std::vector<Place> where(static_cast<std::size_t>(n));
  for (int r = 0; r < n; ++r) {
    Place& place = where[static_cast<std::size_t>(r)];
    place.host = place.machine = "host" + std::to_string(r);
    Nic nic;
    nic.name = "fake";
    nic.rdma = nic.up = true;
    place.rails.assign(static_cast<std::size_t>(rails), nic);
  }
  return where;
}

TEST(VerbsWithoutIp, RailsAreSharedAndStandInForEachOther) {
  FakeVerbs& fake = FakeVerbs::get();
  fake.wired = true;
  WorldOptions options;
  options.transport = "verbs";
  options.timeout = std::chrono::seconds(60);
  std::atomic<std::size_t> failed_pairs{0};
  run_ranks(without_ip(2, 2), options, [&](World& world) {
    EXPECT_TRUE(world.failover());
    Communicator comm = world.world();
    constexpr std::size_t kCount = 1 << 20;
    std::vector<float> in(kCount), out(kCount);
    for (int round = 0; round < 12; ++round) {
      for (std::size_t i = 0; i < kCount; ++i)
        in[i] = static_cast<float>((i * 7 + static_cast<std::size_t>(round)) % 1000);
      std::fill(out.begin(), out.end(), -1.0f);
      if (world.rank() == 0 && round == 4) {
        // Both rails have carried messages: one queue pair each at both ends.
        const std::lock_guard lock(fake.mutex);
        EXPECT_EQ(fake.pairs.size(), 4u);
      }
      if (world.rank() == 0 && round >= 4) {
        // Exceeds the retry counter of the newest queue pair, which is on the second rail.
        const std::lock_guard lock(fake.mutex);
        for (auto& pair : fake.pairs) {
          if (pair.qp.state != IBV_QPS_RTS || (pair.sends.empty() && pair.receives.empty()))
            continue;
          fake.fail(pair, IBV_WC_RETRY_EXC_ERR);
          ++failed_pairs;
          break;
        }
      }
      comm.all_reduce(in.data(), out.data(), kCount, DType::kFloat32, RedOp::kSum).check();
      for (std::size_t i = 0; i < kCount; i += 997) ASSERT_EQ(out[i], 2 * in[i]) << round;
    }
  });
  EXPECT_GE(failed_pairs, 1u);
  fake.wired = false;
}

// A registration takes as long as a card needs for a MiB: reduction operands must not arrive in
// memory registered for one message.
TEST(VerbsWithoutIp, ASecondAllReduceRegistersNoMemory) {
  FakeVerbs& fake = FakeVerbs::get();
  fake.wired = true;
  WorldOptions options;
  options.transport = "verbs";
  options.timeout = std::chrono::seconds(60);
  run_ranks(without_ip(2, 1), options, [&](World& world) {
    Communicator comm = world.world();
    constexpr std::size_t kCount = 1 << 20;
    const auto in = alloc_array<float>(kCount), out = alloc_array<float>(kCount);
    std::fill_n(in.get(), kCount, 1.0f);
    const auto registered = [&] {
      comm.barrier().check();
      const std::lock_guard lock(fake.mutex);
      return fake.counts.registrations;
    };
    const auto sum = [&] {
      comm.all_reduce(in.get(), out.get(), kCount, DType::kFloat32, RedOp::kSum).check();
      EXPECT_EQ(std::count(out.get(), out.get() + kCount, 2.0f), kCount);
    };
    sum();
    const std::size_t first = registered();
    sum();
    EXPECT_EQ(registered(), first);
  });
  fake.wired = false;
}

// Memory whose extent weft cannot know is registered once in every call, and not cached afterwards.
TEST(VerbsWithoutIp, AnAllReduceInOtherMemoryRegistersEachBufferOnce) {
  FakeVerbs& fake = FakeVerbs::get();
  fake.wired = true;
  WorldOptions options;
  options.transport = "verbs";
  options.timeout = std::chrono::seconds(60);
  for (const int rails : {1, 2})
    run_ranks(without_ip(2, rails), options, [&](World& world) {
      Communicator comm = world.world();
      constexpr std::size_t kCount = 1 << 20;
      std::vector<float> in(kCount, 1.0f), out(kCount);
      const auto counted = [&] {
        comm.barrier().check();
        const std::lock_guard lock(fake.mutex);
        return std::pair(fake.counts.registrations, fake.regions.size());
      };
      const auto sum = [&] {
        comm.all_reduce(in.data(), out.data(), kCount, DType::kFloat32, RedOp::kSum).check();
        EXPECT_EQ(std::count(out.begin(), out.end(), 2.0f), kCount);
      };
      sum();
      const auto before = counted();
      sum();
      const auto after = counted();
      EXPECT_LE(after.first - before.first, 2u * 2 * static_cast<std::size_t>(rails))
          << "in and out of both ranks, on each rail";
      EXPECT_EQ(after.second, before.second) << "memory stays pinned";
    });
  fake.wired = false;
}

}  // namespace
}  // namespace weft::testing
