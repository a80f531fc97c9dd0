// labels: multiproc
// ctest: whole
// Ranks that die, stop, or diverge at a random moment: every other rank gets an error that names
// them, before its deadline plus a margin, and no rank ever sees wrong data.
//
// WEFT_TEST_SEED repeats a run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include "coll/api/communicator.h"
#include "support/jobs/processes.h"
#include "support/jobs/ranks.h"
#include "support/jobs/setting.h"
#include "tests/coll/failing_job.h"
#include "transport/ucx/ucx.h"

namespace weft {
namespace {

using std::chrono::milliseconds;
using testing::kHang;
using testing::kTimeout;
using testing::Note;
using testing::Processes;
using testing::ranks_of;
using testing::seed;
using testing::Setting;
using testing::Shared;
using testing::Workload;

std::set<std::string> names_in_dev_shm() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    if (entry.path().string().find("weft") != std::string::npos) names.insert(entry.path());
  return names;
}

// Whether the process maps a name in /dev/shm, which would outlive a killed process.
bool maps_dev_shm(pid_t pid) {
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string line; std::getline(maps, line);)
    if (line.find("/dev/shm/") != std::string::npos) return true;
  return false;
}

class Failure : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (needs_ucx(GetParam()) && !ucx_available()) GTEST_SKIP() << "missing capability: UCX";
    random_.seed(seed());
  }
  void pause(int most_ms) {
    std::this_thread::sleep_for(
        std::chrono::microseconds(random_() % (1000u * static_cast<unsigned>(most_ms))));
  }
  Rank any_rank(int n) { return static_cast<Rank>(random_() % static_cast<unsigned>(n)); }

  void hit(int signal, Rank victim, bool in_order) {
    Workload job(GetParam(), random_(), in_order);
    ASSERT_TRUE(job.started());
    pause(60);
    job.processes().signal(victim, signal);
    job.expect_blamed(victim);
  }

  std::mt19937 random_;
};

TEST_P(Failure, AKilledRankIsNamedByAllOthers) {
  const int n = ranks_of(GetParam());
  bool in_order = random_() % 2;
  for (const Rank victim : {Rank{0}, any_rank(n)}) {
    SCOPED_TRACE(fmt::format("victim {}{}", victim, in_order ? ", the others end in order" : ""));
    hit(SIGKILL, victim, in_order);
    if (HasFatalFailure()) return;
    in_order = !in_order;
  }
}

TEST_P(Failure, AStoppedRankIsNamedByAllOthers) {
  const int n = ranks_of(GetParam());
  const Rank victim = random_() % 2 ? 0 : any_rank(n);
  SCOPED_TRACE(fmt::format("victim {}", victim));
  hit(SIGSTOP, victim, random_() % 2);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, Failure,
    ::testing::Values(Setting{"shm2", {2}, "auto"}, Setting{"shm3", {3}, "auto"},
                      Setting{"shm4", {4}, "auto"}, Setting{"shm8", {8}, "auto"},
                      Setting{"tcp2", {2}, "tcp"}, Setting{"ucx3", {3}, "ucx"},
                      Setting{"tcp4", {4}, "tcp"}, Setting{"mixed2x2", {2, 2}, "auto"},
                      Setting{"mixed4x2", {2, 2, 2, 2}, "auto"}),
    [](const auto& info) { return std::string(info.param.name); });

class Interruption : public Failure {};

// A rank stopped for less than the deadline must not be taken for dead.
TEST_P(Interruption, AShortStopIsNoFailure) {
  Workload job(GetParam(), random_(), true);
  ASSERT_TRUE(job.started());
  const Rank last = job.size() - 1;
  for (const Rank victim : {Rank{0}, last}) {
    job.processes().signal(victim, SIGSTOP);
    std::this_thread::sleep_for(kTimeout / 2);
    job.processes().signal(victim, SIGCONT);
    const int before = job.note(last).rounds;
    EXPECT_TRUE(Processes::wait_until(kHang, [&] { return job.note(last).rounds > before + 5; }))
        << job.note(last).message;
  }
  job.finish();
  EXPECT_TRUE(job.processes().wait(kHang));
  for (Rank r = 0; r < job.size(); ++r) {
    EXPECT_EQ(job.processes().code(r), 0);
    EXPECT_EQ(job.note(r).code, Code::kOk) << job.note(r).message;
    EXPECT_FALSE(job.note(r).wrong);
  }
}

