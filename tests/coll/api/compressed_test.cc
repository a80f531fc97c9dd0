// labels: multiproc
// ctest: whole
// Compressed collectives over real transports: error bound, identical bits on all ranks, error
// feedback, overlapping and mismatched calls, and refused arguments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "coll/engine/codec.h"
#include "support/jobs/ranks.h"
#include "tests/coll/calls.h"

namespace weft {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using testing::InLayouts;
using testing::LayoutSetting;
using testing::places;
using testing::run_ranks;

constexpr std::size_t kLengths[] = {0, 1, 2, 257, 1021, 5000, 20011};

// The values of a rank, which every rank can compute.
std::vector<float> values_of(Rank r, std::size_t count, unsigned seed) {
  std::mt19937 random(seed * 1000 + static_cast<unsigned>(r));
  std::vector<float> x(count);
  for (float& v : x)
    v = std::ldexp(static_cast<float>(random()) * 0x1p-31F - 1, static_cast<int>(random() % 9) - 4);
  return x;
}

class Compressed : public InLayouts {
 protected:
  static void run(const std::function<void(Communicator)>& body) {
    InLayouts::run([&](World& world) { body(world.world()); });
  }
};

// Compares with the exact result. Blocks restart every `part` elements; the largest value of a
// block determines its error bound.
void expect_close(const std::vector<float>& out, const std::vector<std::vector<float>>& in,
                  Codec codec, Collective c, RedOp op, std::size_t part) {
  const auto n = static_cast<int>(in.size());
  std::size_t begin = 0;
  while (begin < out.size()) {
    const std::size_t of_part = part - begin % part;
    const std::size_t end = std::min({begin + kCodecBlock, begin + of_part, out.size()});
    float most = 0;
    for (const auto& x : in)
      for (std::size_t i = begin; i < end; ++i) most = std::max(most, std::abs(x[i]));
    for (std::size_t i = begin; i < end; ++i) {
      double exact = 0;
      for (const auto& x : in) exact += x[i];
      if (op == RedOp::kAvg) exact /= n;
      ASSERT_LE(std::abs(out[i] - exact), error_bound(codec, c, op, n) * most) << i;
    }
    begin = end;
  }
}

TEST_P(Compressed, HoldsTheStatedBoundWithTheSameBitsOnAllRanks) {
  std::mutex mutex;
  std::vector<std::vector<float>> results;
  run([&](Communicator plain) {
    const auto n = static_cast<std::size_t>(plain.size()),
               me = static_cast<std::size_t>(plain.rank());
    unsigned seed = 0;
    for (const Codec codec : {Codec::kInt8, Codec::kFp8}) {
      Communicator comm = plain.compressed({.codec = codec});
      for (const std::size_t count : kLengths) {
        const RedOp op = ++seed % 2 ? RedOp::kSum : RedOp::kAvg;
        std::vector<std::vector<float>> in;
        for (std::size_t r = 0; r < n; ++r)
          in.push_back(values_of(static_cast<Rank>(r), count * n, seed));
        std::vector<float> out(count * n, -7);
        // all_reduce, out of place and in place.
        ASSERT_TRUE(
            comm.all_reduce(in[me].data(), out.data(), out.size(), DType::kFloat32, op).ok());
        expect_close(out, in, codec, Collective::kAllReduce, op,
                     std::max<std::size_t>(coded_part(out.size(), n), 1));
        std::vector<float> again = in[me];
        ASSERT_TRUE(
            comm.all_reduce(again.data(), again.data(), again.size(), DType::kFloat32, op).ok());
        ASSERT_EQ(again, out) << "in place";
        // reduce_scatter.
        std::vector<float> part(count, -7), in_place = in[me];
        ASSERT_TRUE(
            comm.reduce_scatter(in[me].data(), part.data(), count, DType::kFloat32, op).ok());
        std::vector<std::vector<float>> of_me;
        for (const auto& x : in)
          of_me.emplace_back(x.begin() + static_cast<std::ptrdiff_t>(me * count),
                             x.begin() + static_cast<std::ptrdiff_t>((me + 1) * count));
        expect_close(part, of_me, codec, Collective::kReduceScatter, op,
                     std::max<std::size_t>(count, 1));
        float* const mine = in_place.data() + me * count;
        ASSERT_TRUE(comm.reduce_scatter(in_place.data(), mine, count, DType::kFloat32, op).ok());
        ASSERT_TRUE(std::equal(part.begin(), part.end(), mine)) << "in place";
        // all_gather.
        std::vector<float> all(count * n, -7);
        ASSERT_TRUE(comm.all_gather(in[me].data(), all.data(), count, DType::kFloat32).ok());
        for (std::size_t r = 0; r < n; ++r) {
          const std::vector<float> block(
              all.begin() + static_cast<std::ptrdiff_t>(r * count),
              all.begin() + static_cast<std::ptrdiff_t>((r + 1) * count));
          expect_close(block, {in[r]}, codec, Collective::kAllGather, RedOp::kSum,
                       std::max<std::size_t>(count, 1));
        }
        out.insert(out.end(), all.begin(), all.end());
        {
          const std::lock_guard lock(mutex);
          if (results.size() < seed) results.push_back(out);
          ASSERT_EQ(results[seed - 1], out) << "another rank has other bits, count " << count;
        }
        if (HasFatalFailure()) return;
      }
    }
    EXPECT_EQ(plain.last_algorithm(), "fp8");
  });
}

// With a residual no error persists: after any number of calls, the sum of the results is the exact
// sum up to the current residuals.
TEST_P(Compressed, ResidualsHoldWhatResultsLack) {
  std::mutex mutex;
  constexpr std::size_t kCount = 3001;
  constexpr int kTimes = 30;
  for (const RedOp op : {RedOp::kSum, RedOp::kAvg}) {
    std::vector<double> lacking(kCount, 0), exact(kCount, 0), got;
    float largest_residual = 0;
    run([&](Communicator plain) {
      const auto n = plain.size();
      std::vector<float> residual(kCount, 0), out(kCount);
      std::vector<double> sum(kCount, 0);
      const auto x = values_of(plain.rank(), kCount, 5);
      Communicator comm = plain.compressed({.codec = Codec::kInt8, .residual = residual.data()});
      for (int call = 0; call < kTimes; ++call) {
        ASSERT_TRUE(comm.all_reduce(x.data(), out.data(), kCount, DType::kFloat32, op).ok());
        for (std::size_t i = 0; i < kCount; ++i) sum[i] += out[i];
      }
      const std::lock_guard lock(mutex);
      const double share = op == RedOp::kAvg ? 1.0 / n : 1.0;
      for (std::size_t i = 0; i < kCount; ++i) {
        exact[i] += kTimes * share * x[i];
        lacking[i] += share * residual[i];
        largest_residual = std::max(largest_residual, std::abs(residual[i]));
      }
      got = sum;
    });
    EXPECT_GT(largest_residual, 0);
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_NEAR(got[i] + lacking[i], exact[i], 2e-2) << i;
      ASSERT_LT(std::abs(lacking[i]), 5) << i;
    }
  }
}

