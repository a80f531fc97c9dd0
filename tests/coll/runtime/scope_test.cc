// labels: multiproc waits
// A failure in one communicator ends it on all of its ranks. Other communicators, even of the same
// ranks, continue with exact results. A dead rank ends the communicators that contain it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "coll/api/communicator.h"
#include "support/jobs/job_around.h"
#include "support/jobs/processes.h"
#include "support/jobs/ranks.h"
#include "support/jobs/setting.h"

namespace weft {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using testing::Processes;
using testing::Setting;
using testing::Shared;

constexpr milliseconds kScopeTimeout{5000}, kScopeLimit{60000};
constexpr int kRounds = 60;

struct ScopeNote {
  std::atomic<int> rounds;  // exact sums over communicators without failures
  std::atomic<bool> wrong, stuck, finished;
  char first[500], again[500], world[500], shrunk[500];
};
void note(char (&to)[500], const Status& s) {
  std::snprintf(to, sizeof to, "%s", s.to_string().c_str());
}

// A sum, from a few bytes on a board to several slices, and a ring of messages.
Status exact_round(Communicator& c, int round, ScopeNote& note) {
  const std::size_t count = round % 3 == 0 ? 5 : round % 3 == 1 ? 3000 : 150000;
  std::vector<std::int32_t> in(count), out(count);
  for (std::size_t i = 0; i < count; ++i)
    in[i] = (c.world_rank(c.rank()) + 1) * 1000 + static_cast<int>(i % 97) + round;
  Status s = c.all_reduce(in.data(), out.data(), count, DType::kInt32, RedOp::kSum);
  if (!s.ok()) return s;
  std::int32_t base = 0;
  for (Rank r = 0; r < c.size(); ++r) base += (c.world_rank(r) + 1) * 1000;
  for (std::size_t i = 0; i < count; ++i)
    if (out[i] != base + c.size() * (static_cast<int>(i % 97) + round)) note.wrong = true;
  Request got =
      c.recv_async(out.data(), count, DType::kInt32, (c.rank() + c.size() - 1) % c.size());
  s = c.send(in.data(), count, DType::kInt32, (c.rank() + 1) % c.size());
  const Status received = got.wait();
  if (out[0] != (c.world_rank((c.rank() + c.size() - 1) % c.size()) + 1) * 1000 + round)
    note.wrong = note.wrong || received.ok();
  return s.ok() ? received : s;
}

class Scope4 : public ::testing::TestWithParam<Setting> {
 protected:
  // Each rank has the world, its half ({0, 1} or {2, 3}), and its pair across ({0, 2} or {1, 3}).
  using Body = std::function<int(World&, Communicator&, Communicator&, ScopeNote&)>;
  void run(const Body& body) {
    processes_.emplace(4, milliseconds(15000), [&](const JobSpec& spec) {
      WorldOptions options;
      options.transport = GetParam().transport;
      options.timeout = kScopeTimeout;
      auto world = std::make_unique<World>(
          connect(spec), testing::places(GetParam().hosts)[static_cast<std::size_t>(spec.rank)],
          options);
      Communicator half = world->world().split(spec.rank / 2);
      Communicator across = world->world().split(spec.rank % 2);
      return body(*world, half, across, notes_[spec.rank]);
    });
  }
  // Before `stuck`, a rank's last messages from the killed rank may be lost with it.
  void kill_once_all_wait(Rank killed) {
    ASSERT_TRUE(Processes::wait_until(kScopeLimit, [&] {
      for (Rank r = 0; r < 4; ++r)
        if (!notes_[r].stuck) return false;
      return true;
    }));
    processes_->signal(killed, SIGKILL);
  }
  void expect_exact(Rank r) {
    EXPECT_FALSE(notes_[r].wrong) << "rank " << r;
    EXPECT_GE(notes_[r].rounds, kRounds) << "rank " << r << ": " << notes_[r].first;
    EXPECT_EQ(processes_->code(r), 0) << "rank " << r;
  }

