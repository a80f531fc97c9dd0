// labels: multiproc
// ctest: whole
// Every collective, algorithm, type and operator over real transports, bit by bit against a
// reference that is computed without weft.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "coll/algorithm.h"
#include "support/payload.h"
#include "support/ranks.h"
#include "transport/ucx.h"

namespace weft {
namespace {

using testing::places;
using testing::put;
using testing::reduced;
using testing::run_ranks;
using testing::value;

constexpr std::byte kPoison{0xA5};

// Memory for a test: of weft::alloc or malloc, `shift` bytes past its alignment.
struct Buffer {
  Buffer(std::size_t bytes, bool shared, std::size_t shift) : shared_(shared) {
    base_ = shared ? alloc(bytes + shift + 64) : std::malloc(bytes + shift + 64);
    data = static_cast<std::byte*>(base_) + shift;
    std::memset(base_, static_cast<int>(kPoison), bytes + shift + 64);
    size = bytes;
  }
  ~Buffer() { shared_ ? weft::free(base_) : std::free(base_); }
  bool intact_behind() const { return data[size] == kPoison; }
  std::byte* data;
  std::size_t size;

 private:
  void* base_;
  bool shared_;
};

struct Case {
  Collective collective;
  std::size_t count;
  DType type = DType::kFloat32;
  RedOp op = RedOp::kSum;
  bool in_place = false, shared = false;
  std::size_t shift = 0;
  Rank root = 0;
};

// Runs one case on this rank and compares every byte.
void run_case(Communicator comm, const Case& c, const std::string& what) {
  const auto n = static_cast<std::size_t>(comm.size());
  const auto me = static_cast<std::size_t>(comm.rank());
  const std::size_t e = size_of(c.type);
  const bool gathers = c.collective == Collective::kAllGather;
  const bool scatters = c.collective == Collective::kReduceScatter;
  const std::size_t in_count = scatters ? c.count * n : c.count;
  const std::size_t out_count = gathers ? c.count * n : c.count;
  Buffer whole(std::max(in_count, out_count) * e, c.shared, c.shift);
  Buffer other(out_count * e, c.shared, c.shift);
  std::byte *in = whole.data, *out = other.data;
  if (c.in_place) {
    in = gathers ? whole.data + me * c.count * e : whole.data;
    out = scatters ? whole.data + me * c.count * e : whole.data;
  }
  const auto mine = [&](std::size_t i) {
    return reduces(c.collective) ? testing::operand(static_cast<int>(me), i, c.type, c.op)
                                 : value(static_cast<int>(me), i);
  };
  for (std::size_t i = 0; i < in_count; ++i) put(in, i, c.type, mine(i));
  const Reduction op{c.op, c.op == RedOp::kPreMulSum ? 2.0 : 1.0};
  Status s;
  switch (c.collective) {
    case Collective::kAllReduce:
      s = comm.all_reduce(in, out, c.count, c.type, op);
      break;
    case Collective::kAllGather:
      s = comm.all_gather(in, out, c.count, c.type);
      break;
    case Collective::kReduceScatter:
      s = comm.reduce_scatter(in, out, c.count, c.type, op);
      break;
    case Collective::kBroadcast:
      s = comm.broadcast(in, out, c.count, c.type, c.root);
      break;
    default:
      s = comm.barrier();
  }
  ASSERT_TRUE(s.ok()) << what << ": " << s.to_string();
  std::vector<std::byte> want(out_count * e);
  for (std::size_t i = 0; i < out_count; ++i) {
    double v = 0;
    switch (c.collective) {
      case Collective::kAllReduce:
        v = reduced(comm.size(), i, c.type, c.op);
        break;
      case Collective::kAllGather:
        v = value(static_cast<int>(i / c.count), i % c.count);
        break;
      case Collective::kReduceScatter:
        v = reduced(comm.size(), me * c.count + i, c.type, c.op);
        break;
      default:
        v = value(c.root, i);
    }
    put(want.data(), i, c.type, v);
  }
  if (out_count && std::memcmp(want.data(), out, want.size()) != 0) {
    std::size_t at = 0;
    while (want[at] == out[at]) ++at;
    FAIL() << what << ": rank " << me << " element " << at / e << " of " << out_count
           << " is wrong";
  }
  EXPECT_TRUE(whole.intact_behind() && other.intact_behind()) << what << ": wrote past the end";
  if (!c.in_place && c.collective != Collective::kBroadcast)
    for (std::size_t i = 0; i < in_count; ++i) {
      std::byte expected[8];
      put(expected, 0, c.type, mine(i));
      ASSERT_EQ(std::memcmp(expected, in + i * e, e), 0) << what << ": input changed at " << i;
    }
}

const Collective kData[] = {Collective::kAllReduce, Collective::kAllGather,
                            Collective::kReduceScatter, Collective::kBroadcast};

struct Setting {
  const char* name;
  std::vector<int> hosts;
  int rails;
  const char* transport;
};

void PrintTo(const Setting& s, std::ostream* os) { *os << s.name; }

class Collectives : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (needs_ucx() && !ucx_available()) GTEST_SKIP() << "missing capability: UCX";
  }
  bool needs_ucx() const {
    return GetParam().hosts.size() > 1 && std::string(GetParam().transport) != "shm";
  }
  void run(const std::function<void(World&)>& body) {
    WorldOptions options;
    options.cross_rail = "allow";  // every algorithm is tried
    options.transport = GetParam().transport;
    options.timeout = std::chrono::milliseconds(20000);
    run_ranks(places(GetParam().hosts, GetParam().rails), options, body);
  }
};

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
            Case c{a.collective, count, DType::kFloat32, RedOp::kSum, in_place, shared};
            c.root = static_cast<Rank>(count % n);
            run_case(comm, c,
                     std::string(a.name) + " " + name(a.collective) + " count " +
                         std::to_string(count) + (in_place ? " in place" : "") +
                         (shared ? " shared" : ""));
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
            Case c{collective, count, type, op};
            run_case(comm, c,
                     std::string(name(collective)) + " " + name(type) + " " + name(op) + " " +
                         std::to_string(count));
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
            Case c{collective, count, DType::kFloat64, RedOp::kSum, false, shared, shift};
            run_case(comm, c,
                     std::string(name(collective)) + " shifted by " + std::to_string(shift));
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
    std::vector<Handle> handles;
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
    std::vector<Handle> messages;
    messages.push_back(comm.recv_async(theirs.data(), theirs.size(), DType::kInt64, left));
    messages.push_back(comm.recv_async(nullptr, 0, DType::kInt64, left));
    messages.push_back(comm.send_async(mine.data(), mine.size(), DType::kInt64, right));
    messages.push_back(comm.send_async(nullptr, 0, DType::kInt64, right));
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

