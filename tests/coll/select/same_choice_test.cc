// labels: multiproc
// ctest: whole
// `auto` runs the same algorithm on all ranks, whatever each rank has called and cached before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "coll/runtime/internals.h"
#include "coll/select/choice.h"
#include "support/jobs/ranks.h"
#include "support/process/temporary_folder.h"

namespace weft {
namespace {

using testing::places;
using testing::run_ranks;

// An algorithm's best root depends on the ranks' locations. Communicators of the same ranks share
// that knowledge, and each rank may start with another communicator.
TEST(SameChoice, WhicheverCommunicatorCallsFirst) {
  run_ranks(places({3, 1}), {}, [](World& world) {
    Communicator one = world.world(), other = one.duplicate();
    const Rank last = one.size() - 1;
    std::vector<float> a(1 << 20), b(1 << 20);
    for (std::size_t count = 16; count <= a.size(); count *= 2) {
      std::vector<Request> handles;
      for (const bool first : {true, false})
        handles.push_back(
            (one.rank() == 0) == first
                ? one.broadcast_async(a.data(), a.data(), count, DType::kFloat32, 0)
                : other.broadcast_async(b.data(), b.data(), count, DType::kFloat32, last));
      for (Request& h : handles) {
        const Status s = h.wait();
        ASSERT_TRUE(s.ok()) << count << ": " << s.to_string();
      }
    }
  });
}

// Ranks must not keep old times because only some of them keep a communicator.
TEST(SameChoice, WhoeverKeepsAnEarlierCommunicator) {
  const testing::TemporaryFolder folder;
  setenv("WEFT_PROFILE", (folder / "profile.json").c_str(), 1);
  run_ranks(places({4}), {}, [](World& world) {
    Communicator all = world.world();
    const std::vector<Rank> order{3, 2, 1, 0};
    const std::vector<const char*> names{"direct", "ring", "halving_doubling"};
    constexpr std::size_t kCount = 40000;  // too large for a board
    std::vector<std::int32_t> in(kCount, 1), out(kCount);
    const auto sum = [&](Communicator comm) {
      const Status s = comm.all_reduce(in.data(), out.data(), kCount, DType::kInt32, RedOp::kSum);
      EXPECT_TRUE(s.ok()) << s.to_string();
      return s.ok();
    };
    std::vector<Communicator> kept;
    for (const char* best : names) {
      kept.push_back(all.subset(order));
      if (!sum(kept.back())) return;
      if (all.rank() != 0) kept.clear();
      for (const char* name : names)  // newer times have more weight, so this one is now best
        for (int i = 0; i < 50; ++i)
          Internals::learn(all, Collective::kAllReduce, kCount * sizeof(std::int32_t), name,
                           name == best ? 1 : 1000);
      Communicator again = all.subset(order);
      if (!sum(again)) return;
    }
  });
  setenv("WEFT_PROFILE", "off", 1);
}

// With a declared rate, ranks do not measure it, so all must use the same one.
TEST(SameChoice, ADeclaredRateIsThatOfAllRanks) {
  const auto where = places({1, 1});
  auto jobs = local_jobs(2);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < where.size(); ++r)
    threads.emplace_back([&, r] {
      WorldOptions options;
      options.timeout = std::chrono::seconds(5);
      options.rail_gbps = r == 0 ? 10 : 0;
      try {
        const World world(std::move(jobs[r]), where[r], options);
        ADD_FAILURE() << "no error";
      } catch (const Error& e) {
        EXPECT_THAT(e.what(),
                    ::testing::HasSubstr("rate of a rail in Gb/s (0: none) is 10 on rank 0 "
                                         "and 0 on rank 1; WEFT_RAIL_GBPS"));
      }
    });
  for (auto& t : threads) t.join();
}

}  // namespace
}  // namespace weft
