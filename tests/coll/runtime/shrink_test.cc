// labels: multiproc waits
// unsanitized: Settings/Shrink.*
// abort() and shrink(): ranks are killed, stopped or abort; the others continue without them and
// get right results.
//
// WEFT_TEST_SEED repeats a run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <random>
#include <thread>

#include "coll/api/communicator.h"
#include "coll/api/metrics.h"
#include "coll/runtime/internals.h"
#include "support/jobs/processes.h"
#include "support/jobs/ranks.h"
#include "support/jobs/setting.h"
#include "support/process/read_file.h"
#include "support/process/temporary_folder.h"
#include "transport/ucx/ucx.h"

namespace weft {
namespace {

using std::chrono::milliseconds;
using testing::Processes;
using testing::ranks_of;
using testing::seed;
using testing::Setting;
using testing::Shared;

constexpr milliseconds kShrinkTimeout{3000}, kShrinkLimit{60000};

// A rank's report to the test.
struct ShrinkNote {
  std::atomic<int> rounds, size, former, failures, code;
  std::atomic<bool> wrong, threw;
  std::atomic<Rank> blamed;
  char message[400];
};
struct Orders {
  std::atomic<bool> finish;
  std::atomic<Rank> aborts;    // this rank calls abort(), from another thread
  std::atomic<int> die_early;  // a rank with this many failures dies before it shrinks
  std::atomic<Rank> dies;
};
// Addressed to no rank: zero-initialized orders would address rank 0.
struct NoOrders : Shared<Orders> {
  NoOrders() : Shared<Orders>(1) { (*this)[0].aborts = (*this)[0].dies = kNoRank; }
};

// One round: sums of all sizes over the world and over its halves, all checked.
Status one_round(Communicator& comm, Communicator& half, std::mt19937& random, bool& wrong) {
  static std::int64_t* shared = static_cast<std::int64_t*>(alloc(2 << 20));
  static std::vector<std::int64_t> own(2 << 17);
  const bool lent = random() % 2;
  std::int64_t* in = lent ? shared : own.data();
  std::int64_t* out = in + (1 << 17);
  const bool on_half = random() % 3 == 0;
  Communicator& c = on_half ? half : comm;
  const std::size_t count = 1 + random() % (1u << (random() % 17));
  std::int64_t base = 0;
  for (Rank r = 0; r < c.size(); ++r) base += c.world_rank(r);
  for (std::size_t i = 0; i < count; ++i)
    in[i] = c.world_rank(c.rank()) + static_cast<std::int64_t>(i);
  const Status s = c.all_reduce(in, out, count, DType::kInt64, RedOp::kSum);
  if (!s.ok()) return s;
  for (std::size_t i = 0; i < count; ++i)
    if (out[i] != base + c.size() * static_cast<std::int64_t>(i)) wrong = true;
  return s;
}

std::atomic<World*> world_to_abort{nullptr};
void on_signal(int) {
  if (World* world = world_to_abort) world->abort("SIGUSR1, said the handler");
}

class Job8 {
 public:
  explicit Job8(const Setting& s, unsigned seed)
      : n_(ranks_of(s)),
        notes_(static_cast<std::size_t>(n_)),
        processes_(n_, milliseconds(15000),
                   [&, seed](const JobSpec& spec) { return be_a_rank(s, spec, seed); }) {}
  ShrinkNote& note(Rank r) { return notes_[r]; }
  Orders& orders() { return orders_[0]; }
  Processes& processes() { return processes_; }
  int size() const { return n_; }

  // Waits until all ranks except `gone` have done that many rounds in a world of that size.
  ::testing::AssertionResult reach(int size, const std::vector<Rank>& gone, int rounds = 10) {
    std::vector<int> before;
    const bool there = Processes::wait_until(kShrinkLimit, [&] {
      for (Rank r = 0; r < n_; ++r)
        if (std::find(gone.begin(), gone.end(), r) == gone.end() && notes_[r].size != size)
          return false;
      return true;
    });
    for (Rank r = 0; r < n_; ++r) before.push_back(notes_[r].rounds);
    const bool works = there && Processes::wait_until(kShrinkLimit, [&] {
                         for (Rank r = 0; r < n_; ++r)
                           if (std::find(gone.begin(), gone.end(), r) == gone.end() &&
                               notes_[r].rounds < before[static_cast<std::size_t>(r)] + rounds)
                             return false;
                         return true;
                       });
    if (works) return ::testing::AssertionSuccess();
    std::string text = there ? "no rounds:" : "not that size:";
    for (Rank r = 0; r < n_; ++r)
      text += fmt::format("\n rank {}: size {}, {} rounds, {} failures, {} {}", r,
                          notes_[r].size.load(), notes_[r].rounds.load(), notes_[r].failures.load(),
                          notes_[r].threw ? "threw" : "", notes_[r].message);
    return ::testing::AssertionFailure() << text;
  }

