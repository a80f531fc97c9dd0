// labels: multiproc
// Runs the calls of docs/tutorials/moving-from-nccl-or-mpi.md, which quotes this file.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "coll/api/communicator.h"
#include "support/process/shell.h"

namespace weft {
namespace {

TEST(Moving, ThePageIsTrue) {
  auto world = World::from_environment();  // MPI_Init, ncclCommInitRank: rank, size, addresses
  Communicator comm = world->world();      // MPI_COMM_WORLD
  const int n = comm.size(), me = comm.rank();

  std::vector<float> gradient(1000, static_cast<float>(me));
  comm.all_reduce(gradient.data(), gradient.data(), gradient.size(), DType::kFloat32, RedOp::kAvg)
      .check();
  EXPECT_EQ(gradient[999], static_cast<float>(n - 1) / 2);

  const Rank next = (me + 1) % n, previous = (me + n - 1) % n;
  std::int64_t mine = me, theirs = -1;
  const Message messages[] = {Message::to(next, &mine, 1, DType::kInt64),
                              Message::from(previous, &theirs, 1, DType::kInt64)};
  comm.exchange(messages).check();
  EXPECT_EQ(theirs, previous);

  std::vector<std::size_t> sent(n), received(n, me + 1);
  std::iota(sent.begin(), sent.end(), 1);
  std::vector<std::int32_t> out(n * (n + 1) / 2, me), in(n * (me + 1));
  comm.all_to_all_v(out.data(), sent, in.data(), received, DType::kInt32).check();
  EXPECT_EQ(in.back(), n - 1);

  double x = me, sum = 0;
  Request handle = comm.all_reduce_async(&x, &sum, 1, DType::kFloat64, RedOp::kSum);
  // ... something else ...
  handle.wait().check();
  EXPECT_EQ(sum, n * (n - 1) / 2.0);
}

TEST(Moving, OnFourRanks) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  const Output output =
      run(fmt::format("{} launch -N 4 -- {} --gtest_filter=*PageIsTrue", WEFT_BINARY, self));
  EXPECT_EQ(output.exit_code, 0) << output.text;
}

}  // namespace
}  // namespace weft
