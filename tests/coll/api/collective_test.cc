// labels: multiproc
// ctest: whole
// sanitize: no
// Every collective, algorithm, type and operator over real transports, bit by bit against a
// reference computed without weft. Schedules are checked on many more shapes on the simulated
// fabric (table_test.cc); here each algorithm runs in each layout, with each size and kind of
// memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "coll/schedule/algorithm.h"
#include "support/pairwise.h"
#include "tests/coll/calls.h"
#include "tests/coll/schedules.h"

namespace weft {
namespace {

using testing::Axis;
using testing::expect_right;
using testing::InLayouts;
using testing::LayoutSetting;
using testing::Pairwise;
using testing::places;
using testing::Question;
using testing::run_ranks;
using testing::shared_memory;
using testing::value;

// Placement of a rank's buffers: on the heap or from weft::alloc, and their misalignment.
struct Placing {
  bool shared;
  std::size_t shift;
  bool operator==(const Placing&) const = default;
  std::pmr::memory_resource* memory() const {
    return shared ? shared_memory() : std::pmr::get_default_resource();
  }
  std::string text() const {
    return (shared ? "weft::alloc + " : "malloc + ") + std::to_string(shift);
  }
};
const std::vector<Placing> kPlacings = {{false, 0}, {true, 0}, {false, 1}, {true, 1},
                                        {false, 2}, {true, 7}, {false, 7}};

const std::vector<LayoutSetting> kLayouts = {
    {"shm1", {1}, 1, "shm"},         {"shm2", {2}, 1, "auto"},
    {"shm3", {3}, 1, "auto"},        {"shm4", {4}, 1, "auto"},
    {"shm7", {7}, 1, "auto"},        {"shm2x2", {2, 2}, 2, "shm"},
    {"mixed2x2", {2, 2}, 2, "auto"}, {"mixed3x2", {2, 2, 2}, 2, "auto"},
    {"uneven", {2, 1}, 1, "auto"},   {"ucx3", {1, 1, 1}, 1, "ucx"}};

// The roots of a call over n ranks: the first, one in the middle, the last.
Rank root_of(int which, int n) { return which == 0 ? 0 : which == 1 ? n / 2 : n - 1; }

constexpr std::size_t kOneLess = ~std::size_t{0};  // a count: one less than the number of ranks

struct AlgorithmCase {
  const Algorithm* algorithm;
  std::size_t count;
  bool in_place;
  Placing placing;
  int root;
};

// The cases of each layout. Sizes have no small divisors.
const std::vector<std::vector<AlgorithmCase>>& algorithm_cases() {
  static const auto cases = [] {
    std::vector<const Algorithm*> all;
    for (const Algorithm& a : algorithms()) all.push_back(&a);
    Axis<std::size_t> layouts{"layouts", {}};
    for (std::size_t i = 0; i < kLayouts.size(); ++i) layouts.values.push_back(i);
    Pairwise rows(std::move(layouts), Axis<const Algorithm*>{"algorithms", all},
                  Axis<std::size_t>{"counts", {0, 1, kOneLess, 13, 97, 1021, 16411, 300007}},
                  Axis<bool>{"in place", {false, true}}, Axis<Placing>{"memories", kPlacings},
                  Axis<int>{"roots", {0, 1, 2}});
    rows.where([](std::size_t layout, const Algorithm* a, std::size_t, bool, const Placing&, int) {
      const std::vector<int>& hosts = kLayouts[layout].hosts;
      return a->applies(hosts.size() == 1 ? testing::on_one_host(hosts[0])
                                          : testing::is_vector(hosts));
    });
    std::vector<std::vector<AlgorithmCase>> by_layout(kLayouts.size());
    for (const auto& [layout, a, count, in_place, placing, root] : rows.rows("EveryAlgorithm"))
      by_layout[layout].push_back({a, count, in_place, placing, root});
    return by_layout;
  }();
  return cases;
}

class Collectives : public InLayouts {};

TEST_P(Collectives, EveryAlgorithm) {
  const auto layout = std::ranges::find(kLayouts, std::string(GetParam().name),
                                        [](const auto& l) { return std::string(l.name); });
  const auto& cases = algorithm_cases()[static_cast<std::size_t>(layout - kLayouts.begin())];
  run([&](World& world) {
    Communicator comm = world.world();
    const auto n = static_cast<std::size_t>(comm.size());
    for (const AlgorithmCase& c : cases) {
      const Algorithm& a = *c.algorithm;
      comm.set_algorithm(a.collective, a.name);
      if (a.collective == Collective::kBarrier) {
        for (int i = 0; i < 3; ++i) ASSERT_TRUE(comm.barrier().ok()) << a.name;
        continue;
      }
      const std::size_t most = needs_ucx() ? 50021 : c.count;
      const Question q{a.collective,
                       comm.size(),
                       c.count == kOneLess ? n - 1 : std::min(c.count, most),
                       DType::kFloat32,
                       RedOp::kSum,
                       c.in_place,
                       root_of(c.root, comm.size())};
      expect_right(comm, q, std::string(a.name) + ", " + c.placing.text(), c.placing.shift,
                   c.placing.memory());
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

// The cases of `auto`, all of them in each layout, because the code path depends on type and size.
const auto& type_cases() {
  static const auto cases =
      Pairwise(
          Axis<Collective>{"collectives",
                           {Collective::kAllReduce, Collective::kAllGather,
                            Collective::kReduceScatter, Collective::kBroadcast, Collective::kReduce,
                            Collective::kGather, Collective::kScatter, Collective::kAllToAll}},
          Axis<DType>{"types", {std::begin(kAllDTypes), std::end(kAllDTypes)}},
          Axis<RedOp>{"operators", {std::begin(kAllRedOps), std::end(kAllRedOps)}},
          Axis<std::size_t>{"counts", {0, 1, 5, 100, 4099, 40009}},
          Axis<bool>{"in place", {false, true}}, Axis<Placing>{"memories", kPlacings},
          Axis<int>{"roots", {0, 1, 2}})
          .where([](Collective c, DType type, RedOp op, std::size_t, bool, const Placing&, int) {
            return defined(op, type) && (op == RedOp::kSum || reduces(c));
          })
          .rows("EveryTypeAndOperator");
  return cases;
}

TEST_P(Collectives, EveryTypeAndOperator) {
  const auto& cases = type_cases();
  run([&](World& world) {
    Communicator comm = world.world();
    const int n = comm.size();
    for (const auto& [collective, type, op, count, in_place, placing, root] : cases) {
      if (op == RedOp::kAvg && is_floating(type) && (n & (n - 1))) continue;  // not exact
      const Question q{collective, n, count, type, op, in_place, root_of(root, n)};
      expect_right(comm, q, "auto, " + placing.text(), placing.shift, placing.memory());
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

TEST_P(Collectives, ManyAtOnceAndMessagesBetweenThem) {
  run([&](World& world) {
    Communicator comm = world.world(), host = world.host();
    const int n = comm.size();
    constexpr std::size_t kCount = 5003;
    constexpr int kOps = 12;
    std::vector<std::vector<std::int32_t>> in(kOps), out(kOps);
    std::vector<Request> handles;
    for (int k = 0; k < kOps; ++k) {
      const std::size_t count = k % 3 ? kCount : 7;
      in[k].resize(count);
      out[k].resize(count);
      for (std::size_t i = 0; i < count; ++i) in[k][i] = value(comm.rank() + k, i);
      handles.push_back(
          (k % 2 ? host : comm)
              .all_reduce_async(in[k].data(), out[k].data(), count, DType::kInt32, RedOp::kSum));
    }
    // A ring of messages during the collectives; messages of zero bytes match as well.
    const Rank right = (comm.rank() + 1) % n, left = (comm.rank() + n - 1) % n;
    std::vector<std::int64_t> mine(30011, comm.rank()), theirs(30011, -1);
    std::vector<Request> messages;
    if (n == 1) {  // a rank may send to itself only in an exchange
      const Message all[] = {Message::from(left, theirs.data(), theirs.size(), DType::kInt64),
                             Message::from(left, nullptr, 0, DType::kInt64),
                             Message::to(right, mine.data(), mine.size(), DType::kInt64),
                             Message::to(right, nullptr, 0, DType::kInt64)};
      ASSERT_TRUE(comm.exchange(all).ok());
    } else {
      messages.push_back(comm.recv_async(theirs.data(), theirs.size(), DType::kInt64, left));
      messages.push_back(comm.recv_async(nullptr, 0, DType::kInt64, left));
      messages.push_back(comm.send_async(mine.data(), mine.size(), DType::kInt64, right));
      messages.push_back(comm.send_async(nullptr, 0, DType::kInt64, right));
    }
    for (auto& h : messages) ASSERT_TRUE(h.wait().ok());
    EXPECT_EQ(theirs.front(), left);
    EXPECT_EQ(theirs.back(), left);
    for (auto& h : handles) ASSERT_TRUE(h.wait().ok());
    for (int k = 0; k < kOps; ++k)
      for (std::size_t i = 0; i < in[k].size(); ++i) {
        std::int32_t want = 0;
        Communicator& g = k % 2 ? host : comm;
        for (int r = 0; r < g.size(); ++r) want += value(g.world_rank(r) + k, i);
        ASSERT_EQ(out[k][i], want) << "operation " << k << " element " << i;
      }
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, Collectives, ::testing::ValuesIn(kLayouts),
                         [](const auto& info) { return std::string(info.param.name); });

constexpr std::size_t kStreamed = (17u << 20) / 4;  // elements, past Tuning::streaming_bytes

// Long messages use non-temporal stores, results staged where the peers read them, and more slices
// than slots.
TEST(Collectives, LongMessagesOfManyRanks) {
  WorldOptions options;
  options.timeout = std::chrono::milliseconds(60000);
  const auto cases =
      Pairwise(Axis<int>{"ranks", {2, 3, 8}},
               Axis<Collective>{"collectives",
                                {Collective::kAllReduce, Collective::kAllGather,
                                 Collective::kReduceScatter, Collective::kBroadcast}},
               Axis<bool>{"weft::alloc", {false, true}}, Axis<bool>{"in place", {false, true}})
          .rows("LongMessagesOfManyRanks");
  for (const int n : {2, 3, 8})
    run_ranks(places({n}), options, [&](World& world) {
      Communicator comm = world.world();
      for (const auto& [ranks, collective, shared, in_place] : cases) {
        if (ranks != n) continue;
        const auto blocks = static_cast<std::size_t>(by_blocks(collective) ? n : 1);
        const Placing placing{shared, 0};
        const Question q{collective,      n,           kStreamed / blocks + 13,
                         DType::kFloat32, RedOp::kSum, in_place};
        expect_right(comm, q, placing.text(), 0, placing.memory());
        if (::testing::Test::HasFatalFailure()) return;
      }
    });
}

TEST(Communicator, ThousandsOfMessagesUnderWay) {
  run_ranks(places({2}), {}, [](World& world) {
    Communicator comm = world.world();
    const Rank peer = 1 - comm.rank();
    constexpr int kMessages = 3000;
    std::vector<std::int64_t> mine(kMessages), theirs(kMessages, -1);
    std::vector<Request> handles;
    for (int i = 0; i < kMessages; ++i)
      handles.push_back(comm.recv_async(&theirs[i], 1, DType::kInt64, peer));
    for (int i = 0; i < kMessages; ++i) {
      mine[i] = 10 * i + comm.rank();
      handles.push_back(comm.send_async(&mine[i], 1, DType::kInt64, peer));
    }
    for (Request& h : handles) ASSERT_TRUE(h.wait().ok());
    for (int i = 0; i < kMessages; ++i) ASSERT_EQ(theirs[i], 10 * i + peer);
  });
}

TEST(Communicator, RefusesWhatCannotWork) {
  run_ranks(places({2}), {}, [](World& world) {
    Communicator comm = world.world();
    float data[8] = {};
    EXPECT_EQ(comm.all_reduce(nullptr, data, 4, DType::kFloat32, RedOp::kSum).code(),
              Code::kInvalidArgument);
    EXPECT_EQ(comm.all_reduce(data, data + 1, 4, DType::kFloat32, RedOp::kSum).code(),
              Code::kInvalidArgument);
    EXPECT_EQ(comm.broadcast(data, data, 4, DType::kFloat32, 2).code(), Code::kInvalidArgument);
    EXPECT_EQ(comm.broadcast(data, data, 4, DType::kFloat32, -1).code(), Code::kInvalidArgument);
    EXPECT_EQ(comm.send(data, 4, DType::kFloat32, 9).code(), Code::kInvalidArgument);
    EXPECT_EQ(comm.all_gather(data, data, ~0ul, DType::kFloat32).code(), Code::kInvalidArgument);
    EXPECT_THROW(comm.set_algorithm(Collective::kAllReduce, "fastest"), Error);
    // Later calls work as if the refused calls had not been made.
    EXPECT_TRUE(comm.barrier().ok());
    float one = 1, sum = 0;
    EXPECT_TRUE(comm.all_reduce(&one, &sum, 1, DType::kFloat32, RedOp::kSum).ok());
    EXPECT_EQ(sum, 2);
  });
}

TEST(Communicator, AnUnknownTransportIsNamed) {
  WorldOptions options;
  options.transport = "carrier-pigeon";
  auto jobs = local_jobs(1);
  try {
    World world(std::move(jobs[0]), places({1})[0], options);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("carrier-pigeon"), std::string::npos);
  }
}

}  // namespace
}  // namespace weft