// Ctrl-Z and fg: all ranks stop for longer than the deadline.
TEST_P(Interruption, ALongStopOfAllRanksIsNoFailure) {
  Workload job(GetParam(), random_(), true);
  ASSERT_TRUE(job.started());
  for (Rank r = 0; r < job.size(); ++r) job.processes().signal(r, SIGSTOP);
  std::this_thread::sleep_for(kTimeout * 5 / 4);
  for (Rank r = 0; r < job.size(); ++r) job.processes().signal(r, SIGCONT);
  const int before = job.note(0).rounds;
  EXPECT_TRUE(Processes::wait_until(kHang, [&] { return job.note(0).rounds > before + 5; }))
      << job.note(0).message;
  job.finish();
  EXPECT_TRUE(job.processes().wait(kHang));
  for (Rank r = 0; r < job.size(); ++r) {
    EXPECT_EQ(job.processes().code(r), 0);
    EXPECT_EQ(job.note(r).code, Code::kOk) << job.note(r).message;
  }
}

// At any time after the start of main(): the constructor throws, or a collective fails.
TEST_P(Interruption, KilledWhileTheJobAssembles) {
  for (int i = 0; i < 3; ++i) {
    Workload job(GetParam(), random_(), true, milliseconds(3000));
    const Rank victim = any_rank(job.size());
    SCOPED_TRACE(fmt::format("victim {}", victim));
    pause(120);
    job.processes().signal(victim, SIGKILL);
    EXPECT_TRUE(job.processes().wait(kHang, victim)) << "a rank hangs";
    for (Rank r = 0; r < job.size(); ++r) {
      if (r == victim) continue;
      EXPECT_EQ(job.processes().code(r), 0) << "rank " << r;
      EXPECT_TRUE(job.note(r).threw || job.note(r).returned) << "rank " << r;
      EXPECT_NE(job.note(r).code, Code::kOk) << "rank " << r;
      EXPECT_NE(std::string(job.note(r).message).find(fmt::format("{}", victim)), std::string::npos)
          << "rank " << r << ": " << job.note(r).message;
    }
  }
}

// Nothing is left in /dev/shm if no process remains to clean up.
TEST_P(Interruption, AllKilledAtOnceLeaveNothing) {
  const auto before = names_in_dev_shm();
  {
    Workload job(GetParam(), random_(), true);
    ASSERT_TRUE(job.started());
    for (Rank r = 0; r < job.size(); ++r)
      EXPECT_FALSE(maps_dev_shm(job.processes().pid(r))) << "rank " << r;
    for (Rank r = 0; r < job.size(); ++r) job.processes().signal(r, SIGKILL);
    EXPECT_TRUE(job.processes().wait(kHang));
  }
  for (const std::string& name : names_in_dev_shm())
    EXPECT_TRUE(before.contains(name)) << name << " is left";
}

INSTANTIATE_TEST_SUITE_P(Settings, Interruption,
                         ::testing::Values(Setting{"shm3", {3}, "auto"},
                                           Setting{"ucx2", {2}, "ucx"},
                                           Setting{"mixed2x2", {2, 2}, "auto"}),
                         [](const auto& info) { return std::string(info.param.name); });

