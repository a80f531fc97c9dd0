// labels: multiproc
// ctest: whole
// Asynchronous operations: test, wait_for, callbacks, the progress thread, several threads, and a
// World that is destroyed first.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <numeric>
#include <random>
#include <thread>

#include "coll/api/metrics.h"
#include "coll/runtime/internals.h"
#include "support/jobs/ranks.h"
#include "support/jobs/setting.h"

namespace weft {
namespace {

using std::chrono::milliseconds;
using testing::places;
using testing::run_ranks;
using testing::Setting;
using Clock = std::chrono::steady_clock;

class Handles : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    options.transport = GetParam().transport;
    options.timeout = milliseconds(20000);
  }
  void run(const std::function<void(World&)>& body) {
    run_ranks(places(GetParam().hosts), options, body);
  }
  WorldOptions options;
};

constexpr std::size_t kSmall = 3, kLarge = 100000;

struct Sum {
  explicit Sum(Communicator comm, std::size_t count) : comm_(comm), in(count), out(count, -1) {
    std::iota(in.begin(), in.end(), comm.rank());
  }
  Request start() {
    return comm_.all_reduce_async(in.data(), out.data(), in.size(), DType::kInt32, RedOp::kSum);
  }
  bool right() const {
    const int n = comm_.size();
    for (std::size_t i = 0; i < out.size(); ++i)
      if (out[i] != n * static_cast<int>(i) + n * (n - 1) / 2) return false;
    return true;
  }
  Communicator comm_;
  std::vector<std::int32_t> in, out;
};

TEST_P(Handles, TestAloneFinishesAnOperation) {
  run([](World& world) {
    for (const std::size_t count : {kSmall, kLarge}) {
      Sum sum(world.world(), count);
      Request h = sum.start();
      while (!h.test()) std::this_thread::yield();
      EXPECT_TRUE(h.wait().ok());
      EXPECT_TRUE(h.wait().ok()) << "a second wait tells the same";
      EXPECT_TRUE(sum.right());
    }
  });
}

// Without a sender, no deadline ends the receive, and destroying its World fails no other rank.
TEST_P(Handles, PatientReceiveFailsNobody) {
  options.timeout = milliseconds(300);
  options.progress_thread = true;
  std::atomic<bool> leaving = false;
  std::atomic<int> ended = 0;
  run([&](World& world) {
    Communicator comm = world.world();
    std::int32_t word = 0;
    if (comm.rank() == 0) {
      Request h = comm.recv_async(&word, 1, DType::kInt32, 1);
      h.set_patient();
      EXPECT_FALSE(h.wait_for(milliseconds(900)));
      h.on_done([&](const Status& s) { ended += s.code() == Code::kAborted ? 1 : 100; });
      h.detach();
      leaving = true;
    } else {
      while (!leaving) std::this_thread::yield();
      std::this_thread::sleep_for(milliseconds(100));  // rank 0 would have failed the job by now
      EXPECT_TRUE(world.failure().ok()) << world.failure().to_string();
    }
  });
  EXPECT_EQ(ended, 1);
}

// Blocking calls with small messages make progress, too, although they do not wait long.
TEST_P(Handles, BlockingCallsMoveWhatElseIsUnderWay) {
  run([](World& world) {
    Communicator comm = world.world(), other = comm.duplicate();
    std::int32_t word = comm.rank();
    std::atomic<bool> over = false;
    Request h;
    if (comm.rank() == 0) h = comm.send_async(&word, 1, DType::kInt32, 1);
    if (comm.rank() == 1) h = comm.recv_async(&word, 1, DType::kInt32, 0);
    h.on_done([&](const Status& s) { over = s.ok(); });
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(other.barrier().ok());
    EXPECT_TRUE(over || comm.rank() > 1);
    (void)h.wait();
  });
}

