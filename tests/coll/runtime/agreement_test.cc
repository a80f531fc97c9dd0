// labels: multiproc
// ctest: whole
// sanitize: long
// Ranks that pass different arguments, call different collectives or run different algorithms: all
// of them get the same error, and it shows both sides.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <random>
#include <regex>
#include <thread>

#include "coll/api/communicator.h"
#include "support/jobs/ranks.h"
#include "support/jobs/setting.h"
#include "transport/ucx/ucx.h"

namespace weft {
namespace {

using testing::places;
using testing::run_ranks;
using testing::Setting;

// What one rank does.
struct Call {
  Collective collective = Collective::kAllReduce;
  std::size_t count = 1024;
  DType type = DType::kFloat32;
  RedOp op = RedOp::kSum;
  Rank root = 0;
  const char* algorithm = "auto";
};

Status perform(Communicator& comm, const Call& c) {
  const auto n = static_cast<std::size_t>(comm.size());
  std::vector<std::byte> in(c.count * n * 8), out(c.count * n * 8);
  comm.set_algorithm(c.collective, c.algorithm);
  switch (c.collective) {
    case Collective::kAllReduce:
      return comm.all_reduce(in.data(), out.data(), c.count, c.type, c.op);
    case Collective::kAllGather:
      return comm.all_gather(in.data(), out.data(), c.count, c.type);
    case Collective::kReduceScatter:
      return comm.reduce_scatter(in.data(), out.data(), c.count, c.type, c.op);
    case Collective::kBroadcast:
      return comm.broadcast(in.data(), out.data(), c.count, c.type, c.root);
    case Collective::kReduce:
      return comm.reduce(in.data(), out.data(), c.count, c.type, c.op, c.root);
    case Collective::kGather:
      return comm.gather(in.data(), out.data(), c.count, c.type, c.root);
    case Collective::kScatter:
      return comm.scatter(in.data(), out.data(), c.count, c.type, c.root);
    case Collective::kAllToAll:
      return comm.all_to_all(in.data(), out.data(), c.count, c.type);
    default:
      return comm.barrier();
  }
}

class Agreement : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (needs_ucx(GetParam()) && !ucx_available()) GTEST_SKIP() << "missing capability: UCX";
  }
  int size() const {
    int n = 0;
    for (const int ranks : GetParam().hosts) n += ranks;
    return n;
  }

  // Rank `odd` calls `other`, all the others `usual`, after a few calls in which all agree. Then
  // every rank calls barriers until it hears of it. Returns the messages by rank.
  std::vector<std::string> run(Rank odd, const Call& usual, const Call& other) {
    std::vector<std::string> messages(static_cast<std::size_t>(size()));
    WorldOptions options;
    options.transport = GetParam().transport;
    options.timeout = std::chrono::seconds(20);  // it must be found well before
    run_ranks(places(GetParam().hosts), options, [&](World& world) {
      Communicator comm = world.world();
      Status s;  // a slow rank may hear of it in a call in which all agreed
      for (int i = 0; i < 2 && s.ok(); ++i) s = perform(comm, usual);
      if (s.ok()) s = perform(comm, comm.rank() == odd ? other : usual);
      for (int i = 0; i < 3 && s.ok(); ++i) s = perform(comm, usual);
      for (int i = 0; i < 2 && s.ok(); ++i) s = comm.barrier();  // a root does not wait for others
      EXPECT_EQ(s.code(), Code::kMismatch) << "rank " << comm.rank() << ": " << s.to_string();
      messages[static_cast<std::size_t>(comm.rank())] = s.message();
    });
    return messages;
  }

