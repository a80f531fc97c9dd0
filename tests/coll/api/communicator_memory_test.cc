// labels: multiproc
// ctest: whole
// sanitize: no
// The memory cost of communicators; destroying them returns all of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cstdio>
#include <fstream>
#include <string>

#include "support/jobs/ranks.h"
#include "support/jobs/setting.h"
#include "support/process/sanitizer.h"

namespace weft {
namespace {

using testing::places;
using testing::run_ranks;
using testing::Setting;

// Resident bytes of this process; memory mapped several times counts once.
double resident_bytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string word; rollup >> word;)
    if (word == "Pss:") {
      double kib = 0;
      rollup >> kib;
      return kib * 1024;
    }
  return 0;
}

void use(Communicator comm, std::size_t count) {
  std::vector<std::int32_t> in(count, 1), out(count, 0);
  ASSERT_TRUE(comm.all_reduce(in.data(), out.data(), count, DType::kInt32, RedOp::kSum).ok());
  ASSERT_EQ(out[count - 1], comm.size());
}

class CommunicatorMemory : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (resident_bytes() <= 0) GTEST_SKIP() << "missing capability: /proc/self/smaps_rollup";
    options_.transport = GetParam().transport;
    n_ = ranks_of(GetParam());
  }
  WorldOptions options_;
  int n_ = 0;
};

// The goal: at most 64 KiB per rank, including everything its use allocates.
TEST_P(CommunicatorMemory, AnotherOneIsSmall) {
  constexpr int kMany = 200;
  std::barrier all(n_);
  std::atomic<double> before = 0, after = 0;
  run_ranks(places(GetParam().hosts), options_, [&](World& world) {
    Communicator comm = world.world();
    for (const std::size_t count : {2ul, 5000ul, 20000ul}) use(comm.duplicate(), count);
    all.arrive_and_wait();
    if (comm.rank() == 0) before = resident_bytes();
    all.arrive_and_wait();
    std::vector<Communicator> many;
    for (int i = 0; i < kMany; ++i) {
      many.push_back(i % 2 ? comm.duplicate() : comm.split(comm.rank() % 2));
      for (const std::size_t count : {2ul, 5000ul, 20000ul}) use(many.back(), count);
    }
    all.arrive_and_wait();
    if (comm.rank() == 0) after = resident_bytes();
    all.arrive_and_wait();
  });
  const double each = (after - before) / kMany / n_;
  std::printf("%s: %.1f KiB per communicator and rank\n", GetParam().name, each / 1024);
  RecordProperty("bytes_per_communicator", static_cast<int>(each));
  if (testing::kSanitizer) GTEST_SKIP() << "missing capability: memory that no sanitizer adds to";
  EXPECT_LE(each, 64 * 1024);
}

// A leak grows in every third of the loop. The heap grows in steps when several threads first
// allocate at the same time.
TEST_P(CommunicatorMemory, ThousandsLeaveNothing) {
  constexpr int kWarm = 500, kThird = 1000, kThirds = 3;
  std::barrier all(n_);
  std::array<double, kThirds + 1> looks{};
  run_ranks(places(GetParam().hosts), options_, [&](World& world) {
    Communicator comm = world.world();
    for (int i = 0; i <= kWarm + kThirds * kThird; ++i) {
      if (i >= kWarm && (i - kWarm) % kThird == 0) {
        all.arrive_and_wait();
        if (comm.rank() == 0)
          looks[static_cast<std::size_t>((i - kWarm) / kThird)] = resident_bytes();
        all.arrive_and_wait();
      }
      Communicator c = i % 2 ? comm.duplicate() : comm.split((comm.rank() + i) % 2);
      use(c, i % 100 ? 2 : 20000);
      const std::int32_t lost = i;  // never received
      if (c.size() > 1 && i % 10 == 1) {
        ASSERT_TRUE(c.send(&lost, 1, DType::kInt32, (c.rank() + 1) % c.size()).ok());
      }
    }
  });
  double least = looks.back();
  for (std::size_t t = 0; t < kThirds; ++t) least = std::min(least, looks[t + 1] - looks[t]);
  std::printf("%s: %.0f KiB more after %d communicators, at least %.0f KiB in each third\n",
              GetParam().name, (looks.back() - looks.front()) / 1024, kThirds * kThird,
              least / 1024);
  if (testing::kSanitizer) GTEST_SKIP() << "missing capability: memory that no sanitizer adds to";
  EXPECT_LE(least, 512.0 * kThird);  // a leak of 512 bytes each would fail
  EXPECT_LE(looks.back() - looks.front(), 8.0 * (1 << 20) * n_) << "at once, or in any way";
}

// Only a few calls of an asynchronous burst run at once; the others need no scratch.
TEST_P(CommunicatorMemory, ABurstOfCallsTakesTheScratchOfAFew) {
  constexpr std::size_t kCalls = 200, kCount = 256 << 10;
  std::barrier all(n_);
  double before = 0, after = 0;
  run_ranks(places(GetParam().hosts), options_, [&](World& world) {
    Communicator comm = world.world();
    std::vector<std::vector<std::int32_t>> buffers(kCalls, std::vector<std::int32_t>(kCount, 1));
    const auto burst = [&] {
      std::vector<Request> handles;
      for (auto& b : buffers)
        handles.push_back(
            comm.all_reduce_async(b.data(), b.data(), kCount, DType::kInt32, RedOp::kMax));
      for (Request& h : handles) ASSERT_TRUE(h.wait().ok());
    };
    use(comm, kCount);
    all.arrive_and_wait();
    if (comm.rank() == 0) before = resident_bytes();
    all.arrive_and_wait();
    for (int i = 0; i < 3; ++i) burst();
    all.arrive_and_wait();
    if (comm.rank() == 0) after = resident_bytes();
    all.arrive_and_wait();
    EXPECT_EQ(buffers[kCalls - 1][kCount - 1], 1);
  });
  const double calls = (after - before) / n_ / (kCount * sizeof(std::int32_t));
  std::printf("%s: scratch of %.1f messages for %zu calls\n", GetParam().name, calls, kCalls);
  if (testing::kSanitizer) GTEST_SKIP() << "missing capability: memory that no sanitizer adds to";
  EXPECT_LE(calls, 20);
}

INSTANTIATE_TEST_SUITE_P(Settings, CommunicatorMemory,
                         ::testing::Values(Setting{"shm2", {2}, "auto"},
                                           Setting{"shm4", {4}, "auto"},
                                           Setting{"tcp2", {2}, "tcp"},
                                           Setting{"mixed2x2", {2, 2}, "auto"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace weft