TEST_P(Compressed, ReduceScatterAndAllGatherHaveResiduals) {
  run([](Communicator plain) {
    const auto n = static_cast<std::size_t>(plain.size());
    constexpr std::size_t kCount = 700;
    std::vector<float> residual(n * kCount, 0), out(kCount), all(n * kCount);
    const auto x = values_of(plain.rank(), n * kCount, 9);
    Communicator comm = plain.compressed({.codec = Codec::kFp8, .residual = residual.data()});
    std::vector<double> sum(kCount, 0);
    constexpr int kTimes = 100;
    for (int call = 0; call < kTimes; ++call) {
      ASSERT_TRUE(
          comm.reduce_scatter(x.data(), out.data(), kCount, DType::kFloat32, RedOp::kSum).ok());
      for (std::size_t i = 0; i < kCount; ++i) sum[i] += out[i];
    }
    std::vector<std::vector<float>> in;
    for (std::size_t r = 0; r < n; ++r)
      in.push_back(values_of(static_cast<Rank>(r), n * kCount, 9));
    for (std::size_t i = 0; i < kCount; ++i) {
      double exact = 0;
      for (const auto& theirs : in)
        exact += theirs[static_cast<std::size_t>(plain.rank()) * kCount + i];
      // A single call may have an error of n / 16 of 16; the mean of 100 calls does not.
      ASSERT_NEAR(sum[i] / kTimes, exact, 0.05 * static_cast<double>(n)) << i;
    }
    std::fill(residual.begin(), residual.end(), 0.0F);
    ASSERT_TRUE(comm.all_gather(x.data(), all.data(), kCount, DType::kFloat32).ok());
    const float* const mine = all.data() + static_cast<std::size_t>(plain.rank()) * kCount;
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(mine[i] + residual[i], x[i]);
  });
}

