// shrink() of a job over sockets, by threads: who goes on, and who is told that it does not.
// labels: multiproc
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/rendezvous_helpers.h"

namespace weft {
namespace {

using namespace test;
using ::testing::HasSubstr;

std::string shrink_error(Job& job) {
  try {
    (void)job.shrink();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(ShrinkOverSockets, RankZeroIsToldWhereTheOthersWentOnWithoutIt) {
  auto jobs = connect_all(Specs(3, 300ms).specs);
  on_each(jobs, [](Job& job) { (void)job.all_gather("here"); });
  jobs[2].job->report(Status(Code::kTransport, "a cable", kNoRank));
  ASSERT_TRUE(eventually([&] { return jobs[0].job->failed() && jobs[1].job->failed(); }));
  // Rank 0 does something else for longer than they wait.
  std::vector<Outcome> others(2);
  std::vector<std::thread> threads;
  for (const std::size_t r : {1, 2})
    threads.emplace_back([&, r] { others[r - 1].job = jobs[r].job->shrink(); });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(others[0].job->size(), 2);
  EXPECT_EQ(others[1].job->size(), 2);
  EXPECT_THAT(shrink_error(*jobs[0].job), HasSubstr("the others go on without rank 0"));
  leave_all(others);
  leave_all(jobs);
}

}  // namespace
}  // namespace weft