TEST_P(Handles, ATimeThatIsUpIsNoFailure) {
  run([](World& world) {
    Communicator comm = world.world();
    for (const std::size_t count : {kSmall, kLarge}) {
      std::int32_t token = 0;
      Sum sum(comm, count);
      if (comm.rank() == 0) {  // late: the other ranks have timed out once
        for (Rank r = 1; r < comm.size(); ++r)
          ASSERT_TRUE(comm.recv(&token, 1, DType::kInt32, r).ok());
        EXPECT_TRUE(sum.start().wait().ok());
      } else {
        Request h = sum.start();
        EXPECT_FALSE(h.wait_for(milliseconds(1)));
        ASSERT_TRUE(comm.send(&token, 1, DType::kInt32, 0).ok());
        EXPECT_TRUE(h.wait_for(milliseconds(20000)));
        EXPECT_TRUE(h.wait().ok());
      }
      EXPECT_TRUE(sum.right());
    }
  });
}

TEST_P(Handles, ForEverIsLong) {
  options.timeout = milliseconds::max();
  run([](World& world) {
    Communicator comm = world.world();
    for (const std::size_t count : {kSmall, kLarge}) {
      Sum sum(comm, count);
      if (comm.rank() == 0) std::this_thread::sleep_for(milliseconds(100));
      Request h = sum.start();
      EXPECT_TRUE(h.wait_for(std::chrono::nanoseconds::max()));
      EXPECT_TRUE(h.wait().ok());
      EXPECT_TRUE(sum.right());
    }
  });
}

TEST_P(Handles, CallbacksComeOnceAndInOrder) {
  run([](World& world) {
    Communicator comm = world.world();
    for (const std::size_t count : {kSmall, kLarge}) {
      std::vector<int> calls;
      Sum first(comm, count), second(comm, count);
      Request h = first.start();
      Request d = second.start();
      h.on_done([&](const Status& s) { calls.push_back(s.ok() ? 1 : -1); });
      h.on_done([&](const Status& s) { calls.push_back(s.ok() ? 2 : -1); });
      std::atomic<bool> detached_done = false;
      d.on_done([&](const Status& s) { detached_done = s.ok() && second.right(); });
      d.detach();
      EXPECT_EQ(d.wait().code(), Code::kInvalidArgument);
      EXPECT_TRUE(h.wait().ok());
      EXPECT_EQ(calls, (std::vector<int>{1, 2}));
      h.on_done([&](const Status& s) { calls.push_back(s.ok() ? 3 : -1); });
      EXPECT_EQ(calls.size(), 3u) << "over: called at once";
      EXPECT_TRUE(comm.barrier().ok());
      const auto end = Clock::now() + milliseconds(20000);
      for (std::int32_t all = 0; !all && Clock::now() < end;) {  // equally often on every rank
        const std::int32_t mine = detached_done;
        ASSERT_TRUE(comm.all_reduce(&mine, &all, 1, DType::kInt32, RedOp::kMin).ok());
      }
      EXPECT_TRUE(detached_done);
      // A callback may call weft.
      bool nested = false;
      Sum third(comm, count);
      Request t = third.start();
      t.on_done([&](const Status&) { nested = comm.barrier().ok(); });
      EXPECT_TRUE(t.wait().ok());
      EXPECT_TRUE(nested);
    }
  });
}

// Every blocking call makes progress on pending operations, even if it completes immediately.
TEST_P(Handles, CallsThatEndAtOnceMoveTheOthers) {
  run([](World& world) {
    Communicator alone = world.world().split(world.rank());
    std::atomic<bool> done{false};
    Sum sum(world.world(), kLarge);
    Request h = sum.start();
    h.on_done([&](const Status&) { done = true; });
    for (int i = 0; i < 2'000'000 && !done; ++i) {
      EXPECT_TRUE(alone.barrier().ok());
      std::this_thread::yield();
    }
    EXPECT_TRUE(done);
    ASSERT_TRUE(h.wait().ok());
    EXPECT_TRUE(sum.right());
  });
}

TEST_P(Handles, TheProgressThreadNeedsNobody) {
  options.progress_thread = true;
  run([](World& world) {
    Communicator comm = world.world();
    for (int i = 0; i < 20; ++i)
      for (const std::size_t count : {kSmall, kLarge}) {
        Sum sum(comm, count);
        std::atomic<int> done = 0;
        Request h = sum.start();
        h.on_done([&](const Status& s) { done = s.ok() ? 1 : -1; });
        const auto end = Clock::now() + milliseconds(20000);
        while (done == 0 && Clock::now() < end) std::this_thread::sleep_for(milliseconds(1));
        EXPECT_EQ(done, 1);
        EXPECT_TRUE(sum.right());
      }
  });
}

