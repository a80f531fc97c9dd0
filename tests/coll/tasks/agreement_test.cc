// labels: multiproc
// ctest: whole
// sanitize: long
// Ranks that pass different arguments, call different collectives or run different algorithms: all
// ranks get the same error, and it shows both sides.
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
#include "support/device/device_ranks.h"
#include "support/jobs/call.h"
#include "support/jobs/ranks.h"
#include "support/jobs/setting.h"
#include "transport/ucx/ucx.h"

namespace weft {
namespace {

using testing::places;
using testing::run_ranks;
using testing::Setting;

// A rank's call and the memory that it uses.
enum class In { kHost, kDevice, kDeviceOnAStream };
struct Call {
  Collective collective = Collective::kAllReduce;
  std::size_t count = 1024;
  DType type = DType::kFloat32;
  RedOp op = RedOp::kSum;
  Rank root = 0;
  const char* algorithm = "auto";
  In memory = In::kHost;
};

// A rank's buffers for all its calls; device memory is on the fake device.
class Caller {
 public:
  explicit Caller(World& world)
      : work_(*device(), world.rank() % FakeDevice::kGpus),
        on_device_(work_, 2 * kBytes),
        on_host_(2 * kBytes * static_cast<std::size_t>(world.size())) {}

  Status perform(Communicator comm, const Call& c) {
    const bool host = c.memory == In::kHost;
    std::byte* const in = host ? on_host_.data() : on_device_.data();
    std::byte* const out = in + (host ? on_host_.size() / 2 : kBytes);
    comm.set_algorithm(c.collective, c.algorithm);
    if (c.memory == In::kDeviceOnAStream) comm = comm.on(work_.get());
    if (!host && c.collective == Collective::kAllReduce)
      return comm.all_reduce_async(in, out, c.count, c.type, c.op).wait();
    return testing::call(comm, c.collective, in, out, c.count, c.type, c.op, c.root);
  }

 private:
  static constexpr std::size_t kBytes = std::size_t{8} << 18;  // of a rank's part
  testing::TestStream work_;
  testing::DeviceBuffer on_device_;
  std::vector<std::byte> on_host_;
};

// Rank `odd` calls `other`, all other ranks `usual`. Each error matches a regular expression, in
// which @ stands for "#" and the number of a call.
struct Disagreement {
  Rank odd;
  Call usual, other;
  std::string said = {};
};

// "<before>rank A <verb> X, rank B <verb> Y", where one of them is `odd` with `of_odd`, and the
// other has `of_usual`.
std::string both_sides(Rank odd, const std::string& before, const std::string& verb,
                       const std::string& of_usual, const std::string& of_odd) {
  const std::string one = fmt::format("rank {} {} {}", odd, verb, of_odd);
  const std::string rest = fmt::format("rank \\d+ {} {}", verb, of_usual);
  return fmt::format(".*{0}({1}, {2}|{2}, {1}).*", before, one, rest);
}

// The type's name in messages.
const char* word(DType type) {
  return type == DType::kFloat32   ? "float32"
         : type == DType::kFloat64 ? "float64"
         : type == DType::kInt32   ? "int32"
                                   : "int64";
}

class Agreement : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (needs_ucx(GetParam()) && !ucx_available()) GTEST_SKIP() << "missing capability: UCX";
    use_fake_device();  // called in each suite of this file, because it must precede device()
  }
  int size() const { return ranks_of(GetParam()); }

  // Runs each mismatch in its own World, after two calls in which all ranks agree. Then every rank
  // calls barriers until one of them returns the error.
  void expect(const std::vector<Disagreement>& all) {
    WorldOptions options;
    options.transport = GetParam().transport;
    options.timeout = std::chrono::seconds(20);  // far above the expected time
    for (const Disagreement& one : all) {
      const auto& [odd, usual, other, said] = one;
      SCOPED_TRACE(fmt::format("{} of {} {} {}, but rank {}: {} of {} {} {}",
                               name(usual.collective), usual.count, name(usual.type),
                               name(usual.op), odd, name(other.collective), other.count,
                               name(other.type), name(other.op)));
      std::vector<std::string> messages(static_cast<std::size_t>(size()));
      run_ranks(places(GetParam().hosts), options, [&](World& world) {
        Caller caller(world);
        Communicator comm = world.world();
        Status s;  // a slow rank may see the failure in a call in which all agreed
        for (int k = 0; k < 2 && s.ok(); ++k) s = caller.perform(comm, one.usual);
        if (s.ok()) s = caller.perform(comm, comm.rank() == one.odd ? one.other : one.usual);
        for (int k = 0; k < 3 && s.ok(); ++k) s = caller.perform(comm, one.usual);
        for (int k = 0; k < 2 && s.ok(); ++k) s = comm.barrier();  // a root waits for no other rank
        EXPECT_EQ(s.code(), Code::kMismatch) << "rank " << comm.rank() << ": " << s.to_string();
        messages[static_cast<std::size_t>(comm.rank())] = s.message();
      });
      const std::regex want(std::regex_replace(said, std::regex("@"), "#\\d+"));
      for (const std::string& m : messages) {
        EXPECT_TRUE(std::regex_match(m, want)) << m << "\n  is not " << said;
        EXPECT_EQ(m, messages[0]) << "all ranks say the same";
      }
    }
  }
  // The odd rank passes another count or type.
  static Disagreement passes(Rank odd, const Call& usual, const Call& other) {
    return {odd, usual, other,
            both_sides(odd, fmt::format("{} @: ", name(usual.collective)), "passed",
                       fmt::format("{} x {}", usual.count, word(usual.type)),
                       fmt::format("{} x {}", other.count, word(other.type)))};
  }
};

