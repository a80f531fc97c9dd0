// labels: multiproc waits
// sanitize: long
// Jobs that hang at a random moment, for every cause that real processes can have: every rank's
// error names the root cause, and so does `weft doctor`.
//
// WEFT_TEST_SEED repeats a run.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "coll/api/communicator.h"
#include "support/jobs/processes.h"
#include "support/jobs/ranks.h"
#include "support/jobs/setting.h"
#include "support/process/shell.h"
#include "support/process/temporary_folder.h"
#include "tests/coll/hanging_job.h"
#include "transport/ucx/ucx.h"

namespace weft {
namespace {

using std::chrono::milliseconds;
using ::testing::ContainsRegex;
using testing::HangingJob;
using testing::HangNote;
using ::testing::HasSubstr;
using testing::kHangLimit;
using testing::Processes;
using testing::seed;
using testing::Setting;

// kPatience: by this time all ranks have begun the call.
constexpr milliseconds kDeadline{1500}, kPatience{3000};

// Stuck in user code until the process is killed.
Status in_own_code(HangNote& note) {
  note.stuck = true;
  for (;;) std::this_thread::sleep_for(milliseconds(50));
  return {};
}

class Hang : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (needs_ucx(GetParam()) && !ucx_available()) GTEST_SKIP() << "missing capability: UCX";
    random_.seed(seed());
    n_ = ranks_of(GetParam());
    victim_ = static_cast<Rank>(random_() % static_cast<unsigned>(n_));
    rounds_ = 5 + static_cast<int>(random_() % 30);
  }
  // The next call of all ranks but the victim.
  static Status next_call(World& world) {
    std::vector<float> data(300000, 1), result(data.size());
    return world.world().all_reduce(data.data(), result.data(), data.size(), DType::kFloat32,
                                    RedOp::kSum);
  }

  std::mt19937 random_;
  int n_ = 0, rounds_ = 0;
  Rank victim_ = 0;
};

// Causes diagnosed from received messages, which are tested on every transport. The other causes
// are diagnosed from the ranks' own state.
class HangOnAWire : public Hang {};

// The next call's sequence number, which also counts the World's internal calls.
constexpr const char* kCall = "all_reduce #[0-9]+";

TEST_P(HangOnAWire, ARankThatNeverCalls) {
  HangingJob job(GetParam(), rounds_, kDeadline, [&](World& world, HangNote& note) {
    return world.rank() == victim_ ? in_own_code(note) : next_call(world);
  });
  job.expect(victim_, Code::kTimeout,
             fmt::format("rank {} never called {} .last: #[0-9]+, .* ago; .* in its own code",
                         victim_, kCall));
  job.let_go();
}

TEST_P(Hang, AStoppedRank) {
  HangingJob job(GetParam(), rounds_, kDeadline, [&](World& world, HangNote& note) {
    return world.rank() == victim_ ? in_own_code(note) : next_call(world);
  });
  ASSERT_TRUE(job.stuck(victim_));
  job.processes().signal(victim_, SIGSTOP);
  job.expect(victim_, Code::kPeerFailed,
             fmt::format("rank {} never called {} .last: #[0-9]+, .* ago; stopped in state T",
                         victim_, kCall));
  job.let_go();
}

// `weft doctor` runs while all ranks are stuck, long before the deadline.
TEST_P(Hang, TheDoctorFromOutside) {
  HangingJob job(GetParam(), rounds_, kHangLimit, [&](World& world, HangNote& note) {
    return world.rank() == victim_ ? in_own_code(note) : next_call(world);
  });
  ASSERT_TRUE(job.stuck(victim_));
  nlohmann::json report;
  EXPECT_TRUE(job.until([&] {
    report = job.doctor(victim_);
    return report["critical"] == true;
  }));
  EXPECT_EQ(report["cause"], "not called") << report;
  EXPECT_EQ(report["rank"], victim_);
  EXPECT_TRUE(report["control_plane"]);
  ASSERT_EQ(report["ranks"].size(), static_cast<std::size_t>(n_));
  for (const auto& rank : report["ranks"]) EXPECT_TRUE(rank["own"]) << rank;
  // A stopped rank does not answer; its neighbors read its recorder.
  job.processes().signal(victim_, SIGSTOP);
  EXPECT_TRUE(job.until([&] {
    report = job.doctor((victim_ + 1) % n_);
    return report["cause"] == "stopped";
  })) << report;
  EXPECT_EQ(report["rank"], victim_);
  ASSERT_EQ(report["ranks"].size(), static_cast<std::size_t>(n_));
  EXPECT_EQ(report["ranks"][static_cast<std::size_t>(victim_)]["state"], "T");
}