// Each thread has its own communicators; all share the transports and one mutex.
TEST_P(Handles, ThreadsOnSeveralCommunicators) {
  for (const bool progress : {false, true}) {
    options.progress_thread = progress;
    run([](World& world) {
      constexpr int kThreads = 4;
      std::vector<Communicator> comms;
      for (int t = 0; t < kThreads; ++t) comms.push_back(world.world().duplicate());
      std::vector<std::thread> threads;
      std::atomic<int> wrong = 0;
      for (int t = 0; t < kThreads; ++t)
        threads.emplace_back([&, t] {
          std::mt19937 random(static_cast<unsigned>(t));
          for (int i = 0; i < 40; ++i) {
            const std::size_t count = random() % 4 ? 1 + random() % 100 : random() % 60000;
            Sum sum(comms[static_cast<std::size_t>(t)], count);
            const Status s = sum.start().wait();
            if (!s.ok() || !sum.right()) ++wrong;
          }
        });
      for (auto& thread : threads) thread.join();
      EXPECT_EQ(wrong, 0);
    });
  }
}

// Some ranks order the blocking calls of two communicators differently. From two threads this is
// harmless; from one thread it would deadlock.
TEST_P(Handles, AnotherOrderInAnotherThreadIsHarmless) {
  run([](World& world) {
    Communicator a = world.world(), b = a.duplicate();
    for (int i = 0; i < 20; ++i) {
      const std::size_t count = i % 2 ? kSmall : 20000;
      Sum first(a, count), second(b, count);
      std::thread other([&] { EXPECT_TRUE(second.start().wait().ok()); });
      EXPECT_TRUE(first.start().wait().ok());
      other.join();
      EXPECT_TRUE(first.right() && second.right());
    }
  });
}

// In one thread the ranks deadlock: every rank gets an error that names the rank it waits for.
TEST_P(Handles, AnotherOrderInOneThreadIsDetected) {
  options.timeout = milliseconds(1000);
  run([](World& world) {
    Communicator a = world.world(), b = a.duplicate();
    std::int32_t x = 0;
    const bool odd = a.rank() % 2;
    const Status s = (odd ? b : a).all_reduce(&x, &x, 1, DType::kInt32, RedOp::kSum);
    EXPECT_EQ(s.code(), Code::kTimeout) << s.to_string();
    EXPECT_NE(s.rank(), kNoRank);
  });
}

// The deadline also ends calls that only test() or the progress thread advances.
TEST_P(Handles, TheDeadlineHoldsInTestToo) {
  options.timeout = milliseconds(1000);  // also limits the setup of the Worlds
  for (const bool progress : {false, true}) {
    options.progress_thread = progress;
    for (const std::size_t count : {kSmall, kLarge})
      run([&](World& world) {
        Communicator comm = world.world();
        Sum sum(comm, count);
        if (comm.rank() == 0) {  // makes no call, but runs until it detects the failure
          const auto end = Clock::now() + milliseconds(20000);
          while (!job_of(world).failed() && Clock::now() < end)
            std::this_thread::sleep_for(milliseconds(1));
          EXPECT_TRUE(job_of(world).failed());
          return;
        }
        Request h = sum.start();
        const auto end = Clock::now() + milliseconds(20000);
        std::atomic<bool> over = false;
        h.on_done([&](const Status&) { over = true; });
        while (!(progress ? over.load() : h.test()) && Clock::now() < end)
          std::this_thread::sleep_for(milliseconds(1));
        EXPECT_EQ(h.wait().code(), Code::kTimeout);
      });
  }
}