  void finish(const std::vector<Rank>& gone) {
    orders_[0].finish = true;
    EXPECT_TRUE(Processes::wait_until(kShrinkLimit, [&] {
      for (Rank r = 0; r < n_; ++r)
        if (std::find(gone.begin(), gone.end(), r) == gone.end() &&
            processes_.code(r) == Processes::kRuns)
          return false;
      return true;
    })) << "a rank hangs";
    for (Rank r = 0; r < n_; ++r) {
      if (std::find(gone.begin(), gone.end(), r) != gone.end()) continue;
      EXPECT_EQ(processes_.code(r), 0) << "rank " << r;
      EXPECT_FALSE(notes_[r].wrong) << "rank " << r << " got wrong data";
      EXPECT_FALSE(notes_[r].threw) << "rank " << r << ": " << notes_[r].message;
    }
  }

 private:
  int be_a_rank(const Setting& s, const JobSpec& spec, unsigned seed) {
    ShrinkNote& note = notes_[spec.rank];
    WorldOptions options;
    options.transport = s.transport;
    options.timeout = kShrinkTimeout;
    JobSpec mine = spec;
    mine.timeout = kShrinkTimeout * 2;
    auto world = std::make_unique<World>(
        connect(mine), testing::places(s.hosts)[static_cast<std::size_t>(spec.rank)], options);
    note.former = spec.rank;
    std::signal(SIGUSR1, on_signal);
    std::thread aborter;
    for (int generation = 0;; ++generation) {
      world_to_abort = world.get();
      Communicator comm = world->world(), half;
      std::mt19937 random(seed + static_cast<unsigned>(generation));
      Status status;
      bool made = false;
      while (status.ok()) {
        if (!made) {
          try {
            half = comm.split(comm.rank() % 2);
          } catch (const Error& e) {
            status = world->failure();
            if (status.ok()) status = Status(Code::kInternal, e.what());
            break;
          }
          made = true;
          note.size = world->size();
        }
        if (orders_[0].aborts == spec.rank && !aborter.joinable())
          aborter = std::thread([&] { world->abort("enough"); });
        std::int32_t finish = orders_[0].finish, any = 0;
        status = comm.all_reduce(&finish, &any, 1, DType::kInt32, RedOp::kMax);
        if (!status.ok()) break;
        if (any) {
          if (aborter.joinable()) aborter.join();
          return 0;
        }
        bool wrong = false;
        // The halves draw the same random numbers, so each knows the other's calls.
        status = one_round(comm, half, random, wrong);
        if (wrong) note.wrong = true;
        if (status.ok()) ++note.rounds;
      }
      if (aborter.joinable()) aborter.join();
      std::snprintf(note.message, sizeof note.message, "%s", status.to_string().c_str());
      note.code = static_cast<int>(status.code());
      note.blamed = status.rank();
      ++note.failures;
      if (orders_[0].dies == spec.rank && note.failures >= orders_[0].die_early) {
        kill(getpid(), SIGKILL);
      }
      try {
        world_to_abort = nullptr;
        world = world->shrink();
      } catch (const Error& e) {
        std::snprintf(note.message, sizeof note.message, "%s", e.what());
        note.threw = true;
        _exit(0);
      }
    }
  }

  int n_;
  Shared<ShrinkNote> notes_;
  NoOrders orders_;  // initialized before the ranks fork
  Processes processes_;
};

class Shrink : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (needs_ucx(GetParam()) && !ucx_available()) GTEST_SKIP() << "missing capability: UCX";
    random_.seed(seed());
  }
  // A random rank other than 0.
  Rank any() { return 1 + static_cast<Rank>(random_() % static_cast<unsigned>(size() - 1)); }
  int size() const { return ranks_of(GetParam()); }
  void pause() { std::this_thread::sleep_for(std::chrono::microseconds(random_() % 40000)); }
  std::mt19937 random_;
};