// A rank that is late but within the deadline: no error, and the doctor names it.
TEST_P(Hang, ALateRankIsNoHang) {
  HangingJob job(GetParam(), rounds_, kHangLimit, [&](World& world, HangNote& note) {
    if (world.rank() == victim_) {
      note.stuck = true;
      while (!note.seen) std::this_thread::sleep_for(milliseconds(1));
    }
    return next_call(world);
  });
  ASSERT_TRUE(job.stuck(victim_));
  const Output output =
      run(fmt::format("{} doctor --pid {}", WEFT_BINARY, job.processes().pid(victim_)));
  job.note(victim_).seen = true;
  EXPECT_EQ(output.exit_code, 0) << output.text;
  EXPECT_THAT(output.text, HasSubstr("OK"));
  EXPECT_TRUE(job.processes().wait(kHangLimit));
  for (Rank r = 0; r < n_; ++r) EXPECT_EQ(job.note(r).code, Code::kOk) << job.note(r).message;
}

TEST_P(Hang, AnAsynchronousCallThatGetsNoTime) {
  HangingJob job(GetParam(), rounds_, kDeadline, [&](World& world, HangNote& note) {
    if (world.rank() != victim_) return next_call(world);
    std::vector<float> data(300000, 1), result(data.size());
    const Request handle = world.world().all_reduce_async(data.data(), result.data(), data.size(),
                                                          DType::kFloat32, RedOp::kSum);
    return in_own_code(note);
  });
  job.expect(victim_, Code::kTimeout,
             fmt::format("rank {} began {} .* ago and does not wait for it", victim_, kCall));
}

TEST_P(HangOnAWire, AMessageThatIsNeverSent) {
  const Rank waiter = (victim_ + 1) % n_;
  HangingJob job(GetParam(), rounds_, kDeadline, [&](World& world, HangNote& note) {
    if (world.rank() != waiter) return in_own_code(note);
    int data = 0;
    return world.world().recv(&data, 1, DType::kInt32, victim_);
  });
  ASSERT_TRUE(job.until([&] { return job.note(waiter).returned.load(); }));
  EXPECT_EQ(job.note(waiter).blamed, victim_);
  EXPECT_THAT(
      std::string(job.note(waiter).message),
      ContainsRegex(fmt::format("rank {} never called send #[0-9]+ to rank {}", victim_, waiter)));
}

// Ranks use two communicators in different order.
TEST_P(Hang, DifferentOrderOfTwoCommunicators) {
  HangingJob job(GetParam(), rounds_, kDeadline, [&](World& world, HangNote&) {
    Communicator all = world.world(), some = world.host();
    if (some.size() < world.size()) some = all.duplicate();
    std::vector<float> data(100000, 1), result(data.size());
    const auto reduce = [&](Communicator& comm) {
      return comm.all_reduce(data.data(), result.data(), data.size(), DType::kFloat32, RedOp::kSum);
    };
    const bool odd = world.rank() == victim_;
    const Status first = reduce(odd ? some : all);
    return first.ok() ? reduce(odd ? all : some) : first;
  });
  EXPECT_TRUE(job.all_returned_but(kNoRank));
  for (Rank r = 0; r < n_; ++r) {
    EXPECT_EQ(job.note(r).code, Code::kTimeout) << job.note(r).message;
    EXPECT_THAT(std::string(job.note(r).message), HasSubstr("ranks wait for each other: rank"));
    EXPECT_THAT(std::string(job.note(r).message),
                HasSubstr(fmt::format("rank {} is in all_reduce #", victim_)));
    EXPECT_THAT(std::string(job.note(r).message), HasSubstr("same order on all ranks"));
  }
  job.let_go();
}