  Shared<ScopeNote> notes_{4};
  std::optional<Processes> processes_;
};

// The counts differ, in a board message or in several slices; and rank 2's sends in the
// communicator are never received.
TEST_P(Scope4, AMismatchEndsItsCommunicatorAndNoOther) {
  for (const std::size_t count : {7, 200000}) {
    SCOPED_TRACE(count);
    for (Rank r = 0; r < 4; ++r) new (&notes_[r]) ScopeNote{};
    run([&](World& world, Communicator& half, Communicator& across, ScopeNote& n) {
      const Rank me = world.rank();
      Communicator all = world.world();
      Status s;
      for (int i = 0; s.ok() && i < 10; ++i) s = exact_round(i % 2 ? half : across, i, n);
      constexpr std::size_t kLost = 1000;
      std::vector<float> in(std::max(2 * count, kLost), 1), out(2 * count);
      std::vector<Request> lost;
      if (me >= 2 && s.ok()) {
        if (me == 2)
          for (int i = 0; i < 20; ++i)
            lost.push_back(half.send_async(in.data(), kLost, DType::kFloat32, 1));
        note(n.first, half.all_reduce(in.data(), out.data(), me == 2 ? count : count + 1,
                                      DType::kFloat32, RedOp::kSum));
        note(n.again, half.barrier());
      }
      for (int i = 0; s.ok() && i < kRounds; ++i) {
        s = exact_round(across, i, n);
        if (s.ok() && me < 2) s = exact_round(half, i, n);
        if (s.ok() && i % 8 == 0) s = exact_round(all, i, n);
        if (s.ok()) ++n.rounds;
      }
      if (!s.ok()) note(n.first, s);
      note(n.world, world.failure());
      return s.ok() ? 0 : 1;
    });
    EXPECT_TRUE(processes_->wait(kScopeLimit)) << "a rank hangs";
    for (Rank r = 0; r < 4; ++r) {
      expect_exact(r);
      EXPECT_THAT(std::string(notes_[r].world), HasSubstr("ranks disagree"))
          << "every rank can know";
      if (r < 2) continue;
      EXPECT_THAT(std::string(notes_[r].first), HasSubstr("ranks disagree"));
      EXPECT_STREQ(notes_[r].first, notes_[2].first) << "the same on every rank of it";
      EXPECT_STREQ(notes_[r].again, notes_[r].first) << "it sticks";
    }
  }
}

TEST_P(Scope4, ADeadRankEndsItsCommunicatorsAndTheOthersShrinkLater) {
  run([&](World& world, Communicator& half, Communicator& across, ScopeNote& n) {
    const Rank me = world.rank();
    Communicator all = world.world();
    Status s;
    for (int i = 0; s.ok() && i < 6; ++i) s = exact_round(i % 2 ? half : across, i, n);
    n.stuck = true;
    while (me == 3) pause();                        // until it is killed
    Communicator& ends = me == 2 ? half : across;   // of ranks 1 and 2: with rank 3
    Communicator& lives = me == 2 ? across : half;  // of rank 0: both
    if (me != 0) {
      note(n.first, exact_round(ends, 0, n));
      note(n.again, ends.barrier());
    }
    // Rank 0 is in two communicators that continue: with rank 1 and with rank 2.
    for (int i = 0; s.ok() && i < kRounds; ++i) {
      s = exact_round(lives, i, n);
      if (s.ok() && me == 0) s = exact_round(across, i, n);
      if (s.ok()) ++n.rounds;
    }
    if (!s.ok()) note(n.first, s);
    note(n.world, all.barrier());
    std::unique_ptr<World> next = world.shrink();
    Communicator rest = next->world();
    s = exact_round(rest, 1, n);
    note(n.shrunk, s);
    return s.ok() && rest.size() == 3 ? 0 : 1;
  });
  kill_once_all_wait(3);
  EXPECT_TRUE(processes_->wait(kScopeLimit)) << "a rank hangs";
  for (Rank r = 0; r < 3; ++r) {
    expect_exact(r);
    EXPECT_THAT(std::string(notes_[r].world), HasSubstr("rank 3"));
    EXPECT_STREQ(notes_[r].world, notes_[0].world);
    if (r == 0) continue;
    EXPECT_THAT(std::string(notes_[r].first), HasSubstr("rank 3"));
    EXPECT_STREQ(notes_[r].again, notes_[r].first);
  }
}

// Rank 0 distributes failures: without it, no rank continues.
TEST_P(Scope4, WithRank0AllEnd) {
  run([&](World& world, Communicator& half, Communicator&, ScopeNote& n) {
    n.stuck = true;
    while (world.rank() == 0) pause();
    Status s;
    for (int i = 0; s.ok(); ++i) s = exact_round(half, i % 3, n);
    note(n.first, s);
    return 0;
  });
  kill_once_all_wait(0);
  EXPECT_TRUE(processes_->wait(kScopeLimit)) << "a rank hangs";
  for (Rank r = 1; r < 4; ++r) EXPECT_THAT(std::string(notes_[r].first), HasSubstr("rank 0"));
}

// If a rank destroys its World after a communicator failed, ranks that wait for this rank get the
// reason.
TEST_P(Scope4, WhoEndsItsWorldAfterAFailureIsNotWaitedFor) {
  run([&](World& world, Communicator& half, Communicator& across, ScopeNote& n) {
    std::vector<float> in(9, 1), out(9);
    const Rank me = world.rank();
    if (me >= 2) {
      note(n.first,
           half.all_reduce(in.data(), out.data(), me == 2 ? 3 : 9, DType::kFloat32, RedOp::kSum));
      return 0;
    }
    Status s;
    for (int i = 0; i < kRounds && s.ok(); ++i) {
      s = exact_round(half, i, n);
      ++n.rounds;
    }
    note(n.first, across.barrier());
    return s.ok() ? 0 : 1;
  });
  EXPECT_TRUE(processes_->wait(kScopeLimit)) << "a rank hangs";
  for (Rank r = 0; r < 2; ++r) {
    expect_exact(r);
    EXPECT_THAT(std::string(notes_[r].first),
                HasSubstr(fmt::format("rank {} ended its World", r + 2)));
    EXPECT_THAT(std::string(notes_[r].first), HasSubstr("rank 3 passed 9 x float32")) << "why";
  }
}

// Reports rank 2 as dead after the given number of gathers.
class LosesRank2 final : public testing::JobAround {
 public:
  LosesRank2(std::unique_ptr<Job> job, int gathers)
      : JobAround(std::move(job)), gathers_(gathers) {}
  std::vector<std::string> all_gather(std::string_view mine) override {
    std::vector<std::string> all = JobAround::all_gather(mine);
    if (--gathers_ == 0) report({Code::kPeerFailed, "rank 2 died", 2}, {Scope::Ends::kRank, 2});
    return all;
  }

