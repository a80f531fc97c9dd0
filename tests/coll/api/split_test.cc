// labels: multiproc
// ctest: whole
// Derived communicators (split, duplicate, subset) over every kind of transport.
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <thread>

#include "coll/runtime/internals.h"
#include "support/jobs/communicator_inside.h"
#include "support/jobs/ranks.h"
#include "support/jobs/setting.h"

namespace weft {
namespace {

using testing::places;
using testing::run_ranks;
using testing::Setting;

class Split : public ::testing::TestWithParam<Setting> {
 protected:
  void run(const std::function<void(World&)>& body) {
    WorldOptions options;
    options.transport = GetParam().transport;
    options.timeout = std::chrono::milliseconds(10000);
    run_ranks(places(GetParam().hosts), options, body);
  }
};

// Sums the world ranks over the communicator in `count` elements, and checks all of them.
::testing::AssertionResult sums_up(Communicator comm, std::size_t count = 5) {
  std::int64_t want = 0;
  for (Rank r = 0; r < comm.size(); ++r) want += comm.world_rank(r);
  const std::int64_t mine = comm.world_rank(comm.rank());
  std::vector<std::int64_t> in(count), out(count, -1);
  for (std::size_t i = 0; i < count; ++i) in[i] = mine + static_cast<std::int64_t>(i);
  const Status s = comm.all_reduce(in.data(), out.data(), count, DType::kInt64, RedOp::kSum);
  if (!s.ok()) return ::testing::AssertionFailure() << s.to_string();
  for (std::size_t i = 0; i < count; ++i)
    if (out[i] != want + comm.size() * static_cast<std::int64_t>(i))
      return ::testing::AssertionFailure() << "element " << i << " is " << out[i] << ", not "
                                           << want + comm.size() * static_cast<std::int64_t>(i);
  return ::testing::AssertionSuccess();
}

// A plan lives as long as its communicators, and a new one may reuse the address of a freed one.
// Cached plans must not be used for it, even with the same count and type.
TEST_P(Split, NothingIsLeftOfACommunicatorThatIsGone) {
  run([](World& world) {
    Communicator all = world.world();
    const Rank me = all.rank();
    constexpr std::size_t kCount = 48;  // elements of the message or of a block
    for (int i = 0; i < 60; ++i) {
      // Excludes a rank, so that no other communicator has the same ranks.
      Communicator some = all.split(me == 1 ? Communicator::kNoColor : 0, i % 2 ? me : -me);
      if (!some) continue;
      const auto n = static_cast<std::size_t>(some.size()),
                 at = static_cast<std::size_t>(some.rank());
      std::vector<std::int64_t> in(n * kCount), out(n * kCount, -1), want;
      std::iota(in.begin(), in.end(), 1000 * static_cast<std::int64_t>(at));
      const auto of = [&](std::size_t rank, std::size_t k) {
        return static_cast<std::int64_t>(1000 * rank + k);
      };
      switch (i % 4) {
        case 0:
          some.all_gather(in.data(), out.data(), kCount, DType::kInt64).check();
          for (std::size_t r = 0; r < n; ++r)
            for (std::size_t k = 0; k < kCount; ++k) want.push_back(of(r, k));
          break;
        case 1:
          some.all_reduce(in.data(), out.data(), kCount, DType::kInt64, RedOp::kMax).check();
          for (std::size_t k = 0; k < kCount; ++k) want.push_back(of(n - 1, k));
          break;
        case 2:
          some.all_to_all(in.data(), out.data(), kCount, DType::kInt64).check();
          for (std::size_t r = 0; r < n; ++r)
            for (std::size_t k = 0; k < kCount; ++k) want.push_back(of(r, at * kCount + k));
          break;
        default:
          some.reduce_scatter(in.data(), out.data(), kCount, DType::kInt64, RedOp::kMin).check();
          for (std::size_t k = 0; k < kCount; ++k) want.push_back(of(0, at * kCount + k));
      }
      want.resize(out.size(), -1);
      ASSERT_EQ(out, want) << "communicator " << i;
    }
  });
}

TEST_P(Split, ColorsAndKeysAsInMpi) {
  run([](World& world) {
    Communicator all = world.world();
    const Rank me = all.rank();
    // Splits the odd ranks from the even ones, each in reverse order.
    Communicator half = all.split(me % 2, -me);
    ASSERT_TRUE(half);
    EXPECT_EQ(half.size(), (all.size() + (me % 2 == 0)) / 2);
    EXPECT_EQ(half.world_rank(half.rank()), me);
    for (Rank r = 1; r < half.size(); ++r) EXPECT_LT(half.world_rank(r), half.world_rank(r - 1));
    for (const std::size_t count : {1, 1000, 10000, 300000}) EXPECT_TRUE(sums_up(half, count));
    // Equal keys sort by rank. One rank is excluded.
    Communicator rest = all.split(me == 1 ? Communicator::kNoColor : 7);
    EXPECT_EQ(static_cast<bool>(rest), me != 1);
    if (rest) {
      EXPECT_EQ(rest.size(), all.size() - 1);
      for (Rank r = 1; r < rest.size(); ++r) EXPECT_GT(rest.world_rank(r), rest.world_rank(r - 1));
      EXPECT_TRUE(sums_up(rest, 100));
    }
    // Splits into single ranks, and splits a derived communicator again.
    EXPECT_TRUE(sums_up(all.split(me)));
    EXPECT_TRUE(sums_up(half.split(0).duplicate()));
  });
}

TEST_P(Split, SubsetsInTheOrderGiven) {
  run([](World& world) {
    Communicator all = world.world();
    const Rank last = all.size() - 1;
    const std::vector<Rank> ends{last, 0};
    const bool in = all.rank() == 0 || all.rank() == last;
    Communicator two = all.subset(in ? std::span<const Rank>(ends) : std::span<const Rank>());
    ASSERT_EQ(static_cast<bool>(two), in);
    if (!in) return;
    EXPECT_EQ(two.world_rank(0), last);
    EXPECT_EQ(two.world_rank(1), 0);
    EXPECT_TRUE(sums_up(two, 2000));
    std::int32_t out = two.rank();
    EXPECT_TRUE(two.broadcast(&out, &out, 1, DType::kInt32, 0).ok());
    EXPECT_EQ(out, 0);
  });
}

// Messages never cross between communicators, whatever the order of use.
TEST_P(Split, DuplicatesDoNotMix) {
  run([](World& world) {
    Communicator a = world.world(), b = a.duplicate(), c = b.duplicate();
    const Rank me = a.rank(), n = a.size();
    const Rank next = (me + 1) % n, prev = (me + n - 1) % n;
    std::int32_t sent[3] = {100 + me, 200 + me, 300 + me}, got[3] = {};
    std::vector<Request> handles;
    handles.push_back(a.send_async(&sent[0], 1, DType::kInt32, next));
    handles.push_back(b.send_async(&sent[1], 1, DType::kInt32, next));
    handles.push_back(c.send_async(&sent[2], 1, DType::kInt32, next));
    EXPECT_TRUE(c.recv(&got[2], 1, DType::kInt32, prev).ok());
    EXPECT_TRUE(a.recv(&got[0], 1, DType::kInt32, prev).ok());
    EXPECT_TRUE(b.recv(&got[1], 1, DType::kInt32, prev).ok());
    for (Request& h : handles) EXPECT_TRUE(h.wait().ok());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(got[i], 100 * (i + 1) + prev);
    // Every other rank starts the collectives in another order.
    for (const std::size_t count : {3ul, 40000ul}) {
      std::vector<std::int32_t> in(count, me), out[2];
      out[0].resize(count), out[1].resize(count);
      Communicator& first = me % 2 ? a : b;
      Communicator& second = me % 2 ? b : a;
      Request h1 = first.all_reduce_async(in.data(), out[0].data(), count, DType::kInt32,
                                          me % 2 ? RedOp::kSum : RedOp::kMax);
      Request h2 = second.all_reduce_async(in.data(), out[1].data(), count, DType::kInt32,
                                           me % 2 ? RedOp::kMax : RedOp::kSum);
      EXPECT_TRUE(h2.wait().ok());
      EXPECT_TRUE(h1.wait().ok());
      const int sum = n * (n - 1) / 2, max = n - 1;
      EXPECT_EQ(out[0][count - 1], me % 2 ? sum : max);
      EXPECT_EQ(out[1][count - 1], me % 2 ? max : sum);
    }
  });
}

TEST_P(Split, AMessageOfAnEarlierOneNeverComes) {
  run([](World& world) {
    Communicator all = world.world();
    const Rank me = all.rank(), n = all.size();
    for (std::int32_t i = 0; i < 50; ++i) {
      Communicator c = all.duplicate();
      std::int32_t got = -1, lost = 7000 + i;
      const std::int32_t sent = 100 * i + me;
      const auto next = (me + 1) % n, prev = (me + n - 1) % n;
      EXPECT_TRUE(c.send(&sent, 1, DType::kInt32, next).ok());
      EXPECT_TRUE(c.send(&lost, 1, DType::kInt32, next).ok());  // never received
      EXPECT_TRUE(c.recv(&got, 1, DType::kInt32, prev).ok());
      EXPECT_EQ(got, 100 * i + prev);
    }
  });
}

TEST_P(Split, ThreadsMakeAndUseCommunicatorsAtOnce) {
  run([](World& world) {
    constexpr int kThreads = 3;
    std::vector<Communicator> parents;
    for (int t = 0; t < kThreads; ++t) parents.push_back(world.world().duplicate());
    std::vector<std::thread> threads;
    std::vector<std::string> errors(kThreads);
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        try {
          Communicator mine = parents[static_cast<std::size_t>(t)];
          for (int i = 0; i < 8; ++i) {
            Communicator child = mine.split((mine.rank() + t + i) % 2);
            for (const std::size_t count : {2ul, 20000ul})
              if (const auto ok = sums_up(child, count); !ok)
                errors[static_cast<std::size_t>(t)] = ok.message();
            if (i % 2) mine = mine.duplicate();
          }
        } catch (const std::exception& e) {
          errors[static_cast<std::size_t>(t)] = e.what();
        }
      });
    for (auto& t : threads) t.join();
    for (const std::string& e : errors) EXPECT_EQ(e, "");
  });
}