// A different call is found at once if its messages match, otherwise at the deadline.
TEST_P(HangOnAWire, OtherArguments) {
  HangingJob job(GetParam(), rounds_, kPatience, [&](World& world, HangNote&) {
    if (world.rank() != victim_) return next_call(world);
    std::vector<float> data(300000, 1);
    const Rank root = (victim_ + 1) % n_;
    return world.world().broadcast(data.data(), data.data(), 300000, DType::kFloat32, root);
  });
  EXPECT_TRUE(job.all_returned_but(victim_));
  for (Rank r = 0; r < n_; ++r) {
    if (r == victim_) continue;
    EXPECT_EQ(job.note(r).code, Code::kMismatch) << job.note(r).message;
    EXPECT_THAT(
        std::string(job.note(r).message),
        ::testing::AllOf(ContainsRegex("#[0-9]+"), ContainsRegex("rank [0-9].*rank [0-9]")));
  }
  job.let_go();
}

// A rank that passes 0 sends no message that could reveal the mismatch.
TEST_P(HangOnAWire, NothingWhereSomethingIsExpected) {
  const Rank waiter = (victim_ + 1) % n_;
  HangingJob job(GetParam(), rounds_, kPatience, [&](World& world, HangNote&) {
    const auto n = static_cast<std::size_t>(n_);
    std::vector<std::size_t> sent(n, 100), expected(n, 100);
    if (world.rank() == victim_) sent[static_cast<std::size_t>(waiter)] = 0;
    std::vector<float> in(100 * n, 1), out(100 * n);
    const Status status =
        world.world().all_to_all_v(in.data(), sent, out.data(), expected, DType::kFloat32);
    return status.ok() ? world.world().barrier() : status;
  });
  EXPECT_TRUE(job.all_returned_but(kNoRank));
  for (Rank r = 0; r < n_; ++r) {
    const std::string message = job.note(r).message;
    EXPECT_TRUE(job.note(r).code == Code::kMismatch || job.note(r).code == Code::kTimeout);
    EXPECT_THAT(message, ContainsRegex("all_to_all_v #[0-9]+"));
    // Counters of the ports may be between the two halves of the error (TCP may retransmit).
    EXPECT_THAT(message, ContainsRegex(fmt::format(
                             "rank {} expects elements from rank {}, which sends it fewer|"
                             "what rank {} sent in .* has not reached rank {};.* or the "
                             "counts that both passed for it differ",
                             waiter, victim_, victim_, waiter)));
  }
  job.let_go();
}

// Mismatches that no message reveals: the verdict finds them.
TEST_P(Hang, OtherCountsWithoutAMessage) {
  HangingJob job(GetParam(), rounds_, kPatience, [&](World& world, HangNote&) {
    const auto n = static_cast<std::size_t>(n_);
    // All ranks reduce to one rank; the victim takes itself for that rank.
    const Rank owner = world.rank() == victim_ ? victim_ : (victim_ + 1) % n_;
    std::vector<std::size_t> counts(n, 0);
    counts[static_cast<std::size_t>(owner)] = 10;
    std::vector<float> in(10, 1), out(10);
    const Status status =
        world.world().reduce_scatter_v(in.data(), out.data(), counts, DType::kFloat32, RedOp::kSum);
    return status.ok() ? world.world().barrier() : status;
  });
  EXPECT_TRUE(job.all_returned_but(kNoRank));
  for (Rank r = 0; r < n_; ++r) {
    EXPECT_EQ(job.note(r).code, Code::kMismatch) << job.note(r).message;
    EXPECT_THAT(std::string(job.note(r).message), ContainsRegex("reduce_scatter_v #[0-9]+"));
    EXPECT_THAT(std::string(job.note(r).message),
                ContainsRegex(fmt::format("rank {} passed", victim_)));
  }
  job.let_go();
}