  // Every rank says "<before>rank A <verb> X, rank B <verb> Y", where one of them is `odd` and
  // shows `of_odd`, and the other shows `of_usual`.
  void expect_both_sides(const std::vector<std::string>& messages, Rank odd,
                         const std::string& before, const std::string& verb,
                         const std::string& of_usual, const std::string& of_odd) {
    const auto side = [&](const std::string& rank, const std::string& what) {
      return "rank " + rank + " " + verb + " " + what;
    };
    const std::string o = std::to_string(odd);
    const std::regex first(".*" + before + side(o, of_odd) + ", " + side("\\d+", of_usual) + ".*");
    const std::regex second(".*" + before + side("\\d+", of_usual) + ", " + side(o, of_odd) + ".*");
    for (const std::string& m : messages) {
      EXPECT_TRUE(std::regex_match(m, first) || std::regex_match(m, second)) << m;
      EXPECT_EQ(m, messages[0]) << "all ranks say the same";
    }
  }
};

// Small, where ranks of a machine use boards; one slice; several rounds.
const std::size_t kCounts[] = {64, 1024, 100000};

TEST_P(Agreement, AnotherCount) {
  for (const Collective c : {Collective::kAllReduce, Collective::kAllGather,
                             Collective::kReduceScatter, Collective::kBroadcast})
    for (const std::size_t count : kCounts)
      for (const std::size_t other : {count + 1, count * 2, count / 2}) {
        SCOPED_TRACE(fmt::format("{} {} / {}", name(c), count, other));
        const Rank odd = size() - 1;
        expect_both_sides(run(odd, {c, count}, {c, other}), odd, fmt::format("{} #\\d+: ", name(c)),
                          "passed", fmt::format("{} x float32", count),
                          fmt::format("{} x float32", other));
      }
}

// Those in which not everybody hears from everybody; the odd one is the root, or not.
TEST_P(Agreement, AnotherCountOrTypeInTheRest) {
  for (const Collective c :
       {Collective::kReduce, Collective::kGather, Collective::kScatter, Collective::kAllToAll})
    for (const std::size_t count : {64ul, 30000ul})
      for (const Rank odd : {0, size() - 1}) {
        SCOPED_TRACE(fmt::format("{} of {}, rank {} is odd", name(c), count, odd));
        expect_both_sides(
            run(odd, {c, count}, {c, count + 1}), odd, fmt::format("{} #\\d+: ", name(c)), "passed",
            fmt::format("{} x float32", count), fmt::format("{} x float32", count + 1));
        expect_both_sides(run(odd, {c, count}, {c, count, DType::kInt32}), odd,
                          fmt::format("{} #\\d+: ", name(c)), "passed",
                          fmt::format("{} x float32", count), fmt::format("{} x int32", count));
      }
}

TEST_P(Agreement, AnotherType) {
  for (const std::size_t count : kCounts)
    for (const DType other : {DType::kInt32, DType::kFloat64}) {
      const auto m =
          run(0, {Collective::kAllReduce, count}, {Collective::kAllReduce, count, other});
      expect_both_sides(
          m, 0, "all_reduce #\\d+: ", "passed", fmt::format("{} x float32", count),
          fmt::format("{} x {}", count, other == DType::kInt32 ? "int32" : "float64"));
    }
}

TEST_P(Agreement, AnotherOperator) {
  for (const Collective c : {Collective::kAllReduce, Collective::kReduceScatter})
    for (const std::size_t count : kCounts) {
      const auto m = run(1, {c, count}, {c, count, DType::kFloat32, RedOp::kMax});
      expect_both_sides(m, 1, fmt::format("{} #\\d+ of {} x float32: ", name(c), count), "passed",
                        "sum", "max");
    }
}

TEST_P(Agreement, AnotherRoot) {
  for (const std::size_t count : kCounts) {
    Call usual{Collective::kBroadcast, count}, other = usual;
    other.root = 1;
    const auto m = run(1, usual, other);
    expect_both_sides(m, 1, fmt::format("broadcast #\\d+ of {} x float32: ", count), "passed",
                      "root 0", "root 1");
  }
}

