// labels: multiproc
// Operation ids wrap around after billions of operations, and never equal ids reserved for the
// transports' own messages.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <vector>

#include "support/jobs/communicator_inside.h"
#include "support/jobs/ranks.h"
#include "transport/integrity/checked.h"

namespace weft {
namespace {

using testing::places;
using testing::run_ranks;

TEST(OperationIds, BeginAnewBeforeThoseOfTransports) {
  for (const bool integrity : {false, true}) {
    SCOPED_TRACE(integrity ? "integrity" : "plain");
    WorldOptions options;
    options.transport = "tcp";
    options.timeout = std::chrono::seconds(20);
    options.integrity = integrity;
    run_ranks(places({1, 1}), options, [](World& world) {
      Communicator comm = world.world();
      {
        Core& core = *CommunicatorInside::of(comm).core;
        const CoreLock lock(core.mutex);
        core.tasks.number_from(kCheckedIds - 4);
      }
      std::vector<std::int32_t> in(20000, 1), out(in.size());
      for (int i = 0; i < 10; ++i) {
        const Status s =
            comm.all_reduce(in.data(), out.data(), in.size(), DType::kInt32, RedOp::kSum);
        ASSERT_TRUE(s.ok()) << s.to_string();
        ASSERT_EQ(out, std::vector<std::int32_t>(in.size(), 2));
      }
    });
  }
}

}  // namespace
}  // namespace weft