 private:
  int gathers_;
};

// This includes the time between two gathers, while ranks wait for calibration messages.
TEST(ScopeOfADeath, EndsTheSetUpAtAnyStep) {
  const auto where = testing::places({3});
  WorldOptions options;
  options.timeout = kScopeTimeout;
  int steps = 0;
  for (std::atomic<int> ended = 3; ended != 0; ++steps) {
    SCOPED_TRACE(steps);
    ended = 0;
    auto jobs = local_jobs(3);
    jobs[0] = std::make_unique<LosesRank2>(std::move(jobs[0]), steps + 1);
    std::vector<std::thread> ranks;
    for (std::size_t r = 0; r < 3; ++r)
      ranks.emplace_back([&, r] {
        try {
          World world(std::move(jobs[r]), where[r], options);
          world.world().barrier().check();
        } catch (const Error& e) {
          EXPECT_THAT(e.what(), HasSubstr("rank 2 died")) << "rank " << r;
          ++ended;
        }
      });
    for (std::thread& t : ranks) t.join();
    ASSERT_THAT(ended.load(), ::testing::AnyOf(0, 3));
  }
  EXPECT_GT(steps, 4);
}

INSTANTIATE_TEST_SUITE_P(Settings, Scope4,
                         ::testing::Values(Setting{"shm4", {4}, "auto"},
                                           Setting{"tcp4", {4}, "tcp"},
                                           Setting{"mixed2x2", {2, 2}, "auto"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace weft