TEST_P(Agreement, AnotherCollective) {
  for (const std::size_t count : kCounts)
    for (const Collective c : {Collective::kBroadcast, Collective::kAllGather,
                               Collective::kReduceScatter, Collective::kBarrier}) {
      SCOPED_TRACE(fmt::format("{} {}", name(c), count));
      const Rank odd = size() / 2;
      const auto m = run(odd, {Collective::kAllReduce, count}, {c, count});
      expect_both_sides(m, odd, "", "called",
                        fmt::format("all_reduce #\\d+ of {} x float32, sum", count),
                        fmt::format("{} #\\d+.*", name(c)));
    }
}

TEST_P(Agreement, AnotherAlgorithm) {
  for (const std::size_t count : kCounts)
    for (const char* other : {"direct", "recursive_doubling", "flat"}) {
      SCOPED_TRACE(fmt::format("{} {}", other, count));
      const auto m =
          run(0, {Collective::kAllReduce, count, DType::kFloat32, RedOp::kSum, 0, "ring"},
              {Collective::kAllReduce, count, DType::kFloat32, RedOp::kSum, 0, other});
      expect_both_sides(m, 0, "", "runs it", "as ring", "(as [a-z_]+|on the board)");
    }
}

TEST_P(Agreement, NothingAndSomething) {
  for (const std::size_t count : {64ul, 100000ul}) {
    const auto m = run(1, {Collective::kAllReduce, count}, {Collective::kAllReduce, 0});
    // Who has nothing to do goes on; it may be found at its next call, or at the deadline.
    for (const std::string& text : m) {
      EXPECT_TRUE(std::regex_search(text, std::regex("all_reduce #3")) &&
                  std::regex_search(text, std::regex(fmt::format("\\b{} x float(32|,)", count))))
          << text;
      EXPECT_EQ(text, m[0]);
    }
  }
}

TEST_P(Agreement, MessagesOfTwoSizesOrTypes) {
  struct Side {
    std::size_t count;
    DType type;
    const char* text;
  };
  const Side sent{100, DType::kFloat32, "100 x float32"};
  for (const Side& expected :
       {Side{101, DType::kFloat32, "101 x float32"}, Side{7, DType::kFloat32, "7 x float32"},
        Side{100, DType::kInt32, "100 x int32"}, Side{50000, DType::kFloat64, "50000 x float64"}}) {
    WorldOptions options;
    options.transport = GetParam().transport;
    options.timeout = std::chrono::seconds(20);
    const Rank last = size() - 1;
    std::mutex mutex;
    std::vector<std::string> all;
    run_ranks(places(GetParam().hosts), options, [&](World& world) {
      Communicator comm = world.world();
      std::vector<double> data(50000);
      Status s;
      if (comm.rank() == 0) s = comm.send(data.data(), sent.count, sent.type, last);
      if (comm.rank() == last) s = comm.recv(data.data(), expected.count, expected.type, 0);
      for (int i = 0; i < 2 && s.ok(); ++i) s = comm.barrier();
      EXPECT_EQ(s.code(), Code::kMismatch);
      const std::lock_guard lock(mutex);
      all.push_back(s.message());
    });
    const std::regex want(
        fmt::format("message #\\d+ from rank 0 to rank {0}: rank 0 sends {1}, rank {0} expects {2}",
                    last, sent.text, expected.text));
    for (const std::string& text : all) EXPECT_TRUE(std::regex_match(text, want)) << text;
  }
}

// Counted from 1, as collectives are, and as in what is said of messages that disagree.
TEST(MessageNumbers, AreTheSameInEveryVerdict) {
  const auto first_of_a_pair = [](const auto& send) {
    std::string told;
    WorldOptions options;
    options.timeout = std::chrono::milliseconds(500);
    run_ranks(places({2}), options, [&](World& world) {
      Communicator comm = world.world().duplicate();
      float data[2] = {};
      const Status s = comm.rank() == 0 ? comm.recv(data, 2, DType::kFloat32, 1) : send(comm);
      if (comm.rank() == 0) told = s.message();
    });
    return told;
  };
  const std::string other = first_of_a_pair([](Communicator& comm) {
    const float one = 0;
    return comm.send(&one, 1, DType::kFloat32, 0);
  });
  EXPECT_NE(other.find("message #1 from rank 1 to rank 0"), std::string::npos) << other;
  const std::string none = first_of_a_pair([](Communicator&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2000));
    return Status();
  });
  EXPECT_NE(none.find("never called send #1 to rank 0"), std::string::npos) << none;
}

