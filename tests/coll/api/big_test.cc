// labels: multiproc
// ctest: whole
// sanitize: no
// Large jobs: messages beyond 2^31 and 2^32 bytes, memory use of a large all-reduce, more ranks
// than cores.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <string>

#include "coll/api/communicator.h"
#include "support/jobs/payload.h"
#include "support/jobs/processes.h"
#include "support/jobs/ranks.h"
#include "support/process/sanitizer.h"

namespace weft {
namespace {

using std::chrono::milliseconds;
using testing::Processes;
using testing::Shared;

constexpr milliseconds kBigTimeout{60000}, kBigLimit{240000};
constexpr std::size_t kMiB = std::size_t{1} << 20, kGiB = std::size_t{1} << 30,
                      kQuarterGiB = kGiB / 4;

bool room_for(std::size_t bytes) {
  const std::string key = "MemAvailable:";
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key))
      return std::stoull(line.substr(key.size())) * 1024 > bytes * testing::kBytesPerByte;
  return false;
}

std::size_t own_memory(std::size_t buffer);
std::size_t before_weft = 0;  // own_memory() of a rank before it made its World

// Runs body(world) on n processes of one machine; each must return true.
void run_processes(int n, const std::function<bool(World&)>& body) {
  Processes processes(n, kBigTimeout, [&](const JobSpec& spec) {
    WorldOptions options;
    options.timeout = kBigTimeout;
    before_weft = own_memory(kQuarterGiB);
    World world(connect(spec), testing::places({n})[static_cast<std::size_t>(spec.rank)], options);
    return body(world) ? 0 : 3;
  });
  EXPECT_TRUE(processes.wait(kBigLimit)) << "a rank hangs";
  for (Rank r = 0; r < n; ++r) EXPECT_EQ(processes.code(r), 0) << "rank " << r;
}

