// Hand-written jobs on the simulated fabric, which test the basis of storm_test.
// labels: sim
#include "support/jobs/simulate_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "topo/base/status.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr double kDeadlineUs = 5000;

// `ranks` ranks, each on a separate host, without data; communicator 1 is a duplicate of the world.
class Job {
 public:
  explicit Job(int ranks) {
    for (int r = 0; r < ranks; ++r) options.fabric.host_of_rank.push_back(r);
    options.fabric.carry_data = false;
    options.deadline_us = kDeadlineUs;
    for (int communicator : {0, 1}) {
      SimCall call;
      call.communicator = communicator;
      call.algorithm = find_algorithm(Collective::kAllReduce, "ring");
      call.count = 100000;
      calls.push_back(call);
    }
    programs.assign(static_cast<std::size_t>(ranks), {{0, 1}, 1});
  }
  std::vector<SimOutcome> run() {
    SimJob job(options);
    std::vector<Rank> world;
    for (Rank r = 0; r < job.fabric().nranks(); ++r) world.push_back(r);
    EXPECT_EQ(job.communicator(world), 1);
    return job.run(calls, programs);
  }

  SimJobOptions options;
  std::vector<SimCall> calls;
  std::vector<SimProgram> programs;
};

void expect_all(const std::vector<SimOutcome>& outcomes, Code code, const std::string& text) {
  for (const SimOutcome& o : outcomes) {
    if (!o.alive) continue;
    EXPECT_EQ(o.status.code(), code) << o.status.to_string();
    EXPECT_THAT(o.status.message(), HasSubstr(text));
    EXPECT_EQ(o.status.to_string(), outcomes[0].status.to_string());
  }
}

TEST(SimulatedJob, CallsOfTwoCommunicatorsMayCrossWhereNobodyWaits) {
  Job job(4);
  job.programs[2] = {{1, 0}, 2};
  for (SimProgram& p : job.programs) p.window = 2;
  expect_all(job.run(), Code::kOk, "");
}

// Rank 2 waits in the second communicator, the others in the first: the deadline ends this.
TEST(SimulatedJob, CallsThatCrossAndWaitEndAtTheDeadline) {
  Job job(4);
  job.programs[2] = {{1, 0}, 1};
  const auto outcomes = job.run();
  expect_all(outcomes, Code::kTimeout, "waits for rank");
  for (const SimOutcome& o : outcomes) EXPECT_LE(o.ended_us, 2 * kDeadlineUs);
}

TEST(SimulatedJob, ARankThatNeverCallsEndsTheOthersAtTheDeadline) {
  Job job(3);
  job.programs[1].order.clear();
  const auto outcomes = job.run();
  EXPECT_TRUE(outcomes[1].status.ok());
  for (const Rank r : {0, 2}) {
    EXPECT_EQ(outcomes[static_cast<std::size_t>(r)].status.code(), Code::kTimeout);
    EXPECT_LE(outcomes[static_cast<std::size_t>(r)].ended_us, 2 * kDeadlineUs);
  }
}

TEST(SimulatedJob, AStoppedRankIsNamed) {
  Job job(4);
  job.options.pauses = {{3, 10, std::nullopt}};
  const auto outcomes = job.run();
  EXPECT_FALSE(outcomes[3].alive);
  expect_all(outcomes, Code::kPeerFailed, "rank 3 is silent");
}

TEST(SimulatedJob, ASlowRankIsWaitedFor) {
  Job job(4);
  job.options.pauses = {{3, 0, 0.9 * kDeadlineUs}};
  const auto outcomes = job.run();
  expect_all(outcomes, Code::kOk, "");
  EXPECT_GT(outcomes[0].ended_us, 0.9 * kDeadlineUs);
}

TEST(SimulatedJob, ALostMessageIsNamedByItsTwoEnds) {
  Job job(4);
  job.options.fabric.lose_message = 17;
  expect_all(job.run(), Code::kTransport, "bytes from rank ");
}

TEST(SimulatedJob, ADeathIsToldToAllEvenToThoseWhoDoNotTalkToIt) {
  Job job(6);
  job.options.fabric.failures = {{.at_us = 1, .rank = 4}};
  const auto outcomes = job.run();
  EXPECT_FALSE(outcomes[4].alive);
  expect_all(outcomes, Code::kPeerFailed, "rank 4 died at 1 us");
  for (const SimOutcome& o : outcomes)
    EXPECT_LE(o.ended_us, 1 + job.options.fabric.detect_us + job.options.verdict_us + 1);
}

TEST(SimulatedJob, RefusesWhatCannotBe) {
  Job job(2);
  job.calls[0].communicator = 0;
  job.options.fabric.carry_data = true;
  EXPECT_THROW(job.run(), Error);
  SimJob other(job.options);
  EXPECT_THROW(other.communicator({0, 2}), Error);
}

}  // namespace
}  // namespace weft
