// labels: multiproc
// ctest: whole
// sanitize: long
// Bits that flip in transit: integrity mode repairs them, or attributes them to a link.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>
#include <sstream>

#include "coll/api/communicator.h"
#include "coll/api/metrics.h"
#include "coll/runtime/internals.h"
#include "support/jobs/faults.h"
#include "support/jobs/payload.h"
#include "support/jobs/ranks.h"
#include "support/jobs/setting.h"
#include "support/pairwise.h"
#include "tests/coll/calls.h"
#include "topo/base/log.h"
#include "transport/ucx/ucx.h"

namespace weft {
namespace {

using testing::places;
using testing::run_ranks;
using testing::Setting;

class Integrity : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (needs_ucx(GetParam()) && !ucx_available()) GTEST_SKIP() << "missing capability: UCX";
  }
  void TearDown() override { set_faults(""); }
  WorldOptions options(const char* fault) {
    WorldOptions o;
    o.transport = GetParam().transport;
    o.timeout = std::chrono::seconds(20);
    o.integrity = true;
    set_faults(fault);
    return o;
  }
};

bool right(const std::vector<std::int32_t>& out, int n, int shift) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::int32_t want = 0;
    for (int r = 0; r < n; ++r) want += testing::value(r + shift, i);
    if (out[i] != want) return false;
  }
  return true;
}

// repeats=0 here and below: the number of messages between a message and its retransmission varies,
// so a periodic fault could hit the same message until integrity mode fails it.
TEST_P(Integrity, FlippedBitsAreRepaired) {
  std::atomic<std::uint64_t> retries{0};
  const WorldOptions flips = options("flip:nth=3,every=23,repeats=0,min=1");
  run_ranks(places(GetParam().hosts), flips, [&](World& world) {
    Communicator comm = world.world();
    for (int i = 0; i < 6; ++i)
      for (const std::size_t count : {1ul, 100ul, 5000ul, 300000ul}) {
        std::vector<std::int32_t> in(count), out(count);
        for (std::size_t k = 0; k < count; ++k) in[k] = testing::value(comm.rank() + i, k);
        const Status s = comm.all_reduce(in.data(), out.data(), count, DType::kInt32, RedOp::kSum);
        ASSERT_TRUE(s.ok()) << s.to_string();
        ASSERT_TRUE(right(out, comm.size(), i)) << count;
      }
    retries += world.metrics().retries;
  });
  EXPECT_GT(retries.load(), 0u);
}

// Checksums are computed in several places: during copies, by the reduction, or separately if the
// reduction cannot be repeated. Covers lent memory and staged results.
TEST_P(Integrity, InEveryCollectiveMemoryAndPlace) {
  const auto cases = testing::Pairwise(
                         testing::Axis<Collective>{
                             "collectives",
                             {Collective::kAllReduce, Collective::kReduceScatter,
                              Collective::kAllGather, Collective::kBroadcast, Collective::kReduce,
                              Collective::kGather, Collective::kScatter, Collective::kAllToAll}},
                         testing::Axis<std::size_t>{"counts", {1000, 300007}},
                         testing::Axis<bool>{"in place", {false, true}},
                         testing::Axis<bool>{"weft::alloc", {false, true}})
                         .rows("Integrity");
  std::atomic<std::uint64_t> retries{0};
  const WorldOptions flips = options("flip:nth=5,every=31,repeats=0,min=64");
  run_ranks(places(GetParam().hosts), flips, [&](World& world) {
    Communicator comm = world.world();
    for (const auto& [c, count, in_place, shared] : cases) {
      const testing::Question q{c, comm.size(), count, DType::kFloat32, RedOp::kSum, in_place};
      testing::expect_right(comm, q, shared ? "weft::alloc" : "malloc", 0,
                            shared ? testing::shared_memory() : std::pmr::get_default_resource());
      if (::testing::Test::HasFatalFailure()) return;
    }
    // Long enough for results to be staged.
    testing::expect_right(comm, {Collective::kAllReduce, comm.size(), (5u << 20) + 13}, "long");
    retries += world.metrics().retries;
  });
  EXPECT_GT(retries.load(), 0u);
}

TEST_P(Integrity, WhatStaysCorruptIsNamedOnAllRanks) {
  run_ranks(places(GetParam().hosts), options("flip:rank=1,nth=40,times=1000000,min=4000"),
            [](World& world) {
              Communicator comm = world.world();
              std::vector<std::int32_t> in(200000), out(200000);
              Status s;
              for (int i = 0; i < 100 && s.ok(); ++i) {
                for (std::size_t k = 0; k < in.size(); ++k)
                  in[k] = testing::value(comm.rank() + i, k);
                s = comm.all_reduce(in.data(), out.data(), in.size(), DType::kInt32, RedOp::kSum);
                if (s.ok()) {
                  ASSERT_TRUE(right(out, comm.size(), i));
                }
              }
              EXPECT_EQ(s.code(), Code::kCorrupt) << s.to_string();
              for (const char* part : {"all_reduce #", " to rank 1 over ",
                                       "bytes arrived corrupted", "5 times", "chunks ["})
                EXPECT_NE(s.message().find(part), std::string::npos) << s.message();
            });
}

INSTANTIATE_TEST_SUITE_P(Layouts, Integrity,
                         ::testing::Values(Setting{"shm2", {2}, "auto"},
                                           Setting{"shm4", {4}, "auto"},
                                           Setting{"mixed2x2", {2, 2}, "auto"},
                                           Setting{"ucx2", {1, 1}, "ucx"}),
                         [](const auto& info) { return std::string(info.param.name); });