// Ranks make different calls. Runs call(comm) on every rank and collects the results.
void diverge(const Setting& s, const std::function<Status(Communicator&)>& call,
             const std::function<void(Rank, const Note&)>& check) {
  const int n = ranks_of(s);
  Shared<Note> notes(static_cast<std::size_t>(n));
  Processes processes(n, milliseconds(10000), [&](const JobSpec& spec) {
    WorldOptions options;
    options.transport = s.transport;
    options.timeout = kTimeout / 2;
    World world(connect(spec), testing::places(s.hosts)[static_cast<std::size_t>(spec.rank)],
                options);
    Communicator comm = world.world();
    const Status status = call(comm);
    notes[spec.rank].set(status.code(), status.rank(), status.message());
    notes[spec.rank].returned = true;
    return 0;
  });
  EXPECT_TRUE(processes.wait(kHang)) << "a rank hangs";
  for (Rank r = 0; r < n; ++r) {
    EXPECT_TRUE(notes[r].returned) << "rank " << r;
    check(r, notes[r]);
  }
}

const Setting kDivergent[] = {{"shm3", {3}, "auto"}, {"ucx3", {3}, "ucx"}, {"tcp3", {3}, "tcp"}};

TEST(Divergence, ARankThatDoesNotCallIsNamed) {
  for (const Setting& s : kDivergent) {
    if (needs_ucx(s) && !ucx_available()) continue;
    SCOPED_TRACE(s.name);
    for (const std::size_t count : {1ul, 300000ul})
      diverge(
          s,
          [count](Communicator& comm) -> Status {
            std::vector<float> data(count, 1);
            if (comm.rank() == 1) {  // in user code, but alive
              std::this_thread::sleep_for(kTimeout);
              return {};
            }
            return comm.all_reduce(data.data(), data.data(), count, DType::kFloat32, RedOp::kSum);
          },
          [](Rank r, const Note& note) {
            if (r == 1) return;
            EXPECT_EQ(note.code, Code::kTimeout) << "rank " << r << ": " << note.message;
            EXPECT_NE(note.blamed, kNoRank) << "rank " << r << ": " << note.message;
          });
  }
}

TEST(Divergence, DifferentCountsEndInAnError) {
  for (const Setting& s : kDivergent) {
    if (needs_ucx(s) && !ucx_available()) continue;
    SCOPED_TRACE(s.name);
    for (const std::size_t count : {300000ul, 5000000ul})
      diverge(
          s,
          [count](Communicator& comm) {
            const std::size_t mine = comm.rank() == 1 ? count / 2 : count;
            std::vector<float> data(mine, 1), result(mine);
            Status s =
                comm.all_reduce(data.data(), result.data(), mine, DType::kFloat32, RedOp::kSum);
            if (s.ok()) s = comm.barrier();  // successful ranks get the error here
            return s;
          },
          [](Rank r, const Note& note) {
            EXPECT_NE(note.code, Code::kOk) << "rank " << r;
            EXPECT_NE(note.blamed, kNoRank) << "rank " << r << ": " << note.message;
          });
  }
}

// A leaving rank ensures delivery of what it sent, over another rail if necessary, but not to ranks
// of a failed job.
TEST(FailureOfOthers, DoesNotKeepARankThatLeaves) {
  WorldOptions options;
  options.transport = "tcp";
  options.timeout = std::chrono::hours(1);
  std::atomic<bool> leaving = false;
  testing::run_ranks(testing::places({1, 1}, 2), options, [&](World& world) {
    Communicator comm = world.world();
    std::int32_t word = 0;
    if (comm.rank() == 0) {
      EXPECT_TRUE(comm.send(&word, 1, DType::kInt32, 1).ok());  // never received
      leaving = true;
    } else {
      while (!leaving) std::this_thread::yield();
      std::this_thread::sleep_for(milliseconds(200));
      world.abort("the other one waits for this");
      (void)comm.barrier();
    }
  });
}

TEST(Abort, IsHeardWhereNoCallWaits) {
  testing::run_ranks(testing::places({1}), {}, [](World& world) {
    Communicator comm = world.world();
    EXPECT_TRUE(comm.barrier().ok());
    world.abort("enough");
    Status s;
    for (int call = 0; call < 200 && s.ok(); ++call) s = comm.barrier();
    EXPECT_EQ(s.code(), Code::kAborted) << s.to_string();
  });
}

}  // namespace
}  // namespace weft