INSTANTIATE_TEST_SUITE_P(
    Layouts, Collectives,
    ::testing::Values(Setting{"shm1", {1}, 1, "shm"}, Setting{"shm2", {2}, 1, "auto"},
                      Setting{"shm3", {3}, 1, "auto"}, Setting{"shm4", {4}, 1, "auto"},
                      Setting{"shm7", {7}, 1, "auto"}, Setting{"shm2x2", {2, 2}, 2, "shm"},
                      Setting{"mixed2x2", {2, 2}, 2, "auto"},
                      Setting{"mixed3x2", {2, 2, 2}, 2, "auto"},
                      Setting{"uneven", {2, 1}, 1, "auto"}, Setting{"ucx3", {1, 1, 1}, 1, "ucx"}),
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
            Case c{collective, (5u << 20) / blocks + 13, DType::kFloat32, RedOp::kSum, in_place,
                   shared};
            run_case(comm, c, std::string(name(collective)) + " of 20 MiB");
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
    std::vector<Handle> handles;
    for (int i = 0; i < kMessages; ++i)
      handles.push_back(comm.recv_async(&theirs[i], 1, DType::kInt64, peer));
    for (int i = 0; i < kMessages; ++i) {
      mine[i] = 10 * i + comm.rank();
      handles.push_back(comm.send_async(&mine[i], 1, DType::kInt64, peer));
    }
    for (Handle& h : handles) ASSERT_TRUE(h.wait().ok());
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