#define CHECK_OK(call)                                                \
  do {                                                                \
    if (const Status s = (call); !s.ok()) {                           \
      std::fprintf(stderr, "%s: %s\n", #call, s.to_string().c_str()); \
      return false;                                                   \
    }                                                                 \
  } while (false)

bool same(std::int64_t got, std::int64_t want, const char* what, std::size_t i) {
  if (got == want) return true;
  std::fprintf(stderr, "%s: element %zu is %ld, not %ld\n", what, i, static_cast<long>(got),
               static_cast<long>(want));
  return false;
}

struct Memory {
  explicit Memory(std::size_t bytes, bool shared) : bytes_(bytes), shared_(shared) {
    data = static_cast<std::int64_t*>(
        shared ? alloc(bytes)
               : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  ~Memory() {
    if (shared_)
      weft::free(data);
    else
      munmap(data, bytes_);
  }
  std::int64_t* data;

 private:
  std::size_t bytes_;
  bool shared_;
};

// Counts and bytes that need more than 32 bits. The pattern's period is not a power of two, so that
// data misplaced by 2^32 bytes is detected.
constexpr std::size_t kBeyond = (std::size_t{4} << 30) + 13, kPeriod = 251;

void fill_beyond(std::uint8_t* data, int shift) {
  std::uint8_t pattern[kPeriod * 256];
  for (std::size_t i = 0; i < sizeof pattern; ++i)
    pattern[i] =
        static_cast<std::uint8_t>((i % kPeriod + static_cast<std::size_t>(shift)) % kPeriod);
  for (std::size_t at = 0; at < kBeyond; at += sizeof pattern)
    std::memcpy(data + at, pattern, std::min(sizeof pattern, kBeyond - at));
}

// Checks samples, the ends, and both sides of 2^32.
bool right_beyond(const std::uint8_t* data, const char* what, auto&& want) {
  const auto check = [&](std::size_t i) { return same(data[i], want(i % kPeriod), what, i); };
  for (std::size_t i = 0; i < kBeyond; i += i < 4096 || i > kBeyond - 8192 ? 1 : 4001)
    if (!check(i)) return false;
  return check(kBeyond - 1);
}

TEST(Big, AllReduceAndMessageBeyond2To32Bytes) {
  if (!room_for(14 * kGiB)) GTEST_SKIP() << "missing capability: memory (14 GiB available)";
  run_processes(2, [](World& world) {
    Communicator comm = world.world();
    Memory memory(kBeyond, true);
    auto* data = reinterpret_cast<std::uint8_t*>(memory.data);
    fill_beyond(data, comm.rank());
    CHECK_OK(comm.all_reduce(data, data, kBeyond, DType::kUInt8, RedOp::kMax));
    if (!right_beyond(data, "all_reduce", [](std::size_t i) {
          return static_cast<std::int64_t>(std::max(i, (i + 1) % kPeriod));
        }))
      return false;
    if (comm.rank() == 0) {
      fill_beyond(data, 7);
      CHECK_OK(comm.send(data, kBeyond, DType::kUInt8, 1));
      return true;
    }
    CHECK_OK(comm.recv(data, kBeyond, DType::kUInt8, 0));
    return right_beyond(data, "recv",
                        [](std::size_t i) { return static_cast<std::int64_t>((i + 7) % kPeriod); });
  });
}

// Equal and unequal blocks beyond 2^31 bytes in one buffer.
TEST(Big, BlocksBeyond2To31Bytes) {
  constexpr std::size_t kBlock = 1126 * kMiB / 8, kCount = 2 * kBlock;
  static_assert(kCount * 8 > std::size_t{1} << 31);
  if (!room_for(8 * kGiB)) GTEST_SKIP() << "missing capability: memory (8 GiB available)";
  run_processes(2, [](World& world) {
    Communicator comm = world.world();
    const auto me = static_cast<std::size_t>(comm.rank());
    Memory memory(kCount * 8, false);
    std::int64_t* data = memory.data;
    const auto value = [](std::size_t rank, std::size_t i) {
      return static_cast<std::int64_t>(i * 2 + rank);
    };
    const auto right = [&](const char* what, std::size_t at, std::size_t count, std::size_t rank,
                           std::size_t first) {
      for (std::size_t i = 0; i < count; i += i < 4096 || i + 4097 > count ? 1 : 509)
        if (!same(data[at + i], value(rank, first + i), what, at + i)) return false;
      return true;
    };
    for (std::size_t i = 0; i < kCount; ++i) data[i] = value(me, i);
    CHECK_OK(comm.all_to_all(data, data, kBlock, DType::kInt64));
    for (std::size_t r : {0, 1})
      if (!right("all_to_all", r * kBlock, kBlock, r, me * kBlock)) return false;

    const std::vector<std::size_t> counts{kCount - 5, 5};
    const std::size_t at = me == 0 ? 0 : kCount - 5;
    for (std::size_t i = 0; i < counts[me]; ++i) data[at + i] = value(me, i);
    CHECK_OK(comm.all_gather_v(data + at, data, counts, DType::kInt64));
    return right("all_gather_v", 0, kCount - 5, 0, 0) && right("all_gather_v", kCount - 5, 5, 1, 0);
  });
}

// Memory of this process without user buffers, its own or a peer's: its share (Pss) of all mappings
// except those of weft::alloc and those at least as large as a buffer. Pages of the ranks' arenas
// count once over all ranks.
std::size_t own_memory(std::size_t buffer) {
  std::ifstream maps("/proc/self/smaps");
  std::size_t total = 0, size = 0;
  bool users = false;
  for (std::string line; std::getline(maps, line);) {
    const std::string key = line.substr(0, line.find(' '));
    if (!key.empty() && key.back() != ':') {
      users = line.find("weft-alloc") != std::string::npos;
    } else if (key == "Size:") {
      size = std::stoull(line.substr(5)) * 1024;
    } else if (key == "Pss:" && !users && size < buffer) {
      total += std::stoull(line.substr(4)) * 1024;
    }
  }
  return total;
}

// 256 MiB on 4 ranks, out of place: scratch that grew with the message would exceed the bound.
void bounded_scratch(bool shared) {
  if (!room_for(3 * kGiB)) GTEST_SKIP() << "missing capability: memory (3 GiB available)";
  constexpr int kRanks = 4;
  Shared<std::atomic<std::size_t>> grown(kRanks);
  run_processes(kRanks, [&](World& world) {
    Communicator comm = world.world();
    Memory in(kQuarterGiB, shared), out(kQuarterGiB, shared);
    constexpr std::size_t kCount = kQuarterGiB / 8;
    std::fill_n(in.data, kCount, comm.rank() + 1);
    std::fill_n(out.data, kCount, 0);
    CHECK_OK(comm.all_reduce(in.data, out.data, kCount, DType::kInt64, RedOp::kSum));
    const std::size_t after = own_memory(kQuarterGiB);
    grown[comm.rank()] = after > before_weft ? after - before_weft : 0;
    for (std::size_t i = 0; i < kCount; i += 4093)
      if (!same(out.data[i], 10, "all_reduce", i)) return false;
    CHECK_OK(comm.barrier());
    return true;
  });
  for (int r = 0; r < kRanks; ++r) {
    std::printf("rank %d: %.1f MiB\n", r, static_cast<double>(grown[r]) / kMiB);
    EXPECT_LE(grown[r], 16 * kMiB) << "rank " << r;
  }
}

TEST(Big, ScratchOfMallocIsBounded) { bounded_scratch(false); }
TEST(Big, ScratchOfWeftMemoryIsBounded) { bounded_scratch(true); }

TEST(Big, SixteenRanksOnFewCores) {
  run_processes(16, [](World& world) {
    Communicator comm = world.world();
    const int n = comm.size();
    for (const std::size_t count : {1ul, 1000ul, 100003ul}) {
      std::vector<std::int32_t> in(count), sum(count), all(count * 16);
      for (std::size_t i = 0; i < count; ++i) in[i] = testing::value(comm.rank(), i);
      for (int turn = 0; turn < 3; ++turn) {
        CHECK_OK(comm.barrier());
        CHECK_OK(comm.all_reduce(in.data(), sum.data(), count, DType::kInt32, RedOp::kSum));
        CHECK_OK(comm.all_gather(in.data(), all.data(), count, DType::kInt32));
        for (std::size_t i = 0; i < count; ++i) {
          std::int64_t want = 0;
          for (Rank r = 0; r < n; ++r) {
            const int v = testing::value(r, i);
            want += v;
            if (!same(all[static_cast<std::size_t>(r) * count + i], v, "all_gather", i))
              return false;
          }
          if (!same(sum[i], want, "all_reduce", i)) return false;
        }
      }
    }
    return true;
  });
}

TEST(Big, SixtyFourRanks) {
  run_processes(64, [](World& world) {
    Communicator comm = world.world();
    for (int turn = 0; turn < 5; ++turn)
      for (const std::size_t count : {1ul, 5000ul}) {
        std::vector<std::int32_t> in(count, comm.rank() + turn), sum(count);
        CHECK_OK(comm.all_reduce(in.data(), sum.data(), count, DType::kInt32, RedOp::kSum));
        for (std::size_t i = 0; i < count; ++i)
          if (!same(sum[i], 64 * 63 / 2 + 64 * turn, "all_reduce", i)) return false;
      }
    return true;
  });
}

// Ranks that need different amounts of scratch still slice the message in the same way.
TEST(Big, UnevenHostsCutALargeMessageAlike) {
  WorldOptions options;
  options.timeout = kBigTimeout;
  testing::run_ranks(testing::places({4, 2, 3, 1}), options, [](World& world) {
    Communicator comm = world.world();
    comm.set_algorithm(Collective::kAllReduce, "halving_doubling");
    const std::size_t count = 4 * kMiB;
    std::vector<float> in(count, static_cast<float>(comm.rank())), out(count);
    const Status s = comm.all_reduce(in.data(), out.data(), count, DType::kFloat32, RedOp::kSum);
    ASSERT_TRUE(s.ok()) << s.to_string();
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], 45) << i;
  });
}

}  // namespace
}  // namespace weft
