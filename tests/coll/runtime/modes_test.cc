// Ranks with different settings: every rank's error names the setting, both values, and their
// sources.
// sanitize: address threads
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/jobs/ranks.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

// The errors of 3 ranks on 2 hosts when rank 2 has other options.
std::vector<std::string> errors_where(const std::function<void(WorldOptions&)>& differ) {
  auto jobs = local_jobs(3);
  const auto where = testing::places({1, 2});
  std::vector<std::string> errors(jobs.size());
  std::vector<std::thread> ranks;
  for (std::size_t r = 0; r < jobs.size(); ++r)
    ranks.emplace_back([&, r] {
      WorldOptions options;
      if (r == 2) differ(options);
      try {
        World world(std::move(jobs[r]), where[r], options);
      } catch (const Error& e) {
        errors[r] = e.what();
      }
    });
  for (std::thread& t : ranks) t.join();
  return errors;
}

TEST(Modes, ThatDifferAreNamedOnEveryRank) {
  const struct {
    std::function<void(WorldOptions&)> differ;
    const char* text;
  } cases[] = {
      {[](WorldOptions& o) { o.transport = "tcp"; },
       "the transport is auto on rank 0 and tcp on rank 2; WorldOptions::transport must be the "
       "same on all ranks"},
      {[](WorldOptions& o) { o.transport = "shm"; }, "the transport is auto on rank 0 and shm on"},
      {[](WorldOptions& o) { o.cross_rail = "never"; },
       "cross_rail is auto on rank 0 and never on rank 2; WEFT_CROSS_RAIL and "},
      {[](WorldOptions& o) { o.integrity = true; }, "integrity mode is off on rank 0 and on on"},
      {[](WorldOptions& o) { o.deterministic = true; },
       "deterministic mode is off on rank 0 and on on rank 2; WEFT_DETERMINISTIC and "},
      {[](WorldOptions& o) { o.failover = false; }, "failover of rails is on on rank 0 and off on"},
      {[](WorldOptions& o) { o.spread = false; },
       "spreading over rails is on on rank 0 and off on"},
      {[](WorldOptions& o) { o.rail_gbps = 40; },
       "the declared rate of a rail in Gb/s (0: none) is 0 on rank 0 and 40 on rank 2; "},
      {[](WorldOptions& o) { o.slow_ports = "0:0=0.5, 1:0=0.5"; },
       "the list of slow ports is none on rank 0 and 0:0=0.5,_1:0=0.5 on rank 2; WEFT_SLOW_PORTS"}};
  for (const auto& c : cases)
    for (const std::string& error : errors_where(c.differ)) EXPECT_THAT(error, HasSubstr(c.text));
}

}  // namespace
}  // namespace weft
