// The control plane of an assembled job, with threads: gathers, failures, leaving. Runs over
// sockets and over local_jobs().
// sanitize: address threads
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>

#include "tests/transport/rendezvous_helpers.h"

namespace weft {
namespace {

using namespace test;
using ::testing::HasSubstr;

enum class Kind { kSockets, kLocal };
void PrintTo(Kind kind, std::ostream* out) {
  *out << (kind == Kind::kSockets ? "Sockets" : "Local");
}

class Control : public ::testing::TestWithParam<Kind> {
 protected:
  static std::vector<Outcome> make(int n, std::chrono::milliseconds timeout = 20s) {
    if (GetParam() == Kind::kSockets) return connect_all(Specs(n, timeout).specs);
    std::vector<Outcome> outcomes;
    for (auto& job : local_jobs(n)) outcomes.push_back({std::move(job), {}});
    return outcomes;
  }
  static std::string gather_error(Job& job) {
    return error_of([&] { return job.all_gather("x"); });
  }
};
INSTANTIATE_TEST_SUITE_P(Kinds, Control, ::testing::Values(Kind::kSockets, Kind::kLocal),
                         ::testing::PrintToStringParamName());

TEST_P(Control, GathersAnySizes) {
  auto jobs = make(4);
  for (const std::size_t base : {0, 1, 65536, 1 << 20, (3 << 20) + 5}) {
    // Parts that differ on every rank; one is empty.
    const auto of = [&](Rank r) {
      return std::string(base * static_cast<std::size_t>(r) / 2, static_cast<char>('a' + r));
    };
    on_each(jobs, [&](Job& job) {
      const auto all = job.all_gather(of(job.rank()));
      ASSERT_EQ(all.size(), 4U);
      for (Rank r = 0; r < 4; ++r) EXPECT_TRUE(all[static_cast<std::size_t>(r)] == of(r)) << r;
    });
  }
  leave_all(jobs);
}

TEST_P(Control, AllRanksDeriveTheSameKeys) {
  auto jobs = make(3);
  EXPECT_EQ(jobs[0].job->key("one").size(), 32U);
  for (const Outcome& o : jobs) {
    EXPECT_EQ(o.job->key("one"), jobs[0].job->key("one"));
    EXPECT_NE(o.job->key("one"), jobs[0].job->key("other"));
  }
  leave_all(jobs);
  auto others = make(2);
  if (GetParam() == Kind::kLocal) {
    EXPECT_NE(others[0].job->key("one"), jobs[0].job->key("one"));
  }
  leave_all(others);
}

TEST_P(Control, GathersManyTimes) {
  auto jobs = make(5);
  on_each(jobs, [&](Job& job) {
    for (int i = 0; i < 200; ++i) {
      const auto all = job.all_gather(std::to_string(i * 10 + job.rank()));
      for (int r = 0; r < 5; ++r)
        ASSERT_EQ(all[static_cast<std::size_t>(r)], std::to_string(i * 10 + r));
    }
  });
  leave_all(jobs);
}

TEST_P(Control, BringsEachRankWhatOthersHaveForIt) {
  constexpr Rank kRanks = 4;
  auto jobs = make(kRanks);
  for (const std::size_t base : {0, 1, 70000, 3 << 20}) {
    // Parts that differ for every pair of ranks; some are empty.
    const auto of = [&](Rank from, Rank to) {
      return std::string(base * static_cast<std::size_t>(from * to) / 3,
                         static_cast<char>('a' + from * kRanks + to));
    };
    on_each(jobs, [&](Job& job) {
      std::vector<std::string> mine;
      for (Rank to = 0; to < kRanks; ++to) mine.push_back(of(job.rank(), to));
      const auto got = job.all_to_all(mine);
      ASSERT_EQ(got.size(), std::size_t{kRanks});
      for (Rank r = 0; r < kRanks; ++r)
        EXPECT_TRUE(got[static_cast<std::size_t>(r)] == of(r, job.rank())) << r;
      EXPECT_EQ(job.all_gather("x"), std::vector<std::string>(kRanks, "x"));
    });
  }
  leave_all(jobs);
}

TEST_P(Control, GathersWithinGroups) {
  constexpr Rank kRanks = 5;
  auto jobs = make(kRanks);
  const auto group_of = [](Rank r) { return r % 2 == 0 ? "even" : "odd"; };
  for (const std::size_t base : {0, 1, 70000}) {
    const auto of = [&](Rank r) {
      return std::string(base * static_cast<std::size_t>(r) / 2, static_cast<char>('a' + r));
    };
    on_each(jobs, [&](Job& job) {
      const auto got = job.all_gather_in_group(group_of(job.rank()), of(job.rank()));
      ASSERT_EQ(got.size(), std::size_t{kRanks});
      for (Rank r = 0; r < kRanks; ++r)
        EXPECT_TRUE(got[static_cast<std::size_t>(r)] ==
                    (r % 2 == job.rank() % 2 ? of(r) : std::string()))
            << r << " on " << job.rank();
      EXPECT_EQ(job.all_gather("x"), std::vector<std::string>(kRanks, "x"));
    });
  }
  leave_all(jobs);
}

TEST_P(Control, BringsPartsToRankZeroAndFromThereToEachRank) {
  constexpr Rank kRanks = 4;
  auto jobs = make(kRanks);
  for (const std::size_t base : {0, 1, 70000, 3 << 20}) {
    const auto of = [&](Rank r) {
      return std::string(base * static_cast<std::size_t>(r) / 2, static_cast<char>('a' + r));
    };
    on_each(jobs, [&](Job& job) {
      const auto got = job.gather(of(job.rank()));
      ASSERT_EQ(got.size(), job.rank() == 0 ? std::size_t{kRanks} : 0u) << job.rank();
      for (std::size_t r = 0; r < got.size(); ++r)
        EXPECT_TRUE(got[r] == of(static_cast<Rank>(r))) << r;
      EXPECT_TRUE(job.scatter(got) == of(job.rank())) << job.rank();
      EXPECT_EQ(job.all_gather("x"), std::vector<std::string>(kRanks, "x"));
    });
  }
  leave_all(jobs);
}

TEST_P(Control, AReportReachesAllAndTheFirstOneSticks) {
  auto jobs = make(4);
  for (const Rank reporter : {2, 0}) {  // the second report is too late
    jobs[static_cast<std::size_t>(reporter)].job->report(
        Status(Code::kTransport, "seen by " + std::to_string(reporter), 3));
    for (const Outcome& o : jobs) {
      ASSERT_TRUE(eventually([&] { return o.job->failed(); }));
      EXPECT_EQ(o.job->failure().message(), "seen by 2");
      EXPECT_EQ(o.job->failure().code(), Code::kTransport);
      EXPECT_EQ(o.job->failure().rank(), 3);
    }
  }
  EXPECT_THAT(gather_error(*jobs[1].job), HasSubstr("seen by 2"));
  leave_all(jobs);
}

TEST_P(Control, AFailureOfACommunicatorEndsNoGather) {
  auto jobs = make(4);
  const Scope one{Scope::Ends::kGroup, 1, 9}, other{Scope::Ends::kGroup, 0, 9};
  jobs[1].job->report(Status(Code::kMismatch, "first", 2), one);
  jobs[2].job->report(Status(Code::kMismatch, "too late", 1), one);
  jobs[3].job->report(Status(Code::kTransport, "another", 0), other);
  for (const Outcome& o : jobs) {
    ASSERT_TRUE(eventually([&] { return o.job->heard() == 2; }));
    EXPECT_FALSE(o.job->failed());
    const auto failures = o.job->failures(0);
    EXPECT_EQ(failures[0].status.message(), "first");
    EXPECT_EQ(failures[0].scope, one);
    EXPECT_EQ(failures[1].status.message(), "another");
    EXPECT_EQ(o.job->failures(1).size(), 1u);
  }
  on_each(jobs, [](Job& job) { EXPECT_EQ(job.all_gather("x").size(), 4u); });
  // A failure of all ranks: no rank can gather any more. After a failure of all ranks no other
  // failure is reported.
  jobs[0].job->report(Status(Code::kTransport, "of all", 3), {Scope::Ends::kGroup, 0, 0, true});
  for (const Outcome& o : jobs) ASSERT_TRUE(eventually([&] { return o.job->failed(); }));
  jobs[1].job->report(Status(Code::kTransport, "everything", 3));
  jobs[2].job->report(Status(Code::kTransport, "no more", 3), {Scope::Ends::kGroup, 0, 7});
  for (const Outcome& o : jobs) {
    ASSERT_TRUE(eventually([&] { return o.job->heard() == 4; }));
    EXPECT_EQ(o.job->failure().message(), "of all");
    EXPECT_EQ(o.job->failures(3)[0].status.message(), "everything");
  }
  leave_all(jobs);
}

TEST_P(Control, OfSeveralAbortsOneSticksOnAllRanks) {
  for (int turn = 0; turn < 10; ++turn) {
    auto jobs = make(4);
    std::barrier all_here(4);
    std::vector<std::string> heard(4);
    std::atomic<bool> gave_up = false;
    on_each(jobs, [&](Job& job) {
      all_here.arrive_and_wait();
      if (job.rank() > 0) job.abort("enough");
      while (!job.failed()) std::this_thread::yield();
      const auto before = std::chrono::steady_clock::now();
      job.report(job.failure());  // like a rank that ends its operations with it
      heard[static_cast<std::size_t>(job.rank())] = job.failure().to_string();
      // report() may return after a second, if rank 0 does not run for that long.
      if (std::chrono::steady_clock::now() - before >= 1s) gave_up = true;
    });
    if (!gave_up) {
      EXPECT_THAT(heard, ::testing::Each(heard[0]));
    }
    const std::string verdict = jobs[0].job->failure().to_string();
    for (const Outcome& o : jobs)
      EXPECT_TRUE(eventually([&] { return o.job->failure().to_string() == verdict; }))
          << o.job->failure().to_string() << "; rank 0: " << verdict;
    leave_all(jobs);
  }
}

TEST_P(Control, AReportOfSuccessIsNone) {
  auto jobs = make(2);
  jobs[1].job->report(Status());
  jobs[1].job->report(Status(Code::kInternal, "real"));
  ASSERT_TRUE(eventually([&] { return jobs[0].job->failed(); }));
  EXPECT_EQ(jobs[0].job->failure().message(), "real");
  leave_all(jobs);
}

TEST_P(Control, AJobDestroyedWithoutLeaveHasDied) {
  for (const std::size_t victim : {0, 2}) {
    auto jobs = make(4);
    jobs[victim].job.reset();
    for (const Outcome& o : jobs) {
      if (!o.job) continue;
      ASSERT_TRUE(eventually([&] { return o.job->failed(); }));
      const Status failure = o.job->failure();
      EXPECT_EQ(failure.code(), Code::kPeerFailed);
      EXPECT_EQ(failure.rank(), static_cast<Rank>(victim));
      EXPECT_THAT(failure.message(), HasSubstr("rank " + std::to_string(victim) + " (host "));
      EXPECT_THAT(failure.message(), HasSubstr("died: "));
    }
    leave_all(jobs);
  }
}

TEST_P(Control, ADeathEndsAGather) {
  auto jobs = make(3);
  std::vector<std::string> errors(3);
  std::thread one([&] { errors[0] = gather_error(*jobs[0].job); });
  std::thread two([&] { errors[1] = gather_error(*jobs[1].job); });
  jobs[2].job.reset();
  one.join(), two.join();
  EXPECT_THAT(errors[0], HasSubstr("peer failed: rank 2"));
  EXPECT_THAT(errors[1], HasSubstr("peer failed: rank 2"));
  leave_all(jobs);
}

TEST_P(Control, LeavingIsNoFailureInWhateverOrder) {
  using Order = std::vector<std::size_t>;
  for (const Order& order : {Order{0, 1, 2}, Order{2, 1, 0}, Order{1, 0, 2}}) {
    auto jobs = make(3);
    std::vector<std::thread> ending;
    for (const std::size_t r : order) {
      jobs[r].job->leave();
      // Rank 0's destructor returns only after the other ranks have left.
      ending.emplace_back([job = std::move(jobs[r].job)]() mutable { job.reset(); });
      std::this_thread::sleep_for(50ms);  // time for a wrong report to arrive
      for (const Outcome& o : jobs) {
        if (!o.job) continue;
        EXPECT_FALSE(o.job->failed()) << o.job->failure().to_string();
      }
    }
    for (std::thread& t : ending) t.join();
  }
}

TEST_P(Control, TheOthersAreServedAfterRankZeroLeft) {
  auto jobs = make(3);
  jobs[0].job->leave();
  std::thread ending([&] { jobs[0].job.reset(); });
  jobs[1].job->report(Status(Code::kTransport, "still heard"));
  EXPECT_TRUE(eventually([&] { return jobs[2].job->failed(); }));
  EXPECT_EQ(jobs[2].job->failure().message(), "still heard");
  jobs[1].job->leave();
  jobs[2].job->leave();
  ending.join();
}

TEST_P(Control, AGatherWithoutARankThatLeftFails) {
  auto jobs = make(3);
  jobs[2].job->leave();
  std::thread one([&] { EXPECT_THAT(gather_error(*jobs[1].job), HasSubstr("has left the job")); });
  EXPECT_THAT(gather_error(*jobs[0].job), HasSubstr("has left the job"));
  one.join();
  EXPECT_THAT(gather_error(*jobs[2].job), HasSubstr("after leave()"));
  EXPECT_FALSE(jobs[0].job->failed());
  leave_all(jobs);
}

TEST(ControlOverSockets, AGatherNamesWhoDidNotCome) {
  for (std::chrono::milliseconds timeout = 500ms;; timeout *= 4) {
    auto jobs = connect_in_time(5, timeout);
    std::vector<std::string> errors(5);
    std::vector<std::thread> threads;
    for (const std::size_t r : {0, 1, 4}) {
      threads.emplace_back(
          [&, r] { errors[r] = error_of([&] { return jobs[r].job->all_gather("x"); }); });
    }
    for (std::thread& t : threads) t.join();
    // On a busy machine another rank may also be late.
    const auto late = std::ranges::count(errors[0].substr(0, errors[0].find(" did")), ',') + 1;
    if (late > 2 && timeout < 8s) {
      leave_all(jobs);
      continue;
    }
    const std::string expected = fmt::format(
        "ranks 2, 3 did not arrive at all_gather number 1 within {} ms", timeout.count());
    for (const std::size_t r : {0, 1, 4}) EXPECT_EQ(errors[r], expected);
    EXPECT_THROW((void)jobs[2].job->all_gather("late"), Error);
    leave_all(jobs);
    return;
  }
}

TEST(ControlOverSockets, WhatIsForEachAndWhatIsForAllDoNotMix) {
  for (const Rank other : {0, 2}) {
    auto jobs = connect_all(Specs(3).specs);
    on_each(jobs, [&](Job& job) {
      EXPECT_THAT(error_of([&] {
                    return job.rank() == other ? job.all_to_all({"", "", ""}) : job.all_gather("");
                  }),
                  HasSubstr("called all_to_all"));
    });
    leave_all(jobs);
  }
  auto jobs = connect_all(Specs(2).specs);
  on_each(jobs,
          [](Job& job) { EXPECT_THROW((void)job.all_to_all(std::vector<std::string>(3)), Error); });
  leave_all(jobs);
}

TEST(ControlOverSockets, AScatterOfAnotherNumberOfPartsFailsOnAllRanks) {
  auto jobs = connect_all(Specs(3).specs);
  on_each(jobs, [](Job& job) {
    EXPECT_THROW((void)job.scatter(std::vector<std::string>(2, "x")), GatherFailed);
  });
  leave_all(jobs);
}

TEST(ControlOverSockets, RankZeroDoesNotWaitForeverForTheOthersToLeave) {
  std::chrono::milliseconds timeout = 500ms;
  auto jobs = connect_in_time(2, timeout);
  jobs[0].job->leave();
  jobs[0].job.reset();
  EXPECT_FALSE(jobs[1].job->failed()) << jobs[1].job->failure().to_string();
  EXPECT_TRUE(jobs[1].job->silent(0ms).empty());
  EXPECT_THROW((void)jobs[1].job->all_gather("x"), Error);
  jobs[1].job->leave();
  EXPECT_FALSE(jobs[1].job->failed());
}

// A node's processes are killed one after the other.
TEST(ControlOverSockets, RankZeroIsReplacedWhereItDiesAsSoonAsItHasShrunkTheJob) {
  const auto wait_for_failure = [](const Job& job) {
    while (!job.failed()) std::this_thread::sleep_for(1ms);
  };
  for (int i = 0; i < 30; ++i) {  // it dies at a different moment each time
    auto jobs = connect_all(Specs(4).specs);
    jobs[3].job.reset();
    jobs.pop_back();
    on_each(jobs, [&](Job& job) {
      try {
        wait_for_failure(job);
        const auto three = job.shrink();
        EXPECT_EQ(three->size(), 3);
        if (three->rank() == 0) return;  // without leave()
        wait_for_failure(*three);
        const auto two = three->shrink();
        EXPECT_EQ(two->size(), 2);
        EXPECT_EQ(two->all_gather(std::string(1, static_cast<char>('a' + two->rank()))),
                  (std::vector<std::string>{"a", "b"}));
        two->leave();
      } catch (const Error& e) {
        ADD_FAILURE() << "round " << i << ", rank " << job.rank() << ": " << e.what();
      }
    });
    if (HasFailure()) return;
  }
}

TEST(ControlOverSockets, NobodyIsSilentWhoIsWell) {
  auto jobs = connect_all(Specs(4, 10s).specs);
  std::this_thread::sleep_for(1s);
  on_each(jobs, [](Job& job) { EXPECT_TRUE(job.silent(5s).empty()); });
  leave_all(jobs);
}

TEST(LocalJobs, RefusesNone) { EXPECT_THROW((void)local_jobs(0), Error); }

}  // namespace
}  // namespace weft
