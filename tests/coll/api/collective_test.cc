// labels: multiproc
// ctest: whole
// sanitize: no
// Every collective, algorithm, type and operator over real transports, bit by bit against a
// reference that is computed without weft.
#include <gtest/gtest.h>

#include <algorithm>

#include "coll/schedule/algorithm.h"
#include "tests/coll/calls.h"

namespace weft {
namespace {

using testing::expect_right;
using testing::InLayouts;
using testing::LayoutSetting;
using testing::places;
using testing::Question;
using testing::run_ranks;
using testing::shared_memory;
using testing::value;

const Collective kData[] = {Collective::kAllReduce, Collective::kAllGather,
                            Collective::kReduceScatter, Collective::kBroadcast};

std::pmr::memory_resource* memory(bool shared) {
  return shared ? shared_memory() : std::pmr::get_default_resource();
}
const char* kind(bool shared) { return shared ? "weft::alloc" : "malloc"; }

class Collectives : public InLayouts {};

// Every algorithm at sizes that divide by nothing, in and out of place, both kinds of memory.
TEST_P(Collectives, EveryAlgorithmAtEverySize) {
  run([&](World& world) {
    Communicator comm = world.world();
    const auto n = static_cast<std::size_t>(comm.size());
    const bool far = needs_ucx();
    const std::vector<std::size_t> counts = {0,    1,     n > 1 ? n - 1 : 2,       n, 13, 97,
                                             1021, 16411, far ? 50021ul : 300007ul};
    for (const Algorithm& a : algorithms()) {
      try {
        comm.set_algorithm(a.collective, a.name);
      } catch (const Error&) {
        continue;  // does not apply to this layout
      }
      if (a.collective == Collective::kBarrier) {
        for (int i = 0; i < 3; ++i) ASSERT_TRUE(comm.barrier().ok()) << a.name;
        continue;
      }
      if (std::ranges::find(kData, a.collective) == std::end(kData)) continue;  // family_test
      for (const std::size_t count : counts)
        for (const bool in_place : {false, true})
          for (const bool shared : {false, true}) {
            const Question q{a.collective,
                             comm.size(),
                             count,
                             DType::kFloat32,
                             RedOp::kSum,
                             in_place,
                             static_cast<Rank>(count % n)};
            expect_right(comm, q, std::string(a.name) + ", " + kind(shared), 0, memory(shared));
            if (::testing::Test::HasFatalFailure()) return;
          }
    }
  });
}

TEST_P(Collectives, EveryTypeAndOperator) {
  run([&](World& world) {
    Communicator comm = world.world();
    const bool power = (comm.size() & (comm.size() - 1)) == 0;
    for (const Collective collective : kData)
      for (const DType type : kAllDTypes)
        for (const RedOp op : kAllRedOps) {
          if (!defined(op, type) || (op != RedOp::kSum && !reduces(collective))) continue;
          if (op == RedOp::kAvg && is_floating(type) && !power) continue;  // not exact
          for (const std::size_t count : {5ul, 4099ul, 40009ul}) {
            expect_right(comm, {collective, comm.size(), count, type, op}, "auto");
            if (::testing::Test::HasFatalFailure()) return;
          }
        }
  });
}

TEST_P(Collectives, UnalignedPointers) {
  run([&](World& world) {
    Communicator comm = world.world();
    for (const Collective collective : kData)
      for (const std::size_t shift : {1ul, 2ul, 7ul})
        for (const std::size_t count : {3ul, 1023ul, 100003ul})
          for (const bool shared : {false, true}) {
            expect_right(comm, {collective, comm.size(), count, DType::kFloat64},
                         "shifted by " + std::to_string(shift), shift, memory(shared));
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
    // A ring of messages while the collectives are under way; zero bytes match as well.
    const Rank right = (comm.rank() + 1) % n, left = (comm.rank() + n - 1) % n;
    std::vector<std::int64_t> mine(30011, comm.rank()), theirs(30011, -1);
    std::vector<Request> messages;
    if (n == 1) {  // to itself a rank sends in an exchange
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

INSTANTIATE_TEST_SUITE_P(Layouts, Collectives,
                         ::testing::Values(LayoutSetting{"shm1", {1}, 1, "shm"},
                                           LayoutSetting{"shm2", {2}, 1, "auto"},
                                           LayoutSetting{"shm3", {3}, 1, "auto"},
                                           LayoutSetting{"shm4", {4}, 1, "auto"},
                                           LayoutSetting{"shm7", {7}, 1, "auto"},
                                           LayoutSetting{"shm2x2", {2, 2}, 2, "shm"},
                                           LayoutSetting{"mixed2x2", {2, 2}, 2, "auto"},
                                           LayoutSetting{"mixed3x2", {2, 2, 2}, 2, "auto"},
                                           LayoutSetting{"uneven", {2, 1}, 1, "auto"},
                                           LayoutSetting{"ucx3", {1, 1, 1}, 1, "ucx"}),
                         [](const auto& info) { return std::string(info.param.name); });

// Long messages take other paths: non-temporal stores, results staged where the peers read them,
// more slices than there are slots.
TEST(Collectives, LongMessagesOfManyRanks) {
  WorldOptions options;
  options.timeout = std::chrono::milliseconds(60000);
  for (const int n : {2, 3, 8})
    run_ranks(places({n}), options, [](World& world) {
      Communicator comm = world.world();
      for (const Collective collective : kData)
        for (const bool shared : {false, true})
          for (const bool in_place : {false, true}) {
            const std::size_t blocks =
                collective == Collective::kAllGather || collective == Collective::kReduceScatter
                    ? static_cast<std::size_t>(comm.size())
                    : 1;
            const Question q{collective,      comm.size(), (5u << 20) / blocks + 13,
                             DType::kFloat32, RedOp::kSum, in_place};
            expect_right(comm, q, kind(shared), 0, memory(shared));
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
    // Nothing was lost by the refusals.
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