TEST_P(Hang, AnotherRootWithoutAMessage) {
  HangingJob job(GetParam(), rounds_, kPatience, [&](World& world, HangNote&) {
    const auto n = static_cast<std::size_t>(n_);
    const Rank root = world.rank() == victim_ ? victim_ : (victim_ + 1) % n_;
    std::vector<float> in(100000, 1), out(100000 * n);
    const Status status =
        world.world().gather(in.data(), out.data(), in.size(), DType::kFloat32, root);
    return status.ok() ? world.world().barrier() : status;
  });
  EXPECT_TRUE(job.all_returned_but(kNoRank));
  for (Rank r = 0; r < n_; ++r) {
    EXPECT_EQ(job.note(r).code, Code::kMismatch) << job.note(r).message;
    EXPECT_THAT(std::string(job.note(r).message), ContainsRegex("gather #[0-9]+"));
    EXPECT_THAT(std::string(job.note(r).message),
                ContainsRegex(fmt::format("root {}", (victim_ + 1) % n_)));
  }
  job.let_go();
}

const Setting kSettings[] = {{"shm3", {3}, "auto"},
                             {"mixed2x2", {2, 2}, "auto"},
                             {"tcp3", {3}, "tcp"},
                             {"ucx3", {3}, "ucx"}};
INSTANTIATE_TEST_SUITE_P(Settings, HangOnAWire, ::testing::ValuesIn(kSettings),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(Settings, Hang, ::testing::Values(kSettings[0], kSettings[1]),
                         [](const auto& info) { return std::string(info.param.name); });

// A rank dies while all are in user code: its recorder's page still exists.
TEST(Doctor, ReadsTheRecorderOfADeadRank) {
  const Setting shm3{"shm3", {3}, "auto"};
  HangingJob job(shm3, 7, kHangLimit, [&](World&, HangNote& note) { return in_own_code(note); });
  for (Rank r = 0; r < 3; ++r) ASSERT_TRUE(job.stuck(r));
  job.processes().signal(1, SIGKILL);
  ASSERT_TRUE(job.until([&] { return job.processes().code(1) != Processes::kRuns; }));
  const auto report = job.doctor(0);
  EXPECT_EQ(report["cause"], "dead") << report;
  EXPECT_EQ(report["rank"], 1);
  EXPECT_THAT(std::string(report["text"]),
              ContainsRegex("its last call: all_reduce #[0-9]+, done"));
}

TEST(Doctor, SaysWhenThereIsNoJob) {
  const Output output = run(fmt::format("{} doctor --pid 1", WEFT_BINARY));
  EXPECT_EQ(output.exit_code, 3) << output.text;
  EXPECT_THAT(output.text, HasSubstr("no such job"));
}

TEST(Doctor, TheVerdictIsAFileToo) {
  const testing::TemporaryFolder folder;
  const std::string file = folder / "verdict.json";
  setenv("WEFT_DOCTOR_JSON", file.c_str(), 1);
  const Setting shm3{"shm3", {3}, "auto"};
  {
    HangingJob job(shm3, 5, kDeadline, [&](World& world, HangNote& note) {
      // A rank with the same pid in another container may be writing its file.
      std::filesystem::create_directory(fmt::format("{}.{}", file, getpid()));
      return world.rank() == 2 ? in_own_code(note) : world.world().barrier();
    });
    job.expect(2, Code::kTimeout, "rank 2 never called barrier #[0-9]+");
    job.let_go();
  }
  unsetenv("WEFT_DOCTOR_JSON");
  std::ifstream in(file);
  const auto json = nlohmann::json::parse(in, nullptr, false);
  EXPECT_EQ(json["cause"], "not called") << json;
  EXPECT_EQ(json["rank"], 2);
}

}  // namespace
}  // namespace weft
