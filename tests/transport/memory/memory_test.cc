// weft::alloc: what no memory holds is refused, however it is asked for.
#include "transport/memory/memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <string>

#include "topo/base/status.h"

namespace weft {
namespace {

TEST(Memory, MoreThanThereIsIsRefused) {
  for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 8})
    EXPECT_THROW(alloc(bytes), Error) << bytes;
  EXPECT_THROW(alloc_array<float>(SIZE_MAX), Error);
  // So many that their bytes, modulo 2^64, are 4.
  EXPECT_THROW(alloc_array<float>(SIZE_MAX / 4 + 2), Error);
}

// It was killed: shared memory is a file to the kernel.
TEST(Memory, MoreThanAFileMayHaveIsAnError) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit low{1 << 20, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  std::string said;
  try {
    alloc(4 << 20);
  } catch (const Error& e) {
    said = e.what();
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_NE(said.find("ulimit -f"), said.npos) << said;
}

}  // namespace
}  // namespace weft
