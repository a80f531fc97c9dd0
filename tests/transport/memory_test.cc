// weft::alloc: what no memory holds is refused, however it is asked for.
#include "transport/memory.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "topo/status.h"

namespace weft {
namespace {

TEST(Memory, MoreThanThereIsIsRefused) {
  for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 8})
    EXPECT_THROW(alloc(bytes), Error) << bytes;
  EXPECT_THROW(alloc_array<float>(SIZE_MAX), Error);
  // So many that their bytes, modulo 2^64, are 4.
  EXPECT_THROW(alloc_array<float>(SIZE_MAX / 4 + 2), Error);
}

}  // namespace
}  // namespace weft