// A short message uses the rail of its pair: rail 1 for the second ranks of both hosts.
TEST(Integrity, ADamagedRailIsNamed) {
  WorldOptions o;
  o.timeout = std::chrono::seconds(20);
  o.integrity = true;
  const testing::Faults faults("flip:rail=1,times=1000000,min=256");
  o.transport = "tcp";
  run_ranks(places({2, 2}, 2), o, [](World& world) {
    Communicator comm = world.world();
    // Rail 0 works.
    std::vector<std::int32_t> data(1000, comm.rank());
    Status s;
    if (comm.rank() % 2 == 0) {
      s = comm.rank() == 0 ? comm.send(data.data(), data.size(), DType::kInt32, 2)
                           : comm.recv(data.data(), data.size(), DType::kInt32, 0);
      EXPECT_TRUE(s.ok()) << s.to_string();
    }
    EXPECT_EQ(job_of(world).all_gather("").size(), 4u);
    if (comm.rank() == 1) s = comm.send(data.data(), data.size(), DType::kInt32, 3);
    if (comm.rank() == 3) s = comm.recv(data.data(), data.size(), DType::kInt32, 1);
    if (s.ok()) s = comm.barrier();
    EXPECT_EQ(s.code(), Code::kCorrupt) << s.to_string();
    for (const char* part : {"rank 1 to rank 3 over tcp, rail 1: a message of 4000 bytes",
                             "arrived corrupted", "5 times"})
      EXPECT_NE(s.message().find(part), std::string::npos) << s.message();
    EXPECT_EQ(s.message().find("rail 0"), std::string::npos) << s.message();
  });
}

// The error has the failed call's number, not the latest one. The other rail's communicators
// continue.
TEST(Integrity, ACallThatFailsIsNamedByItsOwnNumber) {
  WorldOptions o;
  o.timeout = std::chrono::seconds(20);
  o.integrity = true;
  const testing::Faults faults("flip:rail=1,times=1000000,min=256");
  o.transport = "tcp";
  run_ranks(places({2, 2}, 2), o, [](World& world) {
    Communicator comm = world.world().split(world.rank() % 2);  // one per rail
    std::vector<std::int32_t> data(1000);
    EXPECT_TRUE(comm.barrier().ok());
    EXPECT_EQ(job_of(world).all_gather("").size(), 4u);
    Request second =
        comm.all_reduce_async(data.data(), data.data(), data.size(), DType::kInt32, RedOp::kSum);
    Request third = comm.barrier_async();
    const Status s = second.wait();
    (void)third.wait();
    const Status again = comm.barrier(), of_all = world.world().barrier();
    EXPECT_TRUE(of_all.ok()) << of_all.to_string();
    EXPECT_EQ(world.failure().code(), Code::kCorrupt) << world.failure().to_string();
    if (world.rank() % 2 == 0) {
      EXPECT_TRUE(s.ok()) << s.to_string();
      EXPECT_TRUE(again.ok()) << again.to_string();
      return;
    }
    EXPECT_EQ(s.code(), Code::kCorrupt) << s.to_string();
    EXPECT_NE(s.message().find("all_reduce #2"), std::string::npos) << s.message();
    EXPECT_NE(s.message().find(fmt::format("rank {} to rank", s.rank())), std::string::npos)
        << "blames rank " << s.rank() << ": " << s.message();
    EXPECT_EQ(s.message(), world.failure().message()) << "the same on both ranks";
    EXPECT_EQ(again.to_string(), s.to_string()) << "it sticks";
  });
}

// Long messages are striped over both rails: the error names the rail that carried the damaged
// part, not the rail of the pair.
TEST(Integrity, SpreadMessagesAreToldByTheRailTheyCameOver) {
  for (const int rail : {0, 1}) {
    const auto lines = std::make_shared<std::ostringstream>();
    const auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(*lines);
    log().sinks().push_back(sink);
    const auto level = log().level();
    log().set_level(spdlog::level::warn);
    WorldOptions o;
    o.timeout = std::chrono::seconds(60);
    o.integrity = true;
    const testing::Faults faults(fmt::format("flip:rail={},every=7,repeats=0,min=9000", rail));
    o.transport = "tcp";
    std::atomic<std::uint64_t> retries{0};
    run_ranks(places({1, 1}, 2), o, [&](World& world) {
      Communicator comm = world.world();
      std::vector<std::int32_t> in(500000), out(in.size());
      for (int i = 0; i < 10; ++i) {
        for (std::size_t k = 0; k < in.size(); ++k) in[k] = testing::value(comm.rank() + i, k);
        const Status s =
            comm.all_reduce(in.data(), out.data(), in.size(), DType::kInt32, RedOp::kSum);
        ASSERT_TRUE(s.ok()) << s.to_string();
        ASSERT_TRUE(right(out, comm.size(), i));
      }
      retries += world.metrics().retries;
    });
    log().sinks().pop_back();
    log().set_level(level);
    const std::string told = lines->str();
    EXPECT_GT(retries.load(), 0u);
    EXPECT_NE(told.find(fmt::format("over tcp, rail {}: a message of", rail)), std::string::npos)
        << told;
    EXPECT_EQ(told.find(fmt::format("rail {}: a message of", 1 - rail)), std::string::npos) << told;
  }
}

TEST(Integrity, MustBeTheSameOnAllRanks) {
  auto jobs = local_jobs(2);
  const auto where = places({2});
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 2; ++r)
    threads.emplace_back([&, r] {
      WorldOptions o;
      o.integrity = r == 1;
      try {
        World world(std::move(jobs[r]), where[r], o);
      } catch (const Error& e) {
        errors[r] = e.what();
      }
    });
  for (auto& t : threads) t.join();
  for (const std::string& e : errors)
    EXPECT_NE(e.find("off on rank 0 and on on rank 1"), std::string::npos) << e;
}

}  // namespace
}  // namespace weft