// Destroying the World ends the call that its callback waits for.
TEST_P(Handles, ACallbackOfTheProgressThreadDoesNotHoldUpTheEnd) {
  options.progress_thread = true;
  const auto where = places(GetParam().hosts);
  auto jobs = local_jobs(static_cast<int>(where.size()));
  std::vector<std::thread> threads;
  std::atomic<bool> given = false;  // set before completion, or this thread would call it
  std::atomic<std::size_t> others = 1;
  for (std::size_t r = 0; r < where.size(); ++r)
    threads.emplace_back([&, r] {
      auto mine = std::make_unique<World>(std::move(jobs[r]), where[r], options);
      Communicator comm = mine->world();
      if (r != 0) {
        while (!given) std::this_thread::yield();
        EXPECT_TRUE(comm.barrier().ok());
        ++others;
        const auto end = Clock::now() + milliseconds(10000);
        while (!job_of(*mine).failed() && Clock::now() < end)
          std::this_thread::sleep_for(milliseconds(1));
        EXPECT_EQ(job_of(*mine).failure().code(), Code::kAborted);
        return;
      }
      Status nested;
      Request h = comm.barrier_async();
      h.on_done([&](const Status&) { nested = comm.barrier(); });  // the others never call it
      given = true;
      h.detach();
      const auto barriers = [&] {
        std::uint64_t begun = 0;
        for (const Metrics::Calls& c : mine->metrics().calls)
          if (c.collective == Collective::kBarrier) begun = c.calls;
        return begun;
      };
      while (barriers() < 2 || others < where.size()) std::this_thread::sleep_for(milliseconds(1));
      mine.reset();
      EXPECT_EQ(nested.code(), Code::kAborted) << nested.to_string();
    });
  for (auto& t : threads) t.join();
}

TEST_P(Handles, TheWorldMayGoFirst) {
  for (const bool progress : {false, true}) {
    options.progress_thread = progress;
    const auto where = places(GetParam().hosts);
    auto jobs = local_jobs(static_cast<int>(where.size()));
    std::vector<std::thread> threads;
    std::barrier ready(static_cast<std::ptrdiff_t>(where.size()));
    for (std::size_t r = 0; r < where.size(); ++r)
      threads.emplace_back([&, r] {
        auto mine = std::make_unique<World>(std::move(jobs[r]), where[r], options);
        Communicator comm = mine->world(), other = comm.duplicate();
        ready.arrive_and_wait();  // the first to leave ends the others' calls
        Sum small(comm, kSmall), large(other, kLarge);
        std::vector<Request> handles;
        std::atomic<int> called = 0;
        if (r != 0) {  // rank 0 never calls, so these cannot complete
          handles.push_back(small.start());
          handles.push_back(large.start());
          for (Request& h : handles) h.on_done([&](const Status& s) { called += !s.ok(); });
        }
        mine.reset();
        for (Request& h : handles) {
          EXPECT_TRUE(h.test());
          EXPECT_EQ(h.wait().code(), Code::kAborted) << h.wait().to_string();
        }
        EXPECT_EQ(called, r == 0 ? 0 : 2);
        const Status s = comm.barrier();
        EXPECT_EQ(s.code(), Code::kAborted);
        int sent = 1, received = 2;  // on this rank, to itself
        const Message own[] = {Message::to(comm.rank(), &sent, 1, DType::kInt32),
                               Message::from(comm.rank(), &received, 1, DType::kInt32)};
        EXPECT_EQ(comm.exchange(own).code(), Code::kAborted);
        EXPECT_EQ(comm.exchange({}).code(), Code::kAborted);
        EXPECT_NE(s.message().find("World"), std::string::npos) << s.message();
        EXPECT_THROW((void)other.duplicate(), Error);
        EXPECT_GE(comm.size(), 1);
      });
    for (auto& t : threads) t.join();
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, Handles,
                         ::testing::Values(Setting{"shm2", {2}, "auto"},
                                           Setting{"shm4", {4}, "auto"},
                                           Setting{"tcp3", {3}, "tcp"},
                                           Setting{"mixed2x2", {2, 2}, "auto"}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(EmptyHandle, SaysSo) {
  Request none;
  EXPECT_TRUE(none.test());
  EXPECT_TRUE(none.wait_for(milliseconds(0)));
  EXPECT_EQ(none.wait().code(), Code::kInvalidArgument);
  bool called = false;
  none.on_done([&](const Status& s) { called = s.code() == Code::kInvalidArgument; });
  EXPECT_TRUE(called);
  none.detach();
  run_ranks(places({1}), {}, [](World& world) {
    Request h = world.world().barrier_async(), other = std::move(h);
    EXPECT_EQ(h.wait().code(), Code::kInvalidArgument);
    EXPECT_TRUE(other.wait().ok());
    other = world.world().barrier_async();
    EXPECT_TRUE(other.wait().ok());
  });
}

}  // namespace
}  // namespace weft