// One argument of one rank changed at random: nobody gets a wrong result without an error.
TEST_P(Agreement, RandomMutations) {
  const char* text = std::getenv("WEFT_TEST_SEED");
  const auto seed = text ? static_cast<unsigned>(std::atol(text)) : std::random_device{}();
  SCOPED_TRACE(fmt::format("WEFT_TEST_SEED={}", seed));
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const Collective collectives[] = {Collective::kAllReduce, Collective::kAllGather,
                                    Collective::kReduceScatter};
  const DType types[] = {DType::kFloat32, DType::kInt32, DType::kFloat64, DType::kInt64};
  const RedOp ops[] = {RedOp::kSum, RedOp::kMax, RedOp::kMin};
  for (int i = 0; i < 25; ++i) {
    Call usual{collectives[below(3)], 1 + below(std::size_t{1} << below(17)), types[below(4)],
               ops[below(3)]};
    Call other = usual;
    const bool reduces = usual.collective != Collective::kAllGather;
    switch (below(reduces ? 4 : 3)) {
      case 0:
        other.collective = collectives[(static_cast<std::size_t>(usual.collective) + 1) % 3];
        break;
      case 1:
        other.count = 1 + (usual.count + below(1000)) % (1u << 17);
        break;
      case 2:
        while (other.type == usual.type) other.type = types[below(4)];
        break;
      default:
        while (other.op == usual.op) other.op = ops[below(3)];
    }
    const Rank odd = static_cast<Rank>(below(static_cast<std::size_t>(size())));
    SCOPED_TRACE(fmt::format("{} of {} {} {}, but rank {}: {} of {} {} {}", name(usual.collective),
                             usual.count, name(usual.type), name(usual.op), odd,
                             name(other.collective), other.count, name(other.type),
                             name(other.op)));
    for (const std::string& m : run(odd, usual, other))
      EXPECT_TRUE(m.find(fmt::format("rank {} ", odd)) != std::string::npos &&
                  m.find("#3") != std::string::npos)
          << m;
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Agreement,
                         ::testing::Values(Setting{"shm2", {2}, "auto"},
                                           Setting{"shm4", {4}, "auto"},
                                           Setting{"mixed2x2", {2, 2}, "auto"},
                                           Setting{"ucx3", {1, 1, 1}, "ucx"}),
                         [](const auto& info) { return std::string(info.param.name); });

// Who only sends does not wait for the others: of two rounds of the numbers in tags, the messages
// of the second one are no part of the first.
TEST(FarAhead, IsNoDisagreement) {
  constexpr int kCalls = 9000;
  std::atomic<bool> ahead = false;
  WorldOptions options;
  options.transport = "tcp";
  run_ranks(places({3}), options, [&](World& world) {
    Communicator comm = world.world();
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    if (comm.rank() == 2) {
      while (!ahead && std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      // The root waits and looks at what is there.
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    for (std::int32_t i = 0; i < kCalls; ++i) {
      std::int32_t sum = 0;
      const Status s = comm.reduce(&i, &sum, 1, DType::kInt32, RedOp::kSum, 0);
      ASSERT_TRUE(s.ok()) << "call " << i << ", rank " << comm.rank() << ": " << s.to_string();
      if (comm.rank() == 0) {
        ASSERT_EQ(sum, 3 * i);
      }
    }
    if (comm.rank() == 1) ahead = true;
  });
}

}  // namespace
}  // namespace weft
