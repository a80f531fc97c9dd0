// labels: multiproc
// Ranks that run different steps under one algorithm name, with equal numbers of ranks, chunks and
// bytes: every message matches a receive of its size, so sums would be wrong without an error.
#include <gtest/gtest.h>

#include <vector>

#include "coll/runtime/core.h"
#include "support/jobs/communicator_inside.h"
#include "support/jobs/ranks.h"

namespace weft {
namespace {

using testing::places;
using testing::run_ranks;

const Algorithm& ring() { return *find_algorithm(Collective::kAllReduce, "ring"); }

// The same ring, starting at the next chunk.
Schedule turned_ring(const Shape& shape) {
  Schedule s = ring().build(shape);
  for (Step& step : s.steps) step.at.first = (step.at.first + 1) % s.nchunks;
  return s;
}

constexpr std::size_t kHashed = 20000;

// Runs the variant on ranks for which `odd` returns true.
void run_rings(int n, const std::function<void(Communicator&, Status, bool right)>& check,
               const std::function<bool(Rank)>& odd) {
  Algorithm turned = ring();
  turned.build = turned_ring;
  WorldOptions options;
  options.timeout = std::chrono::seconds(20);
  run_ranks(places({n}), options, [&](World& world) {
    Communicator comm = world.world();
    GroupState& state = CommunicatorInside::of(comm);
    state.forced[static_cast<std::size_t>(Collective::kAllReduce)] =
        odd(comm.rank()) ? &turned : &ring();
    std::vector<std::int32_t> in(kHashed), out(kHashed);
    for (std::size_t i = 0; i < kHashed; ++i) in[i] = static_cast<std::int32_t>(i) + comm.rank();
    Status s = comm.all_reduce(in.data(), out.data(), kHashed, DType::kInt32, RedOp::kSum);
    bool right = true;
    for (std::size_t i = 0; i < kHashed; ++i)
      right = right && out[i] == comm.size() * static_cast<int>(i) + n * (n - 1) / 2;
    if (s.ok()) s = comm.barrier();
    check(comm, s, right);
  });
}

TEST(ScheduleHash, TwoVariantsUnderOneNameAreToldApart) {
  for (const int n : {2, 3})
    run_rings(
        n,
        [](Communicator&, const Status& s, bool) {
          EXPECT_EQ(s.code(), Code::kMismatch) << s.to_string();
          for (const char* part :
               {"all_reduce #1 of 20000 x int32, sum: rank ", "rank 1 has plan "})
            EXPECT_NE(s.message().find(part), std::string::npos) << s.message();
        },
        [](Rank r) { return r == 1; });
}

// The variant is correct if all ranks run it.
TEST(ScheduleHash, AVariantOfAllRanksIsRight) {
  for (const int n : {2, 3})
    run_rings(
        n,
        [](Communicator&, const Status& s, bool right) {
          EXPECT_TRUE(s.ok()) << s.to_string();
          EXPECT_TRUE(right);
        },
        [](Rank) { return true; });
}

// On hosts with different numbers of ranks, plans differ in length.
TEST(ScheduleHash, RanksOfUnequalHostsAgree) {
  WorldOptions options;
  options.timeout = std::chrono::seconds(20);
  options.algorithm = "hierarchical";
  constexpr int kRanks = 7;
  run_ranks(places({3, 2, 2}), options, [&](World& world) {
    Communicator comm = world.world();
    const int me = comm.rank();
    for (const std::size_t count : {std::size_t{1}, kHashed}) {
      std::vector<std::int32_t> in(kRanks * count), out(kRanks * count);
      for (int r = 0; r < kRanks; ++r)
        for (std::size_t i = 0; i < count; ++i)
          in[static_cast<std::size_t>(r) * count + i] = 100 * me + r + static_cast<int>(i);
      const auto expect = [&](const Status& s, std::size_t blocks, auto value) {
        ASSERT_TRUE(s.ok()) << s.to_string();
        for (std::size_t r = 0; r < blocks; ++r)
          for (std::size_t i = 0; i < count; ++i)
            ASSERT_EQ(out[r * count + i], value(static_cast<int>(r), static_cast<int>(i)));
      };
      expect(comm.all_to_all(in.data(), out.data(), count, DType::kInt32), kRanks,
             [&](int r, int i) { return 100 * r + me + i; });
      expect(comm.all_gather(in.data(), out.data(), count, DType::kInt32), kRanks,
             [&](int r, int i) { return 100 * r + i; });
      expect(comm.reduce_scatter(in.data(), out.data(), count, DType::kInt32, RedOp::kSum), 1,
             [&](int, int i) { return 2100 + kRanks * (me + i); });
      out = in;
      expect(comm.all_to_all(out.data(), out.data(), count, DType::kInt32), kRanks,
             [&](int r, int i) { return 100 * r + me + i; });
    }
  });
}

}  // namespace
}  // namespace weft