// There are fewer boards than communicators here, and boards are reused: the last communicators
// must work like the first.
TEST_P(Split, HundredsAtOnceAndAgain) {
  run([](World& world) {
    Communicator all = world.world();
    std::mt19937 random(7);
    for (int again = 0; again < 2; ++again) {
      std::vector<Communicator> many;
      for (int i = 0; i < 300; ++i)
        many.push_back(i % 3 ? all.duplicate() : all.split(static_cast<int>(random() % 2)));
      std::shuffle(many.begin(), many.end(), random);
      for (Communicator& c : many) ASSERT_TRUE(sums_up(c, 1 + random() % 200));
    }
  });
}

TEST_P(Split, WrongArgumentsAreToldOnEveryRank) {
  run([](World& world) {
    Communicator all = world.world();
    const Rank me = all.rank(), n = all.size();
    const auto told = [&](const std::string& part, const std::function<void()>& call) {
      try {
        call();
        ADD_FAILURE() << "no error: " << part;
      } catch (const Error& e) {
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
      }
    };
    told(me == 1 ? "color -5" : "rank 1 passed wrong", [&] { (void)all.split(me == 1 ? -5 : 0); });
    told("color -5", [&] { (void)all.split(-5); });  // each rank gets its own error
    told(me == 0 ? "rank 1 called duplicate where rank 0 called split" : "rank 0 called split",
         [&] { (void)(me == 0 ? all.split(0) : all.duplicate()); });
    const std::vector<Rank> beyond{0, 1, n}, twice{0, 1, 1}, some{0, 1}, others{1, 0};
    const std::span<const Rank> none;
    told(me == 0 ? "not a rank" : "rank 0 passed wrong",
         [&] { (void)all.subset(me == 0 ? std::span<const Rank>(beyond) : none); });
    told(me == 0 ? "listed twice" : "rank 0 passed wrong",
         [&] { (void)all.subset(me == 0 ? std::span<const Rank>(twice) : none); });
    if (me < 2)
      told("asked for", [&] { (void)all.subset(me == 0 ? some : others); });
    else
      EXPECT_FALSE(all.subset(none));
    if (n > 2) {  // the same ranks in another order; the last rank keeps its number
      const std::vector<Rank> order{0, 1, 2}, other{0, 2, 1};
      if (me < 3)
        told("asked for", [&] { (void)all.subset(me == 2 ? other : order); });
      else
        EXPECT_FALSE(all.subset(none));
    }
    EXPECT_TRUE(sums_up(all));  // still works
    EXPECT_TRUE(sums_up(all.duplicate()));
  });
}