// Runs on every transport, also with two ranks. Other tests vary which ranks fail and when.
class ShrinkOnAWire : public Shrink {};

#define START(job)                 \
  Job8 job(GetParam(), random_()); \
  ASSERT_TRUE(job.reach(size(), {}, 5))

TEST_P(ShrinkOnAWire, OneIsKilledAndTheOthersGoOn) {
  START(job);
  const Rank victim = any();
  SCOPED_TRACE(fmt::format("victim {}", victim));
  pause();
  job.processes().signal(victim, SIGKILL);
  ASSERT_TRUE(job.reach(size() - 1, {victim}));
  for (Rank r = 0; r < size(); ++r) {
    if (r == victim) continue;
    EXPECT_EQ(job.note(r).blamed, victim) << job.note(r).message;
  }
  // A second failure.
  const Rank second = victim == 1 ? 2 : 1;
  if (size() < 4) return job.finish({victim});
  job.processes().signal(second, SIGKILL);
  ASSERT_TRUE(job.reach(size() - 2, {victim, second}));
  job.finish({victim, second});
}

TEST_P(Shrink, TwoAreKilledAtOnce) {
  START(job);
  pause();
  job.processes().signal(1, SIGKILL);
  job.processes().signal(size() - 1, SIGKILL);
  ASSERT_TRUE(job.reach(size() - 2, {1, size() - 1}));
  job.finish({1, size() - 1});
}

TEST_P(Shrink, OneDiesWhileTheOthersShrink) {
  START(job);
  job.orders().die_early = 1;
  job.orders().dies = 2;
  pause();
  job.processes().signal(1, SIGKILL);
  ASSERT_TRUE(job.reach(size() - 2, {1, 2}));
  job.finish({1, 2});
}

TEST_P(ShrinkOnAWire, RankZeroIsReplaced) {
  START(job);
  pause();
  job.processes().signal(0, SIGKILL);
  ASSERT_TRUE(job.reach(size() - 1, {0}));
  // The new rank 0 works like the old one.
  if (size() < 4) return job.finish({0});
  job.processes().signal(2, SIGKILL);
  ASSERT_TRUE(job.reach(size() - 2, {0, 2}));
  job.processes().signal(1, SIGKILL);  // the new rank 0
  ASSERT_TRUE(job.reach(size() - 3, {0, 1, 2}));
  job.finish({0, 1, 2});
}

TEST_P(Shrink, RankZeroAndItsHeirDieTogether) {
  START(job);
  pause();
  job.processes().signal(0, SIGKILL);
  job.processes().signal(1, SIGKILL);
  ASSERT_TRUE(job.reach(size() - 2, {0, 1}));
  job.finish({0, 1});
}

TEST_P(Shrink, AStoppedRankIsLeftBehindAndToldSo) {
  START(job);
  const Rank victim = any();
  SCOPED_TRACE(fmt::format("victim {}", victim));
  pause();
  job.processes().signal(victim, SIGSTOP);
  ASSERT_TRUE(job.reach(size() - 1, {victim}));
  job.processes().signal(victim, SIGCONT);
  EXPECT_TRUE(Processes::wait_until(kShrinkLimit, [&] { return job.note(victim).threw.load(); }));
  ASSERT_TRUE(job.reach(size() - 1, {victim}));  // the resumed rank has no effect
  job.finish({victim});
}

TEST_P(ShrinkOnAWire, AbortNamesWhoAndWhyAndAllGoOn) {
  START(job);
  const Rank who = any();
  job.orders().aborts = who;
  ASSERT_TRUE(Processes::wait_until(kShrinkLimit, [&] {
    for (Rank r = 0; r < size(); ++r)
      if (job.note(r).failures < 1) return false;
    return true;
  }));
  job.orders().aborts = kNoRank;
  for (Rank r = 0; r < size(); ++r) {
    EXPECT_EQ(job.note(r).code, static_cast<int>(Code::kAborted));
    EXPECT_EQ(job.note(r).blamed, who);
    EXPECT_NE(std::string(job.note(r).message).find("enough"), std::string::npos)
        << job.note(r).message;
  }
  ASSERT_TRUE(job.reach(size(), {}));
  // Calls abort() from a signal handler.
  job.processes().signal(0, SIGUSR1);
  ASSERT_TRUE(Processes::wait_until(kShrinkLimit, [&] {
    return std::string(job.note(size() - 1).message).find("said the handler") != std::string::npos;
  })) << job.note(size() - 1).message;
  ASSERT_TRUE(job.reach(size(), {}));
  job.finish({});
}