TEST_P(Compressed, NanOfOneRankIsNanOnAll) {
  run([](Communicator plain) {
    constexpr std::size_t kCount = 9000;
    std::vector<float> x(kCount, 1), out(kCount);
    if (plain.rank() == 1) x[4000] = std::numeric_limits<float>::infinity();
    ASSERT_TRUE(plain.compressed({})
                    .all_reduce(x.data(), out.data(), kCount, DType::kFloat32, RedOp::kSum)
                    .ok());
    EXPECT_TRUE(std::isnan(out[4000]));
    std::size_t wrong = 0;
    for (const float v : out) wrong += std::isnan(v);
    EXPECT_LE(wrong, kCodecBlock);
  });
}

// Calls of both kinds overlap, and their requests complete in any order.
TEST_P(Compressed, AsynchronousCallsAmongOthers) {
  run([](Communicator comm) {
    Communicator compressed = comm.compressed({.codec = Codec::kFp8});
    constexpr std::size_t kCount = 30000;
    constexpr int kTimes = 6;
    std::array<std::vector<float>, kTimes> x, plain;
    std::vector<Request> requests;
    for (int k = 0; k < kTimes; ++k) {
      x[k] = values_of(comm.rank(), kCount, 40 + static_cast<unsigned>(k));
      plain[k] = x[k];
      requests.push_back(compressed.all_reduce_async(x[k].data(), x[k].data(), kCount,
                                                     DType::kFloat32, RedOp::kSum));
      requests.push_back(comm.all_reduce_async(plain[k].data(), plain[k].data(), kCount,
                                               DType::kFloat32, RedOp::kSum));
    }
    compressed.all_reduce_async(x[0].data(), plain[0].data(), 0, DType::kFloat32, RedOp::kSum)
        .detach();
    while (!requests.empty()) {
      ASSERT_TRUE(requests.back().wait().ok());
      requests.pop_back();
    }
    const double bound =
        error_bound(Codec::kFp8, Collective::kAllReduce, RedOp::kSum, comm.size()) * 16;
    for (int k = 0; k < kTimes; ++k)
      for (std::size_t i = 0; i < kCount; ++i) ASSERT_NEAR(x[k][i], plain[k][i], bound);
    ASSERT_TRUE(compressed.barrier().ok());
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, Compressed,
                         ::testing::Values(LayoutSetting{"shm2", {2}, 1, "shm"},
                                           LayoutSetting{"tcp3", {1, 1, 1}, 1, "tcp"},
                                           LayoutSetting{"shm4", {4}, 1, "shm"},
                                           LayoutSetting{"hosts2x2", {2, 2}, 2, "auto"},
                                           LayoutSetting{"hosts2x3", {3, 3}, 1, "tcp"},
                                           LayoutSetting{"uneven7", {3, 2, 2}, 2, "auto"},
                                           LayoutSetting{"hosts3x2", {2, 2, 2}, 2, "auto"}),
                         [](const auto& info) { return std::string(info.param.name); });

// ---- errors -----------------------------------------------------------------------------------

TEST(CompressedCalls, RefuseWhatTheyCannotCompress) {
  run_ranks(places({2}), {}, [](World& world) {
    Communicator plain = world.world(), comm = plain.compressed({});
    std::vector<double> d(8);
    std::vector<float> f(8), g(8);
    const auto refused = [](const Status& s, const char* words) {
      EXPECT_EQ(s.code(), Code::kInvalidArgument);
      EXPECT_THAT(s.message(), HasSubstr(words));
    };
    refused(comm.all_reduce(d.data(), d.data(), 8, DType::kFloat64, RedOp::kSum),
            "the type is double");
    refused(comm.all_reduce(f.data(), f.data(), 8, DType::kFloat32, RedOp::kMax),
            "the operator is max");
    refused(comm.broadcast(f.data(), f.data(), 8, DType::kFloat32, 0),
            "only all_reduce, reduce_scatter");
    refused(comm.all_gather_v(f.data(), g.data(), std::vector<std::size_t>{4, 4}, DType::kFloat32),
            "all_gather_v with int8 blocks");
    refused(comm.all_reduce_async(d.data(), d.data(), 8, DType::kFloat16, RedOp::kSum).wait(),
            "half");
    refused(comm.all_reduce(nullptr, f.data(), 8, DType::kFloat32, RedOp::kSum), "in is null");
    EXPECT_THROW(plain.compressed({.codec = static_cast<Codec>(9)}), Error);
    EXPECT_THROW(error_bound(Codec::kInt8, Collective::kBroadcast, RedOp::kSum, 2), Error);
    // Refused before any rank sends data: the next call is correct, compressed or not.
    for (Communicator* c : {&comm, &plain}) {
      std::fill(f.begin(), f.end(), 1.0F);
      ASSERT_TRUE(c->all_reduce(f.data(), f.data(), 8, DType::kFloat32, RedOp::kSum).ok());
      EXPECT_NEAR(f[0], 2, 0.1);
    }
  });
}

TEST(CompressedCalls, OneRankAloneChangesNothing) {
  run_ranks(places({1}), {}, [](World& world) {
    std::vector<float> f = {1, 2.5F, -3e-7F}, out(3), residual(3, 0);
    Communicator comm = world.world().compressed({.residual = residual.data()});
    ASSERT_TRUE(comm.all_reduce(f.data(), out.data(), 3, DType::kFloat32, RedOp::kAvg).ok());
    EXPECT_EQ(out, f);
    EXPECT_EQ(residual, std::vector<float>(3, 0));
  });
}

// Ranks that disagree get an error that shows both sides, and no wrong data.
void disagree(const std::vector<int>& hosts,
              const std::function<Status(Communicator&, float*)>& call, const char* words) {
  WorldOptions options;
  options.timeout = milliseconds(5000);
  run_ranks(places(hosts), options, [&](World& world) {
    Communicator comm = world.world();
    std::vector<float> f(20000, 1);
    const Status s = call(comm, f.data());
    EXPECT_EQ(s.code(), Code::kMismatch) << s.to_string();
    EXPECT_THAT(s.message(), HasSubstr(words));
  });
}

TEST(CompressedCalls, RanksThatDisagreeAreTold) {
  for (const std::vector<int>& hosts : {std::vector{2}, std::vector{2, 2}, std::vector{1, 1, 1}}) {
    disagree(
        hosts,
        [](Communicator& c, float* f) {
          const Codec codec = c.rank() == 0 ? Codec::kInt8 : Codec::kFp8;
          return c.compressed({.codec = codec})
              .all_reduce(f, f, 20000, DType::kFloat32, RedOp::kSum);
        },
        "int8 blocks");
    disagree(
        hosts,
        [](Communicator& c, float* f) {
          return c.compressed({}).all_reduce(f, f, c.rank() == 0 ? 19999 : 20000, DType::kFloat32,
                                             RedOp::kSum);
        },
        "19999 x float32");
    disagree(
        hosts,
        [](Communicator& c, float* f) {
          return c.compressed({}).all_reduce(f, f, 20000, DType::kFloat32,
                                             c.rank() == 0 ? RedOp::kSum : RedOp::kAvg);
        },
        "avg");
    disagree(
        hosts,
        [](Communicator& c, float* f) {
          Communicator mine = c.rank() == 0 ? c : c.compressed({});
          return mine.all_reduce(f, f, 20000, DType::kFloat32, RedOp::kSum);
        },
        "int8 blocks");
  }
}

// A failure ends calls in progress and queued calls, including detached ones.
TEST(CompressedCalls, EndWithTheWorld) {
  WorldOptions options;
  options.timeout = milliseconds(20000);
  run_ranks(places({2, 2}), options, [](World& world) {
    Communicator comm = world.world().compressed({});
    std::vector<float> f(100000, 1);
    if (comm.rank() == 3) {
      std::this_thread::sleep_for(milliseconds(50));
      world.abort("enough");
    }
    std::vector<Request> requests;
    if (comm.rank() != 3)
      for (int k = 0; k < 4; ++k)
        requests.push_back(
            comm.all_reduce_async(f.data(), f.data(), f.size(), DType::kFloat32, RedOp::kSum));
    if (!requests.empty()) {
      requests.front().detach();
      requests.erase(requests.begin());
    }
    for (Request& r : requests) EXPECT_EQ(r.wait().code(), Code::kAborted);
    EXPECT_EQ(comm.all_reduce(f.data(), f.data(), 8, DType::kFloat32, RedOp::kSum).code(),
              Code::kAborted);
  });
}

TEST(CompressedCalls, CommunicatorsComeAndGo) {
  run_ranks(places({2, 2}), {}, [](World& world) {
    for (int k = 0; k < 20; ++k) {
      Communicator comm = world.world().duplicate();
      std::vector<float> f(3000, 1);
      ASSERT_TRUE(comm.compressed({})
                      .all_reduce(f.data(), f.data(), f.size(), DType::kFloat32, RedOp::kSum)
                      .ok());
      ASSERT_NEAR(f[2999], 4, 0.1);
    }
  });
}

}  // namespace
}  // namespace weft