INSTANTIATE_TEST_SUITE_P(Settings, Split,
                         ::testing::Values(Setting{"shm2", {2}, "auto"},
                                           Setting{"shm5", {5}, "auto"},
                                           Setting{"tcp3", {3}, "tcp"},
                                           Setting{"mixed2x2", {2, 2}, "auto"}),
                         [](const auto& info) { return std::string(info.param.name); });

// Rank 0 sets an algorithm while its other thread is in split(), which once cleared the algorithm
// for its own calls and then restored the old one.
TEST(SplitMeanwhile, AnAlgorithmThatIsNamedStays) {
  run_ranks(places({2}), {}, [](World& world) {
    Communicator all = world.world();
    if (world.rank() == 0) {
      std::thread splits([&] { (void)all.duplicate(); });
      const GroupState& group = CommunicatorInside::of(all);
      const auto begun = [&] {
        const CoreLock lock(group.core->mutex);
        return group.board_round != 0;
      };
      while (!begun()) std::this_thread::yield();
      all.set_algorithm(Collective::kAllReduce, "ring");
      job_of(world).all_gather("");
      splits.join();
    } else {
      all.set_algorithm(Collective::kAllReduce, "ring");
      job_of(world).all_gather("");
      (void)all.duplicate();
    }
    EXPECT_TRUE(sums_up(all));
    EXPECT_EQ(all.last_algorithm(), "ring");
  });
}