const Setting kShrinks[] = {{"mixed4x2", {2, 2, 2, 2}, "auto"},
                            {"shm2", {2}, "auto"},
                            {"shm8", {8}, "auto"},
                            {"ucx4", {4}, "ucx"}};
INSTANTIATE_TEST_SUITE_P(Settings, Shrink, ::testing::Values(kShrinks[0]),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(Settings, ShrinkOnAWire, ::testing::ValuesIn(kShrinks),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ShrinkMisuse, NothingHasFailed) {
  testing::run_ranks(testing::places({2}), {}, [](World& world) {
    EXPECT_THROW((void)world.shrink(), Error);
    EXPECT_TRUE(world.world().barrier().ok());
  });
}

TEST(ShrinkMisuse, TheOldWorldSaysWhatHappened) {
  testing::run_ranks(testing::places({3}), {}, [](World& world) {
    Communicator old = world.world();
    Status s = old.barrier();  // rank 1 aborts after its own, and others may still be in theirs
    if (old.rank() == 1) {
      EXPECT_TRUE(s.ok());
      world.abort("on purpose");
    }
    while (s.ok()) s = old.barrier();
    EXPECT_EQ(s.code(), Code::kAborted);
    EXPECT_EQ(s.rank(), 1);
    std::unique_ptr<World> next = world.shrink();
    EXPECT_EQ(next->size(), 3);
    EXPECT_EQ(next->former_ranks(), (std::vector<Rank>{0, 1, 2}));
    EXPECT_TRUE(next->world().barrier().ok());
    EXPECT_EQ(old.barrier().message(), s.message()) << "the first failure sticks";
    EXPECT_THROW((void)world.rank(), Error);
    EXPECT_THROW((void)world.shrink(), Error);
    EXPECT_THROW((void)old.duplicate(), Error);
  });
}

// A watchdog thread may use the World at any time, even while another thread shrinks it.
TEST(ShrinkMisuse, TheOldWorldMayBeAskedMeanwhile) {
  for (int round = 0; round < 5; ++round)
    testing::run_ranks(testing::places({1, 1}, 2), {}, [](World& world) {
      std::atomic<bool> over = false;
      std::thread watcher([&] {
        for (;; std::this_thread::yield()) try {
            if (over) return;
            world.abort("watched");
            EXPECT_EQ(world.size(), 2);
            EXPECT_EQ(world.metrics().rank, world.rank());
          } catch (const Error&) {
          }
      });
      Communicator comm = world.world();
      while (comm.barrier().ok()) continue;
      const std::unique_ptr<World> next = world.shrink();
      EXPECT_TRUE(next->world().barrier().ok());
      over = true;
      watcher.join();
    });
}

// Ranks are renumbered and would overwrite each other's files.
TEST(ShrinkTraces, ThoseUpToTheFailureStay) {
  const testing::TemporaryFolder folder;
  setenv("WEFT_TRACE", (folder / "t.json").c_str(), 1);
  testing::run_ranks(testing::places({3}), {}, [](World& world) {
    Communicator comm = world.world();
    Status s = comm.barrier();
    if (comm.rank() == 0) world.abort("on purpose");
    while (s.ok()) s = comm.barrier();
    if (comm.rank() == 0) return;
    std::unique_ptr<World> next = world.shrink();
    int out = 0;
    const int in = 1;
    EXPECT_TRUE(next->world().all_reduce(&in, &out, 1, DType::kInt32, RedOp::kSum).ok());
  });
  unsetenv("WEFT_TRACE");
  for (int r = 0; r < 3; ++r) {
    const std::string text = read_file(folder / fmt::format("t.rank{}.json", r));
    EXPECT_NE(text.find("barrier"), std::string::npos) << r;
    EXPECT_EQ(text.find("all_reduce"), std::string::npos) << r;
  }
  for (int r = 0; r < 2; ++r)
    EXPECT_NE(read_file(folder / fmt::format("t.shrunk1.rank{}.json", r)).find("all_reduce"),
              std::string::npos)
        << r;
}

}  // namespace
}  // namespace weft