// Small, for boards on one machine; one slice; several rounds.
const std::size_t kCounts[] = {64, 1024, 100000};

TEST_P(Agreement, AnotherCountOrType) {
  std::vector<Disagreement> all;
  for (const Collective c : {Collective::kAllReduce, Collective::kAllGather,
                             Collective::kReduceScatter, Collective::kBroadcast})
    for (const std::size_t count : kCounts) {
      const std::size_t others[] = {count + 1, count * 2, count / 2};
      all.push_back(passes(size() - 1, {c, count}, {c, others[all.size() % 3]}));
      all.push_back(passes(size() - 1, {c, count}, {c, others[all.size() % 3]}));
    }
  for (const std::size_t count : kCounts)
    for (const DType other : {DType::kInt32, DType::kFloat64})
      all.push_back(
          passes(0, {Collective::kAllReduce, count}, {Collective::kAllReduce, count, other}));
  // Collectives in which some ranks exchange no message; half of the time the odd rank is the root.
  for (const Collective c :
       {Collective::kReduce, Collective::kGather, Collective::kScatter, Collective::kAllToAll})
    for (const std::size_t count : {64ul, 30000ul})
      for (const Rank odd : {0, size() - 1}) {
        all.push_back(passes(odd, {c, count}, {c, count + 1}));
        all.push_back(passes(odd, {c, count}, {c, count, DType::kInt32}));
      }
  expect(all);
}

TEST_P(Agreement, AnotherOperatorRootCollectiveOrAlgorithm) {
  std::vector<Disagreement> all;
  for (const std::size_t count : kCounts) {
    const Call usual{Collective::kAllReduce, count};
    const std::string title = fmt::format("@ of {} x float32", count);
    for (const Collective c : {Collective::kAllReduce, Collective::kReduceScatter})
      all.push_back(
          {1,
           {c, count},
           {c, count, DType::kFloat32, RedOp::kMax},
           both_sides(1, fmt::format("{} {}: ", name(c), title), "passed", "sum", "max")});
    all.push_back({1,
                   {Collective::kBroadcast, count},
                   {Collective::kBroadcast, count, DType::kFloat32, RedOp::kSum, 1},
                   both_sides(1, "broadcast " + title + ": ", "passed", "root 0", "root 1")});
    for (const Collective c : {Collective::kBroadcast, Collective::kAllGather,
                               Collective::kReduceScatter, Collective::kBarrier}) {
      const Rank odd = size() / 2;
      all.push_back({odd,
                     usual,
                     {c, count},
                     both_sides(odd, "", "called", "all_reduce " + title + ", sum",
                                fmt::format("{} @.*", name(c)))});
    }
    for (const char* other : {"direct", "recursive_doubling", "flat"}) {
      Disagreement d{0, usual, usual,
                     both_sides(0, "", "runs it", "as ring", "(as [a-z_]+|on the board)")};
      d.usual.algorithm = "ring";
      d.other.algorithm = other;
      all.push_back(d);
    }
  }
  // A rank with an empty part returns; the mismatch is found at its next call or at the deadline.
  for (const std::size_t count : {64ul, 100000ul})
    all.push_back({1,
                   {Collective::kAllReduce, count},
                   {Collective::kAllReduce, 0},
                   fmt::format("(?=.*all_reduce #3).*\\b{} x float(32|,).*", count)});
  expect(all);
}

// Found when the ranks exchange their arguments.
class AgreementOnDevice : public Agreement {};

TEST_P(AgreementOnDevice, ShowsBothSides) {
  std::vector<Disagreement> all;
  for (const In memory : {In::kDevice, In::kDeviceOnAStream}) {
    Call usual;
    usual.memory = memory;
    Call count = usual, type = usual, broadcast = usual;
    count.count = 2048;
    type.type = DType::kInt64;
    broadcast.collective = Collective::kBroadcast;
    for (const Rank odd : {0, size() - 1}) {
      all.push_back(passes(odd, usual, count));
      all.push_back(passes(odd, usual, type));
      all.push_back({odd, usual, broadcast,
                     both_sides(odd, "", "called", "all_reduce @ of 1024 x float32, sum",
                                "broadcast @ of 1024 x float32, root 0")});
    }
  }
  expect(all);
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

// Counted from 1, like collectives, and as in errors about mismatched messages.
class MessageNumbers : public testing::OnFakeDevice {};
TEST_F(MessageNumbers, AreTheSameInEveryVerdict) {
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

// Changes one random argument of one rank: no rank gets a wrong result without an error.
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
  std::vector<Disagreement> all;
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
    all.push_back({odd, usual, other, fmt::format("(?=.*rank {} ).*#3.*", odd)});
  }
  expect(all);
}

INSTANTIATE_TEST_SUITE_P(Layouts, AgreementOnDevice,
                         ::testing::Values(Setting{"shm2", {2}, "auto"},
                                           Setting{"shm4", {4}, "auto"}),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(Layouts, Agreement,
                         ::testing::Values(Setting{"shm2", {2}, "auto"},
                                           Setting{"shm4", {4}, "auto"},
                                           Setting{"mixed2x2", {2, 2}, "auto"},
                                           Setting{"ucx3", {1, 1, 1}, "ucx"}),
                         [](const auto& info) { return std::string(info.param.name); });

// A sender may run ahead by a whole cycle of the call numbers in tags; messages of the second cycle
// must not match calls of the first.
class FarAhead : public testing::OnFakeDevice {};
TEST_F(FarAhead, IsNoDisagreement) {
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
      // The root lets messages arrive before it receives.
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