TEST(EmptyCommunicator, EveryCallSaysSo) {
  Communicator none;
  EXPECT_FALSE(none);
  EXPECT_THROW((void)none.rank(), Error);
  EXPECT_THROW((void)none.size(), Error);
  EXPECT_THROW((void)none.world_rank(0), Error);
  EXPECT_THROW((void)none.split(0), Error);
  EXPECT_THROW((void)none.duplicate(), Error);
  EXPECT_THROW((void)none.subset({}), Error);
  EXPECT_THROW((void)none.last_algorithm(), Error);
  EXPECT_THROW(none.set_algorithm(Collective::kAllReduce, "ring"), Error);
  int x = 0;
  const Status all[] = {
      none.all_reduce(&x, &x, 1, DType::kInt32, RedOp::kSum),
      none.all_gather(&x, &x, 1, DType::kInt32),
      none.reduce_scatter(&x, &x, 1, DType::kInt32, RedOp::kSum),
      none.broadcast(&x, &x, 1, DType::kInt32, 0),
      none.barrier(),
      none.send(&x, 1, DType::kInt32, 0),
      none.recv(&x, 1, DType::kInt32, 0),
      none.barrier_async().wait(),
  };
  for (const Status& s : all) {
    EXPECT_EQ(s.code(), Code::kInvalidArgument);
    EXPECT_NE(s.message().find("empty"), std::string::npos) << s.message();
  }
}

}  // namespace
}  // namespace weft
