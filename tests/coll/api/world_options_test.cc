// labels: multiproc
// ctest: whole
// WorldOptions::algorithm: the default of every call, and refused names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "coll/api/communicator.h"
#include "support/jobs/ranks.h"
#include "transport/job/bootstrap.h"

namespace weft {
namespace {

using testing::places;
using testing::run_ranks;

std::string algorithm_of_a_sum(Communicator comm, std::size_t count) {
  std::vector<std::int32_t> in(count, comm.rank() + 1), out(count);
  comm.all_reduce(in.data(), out.data(), count, DType::kInt32, RedOp::kSum).check();
  const int n = comm.size();
  EXPECT_THAT(out, ::testing::Each(n * (n + 1) / 2));
  return comm.last_algorithm();
}

TEST(WorldOptionsAlgorithm, IsTheDefaultOfEveryCall) {
  WorldOptions options;
  options.algorithm = "ring";
  run_ranks(places({4}), options, [](World& world) {
    Communicator all = world.world();
    for (const std::size_t count : {1ul, 1000ul, 100000ul})
      EXPECT_EQ(algorithm_of_a_sum(all, count), "ring");
    EXPECT_EQ(algorithm_of_a_sum(all.split(0, -all.rank()), 1000), "ring");
    // Collectives without an algorithm of that name use their default.
    std::vector<std::int32_t> in(4, all.rank()), out(4);
    all.all_to_all(in.data(), out.data(), 1, DType::kInt32).check();
    EXPECT_THAT(out, ::testing::ElementsAre(0, 1, 2, 3));
    all.set_algorithm(Collective::kAllReduce, "direct");
    EXPECT_EQ(algorithm_of_a_sum(all, 1000), "direct");
  });
}

TEST(WorldOptionsAlgorithm, AnUnknownNameIsNamedWithThoseThereAre) {
  WorldOptions options;
  options.algorithm = "rign";
  try {
    World world(std::move(local_jobs(1).front()), places({1}).front(), options);
    FAIL() << "made a World";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), ::testing::HasSubstr("'rign'"));
    EXPECT_THAT(e.what(), ::testing::HasSubstr("halving_doubling"));
  }
}

}  // namespace
}  // namespace weft
